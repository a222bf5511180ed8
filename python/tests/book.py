"""The book in docs/: its pages, their blocks run in order, their links.

A block is run if it is `python` or `sh`, compiled if it is `c`, and parsed if it is `json` or
`csv`. A comment in the line before it says what else it is:

- `output`: what the block before it printed, compared to the letter; `output, about`: its words
  to the letter and its numbers within a third, where a classifier was trained, which not
  all processors do to the same bits;
- `script: NAME.py`: the text of a file beside the page, run as a program; `, needs PATH` names
  what it reads from the folder HALTWISE_DATA;
- `run by PATH`: a test elsewhere takes it from the page;
- `not run: WHY`: shown only.

With HALTWISE_WRITE set, outputs, scripts and figures are written into the pages instead of
compared.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import ROOT

DOCS = ROOT / "docs"
WRITE = bool(os.environ.get("HALTWISE_WRITE"))

FENCE = re.compile(
    r"^(?: *<!-- (?P<mark>[^\n]*) -->\n)?(?P<indent> *)```(?P<kind>[\w-]*)\n(?P<text>.*?)^ *```$",
    re.S | re.M,
)


NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass
class Block:
    """A fenced block of a page."""

    page: str
    kind: str
    mark: str
    text: str
    span: tuple[int, int]

    @property
    def not_run(self) -> str | None:
        """Why it is not run, if it is not."""
        return self.mark.removeprefix("not run: ") if self.mark.startswith("not run: ") else None

    @property
    def run_by(self) -> Path | None:
        """The test elsewhere that takes it from the page."""
        return ROOT / self.mark.removeprefix("run by ") if self.mark.startswith("run by ") else None

    @property
    def name(self) -> str:
        first = self.text.strip().splitlines()[0] if self.text.strip() else ""
        return f"{self.page}: {first}"


def pages() -> list[str]:
    """The pages, in the order of the table of contents."""
    return re.findall(r"\]\((\S+?\.md)\)", (DOCS / "SUMMARY.md").read_text())


def blocks(page: str) -> list[Block]:
    """The blocks of a page."""
    return [
        Block(page, m["kind"], m["mark"] or "", m["text"], m.span("text"))
        for m in FENCE.finditer((DOCS / page).read_text())
    ]


@dataclass
class Run:
    """A page that is being run in a folder of its own."""

    page: str
    folder: Path
    command: str
    #: What stands in the page, and what is used instead of it.
    instead: dict[str, str] = field(default_factory=dict)
    namespace: dict[str, object] = field(default_factory=dict)
    groups: list[int] = field(default_factory=list)
    #: What each block that was run printed.
    said: list[str] = field(default_factory=list)
    changes: list[tuple[tuple[int, int], str]] = field(default_factory=list)

    def all(self) -> None:
        """Runs the page from its beginning to its end."""
        said = ""
        try:
            for block in blocks(self.page):
                if block.not_run is not None or block.run_by is not None:
                    continue
                if block.mark in ("output", "output, about"):
                    self.compare(block, said)
                else:
                    said = self.one(block)
                    self.said.append(said)
        finally:
            for group in self.groups:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGTERM)
        self.write()

    def one(self, block: Block) -> str:
        """Runs one block, and returns what it printed."""
        text = block.text
        for there, here in self.instead.items():
            text = text.replace(there, here)
        if block.mark.startswith("script: "):
            return self.script(block)
        assert not block.mark, f"{block.name}: what is {block.mark!r}?"
        match block.kind:
            case "python":
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(compile(text, self.page, "exec"), self.namespace)
                return out.getvalue()
            case "sh":
                return self.shell(["sh", "-ec", text], block)
            case "json":
                parsed(text)
            case "csv":
                rows = list(csv.reader(io.StringIO(text)))
                assert len({len(row) for row in rows}) == 1, block.name
            case "c":
                self.compile_c(block)
            case "text":
                pass
            case _:
                raise AssertionError(f"{block.name}: mark it as not run, and say why")
        return ""

    def shell(self, words: list[str], block: Block) -> str:
        """Runs a program; what it leaves running ends with the page."""
        path = f"{Path(self.command).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "NO_COLOR": "1", "MPLBACKEND": "agg"}
        with (self.folder / ".said").open("w+") as said:
            process = subprocess.Popen(
                words,
                cwd=self.folder,
                env=environment,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.groups.append(process.pid)
            code = process.wait(timeout=300)
            text = (self.folder / ".said").read_text()
        assert code == 0, f"{block.name} ended with {code}:\n{text}"
        return text

    def compile_c(self, block: Block) -> None:
        """Compiles lines of C as the body of a function, where there is a compiler."""
        if shutil.which("cc") is None:
            return
        lines = block.text.splitlines()
        above = [line for line in lines if line.startswith("#include")]
        body = [line for line in lines if not line.startswith("#include")]
        text = [*above, "int32_t page(const float *probs) {", *body, "return answer; }"]
        (self.folder / "page.c").write_text("\n".join(text))
        include = str(ROOT / "crates/haltwise-c/include")
        words = ["cc", "-Wall", "-Werror", "-fsyntax-only", "-I", include, "page.c"]
        self.shell(words, block)

    def script(self, block: Block) -> str:
        """Runs the script that a block shows; its figure must be the page's."""
        name, _, needs = block.mark.removeprefix("script: ").partition(", needs ")
        if needs:
            at_hand(needs)
        path = (DOCS / self.page).parent / name
        if WRITE:
            self.changes.append((block.span, path.read_text()))
        else:
            assert block.text == path.read_text(), f"{block.name} is not {name}"
        said = self.shell([sys.executable, str(path)], block)
        for figure in self.folder.glob("*.svg"):
            if WRITE:
                path.with_name(figure.name).write_bytes(figure.read_bytes())
            drawn, kept = figure.read_text(), path.with_name(figure.name).read_text()
            about = any(other.mark == "output, about" for other in blocks(self.page))
            assert about or drawn == kept, f"{figure.name} is not what {name} draws"
        return said

    def compare(self, block: Block, said: str) -> None:
        for there, here in self.instead.items():
            said = said.replace(here, there)
        said = said.strip("\n") + "\n"
        if WRITE:
            self.changes.append((block.span, said))
        elif block.mark == "output, about" and said != block.text:
            now, then = re.split(NUMBER, said), re.split(NUMBER, block.text)
            assert now == then, f"{block.name} has other words now"
            for a, b in zip(NUMBER.findall(said), NUMBER.findall(block.text), strict=True):
                slack = 0.1 if "." in b else 1.0
                assert abs(float(a) - float(b)) <= max(slack, abs(float(b)) / 3), f"{a} for {b}"
        else:
            assert said == block.text, f"{block.name} is not the output any more"

    def write(self) -> None:
        text = (DOCS / self.page).read_text()
        for (start, end), new in reversed(self.changes):
            text = text[:start] + new + text[end:]
        if self.changes:
            (DOCS / self.page).write_text(text)


