"""The documentation runs, and says what the code says."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
import warnings
from pathlib import Path

import book
import matplotlib
import pytest
from conftest import ROOT
from readers import READERS, model

import haltwise
from haltwise import _core

matplotlib.use("Agg")


#: Made by programs whose own tests compare them.
MADE = {"python-api.md", "cli.md", "field.md"}

#: Those of the book, and the front page.
PAGES = ["../README.md", *book.pages()]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in MADE])
@pytest.mark.skipif(os.name == "nt", reason="the pages are written for a Unix shell")
def test_the_pages_run(page, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    # As outputs are shown: a warning is told once, wherever it comes from.
    warnings.simplefilter("ignore")
    with model() as address:
        instead = {"http://localhost:8000": address}
        if page in READERS:
            instead |= READERS[page](tmp_path, command)
        run = book.Run(page, tmp_path, command, instead)
        run.all()
    if page == "production.md":
        verdicts = [said for said in run.said if "promise" in said]
        assert "No alarm" in verdicts[0] or "All clear" in verdicts[0], verdicts[0]
        assert "Alarm: the promise does not hold" in verdicts[1], verdicts[1]
        assert '{"renewal":2}' in run.said[-1]


@pytest.mark.parametrize(
    "block",
    [b for page in PAGES for b in book.blocks(page) if b.not_run is not None],
    ids=lambda block: block.name,
)
def test_what_is_shown_only_says_why(block):
    assert block.not_run
    pytest.skip(block.not_run)


@pytest.mark.parametrize("page", PAGES)
def test_what_is_run_elsewhere_is(page):
    for block in book.blocks(page):
        if block.run_by is not None:
            assert Path(page).name in block.run_by.read_text(), block.name


def test_every_page_is_in_the_table_of_contents():
    there = {str(path.relative_to(book.DOCS)) for path in book.DOCS.rglob("*.md")}
    assert there - {"SUMMARY.md"} == set(book.pages())


@pytest.mark.parametrize(
    "page",
    sorted([*book.DOCS.rglob("*.md"), *ROOT.glob("*.md"), ROOT / "python/README.md"]),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_lead_somewhere(page):
    assert not book.dead_links(page)


@pytest.mark.parametrize("name", [m.name for m in pkgutil.iter_modules(haltwise.__path__)])
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(f"haltwise.{name}")
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("notebook", sorted((ROOT / "python/examples").glob("*.ipynb")), ids=str)
def test_the_notebook_runs(notebook, tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    book = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()


def test_the_reference_is_what_the_code_says():
    script = ROOT / "python/reference.py"
    # -I: the installed wheel, not the sources beside the script.
    command = [sys.executable, "-I", script]
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    written = (ROOT / "docs/python-api.md").read_text()
    assert said.stdout == written, "run python -I python/reference.py > docs/python-api.md"


def test_the_stubs_are_what_the_border_has():
    tree = ast.parse((Path(haltwise.__file__).parent / "_core.pyi").read_text())
    stubbed = {
        node.name: node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
    }
    there = {name for name in vars(_core) if not name.startswith("_") and name != "VERSION"}
    assert set(stubbed) == there
    for name, node in stubbed.items():
        thing = getattr(_core, name)
        if isinstance(node, ast.FunctionDef):
            assert arguments(node) == list(inspect.signature(thing).parameters), name
            continue
        methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
        public = {m for m in vars(thing) if not m.startswith("_")}
        assert {m for m in methods if not m.startswith("_")} == public, name
        for method in public:
            if callable(getattr(thing, method)):
                found = list(inspect.signature(getattr(thing, method)).parameters)
                assert arguments(methods[method]) == found, f"{name}.{method}"


def arguments(node: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]]


def test_everything_public_is_documented():
    for name in haltwise.__all__:
        thing = getattr(haltwise, name)
        assert name.startswith("__") or thing.__doc__, name
        if inspect.isclass(thing) and thing.__module__ != "haltwise._core":
            for member, value in vars(thing).items():
                if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                    assert inspect.getdoc(getattr(thing, member)), f"{name}.{member}"
