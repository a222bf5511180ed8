"""calibrate: arrays of all kinds in, a certified rule out."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from conftest import simulated

import haltwise
from haltwise import Traces, calibrate


@pytest.fixture(scope="module")
def rule(traces) -> haltwise.Rule:
    return calibrate(traces)


@pytest.mark.parametrize("method", ["adaptive", "conditional"])
def test_a_rule_keeps_its_promise_on_new_traces(traces, method):
    rule = calibrate(traces, method=method)
    new = rule.evaluate(simulated(4000, seed=1))
    assert rule.promise == "conditional" and rule.halts_early
    assert new.t_avg < 0.95
    assert all(step["gap_by"] is None or step["gap_by"] <= 0.1 for step in new.by_step)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.longdouble, ">f4", object])
def test_scores_of_any_type_give_the_rule_of_their_float32_values(traces, dtype):
    scores = traces.scores.astype(np.float16)
    expected = calibrate(scores.astype(np.float32), traces.predictions, traces.labels)
    assert calibrate(scores.astype(dtype), traces.predictions, traces.labels) == expected


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "u1", "u2", "u4", "u8", ">i4", "f4"])
def test_classes_of_any_type_give_the_same_rule(traces, rule, dtype):
    predictions, labels = traces.predictions.astype(dtype), traces.labels.astype(dtype)
    assert calibrate(traces.scores, predictions, labels) == rule
    assert calibrate(traces.scores, predictions, traces.labels.astype("i8")) == rule


def test_classes_may_be_names_negative_numbers_or_booleans(traces, rule):
    for names in (["cat", "dog", "eel"], [-1, 0, 1], [0.5, 1.5, 2.5]):
        names = np.array(names)
        assert calibrate(traces.scores, names[traces.predictions], names[traces.labels]) == rule
    objects = np.array(["cat", "dog", "eel"], dtype=object)
    assert calibrate(traces.scores, objects[traces.predictions], objects[traces.labels]) == rule
    right = traces.predictions == traces.labels[:, None]
    assert calibrate(traces.scores, right, np.ones(len(right), bool)) == rule


def test_strided_transposed_and_fortran_arrays_are_read_as_they_mean(traces, rule):
    double = np.repeat(traces.scores, 2, axis=1)[:, ::2]
    assert calibrate(double, np.asfortranarray(traces.predictions), traces.labels) == rule
    assert (
        calibrate(traces.scores.T.copy().T, traces.predictions[:, ::-1][:, ::-1], traces.labels)
        == rule
    )


def test_lists_and_whatever_has_array_are_taken(traces, rule):
    class Tensor:
        """A stand-in for a tensor that learns on a device."""

        def __init__(self, values):
            self.values = values

        def detach(self):
            return Tensor(self.values)

        def cpu(self):
            return np.asarray(self.values)

    class Plain:
        def __init__(self, values):
            self.values = values

        def __array__(self, dtype=None, copy=None):
            return self.values

    parts = (traces.scores, traces.predictions, traces.labels)
    assert calibrate(*(part.tolist() for part in parts)) == rule
    assert calibrate(*map(Plain, parts)) == rule
    assert calibrate(*map(Tensor, parts)) == rule


def test_torch_tensors_are_taken(traces, rule):
    torch = pytest.importorskip("torch")
    scores = torch.tensor(traces.scores, requires_grad=True)
    predictions, labels = torch.tensor(traces.predictions), torch.tensor(traces.labels.astype("i8"))
    assert calibrate(scores, predictions, labels) == rule


def test_probabilities_bring_predictions_and_scores():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), size=(2000, 6)).astype(np.float32)
    labels = probs[:, -1].argmax(axis=1)
    rule = calibrate(probs=probs, labels=labels, method="marginal")
    assert rule.score == "max-probability"
    assert np.array_equal(rule.halt(probs=probs), rule.halt(probs.max(axis=2)))
    given = calibrate(probs.max(axis=2), probs.argmax(axis=2), labels, method="marginal")
    assert np.array_equal(rule.thresholds, given.thresholds)
    names = np.array(["c", "a", "b"])
    named = calibrate(probs=probs, labels=names[labels], classes=names, method="marginal")
    # The rule is the same, and remembers the names.
    record = named.record
    assert record.pop("class_names") == ["c", "a", "b"]
    assert record == rule.record


def test_sequences_may_differ_in_length():
    traces = simulated(2000)
    lengths = np.random.default_rng(0).integers(1, 11, size=2000)
    kind = {"method": "conditional"}
    padded = calibrate(traces.scores, traces.predictions, traces.labels, lengths=lengths, **kind)
    rows = range(2000)
    ragged = calibrate(
        [traces.scores[i, : lengths[i]] for i in rows],
        [traces.predictions[i, : lengths[i]].tolist() for i in rows],
        traces.labels,
        **kind,
    )
    assert ragged == padded
    halted = padded.halt(traces.scores, lengths=lengths)
    assert (halted <= lengths).all()
    # What lies beyond the end is nobody's business.
    scores = np.where(np.arange(10) < lengths[:, None], traces.scores, np.nan)
    again = calibrate(scores, traces.predictions, traces.labels, lengths=lengths, **kind)
    assert again == padded


def test_ids_make_the_split_independent_of_order(traces):
    ids = [f"sequence {i}" for i in range(len(traces))]
    order = np.random.default_rng(0).permutation(len(traces))
    parts = (traces.scores, traces.predictions, traces.labels)
    forward = calibrate(*parts, ids=ids)
    assert calibrate(*(part[order] for part in parts), ids=[ids[i] for i in order]) == forward


def test_screening_traces_can_be_given(traces):
    rule = calibrate(traces[2000:], screen=traces[:2000], method="conditional")
    assert rule.record["screened_on"]["sequences"] == 2000
    with pytest.raises(ValueError, match="these very traces, which voids the guarantee"):
        calibrate(traces[:2000], screen=traces[:2000], method="conditional")


def test_fitting_traces_can_be_given(traces):
    rule = calibrate(traces[2000:], fit=traces[:2000])
    assert rule.record["fitted_on"]["sequences"] == 2000 and rule.halts_early
    with pytest.raises(ValueError, match="these very traces, which voids the guarantee"):
        calibrate(traces[:2000], fit=traces[:2000])


@pytest.mark.parametrize("method", ["adaptive", "conditional", "marginal", "screen-only"])
@pytest.mark.parametrize("score", ["confidence", "max-probability", "margin", "gap"])
def test_any_method_judges_any_score(method, score):
    traces = with_probabilities(3000)
    if score == "confidence":
        traces.scores = traces.probs.max(axis=2)
    rule = calibrate(traces, method=method, score=score)
    assert (rule.method, rule.score) == (method, score)
    new = with_probabilities(1000, seed=1)
    if score == "confidence":
        new.scores = new.probs.max(axis=2)
    found = rule.evaluate(new)
    halts = rule.halt(new.scores, probs=new.probs)
    assert halts.mean() / rule.t_max == pytest.approx(found.t_avg)


def test_a_learned_score_is_computed_live_and_by_halt():
    rule = calibrate(with_probabilities(3000), score="gap")
    new = with_probabilities(40, seed=1)
    halts = rule.halt(probs=new.probs)
    for probs, halt in zip(new.probs, halts, strict=True):
        stream = rule.stream()
        while not stream.observe(probs=probs[stream.steps]):
            stream = pickle.loads(pickle.dumps(stream))
        assert stream.steps == halt
    with pytest.raises(ValueError, match="computed from the class probabilities"):
        rule.halt(new.probs.max(axis=2))
    for step, message in [
        ({"score": 0.5}, "class probabilities"),
        ({"probs": np.array([0.5, 0.9, 0.1])}, "not numbers in"),
        ({"probs": np.array([0.5, 0.5])}, "2 class probabilities, but"),
        ({}, "class probabilities"),
    ]:
        with pytest.raises(ValueError, match=message):
            rule.stream().observe(**step)


def with_probabilities(n: int, seed: int = 0) -> Traces:
    """A classifier of three classes whose evidence adds up from step to step."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    logits = rng.normal(size=(n, 8, 3)).cumsum(axis=1)
    logits += 0.8 * np.arange(1, 9)[:, None] * np.eye(3)[labels][:, None, :]
    odds = np.exp(logits - logits.max(axis=2, keepdims=True))
    return Traces(probs=(odds / odds.sum(axis=2, keepdims=True)).astype("f4"), labels=labels)


