"""The documentation runs, and says what the code says."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
from conftest import ROOT

import haltwise
from haltwise import _core

matplotlib.use("Agg")


@pytest.mark.parametrize("page", ["python.md", "promises.md"])
def test_the_pages_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / page).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= 8
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)


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
