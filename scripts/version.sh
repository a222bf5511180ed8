#!/bin/sh
# Checks that all packages have the version that is released, and prints its part of the changelog:
# version.sh VERSION.
set -eu
cd "$(dirname "$0")/.."
version=$1

wrong() { echo "version.sh: $1 has another version than $version" >&2; exit 1; }

grep -q "^version = \"$version\"\$" Cargo.toml || wrong "Cargo.toml, in [workspace.package],"
! grep 'path = "crates/' Cargo.toml | grep -qv "version = \"$version\"" || wrong "a crate in Cargo.toml"
grep -q "\"version\": \"$version\"" web/npm/package.json || wrong web/npm/package.json
grep -q "^version: $version\$" CITATION.cff || wrong CITATION.cff
notes=$(awk -v heading="## $version" '
    /^## / { inside = index($0 " ", heading " ") == 1; next }
    inside { print }
' CHANGELOG.md)
[ -n "$notes" ] || { echo "version.sh: CHANGELOG.md has no part '## $version'" >&2; exit 1; }
printf '%s\n' "$notes"
