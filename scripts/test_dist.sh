#!/bin/sh
# Installs each package of `make dist` into an empty place, and calibrates the same traces with it:
# test_dist.sh FOLDER. All must make the same rule, byte for byte.
set -eu
dist=$(cd "$1" && pwd)
cargo=${CARGO:-cargo}
empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
cd "$empty"

say() { printf '%s\n' "$*" >&2; }

# The one file that a pattern names.
only() {
    [ $# -eq 1 ] && [ -e "$1" ] || { say "wanted one file in $dist, found: $*"; exit 1; }
    printf '%s\n' "$1"
}

same() { cmp "$1" rule.json || { say "$2 made another rule"; exit 1; }; say "$2: ok"; }

say "checksums"
(cd "$dist" && sha256sum --check --quiet SHA256SUMS)

# The archive, with nothing else and an empty environment.
tar xzf "$(only "$dist"/haltwise-*-"$(rustc -vV | sed -n 's/^host: //p')".tar.gz)"
mv haltwise-*/ archive
program=$empty/archive/haltwise
haltwise() { env -i HOME="$empty" PATH=/nowhere "$program" "$@"; }
haltwise simulate --sequences 3000 --steps 20 -o traces.jsonl >/dev/null
haltwise calibrate traces.jsonl -o rule.json >/dev/null
haltwise simulate --sequences 500 --steps 20 --seed 1 -o others.jsonl >/dev/null
haltwise evaluate rule.json others.jsonl --json >/dev/null
for file in README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE THIRD-PARTY-LICENSES.md \
    completions/_haltwise completions/haltwise.fish man/haltwise.1 man/haltwise-calibrate.1; do
    [ -s archive/$file ] || { say "the archive has no $file"; exit 1; }
done
grep -ho '](.[^)]*)' archive/README.md archive/CHANGELOG.md | grep -v '://' | sed 's/^](//; s/[)#].*//' | sort -u |
    while read -r link; do
    [ -e "archive/$link" ] || { say "the archive's pages link to $link, which is not in it"; exit 1; }
done
bash -n archive/completions/haltwise.bash
grep -q '^\.TH haltwise' archive/man/haltwise.1
if command -v objdump >/dev/null; then
    newest=$(objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
    [ "$(printf '%s\n' "$newest" GLIBC_2.17 | sort -V | tail -1)" = GLIBC_2.17 ] || {
        say "the archive's program needs $newest; $dist promises 2.17"; exit 1; }
fi
say "archive: ok"

# The wheel, and if SDIST is set the source distribution, which takes minutes to build.
calibrate_in_python() {
    python3 -m venv "$2"
    "$2"/bin/python -m pip install -q "$1"
    (cd "$2" && bin/python -I -c 'import haltwise
rule = haltwise.calibrate(haltwise.read_traces("../traces.jsonl"))
rule.save("rule.json")')
    same "$2/rule.json" "$2"
}
calibrate_in_python "$(only "$dist"/haltwise-*.whl)" wheel
licences=$(echo wheel/lib/python3*/site-packages/haltwise-*.dist-info/licenses)
[ -s "$licences"/LICENSE-MIT ] && [ -s "$licences"/THIRD-PARTY-LICENSES.md ] || {
    say "the wheel has no licences"; exit 1; }
sdist=$(only "$dist"/haltwise-*[0-9].tar.gz)
if [ -n "${SDIST:-}" ]; then
    calibrate_in_python "$sdist" sdist
else
    tar tzf "$sdist" > sdist.list
    for file in PKG-INFO LICENSE-MIT crates/haltwise/src/lib.rs crates/haltwise-io/data/pendigits.z; do
        grep -q "/$file\$" sdist.list || { say "the sdist has no $file"; exit 1; }
    done
    say "sdist: complete (SDIST=1 builds it, too)"
fi

# The npm package.
mkdir npm
(cd npm && npm install --silent --no-audit --no-fund "$(only "$dist"/haltwise-*.tgz)" >/dev/null
cat > calibrate.mjs <<'JS'
import { readFileSync, writeFileSync } from "node:fs";
import { Traces, calibrate } from "haltwise";
const traces = Traces.read("traces.jsonl", readFileSync("../traces.jsonl"));
writeFileSync("rule.json", String(calibrate(traces).rule));
JS
node calibrate.mjs)
same npm/rule.json npm
[ -s npm/node_modules/haltwise/THIRD-PARTY-LICENSES.md ] || { say "the npm package has no licences"; exit 1; }

# The crates: a program of ten lines. The crates are unpacked beside it instead of coming from the registry.
mkdir -p crates/src
for crate in "$dist"/*.crate; do tar xzf "$crate" -C crates; done
version=$(basename crates/haltwise-io-*); version=${version#haltwise-io-}
cat > crates/Cargo.toml <<TOML
[package]
name = "ten-lines"
edition = "2024"

[dependencies]
haltwise = "$version"
haltwise-io = { version = "$version", default-features = false }

[patch.crates-io]
haltwise = { path = "haltwise-$version" }
haltwise-io = { path = "haltwise-io-$version" }
haltwise-stream = { path = "haltwise-stream-$version" }

[workspace]
TOML
cat > crates/src/main.rs <<'RUST'
use haltwise::{Given, Method, Plan};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let columns = haltwise_io::Columns::default();
    let outputs = haltwise_io::read_outputs(&["../traces.jsonl"], &columns, &mut |_, _| {})?;
    let rule = Plan::of(Method::Adaptive).calibrate(Given::one(&outputs))?.rule;
    Ok(haltwise_io::write_rule("rule.json".as_ref(), &rule)?)
}
RUST
# The versions that we test with; without it, the newest that there are.
cp crates/haltwise-cli-"$version"/Cargo.lock crates/
(cd crates && CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target} "$cargo" run -q)
same crates/rule.json crates
say "All of $dist can be installed and used."