def test_a_warning_says_why_nothing_was_certified(traces):
    with pytest.warns(UserWarning, match="must halt"):
        rule = calibrate(traces[:40], method="conditional")
    assert not rule.halts_early and np.isinf(rule.thresholds[:-1]).all()


GOOD = {"scores": [[0.1, 0.9]] * 3, "predictions": [[0, 1]] * 3, "labels": [1, 0, 1]}

WRONG = [
    ({"scores": [[0.1, np.nan]] * 3}, "row 1, scores, step 2: the score NaN is not a number"),
    ({"scores": [[0.1, 1.5]] * 3}, "row 1, scores, step 2: the score 1.5 is not"),
    ({"scores": [[0.1, np.inf]] * 3}, "the score inf is not a number"),
    ({"scores": [0.1, 0.9]}, r"scores must be \(n, T\), but its shape is \(2,\)"),
    ({"scores": [[[0.1]]] * 3}, r"scores must be \(n, T\)"),
    ({"scores": [["a", "b"]] * 3}, "scores must be numbers"),
    ({"scores": [[0.1 + 1j, 0.2]] * 3}, "scores must be numbers"),
    ({"scores": [[0.1, 0.5, 0.9]] * 3}, "scores has 3 steps but predictions has 2"),
    ({"scores": [[0.1, 0.9]] * 2}, "3 labels but 2 rows of scores"),
    ({"scores": np.zeros((3, 0)), "predictions": np.zeros((3, 0), int)}, "has no steps"),
    ({"scores": None}, "give either probs, or both scores and predictions"),
    ({"predictions": [[0, -1]] * 3}, "row 1, predictions, step 2: -1 is not a class"),
    ({"predictions": [[0, 2**40]] * 3}, f"{2**40} is not a class"),
    ({"predictions": [["a", "b"]] * 3}, "some of labels, predictions and classes are strings"),
    ({"labels": [1, 0]}, "2 labels but 3 rows"),
    ({"labels": [[1, 0, 1]]}, r"labels must be \(n\)"),
    ({"labels": None}, "no sequence has a label"),
    ({"labels": [np.inf, 1, 0]}, "must be finite"),
    ({"labels": np.array(["2020-01-01"] * 3, "M8[D]")}, "must be integers or strings"),
    ({"labels": [2**40, 1, 1]}, "labels must be integers from 0"),
    ({"lengths": [1, 2]}, "3 labels but 2 rows of lengths"),
    ({"lengths": [1, 2, 3]}, "row 3, lengths: 3 is more than the 2 steps of the arrays"),
    ({"lengths": [0, 2, 2]}, "the sequence has no steps"),
    ({"lengths": [-1, 2, 2]}, "lengths must be integers from 0"),
    ({"lengths": [1.5, 2, 2]}, "lengths must be integers"),
    ({"ids": ["a", "b"]}, "3 labels but 2 ids"),
    ({"ids": ["a", "b", "a"]}, 'row 3: the id "a" was met before'),
    ({"alpha": 0.0}, "alpha must lie strictly between 0 and 1, but 0 was given"),
    ({"delta": np.nan}, "delta must lie strictly between 0 and 1"),
    ({"method": "marginal", "grid_step": 0.3}, "the grid step must be 1 divided by a whole number"),
    ({"method": "magic"}, 'method must be one of "adaptive"'),
    ({"score": "luck"}, 'score must be one of "confidence"'),
    ({"score": "margin"}, 'the class probabilities, "probs", are needed'),
    ({"fit_fraction": 0.0}, "fit_fraction must lie strictly between 0 and 1"),
    ({"method": "conditional", "fit_fraction": 0.5}, "goes with the method adaptive or"),
    ({"screen_fraction": 0.5}, "goes with the method conditional only"),
    ({"screen_by": "hop"}, 'screen_by must be one of "risk", "p-value"'),
    (
        {"method": "conditional", "screen_fraction": 1.0},
        "screen_fraction must lie strictly between 0 and 1",
    ),
    ({"method": "marginal", "seed": 1}, "nothing is split here"),
    ({"probs": [[[0.5, 0.6], [0.5, 0.5]]] * 3}, "the probabilities sum to 1.1, not to 1"),
    ({"probs": [[[3.0, -2.0], [0.5, 0.5]]] * 3}, "these look like logits: apply softmax"),
    ({"probs": [[0.5, 0.5]] * 3}, r"probs must be \(n, T, K\)"),
    ({"probs": np.zeros((3, 2, 0))}, "there are no classes in it"),
    ({"probs": [[[0.5, 0.5]] * 2] * 3, "labels": [2, 0, 0]}, "class 2 is out of range"),
    (
        {"probs": [[[0.5, 0.5]] * 2] * 3, "predictions": None, "labels": ["a", "b", "a"]},
        "it is not known which probability is whose",
    ),
    ({"classes": ["a", "a"], "labels": ["a"] * 3, "predictions": [["a"] * 2] * 3}, "must differ"),
    (
        {"classes": ["a"], "labels": ["b"] * 3, "predictions": [["a"] * 2] * 3},
        "'b'.* is not one of",
    ),
]


