"""Thoughts: from the answers to probes to a rule."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from book import at_hand

from haltwise import calibrate, thoughts


def drawn(n: int, seed: int = 0) -> tuple[list[list[str]], list[str], list[list[int]]]:
    """Thoughts that try a few answers, settle on one and go on for a while."""
    rng = np.random.default_rng(seed)
    answers, tokens = [], []
    for _ in range(n):
        tried = [f"w{rng.integers(5)}" for _ in range(rng.integers(0, 5))]
        settled = "right" if rng.random() < 0.8 else "wrong"
        row = [*tried, *[settled] * int(rng.integers(6, 15))]
        answers.append(row)
        tokens.append([256] * (len(row) - 1) + [int(rng.integers(1, 256))])
    return answers, ["right"] * n, tokens


def test_the_score_counts_the_probes_that_gave_the_answer():
    answers, labels, _ = drawn(50)
    traces = thoughts(answers, labels, ids=range(50))
    for i, row in enumerate(answers):
        for t, answer in enumerate(row):
            times = row[: t + 1].count(answer)
            assert traces.scores[i, t] == np.float32(times / (times + 1))
            assert traces.predictions[i, t] == list(dict.fromkeys(row)).index(answer) + 1
    assert traces.lengths.tolist() == [len(row) for row in answers]
    assert traces.ids[3] == "3"


def test_thoughts_make_a_rule_with_and_without_labels():
    answers, labels, tokens = drawn(900)
    for right in (labels, None):
        loss = "gap" if right else "disagreement"
        traces = thoughts(answers, right, tokens=tokens, questions=range(900))
        for unit in (None, "question"):
            rule = calibrate(
                traces, promise="average", delta=0.05, loss=loss, cost="cost", unit=unit
            )
            assert rule.halts_early
            other, truth, spent = drawn(500, seed=1)
            found = rule.evaluate(
                thoughts(other, truth if right else None, tokens=spent, questions=range(500))
            )
            assert found.gap < 0.15
            assert found.t_avg < 0.8


def test_no_answer_is_none_nan_or_nothing():
    traces = thoughts([[None, "", float("nan"), 7, 7], ["a", ""]], labels=[7, "b"])
    assert traces.predictions.tolist() == [[0, 0, 0, 1, 1], [1, 0, 0, 0, 0]]
    assert traces.scores[:, :3].tolist() == [[0, 0, 0], [0.5, 0, 0]]
    assert traces.labels.tolist() == [1, 2]


def test_tokens_and_questions_become_columns():
    traces = thoughts([["a", "b"], ["c"]], tokens=[[256, 90], [31]], questions=["x", "y"])
    assert traces.columns["cost"].tolist() == [[256, 90], [31, 0]]
    assert traces.columns["question"].tolist() == ["x", "y"]


def test_what_cannot_be_counted_is_explained():
    with pytest.raises(ValueError, match="1 questions for 2 thoughts"):
        thoughts([["a"], ["b"]], questions=["q"])
    for answers, labels, tokens, expected in [
        ([], None, None, "answers are missing"),
        ([["a"], ["b"]], ["a"], None, "1 labels for 2 thoughts"),
        ([["a"], ["b"]], ["a", None], None, "that of thought 2 is empty"),
        ([["a"], []], None, None, "thought 2: a thought has no probe"),
        ([["a", "b"]], None, [[256]], "one number for each answer"),
        ([["a", "b"]], None, [256], "a list of numbers for each thought"),
        (["391", "392"], None, None, "those of thought 1 are '391'; give a list of answers"),
        ([["a"] * 4097], None, None, "more than 4096 probes"),
    ]:
        with pytest.raises(ValueError, match=expected):
            thoughts(answers, labels, tokens=tokens)


def test_recorded_thoughts_are_ended_early_and_keep_the_promise():
    path = at_hand("thoughts/qwen3-8b.jsonl.gz")
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    # The last probe is the answer at the end.
    answers = [["" if a == "ERR" else a for a in row["probes"]] for row in rows]
    traces = thoughts(answers, [row["gold"] for row in rows])
    last = traces.predictions[np.arange(len(rows)), traces.lengths - 1]
    assert abs((last == traces.labels).mean() - 0.608) < 0.001
    # Independent draws of a question and one thought about it, so that all thoughts together are
    # the truth.
    drawn = np.random.default_rng(0).integers(len(rows), size=1000)
    rule = calibrate(traces[drawn], method="marginal", delta=0.05)
    found = rule.evaluate(traces)
    assert found.gap <= 0.1
    assert found.t_avg < 0.85
