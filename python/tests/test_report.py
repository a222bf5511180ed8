"""Evaluations as HTML."""

from __future__ import annotations

import base64
import pickle
import re
import subprocess

import pytest
from conftest import simulated

import haltwise
from haltwise import Evaluation, write_report


@pytest.fixture(scope="module")
def results(rule, traces):
    new = simulated(1000, seed=5)
    average = haltwise.calibrate(traces, promise="average")
    return {"steps": rule.evaluate(new), "average": average.evaluate(new)}


def body(path):
    """A page without its head line, which names the files of a command."""
    return re.search("<main>.*", path.read_text(), re.S)[0]


def test_a_report_is_what_the_command_writes(results, rule, tmp_path, command):
    haltwise.write_traces(tmp_path / "new.parquet", simulated(1000, seed=5))
    for name, result in results.items():
        result.rule.save(tmp_path / name)
    write_report(tmp_path / "one.html", results["steps"])
    write_report(tmp_path / "both.html", results)
    for page, more in (("one", []), ("both", ["--compare", "average"])):
        asked = ["evaluate", "steps", "new.parquet", "--report", "theirs.html", *more]
        subprocess.run([command, *asked], cwd=tmp_path, check=True, capture_output=True)
        assert body(tmp_path / f"{page}.html") == body(tmp_path / "theirs.html")


def test_an_evaluation_shows_its_figures_in_a_notebook(results):
    html = results["steps"]._repr_html_()
    assert "gap 0." in html
    drawn = [base64.b64decode(svg).decode() for svg in re.findall('base64,([^"]*)', html)]
    assert len(drawn) == 2 and all(svg.startswith("<svg") for svg in drawn)
    assert "Gap among sequences halted by step t" in drawn[0]
    again = pickle.loads(pickle.dumps(results["steps"]))
    assert again == results["steps"] and again._repr_html_() == html


def test_what_cannot_be_reported_is_refused(results, tmp_path):
    made = Evaluation(**results["steps"].to_dict())
    assert made.rule is None and made._repr_html_() is None
    for wrong, message in [(made, "has no rule: make it by Rule.evaluate"), ({}, "is empty")]:
        with pytest.raises(ValueError, match=message):
            write_report(tmp_path / "report.html", wrong)
    with pytest.raises(ValueError, match=r"is an HTML file; write it to .*report\.html"):
        write_report(tmp_path / "report.npz", results)
    assert not list(tmp_path.iterdir())
