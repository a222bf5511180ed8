"""The paper's results, and the command line's rules, to the bit."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import simulated

import haltwise

DATASETS = ["PenDigits", "Crop", "ElectricDevices", "WalkingSittingStanding"]


def splits(golden: Path, name: str) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Per split the positions of the test, screening and certifying traces."""
    with np.load(golden / f"{name}.splits.npz") as file:
        order, n_test = file["order"], int(file["n_test"])
    middle = n_test + (order.shape[1] - n_test) // 2
    return [(row[:n_test], row[n_test:middle], row[middle:]) for row in order]


def thresholds(values: list[float | None]) -> np.ndarray:
    return np.array([np.inf if value is None else value for value in values], np.float32)


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.filterwarnings("ignore:the rule halts no sequence early")
def test_rules_equal_the_papers(golden, name):
    with np.load(golden / f"{name}.traces.npz") as file:
        traces = haltwise.Traces(file["scores"], file["predictions"], file["labels"])
    expected = json.loads((golden / f"{name}.rules.json").read_text())
    assert len(expected) == 10
    for rules, (_, screening, certifying) in zip(expected, splits(golden, name), strict=False):
        both = np.concatenate([screening, certifying])
        marginal = haltwise.calibrate(traces[both], method="marginal")
        assert marginal.thresholds[0] == thresholds([rules["marginal"]])[0]
        screened = haltwise.calibrate(traces[screening], method="screen-only")
        assert np.array_equal(screened.thresholds, thresholds(rules["screen"]))
        conditional = haltwise.calibrate(
            traces[certifying], screen=traces[screening], method="conditional"
        )
        assert np.array_equal(conditional.thresholds, thresholds(rules["conditional"]))


def command_rule(command: str, folder: Path, *arguments: str) -> str:
    out = folder / "command.json"
    run = [command, "calibrate", *arguments, "-o", str(out)]
    subprocess.run(run, check=True, capture_output=True)
    return out.read_text()


@pytest.mark.parametrize("method", ["adaptive", "conditional", "marginal", "screen-only"])
def test_rule_files_equal_the_command_lines(command, method, tmp_path):
    traces = simulated(3000, seed=7)
    haltwise.write_traces(tmp_path / "traces.npz", traces)
    rule = haltwise.calibrate(traces, method=method)
    rule.save(tmp_path / "python.json")
    written = command_rule(command, tmp_path, str(tmp_path / "traces.npz"), "--method", method)
    assert (tmp_path / "python.json").read_text() == written == rule.to_json()


@pytest.mark.parametrize("name", DATASETS)
def test_rule_files_of_the_golden_cases_equal_the_command_lines(command, golden, name, tmp_path):
    with np.load(golden / f"{name}.traces.npz") as file:
        traces = haltwise.Traces(file["scores"], file["predictions"], file["labels"])
    for i, (_, screening, certifying) in enumerate(splits(golden, name)[:10]):
        parts = {"screen": traces[screening], "certify": traces[certifying]}
        for part, rows in parts.items():
            haltwise.write_traces(tmp_path / f"{part}.npz", rows)
        files = [str(tmp_path / "certify.npz"), "--screen", str(tmp_path / "screen.npz")]
        written = command_rule(command, tmp_path, "--method", "conditional", *files)
        rule = haltwise.calibrate(parts["certify"], screen=parts["screen"], method="conditional")
        assert rule.to_json() == written, f"split {i}"
        assert rule == haltwise.Rule.load(tmp_path / "command.json")
        files[1] = "--fit"
        rule = haltwise.calibrate(parts["certify"], fit=parts["screen"])
        assert rule.to_json() == command_rule(command, tmp_path, *files), f"split {i}, adaptive"


def test_the_commands_evaluation_is_ours(command, tmp_path):
    haltwise.write_traces(tmp_path / "new.npz", simulated(500, seed=8))
    rule = haltwise.calibrate(simulated(3000, seed=7))
    rule.save(tmp_path / "rule.json")
    run = [command, "evaluate", str(tmp_path / "rule.json"), str(tmp_path / "new.npz"), "--json"]
    said = json.loads(subprocess.run(run, check=True, capture_output=True).stdout)
    # `evaluate --json` leaves out fields that do not apply.
    unsaid = {"by_group": [], "calibrated_on": None, "cost": None, "thinned": 0, "unlabelled": 0}
    assert {**unsaid, **said} == rule.evaluate(simulated(500, seed=8)).to_dict()
