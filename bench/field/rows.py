"""The results: one row per set, method, setting of its knob, and seed."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from outcomes import Outcome

KEY = ("set", "method", "knob", "seed")
COLUMNS = (*KEY, *(field.name for field in fields(Outcome) if field.name != "knob"))

Key = tuple[str, str, str, int]


class Rows:
    """A CSV file to append rows to, all rows of a task in one write. Opening it drops a line that a
    kill cut short."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            replace(path, ",".join(COLUMNS) + "\n")
        text = path.read_text()
        whole = text[: text.rfind("\n") + 1]
        if not whole.startswith(",".join(COLUMNS) + "\n"):
            raise SystemExit(f"{path}: line 1 is not {','.join(COLUMNS)}; move the file away")
        if whole != text:
            replace(path, whole)
        self.there = {key(row) for row in csv.DictReader(io.StringIO(whole))}

    def append(self, name: str, seed: int, found: Iterable[tuple[str, Outcome]]) -> None:
        text = io.StringIO()
        out = csv.writer(text, lineterminator="\n")
        for method, outcome in found:
            row = (name, method, outcome.knob, seed)
            if row in self.there:
                continue
            self.there.add(row)
            numbers = (number(getattr(outcome, column)) for column in COLUMNS[len(KEY) :])
            out.writerow((*row, *numbers))
        data = text.getvalue().encode()
        with open(self.path, "ab", buffering=0) as file:
            if file.write(data) != len(data):
                raise SystemExit(f"{self.path}: the disk is full; make room and run this again")
            os.fsync(file.fileno())

    def forget(self, methods: set[str]) -> None:
        """Drops the rows of these methods."""
        lines = self.path.read_text().splitlines(keepends=True)
        kept = [line for line in lines[1:] if next(csv.reader([line]))[1] not in methods]
        replace(self.path, "".join([lines[0], *kept]))
        self.there = {key for key in self.there if key[1] not in methods}


def key(row: dict[str, str]) -> Key:
    return row["set"], row["method"], row["knob"], int(row["seed"])


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def replace(path: Path, text: str) -> None:
    """Writes a file beside its place, then renames it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text)
    os.replace(beside, path)
