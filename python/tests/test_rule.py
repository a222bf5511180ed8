"""Rules: applied, evaluated, stored, shown."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from conftest import simulated

import haltwise
from haltwise import Rule


def test_halt_is_the_first_step_that_reaches_its_threshold(rule):
    scores = simulated(200, seed=2).scores
    reach = scores >= rule.thresholds
    reach[:, -1] = True
    assert np.array_equal(rule.halt(scores), reach.argmax(axis=1) + 1)


def test_a_stream_decides_as_halt_does(rule):
    for scores in simulated(50, seed=3).scores:
        stream = rule.stream()
        while not stream.observe(scores[stream.steps]):
            stream = pickle.loads(pickle.dumps(stream))
        assert stream.halted and stream.steps == rule.halt(scores[None])[0]
        assert stream.observe(0.0), "once halted it stays halted"


def test_a_step_without_a_score_cannot_halt_unless_it_is_the_last(rule):
    stream = rule.stream()
    assert [stream.skip() for _ in range(rule.t_max)] == [False] * (rule.t_max - 1) + [True]


def test_a_stream_says_why_it_halted(rule):
    stream = rule.stream()
    assert stream.reason is None and not stream.observe(0.0)
    assert stream.end() == "end" and stream.halted and stream.steps == 1
    assert stream.observe(1.0), "once halted it stays halted"
    stream = rule.stream()
    while not stream.observe(0.0 if stream.steps < 5 else 1.0):
        pass
    assert stream.reason == "threshold" and stream.end() == "threshold"
    assert pickle.loads(pickle.dumps(stream)).reason == "threshold"
    stream = rule.stream()
    while not stream.skip():
        pass
    assert stream.reason == "last-step" and stream.steps == rule.t_max


def test_past_its_last_step_a_rule_for_unequal_lengths_never_halts(rule):
    t_max, longer = rule.t_max, rule.t_max + 3
    unscreened = {"method": "screen-only", "promise": None, "trail": []}
    record = {**rule.record, **unscreened, "thresholds": [None] * (t_max - 1) + [0.9]}
    stops = Rule.from_json(json.dumps(record))
    reads_on = Rule.from_json(json.dumps({**record, "lengths": "unequal"}))
    scores, predictions = np.ones((1, longer)), np.zeros((1, longer), np.int64)
    assert reads_on.halt(scores) == [t_max]
    scores[0, t_max - 1] = 0.5
    assert reads_on.halt(scores) == [longer]
    stream = reads_on.stream()
    assert not any(stream.observe(score) for score in scores[0])
    assert stream.end() == "end" and stream.steps == longer
    found = reads_on.evaluate(scores, predictions, [0])
    assert found.t_max == len(found.by_step) == longer and found.t_avg == 1
    for refused in (stops.halt, lambda scores: stops.evaluate(scores, predictions, [0])):
        with pytest.raises(ValueError, match=f"was calibrated for {t_max} at the most"):
            refused(scores)


def test_a_stream_is_held_to_the_number_of_classes(rule):
    held = Rule.from_json(json.dumps({**rule.record, "classes": 3}))
    assert not held.stream().observe(0.0, probs=np.full(3, 1 / 3))
    with pytest.raises(ValueError, match="2 class probabilities, but .* with 3"):
        held.stream().observe(0.0, probs=np.array([0.5, 0.5]))
    assert not rule.stream().observe(0.0, probs=np.array([0.5, 0.5]))


@pytest.mark.parametrize(
    "scores, lengths, message",
    [
        ([[0.5, float("nan")]], None, "row 1, step 2: the score NaN|the score NaN"),
        ([[0.5] * 11], None, "the rule was calibrated for 10"),
        ([[0.5] * 3], [4], "row 1, lengths: 4 is not between 1 and 3"),
        ([[0.5] * 3], [0], "row 1, lengths: 0 is not"),
        ([[0.5] * 3], [1, 2], "1 rows of scores but 2 lengths"),
        ([0.5], None, r"scores must be \(n, T\)"),
    ],
)
def test_halt_refuses_what_it_cannot_judge(rule, scores, lengths, message):
    with pytest.raises(ValueError, match=message):
        rule.halt(scores, lengths=lengths)


def test_a_stream_refuses_what_is_no_score(rule):
    for score in (float("nan"), -0.1, 1.1):
        with pytest.raises(ValueError, match="not a number in"):
            rule.stream().observe(score)


def test_a_file_holds_the_whole_rule(rule, tmp_path):
    path = tmp_path / "rule.json"
    rule.save(path)
    assert Rule.load(path) == rule and Rule.from_json(path.read_text()) == rule
    assert json.loads(path.read_text()) == rule.record
    assert rule.record["format"] == "haltwise-rule"


def test_files_that_cannot_be_read_or_written_say_so(rule, tmp_path):
    with pytest.raises(FileNotFoundError):
        Rule.load(tmp_path / "none.json")
    with pytest.raises(FileNotFoundError, match="does not exist; create it first"):
        rule.save(tmp_path / "no folder" / "rule.json")
    damaged = tmp_path / "damaged.json"
    damaged.write_text(rule.to_json().replace('"rejected": true', '"rejected": false', 1))
    with pytest.raises(ValueError, match="damaged.json: .*damaged"):
        Rule.load(damaged)


def test_a_rule_cannot_be_made_by_hand(rule):
    with pytest.raises(TypeError, match=r"haltwise\.calibrate"):
        Rule()
    with pytest.raises(AttributeError):
        rule.alpha = 0.5


def test_a_rule_tells_how_it_came_about(rule):
    assert (rule.method, rule.alpha, rule.delta, rule.t_max) == ("conditional", 0.1, 0.01, 10)
    assert rule.thresholds.dtype == np.float32 and rule.thresholds.shape == (10,)
    assert len(rule.p_values) == len(rule.trail)
    passed = [test["rejected"] for test in rule.trail]
    assert passed == [p <= 0.01 for p in rule.p_values]
    assert rule.expected["gap"] <= 0.1


def test_a_rule_shows_itself(rule):
    assert repr(rule).startswith("Rule('conditional', alpha=0.1, delta=0.01: reads ")
    html = rule._repr_html_()
    assert "With 99% confidence" in html and "<svg" in html and "never" in html


def test_only_what_was_certified_promises(traces):
    screened = haltwise.calibrate(traces, method="screen-only")
    assert screened.promise is None and screened.describe().startswith("Nothing")
    marginal = haltwise.calibrate(traces, method="marginal")
    assert "on average" in marginal.describe()


def test_evaluating_counts_what_halting_does(rule):
    new = simulated(1000, seed=4)
    found = rule.evaluate(new)
    halts = rule.halt(new.scores)
    right = new.predictions == new.labels[:, None]
    early = right[np.arange(1000), halts - 1]
    assert found.t_avg == pytest.approx(halts.mean() / 10)
    assert found.early_accuracy == pytest.approx(early.mean())
    assert found.gap == pytest.approx((right[:, -1] & ~early).mean())
    assert found.to_dict()["by_step"][0]["t"] == 1
    assert "1,000 sequences" in repr(found)


def test_evaluating_on_its_own_traces_is_flattery(rule, traces):
    with pytest.warns(UserWarning, match="made from these very traces"):
        rule.evaluate(traces)


def test_evaluating_refuses_other_scores_and_longer_sequences(rule):
    probs = np.full((5, 3, 2), 0.5)
    with pytest.raises(ValueError, match='given with the trace: row 1: a "score" is needed'):
        rule.evaluate(probs=probs, labels=[0] * 5)
    with pytest.raises(ValueError, match="calibrated for 10 at the most"):
        rule.evaluate(simulated(5, steps=12))
