#!/usr/bin/env python3
"""Packs the command line for people without Rust: archive.py BINARY TARGET FOLDER.

Writes FOLDER/haltwise-VERSION-TARGET.tar.gz (.zip for Windows): the binary, its manual pages, completions
for five shells, its README, the changelog and all licences. The same input gives the same bytes.
"""

import gzip
import io
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The file name of the completions for each shell.
SHELLS = {
    "bash": "haltwise.bash",
    "elvish": "haltwise.elv",
    "fish": "haltwise.fish",
    "powershell": "_haltwise.ps1",
    "zsh": "_haltwise",
}


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def contents(binary, target):
    """The names in the archive, with their bytes."""
    files = {binary.name: binary.read_bytes()}
    files["README.md"] = (ROOT / "scripts/archive-readme.md").read_bytes()
    for name in ("CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"):
        files[name] = (ROOT / name).read_bytes()
    files["THIRD-PARTY-LICENSES.md"] = run(
        sys.executable, str(ROOT / "scripts/licences.py"), "haltwise-cli", target
    )
    for shell, name in SHELLS.items():
        files[f"completions/{name}"] = run(str(binary), "completions", shell)
    with tempfile.TemporaryDirectory() as folder:
        run(str(binary), "man", "--output", folder)
        for page in pathlib.Path(folder).iterdir():
            files[f"man/{page.name}"] = page.read_bytes()
    return dict(sorted(files.items()))


def changed():
    """The time of the archived commit, which every file in the archive gets."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or run("git", "-C", str(ROOT), "log", "-1", "--format=%ct"))


def tar(files, top, program, date):
    packed = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", 9, packed, mtime=date) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mtime = len(data), date
            entry.mode = 0o755 if name == program else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def zip_(files, top, date):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(f"{top}/{name}", time.gmtime(date)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return packed.getvalue()


def main(binary, target, folder):
    binary, folder = pathlib.Path(binary).resolve(), pathlib.Path(folder)
    version = run(str(binary), "--version").decode().split()[1]
    top, date = f"haltwise-{version}-{target}", changed()
    files = contents(binary, target)
    if "windows" in target:
        name, packed = f"{top}.zip", zip_(files, top, date)
    else:
        name, packed = f"{top}.tar.gz", tar(files, top, binary.name, date)
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f".{name}"
    beside.write_bytes(packed)
    beside.replace(folder / name)
    print(folder / name)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
