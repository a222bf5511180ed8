#!/bin/sh
# The C compiler and linker of `make dist` on Linux: Zig's, for the glibc of manylinux2014. The wheel
# and the archive use the same one, so shared crates are built once. cargo-zigbuild mends the arguments.
exec cargo-zigbuild zig cc -- -fno-sanitize=all -target "$ZIG_TARGET" "$@"
