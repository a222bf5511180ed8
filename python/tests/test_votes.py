"""Votes: from a list of lists to a rule."""

from __future__ import annotations

import json

import numpy as np
import pytest
from book import at_hand

from haltwise import calibrate, votes


def drawn(n: int, of: int = 9, seed: int = 0) -> tuple[list[list[str]], list[str]]:
    rng = np.random.default_rng(seed)
    how_sure = rng.choice([0.5, 0.8, 0.95], size=(n, 1))
    wrong = np.char.add("w", rng.integers(1, 5, size=(n, of)).astype(str))
    return np.where(rng.random((n, of)) < how_sure, "right", wrong).tolist(), ["right"] * n


def test_the_leader_is_the_majority_so_far():
    answers, labels = drawn(50)
    traces = votes(answers, labels, ids=range(50))
    for i, row in enumerate(answers):
        for t in range(len(row)):
            seen = row[: t + 1]
            leader = max(dict.fromkeys(seen), key=seen.count)
            place = list(dict.fromkeys(row)).index(leader) + 1
            assert traces.predictions[i, t] == place
    assert (traces.scores[:, -1] == 1).all()
    assert traces.ids[3] == "3"


def test_votes_make_a_rule_with_and_without_labels():
    answers, labels = drawn(600)
    for right in (labels, None):
        loss = "gap" if right else "disagreement"
        rule = calibrate(votes(answers, right), delta=0.05, loss=loss)
        assert rule.halts_early
        other, truth = drawn(400, seed=1)
        found = rule.evaluate(votes(other, truth if right else None))
        assert found.gap < 0.15
        assert found.t_avg < 0.7


def test_no_answer_is_none_nan_or_nothing():
    traces = votes([[None, "", float("nan"), 7], ["a", "b", "b", "b"]], labels=[7, "b"])
    assert traces.predictions.tolist() == [[0, 0, 0, 1], [1, 1, 2, 2]]
    assert traces.labels.tolist() == [1, 2]
    assert votes([["", "x"]], labels=["never said"]).labels.tolist() == [3]


def test_what_cannot_be_counted_is_explained():
    for answers, labels, expected in [
        ([], None, "answers are missing"),
        ([["a"], ["a", "b"]], None, "question 2 has 2 votes, but question 1 has 1"),
        ([["a"], ["b"]], ["a"], "1 labels for 2 questions"),
        ([["a"], ["b"]], ["a", None], "that of question 2 is empty"),
        (["77", "78"], None, "those of question 1 are '77'; give a list of answers"),
        ([[]], None, "question 1: 0 votes on a question; 1 to 100 can be counted"),
        ([["a"] * 101], None, "1 to 100 can be counted"),
    ]:
        with pytest.raises(ValueError, match=expected):
            votes(answers, labels)


def test_real_votes_are_settled_early_without_a_label():
    path = at_hand("votes/gsm8k.qwen2.5-coder-1.5b.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    answers, gold = [row["answers"] for row in rows], [row["gold"] for row in rows]
    truth = votes(answers, gold)
    assert abs((truth.predictions[:, -1] == truth.labels).mean() - 0.735) < 0.005
    traces = votes(answers)
    rule = calibrate(traces[:700], method="marginal", delta=0.05, loss="disagreement")
    found = rule.evaluate(traces[700:])
    # At most a tenth may differ from the majority; 300 questions leave some room for chance.
    assert found.gap < 0.1 + 0.05
    assert found.t_avg * 13 < 5