@pytest.mark.parametrize("change, message", WRONG, ids=[message for _, message in WRONG])
def test_what_is_wrong_is_a_value_error_that_says_so(change, message):
    with pytest.raises(ValueError, match=message):
        calibrate(**{**GOOD, **change})


def test_empty_arrays_are_refused():
    empty = (np.zeros((0, 5)), np.zeros((0, 5), int), np.zeros(0, int))
    with pytest.raises(ValueError, match="there are no certifying traces"):
        calibrate(*empty, method="marginal")
    for method in ("adaptive", "conditional"):
        with pytest.raises(ValueError, match="0 traces are too few to split"):
            calibrate(*empty, method=method)


def test_one_trace_is_too_few_to_split():
    with pytest.raises(ValueError, match="1 trace is too few to split in two"):
        calibrate([[0.5]], [[0]], [0], method="conditional")


def test_other_types_are_type_errors_and_nothing_crashes(traces):
    with pytest.raises(TypeError):
        calibrate(traces, alpha="a lot")
    with pytest.raises(ValueError, match="seed must be from 0"):
        calibrate(traces, seed=-1)
    with pytest.raises(ValueError, match="screen must be haltwise.Traces"):
        calibrate(traces, screen=[1, 2])
    with pytest.raises(ValueError, match="give traces alone"):
        calibrate(traces, labels=[1])


def test_calibrating_leaves_the_interpreter_free(traces):
    """Other Python threads run while Rust works."""
    import threading

    big = Traces(
        np.tile(traces.scores, (25, 10)),
        np.tile(traces.predictions, (25, 10)),
        np.tile(traces.labels, 25),
    )
    ticks, done = [0], threading.Event()

    def tick():
        while not done.is_set():
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    haltwise.calibrate(big, method="marginal")
    before = ticks[0]
    done.set()
    thread.join()
    # A held interpreter would let the thread run only between two calls.
    assert before > 1000


def test_traces_and_rules_pickle(traces, rule):
    assert pickle.loads(pickle.dumps(rule)) == rule
    again = pickle.loads(pickle.dumps(traces))
    assert calibrate(again) == rule
