"""EarlyClassifier: scikit-learn's and aeon's conventions, with a guarantee."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import haltwise
from haltwise import LSTM, EarlyClassifier


def softmax_of_drift(X):
    """A 'network' that answers at every step: sure of up where the series is high."""
    logits = X.mean(axis=1) / np.sqrt(np.arange(1, X.shape[2] + 1))
    up = 1 / (1 + np.exp(-2 * logits))
    return np.stack([1 - up, up], axis=2)


class Fixed(ClassifierMixin, BaseEstimator):
    """Learns nothing, and gives everyone the probabilities it was made with; keeps what it
    was fitted on."""

    def __init__(self, probs=(0.5, 0.5)):
        self.probs = probs

    def fit(self, X, y):
        self.classes_, self.seen_ = np.unique(y), X
        return self

    def predict_proba(self, X):
        return np.tile(self.probs, (len(X), 1))


def aeon_forest():
    from aeon.classification.interval_based import TimeSeriesForestClassifier

    return TimeSeriesForestClassifier(n_estimators=10, random_state=0)


BASES = {
    "a scikit-learn classifier": lambda: LogisticRegression(),
    "a scikit-learn pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "an aeon classifier": aeon_forest,
    "the LSTM": lambda: LSTM(max_epochs=25),
    "a function of the batch": lambda: softmax_of_drift,
}


@pytest.fixture(scope="module", params=BASES, ids=list(BASES))
def early(request, walks):
    X, y = walks
    base = BASES[request.param]()
    checkpoints = [4, 10, 20] if request.param == "an aeon classifier" else 10
    return EarlyClassifier(base, checkpoints=checkpoints).fit(X[:700], y[:700])


def test_it_saves_time_and_keeps_its_promise(early, walks):
    X, y = walks
    found = early.evaluate(X[700:], y[700:])
    assert early.rule_.promise == "conditional" and early.rule_.halts_early
    assert found.t_avg < 1 and found.gap <= 0.1 and found.early_accuracy > 0.8


def test_predicting_halts_where_the_rule_does(early, walks):
    X, y = walks
    labels, decided = early.predict(X[700:])
    assert decided.all() and set(labels) == {"down", "up"}
    traces = early.traces(X[700:], y[700:])
    halts = early.rule_.halt(traces.scores, probs=traces.probs)
    assert np.array_equal(early.state_info[:, 0] + 1, halts)
    assert np.array_equal(early.state_info[:, 3], early.checkpoints_[halts - 1])
    expected = traces.probs[np.arange(300), halts - 1].argmax(axis=1)
    assert np.array_equal(labels, early.classes_[expected])


def test_score_is_aeons(early, walks):
    X, y = walks
    mean, accuracy, earliness = early.score(X[700:], y[700:])
    found = early.evaluate(X[700:], y[700:])
    assert accuracy == pytest.approx(found.early_accuracy)
    assert mean == pytest.approx(2 * accuracy * (1 - earliness) / (accuracy + 1 - earliness))
    assert early.compute_harmonic_mean(early.get_state_info(), y[700:]) == (
        mean,
        accuracy,
        earliness,
    )


def test_growing_series_are_decided_as_complete_ones_are(early, walks):
    X, _ = walks
    X = X[700:]
    full, _ = early.predict(X)
    # As in aeon: the undecided come again, longer and in the same order.
    early.reset_state_info()
    rows, said = np.arange(300), np.full(300, "??????")
    for end in early.checkpoints_:
        labels, decided = early.update_predict(X[rows, :, :end])
        assert (labels[~decided] == "-1").all()
        said[rows[decided]] = labels[decided]
        rows = early.filter_X(rows, decided)
    assert np.array_equal(said, full) and len(rows) == 0


def test_live_series_are_known_by_their_ids(early, walks):
    X, _ = walks
    X = X[700:760]
    full, _ = early.predict(X)
    early.reset_state_info()
    ids = np.array([f"sensor {i}" for i in range(60)])
    rng = np.random.default_rng(0)
    said = {}
    for end in early.checkpoints_:
        rows = rng.permutation(60)
        probs, decided = early.update_predict_proba(X[rows, :, :end], ids[rows])
        assert (probs[~decided] == -1).all()
        for i, row in zip(rows[decided], probs[decided], strict=True):
            now = early.classes_[row.argmax()]
            assert said.setdefault(i, now) == now, "a decision stands"
        early = pickle.loads(pickle.dumps(early))
    assert [said[i] for i in range(60)] == full.tolist()
    early.forget(ids)
    assert not early._live


def test_it_is_cloned_pickled_and_its_parameters_are_known(early, walks):
    X, _ = walks
    copy = clone(early)
    assert not hasattr(copy, "rule_") and copy.get_params()["alpha"] == 0.1
    copy.set_params(alpha=0.2)
    assert early.alpha == 0.1
    again = pickle.loads(pickle.dumps(early))
    assert np.array_equal(again.predict(X[700:])[0], early.predict(X[700:])[0])


def test_calibrating_on_other_series_replaces_the_rule(walks):
    X, y = walks
    early = EarlyClassifier(LogisticRegression(), calibration_fraction=None, checkpoints=5)
    early.fit(X[:300], y[:300])
    with pytest.raises(NotFittedError, match="call calibrate"):
        early.predict(X)
    assert early.calibrate(X[300:700], y[300:700]) is early
    assert early.rule_.record["certified_on"]["sequences"] < 400
    assert early.predict(X[700:])[1].all()


TIE = (0.5 - 1e-9, 0.5 + 1e-9)


@pytest.mark.parametrize(
    "base",
    [Fixed(TIE), lambda X: np.tile(TIE, (len(X), X.shape[2], 1))],
    ids=["a classifier", "a function"],
)
def test_the_label_that_is_served_is_the_one_that_was_certified(base, walks):
    """float64 tells these probabilities apart, float32, which certifies, does not."""
    X, _ = walks
    y = np.where(np.arange(1000) % 18 == 0, "up", "down")
    early = EarlyClassifier(base, checkpoints=5).fit(X[:700], y[:700])
    X, y = X[700:], y[700:]
    certified = early.evaluate(X, y).early_accuracy
    assert certified > 0.9
    probs, decided = early.predict_proba(X)
    assert decided.all() and probs.dtype == np.float32
    for labels in (
        early.predict(X)[0],
        early.classes_[probs.argmax(axis=1)],
        early.classes_[early.state_info[:, 2]],
        early.update_predict(X, range(300))[0],
        early.classes_[early.update_predict_proba(X, range(300))[0].argmax(axis=1)],
    ):
        assert (labels == "down").all()
    assert early.score(X, y)[1] == pytest.approx(certified)


def test_the_series_set_aside_are_drawn_without_a_look_at_their_classes(walks):
    X, y = walks
    trained = []
    for labels in (y, np.roll(y, 1), np.where(np.arange(1000) < 100, "up", "down")):
        early = EarlyClassifier(Fixed(), checkpoints=2, random_state=3).fit(X, labels)
        trained.append(early.estimators_[-1].seen_)
        assert len(trained[-1]) == 700
    assert np.array_equal(trained[0], trained[1]) and np.array_equal(trained[0], trained[2])


def test_a_class_that_is_wholly_set_aside_is_named():
    X = np.random.default_rng(0).normal(size=(40, 1, 4))
    y = np.array(["common", "other"] * 20)
    found = set()
    for seed in range(20):
        rare = np.where(np.arange(40) == 7, "rare", y)
        early = EarlyClassifier(LogisticRegression(), checkpoints=2, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                early.fit(X, rare)
                found.add("trained")
            except ValueError as error:
                assert "class 'rare' has no series among the 28 to train on" in str(error)
                found.add("refused")
    assert found == {"trained", "refused"}


def test_parameters_can_be_searched(walks):
    X, y = walks

    def harmonic_mean(early, X, y):
        return early.score(X, y)[0]

    search = GridSearchCV(
        EarlyClassifier(LogisticRegression(), checkpoints=2),
        {"estimator__C": [0.1, 1.0], "alpha": [0.1, 0.2]},
        scoring=harmonic_mean,
        cv=2,
    )
    flat = X[:, 0]
    search.fit(flat[:600], y[:600])
    # What was chosen is certified on series that chose nothing.
    chosen = search.best_estimator_.calibrate(flat[600:900], y[600:900])
    assert chosen.predict(flat[900:])[1].all()


@pytest.mark.filterwarnings("ignore:no more was certified")
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
    labels, decided = early.predict(cut[700:])
    assert not decided.all(), "who is short may still grow"
    labels, decided = early.predict(cut[700:], ended=True)
    assert decided.all() and (labels == y[700:]).mean() > 0.8
    assert early.predict(early.filter_X(cut[700:], lengths[700:] < 20))[1].all()


@pytest.mark.filterwarnings("ignore:no more was certified")
def test_a_class_that_only_long_series_show_is_no_problem():
    rng = np.random.default_rng(0)
    y = np.arange(900) % 3
    X = [rng.normal(label, 1, size=(1, 4 if label == 2 else 8)) for label in y]
    early = EarlyClassifier(LogisticRegression(), checkpoints=[4]).fit(X, y)
    traces = early.traces(X, y)
    assert (traces.probs[y < 2, 1, 2] == 0).all()


def test_labels_may_be_numbers(walks):
    X, y = walks
    early = EarlyClassifier(LogisticRegression(), checkpoints=5)
    early.fit(X, np.where(y == "up", 1, 0))
    labels, decided = early.predict(X[:, :, :4])
    assert labels.dtype.kind == "i" and set(labels[~decided]) <= {-1}


def test_wrong_input_is_refused_with_words(walks):
    X, y = walks
    early = EarlyClassifier(LogisticRegression(), checkpoints=[5, 10]).fit(X, y)
    for call, message in [
        (lambda: early.predict(X[:, :1]), "the series have 1 channels"),
        (lambda: early.predict(X[:, :, :3]), "the first checkpoint is at 5"),
        (lambda: early.predict(np.zeros((2, 2, 30))), "those fitted had 20"),
        (lambda: early.predict(np.zeros((2, 2, 2, 2))), "series must be numbers"),
        (lambda: early.fit(X, y[:10]), "10 labels for 1000 series"),
        (lambda: early.fit(X, ["same"] * 1000), "at least two classes"),
        (lambda: clone(early).set_params(checkpoints=[30]).fit(X, y), "between 1 and 20"),
        (lambda: clone(early).set_params(checkpoints=0).fit(X, y), "at least 1"),
        (lambda: EarlyClassifier(object()).fit(X, y), "has no predict_proba"),
        (lambda: EarlyClassifier(lambda X: np.ones((3, 2, 1))).fit(X, y), "is needed"),
        (lambda: early.update_predict(X, ids=["a"]), "as many different ids"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    early = EarlyClassifier(LogisticRegression(), checkpoints=[5, 10]).fit(X, y)
    early.predict(X[:, :, :5])
    with pytest.raises(ValueError, match="left .* undecided"):
        early.update_predict(X[:1])
    with pytest.raises(NotFittedError):
        EarlyClassifier().predict(X)


def test_it_stands_beside_aeons_own(walks):
    """The same calls, results of the same kind and shape."""
    from aeon.classification.early_classification import ProbabilityThresholdEarlyClassifier

    X, y = walks
    theirs = ProbabilityThresholdEarlyClassifier(aeon_forest(), classification_points=[5, 10])
    ours = EarlyClassifier(aeon_forest(), checkpoints=[5, 10])
    for early in (theirs, ours):
        early.fit(X[:700], y[:700])
        labels, decided = early.predict(X[700:, :, :5])
        assert labels.shape == decided.shape == (300,) and decided.dtype == bool
        assert (labels[~decided] == "-1").all()
        probs, decided = early.predict_proba(X[700:])
        assert probs.shape == (300, 2) and decided.all()
        assert len(early.score(X[700:], y[700:])) == 3
        assert early.get_state_info().shape == (300, 4)
        early.reset_state_info()
        assert early.state_info is None
        assert list(early.classes_) == ["down", "up"]


@pytest.mark.filterwarnings("ignore:no more was certified")
def test_the_default_is_the_lstm(walks):
    X, y = walks
    early = EarlyClassifier().fit(X[:200], y[:200])
    assert isinstance(early.estimators_[0], haltwise.LSTM)