def parsed(text: str) -> None:
    """JSON, of one object or of one per line."""
    try:
        json.loads(text)
    except json.JSONDecodeError:
        for line in text.strip().splitlines():
            json.loads(line)


def at_hand(path: str) -> Path:
    """A file of the folder HALTWISE_DATA; without it, the test is skipped."""
    data = os.environ.get("HALTWISE_DATA")
    if not data or not (Path(data) / path).exists():
        pytest.skip(f"no {path}; set HALTWISE_DATA to the folder that has it")
    return Path(data) / path


LINK = re.compile(r"!?\[(?:[^\]\\]|\\.)*\]\((?P<to>[^)\s]+)\)")


def links(text: str) -> list[str]:
    """Where a page's links go; what is in code is none."""
    text = re.sub(r"^( *)```.*?^ *```$", "", text, flags=re.S | re.M)
    text = re.sub(r"`[^`\n]*`(?!\])", "", text)
    return [m["to"] for m in LINK.finditer(text)]


def anchors(text: str) -> set[str]:
    """The anchors that code hosts and mdBook give to headings."""
    text = re.sub(r"^( *)```.*?^ *```$", "", text, flags=re.S | re.M)
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.*)$", text, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = "".join(c for c in plain if c.isalnum() or c in "_- ").replace(" ", "-")
        again, n = slug, 0
        while again in found:
            n += 1
            again = f"{slug}-{n}"
        found.add(again)
    return found


def dead_links(path: Path) -> list[str]:
    """Links of a Markdown file that lead nowhere in this repository."""
    dead = []
    for to in links(path.read_text()):
        if re.match(r"[a-z]+:", to):
            continue
        file, _, anchor = to.partition("#")
        # The playground is there once the site is built, where its own test looks at links.
        if file.startswith("playground/"):
            continue
        target = path.parent / file if file else path
        here = target.exists()
        known = here and (
            not anchor or target.suffix != ".md" or anchor in anchors(target.read_text())
        )
        if not known:
            dead.append(to)
    return dead
