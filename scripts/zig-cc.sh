#!/bin/sh
# The C compiler and the linker of `make dist` on Linux: Zig's, for the glibc of manylinux2014. One for
# the wheel and the archive, so that what both need is built once; cargo-zigbuild mends the arguments.
exec cargo-zigbuild zig cc -- -fno-sanitize=all -target "$ZIG_TARGET" "$@"
