#!/usr/bin/env python3
"""Lists the licences of everything inside a package that we build: licences.py CRATE TARGET
[CARGO-TREE-OPTION…].

Writes Markdown to the standard output: each linked crate, its licence, and its licence texts, each text
once. Fails if a crate has neither a text nor a licence whose text is known.
"""

import hashlib
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Our crates with more than our own code: the feature that adds it, what it is, and its licence text.
INSIDE = {
    "haltwise-io": ("", "PenDigits, the built-in dataset", "CC-BY-4.0", "data/README.md"),
    "haltwise-report": ("png", "Inter, the built-in font", "OFL-1.1", "fonts/LICENSE"),
}
NAMES = ("license", "licence", "copying", "notice", "unlicense", "copyright")


def cargo(*arguments):
    return subprocess.run(
        ["cargo", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, encoding="utf-8"
    ).stdout


def linked(crate, target, options):
    """Name, version and features of each linked crate: no build scripts, macros or tests."""
    edges = ["-e", "normal,no-proc-macro", "--prefix", "none", "-f", "{p}\t{f}"]
    found = {}
    for line in cargo(
        "tree", "--locked", "-p", crate, "--target", target, *edges, *options
    ).splitlines():
        package, features = line.removesuffix(" (*)").split("\t")
        name, version = package.split()[:2]
        found.setdefault((name, version.removeprefix("v")), set()).update(features.split(","))
    return sorted(found.items())


def texts(folder):
    """The licence files of a crate."""
    return [
        file
        for file in sorted(folder.rglob("*"))
        if file.is_file()
        and file.name.lower().startswith(NAMES)
        and file.suffix not in (".html", ".rs", ".py")
    ]


def main(crate, target, *options):
    platform = ["--filter-platform", target]  # crates for other platforms need not be fetched
    packages = json.loads(cargo("metadata", "--locked", "--format-version", "1", *platform))[
        "packages"
    ]
    packages = {(package["name"], package["version"]): package for package in packages}
    rows, parts, missing = [], {}, []
    for (name, version), features in linked(crate, target, options):
        package = packages[name, version]
        folder = pathlib.Path(package["manifest_path"]).parent
        what, licence, found = f"{name} {version}", package["license"], []
        if package["source"] is None:
            feature, what, licence, file = INSIDE.get(name, ("never", "", "", ""))
            if feature not in {"", *features}:
                continue
            found = [folder / file]
        else:
            found = texts(folder)
            if not found and "Apache-2.0" in licence:
                found = [ROOT / "LICENSE-APACHE"]
            if not found:
                missing.append(f"{what} ({licence}): {package['repository']}")
        rows.append(f"| {what} | {licence} | {package['repository'] or ''} |")
        for file in found:
            text = file.read_text(encoding="utf-8", errors="replace").strip()
            digest = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
            parts.setdefault(digest, (text, {}))[1][what] = None  # a set that keeps its order
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # also on Windows
    if missing:
        sys.exit("licences.py: no text of a licence in " + ", ".join(missing))
    print("# Licences of what is inside\n")
    print(
        "Haltwise is under MIT or Apache-2.0, at your choice. Its parts have these licences;"
    )
    print(
        "the texts are below. The standard library of Rust, also inside, is under MIT or Apache-2.0.\n"
    )
    print("| what | licence | where |\n| --- | --- | --- |")
    print("\n".join(rows))
    for text, users in parts.values():
        print(f"\n## {', '.join(users)}\n\n````text\n{text}\n````")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
