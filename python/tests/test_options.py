"""One list of options: every door of Python takes what the heart declares."""

from __future__ import annotations

import inspect

import pytest

import haltwise
from haltwise import _core, spark
from haltwise._options import EVIDENCE, OPTIONS


@pytest.mark.parametrize("door", [haltwise.calibrate, spark.calibrate])
def test_signatures_and_docstrings_have_every_option(door):
    parameters = inspect.signature(door).parameters
    for name, option in OPTIONS.items():
        assert parameters[name].default == option.default
        assert parameters[name].annotation == option.annotation
        # Each line is there, however deep.
        lines = [line.strip() for line in inspect.getdoc(door).splitlines()]
        assert set(map(str.strip, option.doc.splitlines())) <= set(lines), name
    assert not set(EVIDENCE) & set(parameters)
    assert inspect.Parameter.VAR_KEYWORD not in {p.kind for p in parameters.values()}


@pytest.mark.parametrize("made", ["adaptive", "backward"])
def test_candidates_take_what_evidence_takes_as_well(made):
    parameters = inspect.signature(getattr(haltwise.Candidates, made)).parameters
    assert {*OPTIONS, *EVIDENCE} - {"method"} <= set(parameters)
    assert "method" not in parameters


def test_the_rust_side_takes_every_option_and_no_other():
    for name in [*OPTIONS, *EVIDENCE]:
        _core.check_options({name: None})
    with pytest.raises(TypeError, match="alfa is not an option; the options are method, score"):
        _core.check_options({"alfa": 0.1})
    with pytest.raises(TypeError, match='alpha must be a number, but "much" was given'):
        _core.check_options({"alpha": "much"})


def test_the_estimators_own_options_are_as_in_the_list():
    parameters = inspect.signature(haltwise.EarlyClassifier).parameters
    own = set(parameters) & set(OPTIONS)
    assert own == {"alpha", "delta", "method", "promise"}
    for name in own:
        assert parameters[name].default == OPTIONS[name].default
