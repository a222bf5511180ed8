#!/bin/sh
# Builds for another target: cross.sh TARGET STD ARGUMENTS…
#
# Uses the target's standard library if rustup has it or can add it. Else Debian's compiler builds
# the library (STD: `core`, or `std,panic_abort`) from its source package.
set -e
target=$1 std=$2
shift 2
libraries=$(rustc --print sysroot)/lib/rustlib
if [ ! -d "$libraries/$target/lib" ]; then
    timeout 60 rustup target add "$target" >/dev/null 2>&1 || true
fi
if [ -d "$libraries/$target/lib" ]; then
    exec cargo build --target "$target" "$@"
fi
if [ ! -d /usr/lib/rustlib/src/rust/library ]; then
    (apt-get update -q && apt-get install -qy rustc-web cargo-web rust-web-src) >&2
fi
linker=$(dirname "$(find "$libraries" -name rust-lld | head -1)")
PATH=$linker:$PATH RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
    exec cargo build "-Zbuild-std=$std" --target "$target" "$@"
