"""Watching a rule in use."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
from conftest import simulated

import haltwise


def drifted(n, seed):
    """Traces whose early predictions are wrong, and right at the end."""
    traces = simulated(n, seed=seed)
    predictions = np.array(traces.predictions)
    labels = np.array(traces.labels)
    predictions[:, :-1] = (labels[:, None] + 1) % 2
    predictions[:, -1] = labels
    return haltwise.Traces(np.array(traces.scores), predictions, labels)


def test_a_drift_is_found_and_nothing_else(rule):
    monitor = haltwise.Monitor(rule)
    assert not monitor.add(simulated(2000, seed=11))
    verdict = monitor.verdict()
    assert verdict["audits"] == 2000 and verdict["alarm_at"] is None
    assert monitor.e_value == verdict["e_value"] < 100
    assert monitor.add(drifted(500, seed=12))
    verdict = monitor.verdict()
    assert 2000 < verdict["alarm_at"] < 2500
    assert "alarm" in repr(monitor)


def test_the_command_line_says_the_same(rule, tmp_path, command):
    traces = simulated(700, seed=13)
    monitor = haltwise.Monitor(rule, delta=0.05)
    monitor.add(traces)
    rule.save(tmp_path / "rule.json")
    haltwise.write_traces(tmp_path / "audits.npz", traces)
    said = subprocess.run(
        [command, "monitor", "rule.json", "audits.npz", "--delta", "0.05", "--json"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert json.loads(said.stdout) == monitor.verdict()


def test_outcomes_come_late(rule):
    monitor = haltwise.Monitor(rule)
    for i in range(60):
        monitor.begin(f"s{i}")
    assert monitor.verdict()["unknown"] == 60
    for i in range(60):
        monitor.halt(f"s{i}", 6)
    assert len(monitor.verdict()["labels_wanted"]) == 60
    alarms = [monitor.settle(f"s{i}", True) for i in range(60)]
    assert not alarms[0] and alarms[-1]
    assert monitor.verdict()["labels_wanted"] == []


def test_mistakes_are_told(rule):
    monitor = haltwise.Monitor(rule)
    monitor.begin("a")
    with pytest.raises(ValueError, match="has begun before"):
        monitor.begin("a")
    with pytest.raises(ValueError, match="say that it begins first"):
        monitor.halt("b", 1)
    with pytest.raises(ValueError, match="has halted and is not settled"):
        monitor.settle("a", True)
    with pytest.raises(ValueError, match="delta"):
        haltwise.Monitor(rule, delta=2)
