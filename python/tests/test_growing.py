"""Series that grow: undecided, decided, alone, and never shorter; and what their labels are."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from haltwise import EarlyClassifier


@pytest.mark.parametrize(
    ("names", "undecided"),
    [
        ((0, 1), -1),
        ((-1, 1), -2),
        ((-2, -1), -3),
        ((-1.0, 3.0), -2),
        (("down", "up"), "-1"),
        (("-1", "1"), "-2"),
        ((False, True), -1),
    ],
    ids=str,
)
def test_undecided_is_no_class(names, undecided, walks):
    X, y = walks
    labels = np.where(y == "up", names[1], names[0])
    early = EarlyClassifier(LogisticRegression(), checkpoints=5).fit(X, labels)
    assert early.undecided_ == undecided and undecided not in set(labels.tolist())
    said, decided = early.predict_early(X[:, :, :4])
    assert 0 < decided.sum() < len(X)
    assert (said[~decided] == undecided).all() and set(said[decided]) <= set(labels)
    assert early.predict(X).dtype == labels.dtype


def test_before_the_first_checkpoint_a_series_is_undecided(walks):
    X, y = walks
    early = EarlyClassifier(LogisticRegression(), checkpoints=[5, 10]).fit(X[:700], y[:700])
    probs, decided = early.update_predict_proba(X[700:710, :, :3], range(10))
    assert not decided.any() and (probs == -1).all()
    assert (early.state_info[:, [0, 3]] == [-1, 0]).all()
    # Whoever ends there is answered as the classes were common in training.
    probs, decided = early.update_predict_proba(
        X[700:710, :, :4], range(10), ended=[True] + [False] * 9
    )
    assert decided.tolist() == [True] + [False] * 9
    assert np.array_equal(probs[0], early.class_prior_) and probs[0].sum() == pytest.approx(1)
    labels, decided = early.update_predict(X[700:710], range(10))
    assert decided.all() and np.array_equal(labels[1:], early.predict(X[701:710]))
    # What is over is not answered before it.
    for ask in (early.predict, early.predict_proba):
        with pytest.raises(ValueError, match="the first checkpoint is at 5: leave it out, or show"):
            ask(X[700:, :, :3])


def test_a_series_never_shrinks(walks):
    X, _ = walks
    early = EarlyClassifier(LogisticRegression(), checkpoints=5).fit(*walks)
    early.update_predict(X[:3, :, :8], ["a", "b", "c"])
    with pytest.raises(ValueError, match=r"series 2 \('c'\) has 7 time points, but 8 were shown"):
        early.update_predict([X[0, :, :9], X[2, :, :7]], ["a", "c"])
    # Nothing of the refused call was taken in.
    early.update_predict(X[:1, :, :8], ["a"])
    early.forget(["c"])
    early.update_predict(X[2:3, :, :2], ["c"])
    early.predict_early(X[:, :, :4])
    rows = np.flatnonzero(early.state_info[:, 1] == 0)
    with pytest.raises(ValueError, match="series 1 has 3 time points, but 4 were shown before"):
        early.update_predict(X[rows, :, :3])


def test_one_series_alone(walks):
    X, y = walks[0][:, 0], walks[1]
    early = EarlyClassifier(LogisticRegression(), checkpoints=5).fit(X, y)
    expected = early.predict(X[:1])
    for one in (X[0], X[0].tolist()):
        labels, decided = early.update_predict(one, ["sensor"])
        assert decided.tolist() == [True] and np.array_equal(labels, expected)
        early.forget(["sensor"])
        assert np.array_equal(early.predict_early(one)[0], expected)
    with pytest.raises(ValueError, match=r"Reshape your data: X.reshape\(1, 1, -1\) is one series"):
        early.predict(X[0])


@pytest.mark.filterwarnings("ignore:the rule halts no sequence early")
def test_series_may_differ_in_length(walks):
    X, y = walks
    lengths = np.random.default_rng(0).integers(8, 21, size=1000)
    lengths[:20] = 20
    cut = [case[:, :end] for case, end in zip(X, lengths, strict=True)]
    early = EarlyClassifier(LogisticRegression(), alpha=0.02, checkpoints=[4, 8, 16])
    early.fit(cut[:700], y[:700])
    assert early.checkpoints_.tolist() == [4, 8, 16, 20]
    traces = early.traces(cut[700:], y[700:])
    assert set(traces.lengths) == {2, 3, 4}
    labels, decided = early.predict_early(cut[700:])
    assert not decided.all(), "who is short may still grow"
    labels, decided = early.predict_early(cut[700:], ended=True)
    assert np.array_equal(early.predict(cut[700:]), labels)
    assert decided.all() and (labels == y[700:]).mean() > 0.8
    assert early.predict_early(early.filter_X(cut[700:], lengths[700:] < 20))[1].all()
    # A rule that halts nobody reads each series to its own end.
    early.set_params(alpha=0.001).calibrate(cut[700:], y[700:])
    assert not early.rule_.halts_early
    assert early.score_early(cut[700:], y[700:]).earliness == 1


def test_labels_may_be_numbers(walks):
    X, y = walks
    early = EarlyClassifier(LogisticRegression(), checkpoints=5)
    early.fit(X, np.where(y == "up", 1, 0))
    labels, decided = early.predict_early(X[:, :, :4])
    assert labels.dtype.kind == "i" and set(labels[~decided]) == {-1}


def test_labels_are_of_the_type_that_they_came_in(walks):
    """Objects of numbers would be sorted and compared as text."""
    X, y = walks
    for labels in (np.where(y == "up", 1, 0).astype(object), [None, *y[1:]]):
        with pytest.raises(ValueError, match="Unknown label type"):
            EarlyClassifier().fit(X, labels)
    named = EarlyClassifier(checkpoints=2).fit(X[:200], y[:200].astype(object))
    assert set(named.predict(X)) == {"down", "up"}
