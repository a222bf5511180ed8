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


def test_labels_that_start_at_1_are_never_all_clear(rule):
    traces = simulated(2000, seed=15)
    scores, labels = np.array(traces.scores), np.array(traces.labels)
    # Predictions that never change lose nothing.
    predictions = np.repeat(np.array(traces.predictions)[:, -1:], scores.shape[1], axis=1)
    monitor = haltwise.Monitor(rule)
    assert monitor.label_doubt is None
    monitor.add(haltwise.Traces(scores, predictions, labels))
    assert monitor.label_doubt is None and monitor.verdict()["all_clear"]
    monitor = haltwise.Monitor(rule)
    with pytest.warns(UserWarning, match="probably number the classes in different ways"):
        monitor.add(haltwise.Traces(scores, predictions, labels + 1))
    assert monitor.label_doubt and not monitor.verdict()["all_clear"]


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


def by_unit(n, seed, size, lost):
    """Units of `size` equal sequences, of which the first `lost` units lose the right answer
    wherever they halt early."""
    traces = simulated(n, seed=seed)
    predictions = np.tile(np.array(traces.labels)[:, None], (1, np.array(traces.scores).shape[1]))
    predictions[:lost, :-1] += 1
    repeat = [np.repeat(a, size, axis=0) for a in (traces.scores, predictions, traces.labels)]
    return haltwise.Traces(*repeat), np.repeat([f"u{i}" for i in range(n)], size)


def test_a_unit_counts_once_however_many_streams_it_has(tmp_path, command):
    traces, units = by_unit(1500, 1, 2, 0)
    ids = [f"s{i}" for i in range(len(units))]
    rule = haltwise.calibrate(
        scores=traces.scores,
        predictions=traces.predictions,
        labels=traces.labels,
        ids=ids,
        method="conditional",
        unit=units,
    )
    # Half of alpha loses something: with 20 streams each, 25 of 500 units look like 500 losses.
    audits, units = by_unit(500, 2, 20, 25)
    monitor = haltwise.Monitor(rule)
    monitor.add(audits, columns={"unit": units})
    assert "500 units not closed" in repr(monitor)
    assert monitor.close_units() is False
    assert "not closed" not in repr(monitor)
    verdict = monitor.verdict()
    assert (verdict["audits"], verdict["unknown"]) == (500, 0)
    assert 0.04 < verdict["gap"] < 0.06

    rule.save(tmp_path / "rule.json")
    rows = zip(units, audits.labels, audits.predictions, audits.scores, strict=True)
    with (tmp_path / "audits.jsonl").open("w") as file:
        for unit, label, predictions, scores in rows:
            row = {"unit": unit, "label": int(label)}
            row |= {"predictions": predictions.tolist(), "scores": scores.tolist()}
            file.write(json.dumps(row) + "\n")
    words = [command, "monitor", "rule.json", "audits.jsonl", "--json"]
    said = subprocess.run(words, cwd=tmp_path, capture_output=True, check=True)
    assert json.loads(said.stdout) == verdict
    with pytest.raises(ValueError, match="unit"):
        haltwise.Monitor(rule).add(audits)
    with pytest.raises(ValueError, match="give unit="):
        monitor.begin("live")


def test_promises_by_label_are_watched_for_all_classes_together():
    traces = simulated(4000, seed=3, classes=2)
    arrays = dict(scores=traces.scores, predictions=traces.predictions, labels=traces.labels)
    ids = [str(i) for i in range(4000)]
    rule = haltwise.calibrate(**arrays, ids=ids, method="conditional", by="label")
    assert len(rule.groups) == 2
    # Labels come only where the early and the full prediction differ, with a gap of 5%.
    n = 1000
    predictions = np.array(simulated(n, seed=4, classes=2).predictions)
    predictions[:] = predictions[:, -1:]
    lost = np.arange(n) % 20 == 0
    labels = np.where(lost, predictions[:, -1], -1)
    predictions[lost, :-1] = 1 - predictions[lost, -1:]
    audits = haltwise.Traces(np.array(simulated(n, seed=4, classes=2).scores), predictions, labels)
    monitor = haltwise.Monitor(rule)
    assert not monitor.add(audits)
    verdict = monitor.verdict()
    assert {step["group"] for step in verdict["by_step"]} == {0}


def test_units_alarm_when_they_are_closed_and_are_not_watched_again():
    traces, units = by_unit(1500, 1, 2, 0)
    rule = haltwise.calibrate(
        scores=traces.scores,
        predictions=traces.predictions,
        labels=traces.labels,
        ids=[f"s{i}" for i in range(len(units))],
        method="conditional",
        unit=units,
    )
    audits, units = by_unit(500, 2, 2, 500)
    monitor = haltwise.Monitor(rule)
    assert monitor.add(audits, columns={"unit": units}) is False
    assert monitor.close_units() is True
    monitor.add(audits, columns={"unit": units})
    verdict = monitor.verdict()
    assert (verdict["audits"], verdict["unwatched"]["of_closed_units"]) == (500, 1000)


def test_audits_of_another_mix_are_weighed_and_those_of_the_declared_mix_are_not():
    traces = simulated(4000, seed=3)
    arrays = dict(scores=traces.scores, predictions=traces.predictions, labels=traces.labels)
    rule = haltwise.calibrate(
        **arrays, method="conditional", weight=np.full(4000, 2.0), weight_bound=2.0
    )
    audits = simulated(1000, seed=4)
    monitor = haltwise.Monitor(rule)
    monitor.add(audits, columns={"weight": np.where(np.arange(1000) % 2, 2.0, 0.0)})
    assert monitor.verdict()["audits"] == 500
    with pytest.raises(ValueError, match="some do not"):
        monitor.add(audits)
    monitor = haltwise.Monitor(rule)
    monitor.add(audits)
    assert monitor.verdict()["audits"] == 1000


def test_streams_that_begin_say_their_group():
    traces = simulated(4000, seed=5)
    site = np.where(np.arange(4000) % 2 == 0, "north", "south")
    rule = haltwise.calibrate(
        scores=traces.scores,
        predictions=traces.predictions,
        labels=traces.labels,
        ids=[str(i) for i in range(4000)],
        method="conditional",
        by=site,
    )
    monitor = haltwise.Monitor(rule)
    with pytest.raises(ValueError, match="give group="):
        monitor.begin("a")
    with pytest.raises(ValueError, match="promises nothing to the group"):
        monitor.begin("a", group="east")
    for i in range(60):
        monitor.begin(f"s{i}", group="south")
        monitor.halt(f"s{i}", 1)
        monitor.settle(f"s{i}", True)
    verdict = monitor.verdict()
    assert verdict["alarm"] and verdict["worst_group"] == 1


def test_several_servers_share_delta(rule):
    alone, shared = haltwise.Monitor(rule), haltwise.Monitor(rule, servers=9)
    for monitor in (alone, shared):
        for i in range(1000):
            monitor.begin(f"s{i}")
            monitor.halt(f"s{i}", 6)
            if monitor.settle(f"s{i}", True):
                break
    assert shared.verdict()["alarm_at"] > alone.verdict()["alarm_at"]
