"""EarlyClassifier: scikit-learn's conventions, with a guarantee."""

from __future__ import annotations

import json
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_predict,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import haltwise
from haltwise import LSTM, EarlyClassifier, PrefixClassifier
from haltwise.calibration import Alike


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
    "the default": lambda: None,
    "the LSTM": lambda: LSTM(max_epochs=25),
    "a function of the batch": lambda: softmax_of_drift,
}


@pytest.fixture(scope="module", params=BASES, ids=list(BASES))
def early(request, walks):
    X, y = walks
    base = BASES[request.param]()
    checkpoints = [4, 10, 20] if request.param == "an aeon classifier" else 10
    # Nothing trained the function.
    new = request.param == "a function of the batch"
    early = EarlyClassifier(base, checkpoints=checkpoints, new_series=new)
    return early.fit(X[:700], y[:700])


def test_it_saves_time_and_keeps_its_promise(early, walks):
    X, y = walks
    found = early.evaluate(X[700:], y[700:])
    assert early.rule_.promise == "conditional" and early.rule_.halts_early
    assert found.t_avg < 1 and found.gap <= 0.1 and found.early_accuracy > 0.8


def test_predicting_halts_where_the_rule_does(early, walks):
    X, y = walks
    labels, decided = early.predict_early(X[700:])
    assert decided.all() and set(labels) == {"down", "up"}
    assert np.array_equal(early.predict(X[700:]), labels)
    assert early.predict(X[:0]).shape == (0,) and early.predict_proba(X[:0]).shape == (0, 2)
    traces = early.traces(X[700:], y[700:])
    halts = early.rule_.halt(traces.scores, probs=traces.probs)
    assert np.array_equal(early.state_info[:, 0] + 1, halts)
    assert np.array_equal(early.state_info[:, 3], early.checkpoints_[halts - 1])
    expected = traces.probs[np.arange(300), halts - 1].argmax(axis=1)
    assert np.array_equal(labels, early.classes_[expected])


def test_the_score_is_the_accuracy_and_how_early_has_its_own_name(early, walks):
    X, y = walks
    found = early.evaluate(X[700:], y[700:])
    mean, accuracy, earliness = early.score_early(X[700:], y[700:])
    assert early.score(X[700:], y[700:]) == accuracy == pytest.approx(found.early_accuracy)
    early.predict_early(X[700:])
    assert earliness == pytest.approx(early.state_info[:, 3].mean() / 20) and 0 < earliness < 1
    assert mean == pytest.approx(2 * accuracy * (1 - earliness) / (accuracy + 1 - earliness))
    # Weights of 0 leave series out.
    first = np.arange(300) < 100
    assert early.score_early(X[700:], y[700:], sample_weight=first) == pytest.approx(
        early.score_early(X[700:800], y[700:800])
    )


def test_only_questions_about_growing_series_keep_a_state(early, walks):
    X, y = walks
    early.reset_state_info()
    early.update_predict(X[700:710, :, :4])
    state = early.state_info
    early.predict(X[710:])
    early.predict_proba(X[710:])
    early.score(X[710:], y[710:])
    assert early.state_info is state


def test_growing_series_are_decided_as_complete_ones_are(early, walks):
    X, _ = walks
    X = X[700:]
    full = early.predict(X)
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
    full = early.predict(X)
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
    assert not early._live.cases


def test_it_is_cloned_pickled_and_its_parameters_are_known(early, walks):
    X, _ = walks
    copy = clone(early)
    assert not hasattr(copy, "rule_") and copy.get_params()["alpha"] == 0.1
    copy.set_params(alpha=0.2)
    assert early.alpha == 0.1
    again = pickle.loads(pickle.dumps(early))
    assert np.array_equal(again.predict(X[700:]), early.predict(X[700:]))


def test_calibrating_on_other_series_replaces_the_rule(walks):
    X, y = walks
    early = EarlyClassifier(LogisticRegression(), calibration_fraction=None, checkpoints=5)
    early.fit(X[:300], y[:300])
    with pytest.raises(NotFittedError, match="call calibrate"):
        early.predict(X)
    assert early.calibrate(X[300:700], y[300:700]) is early
    assert early.rule_.record["certified_on"]["sequences"] == 400
    assert early.predict_early(X[700:])[1].all()


class Knowing(Fixed):
    """Sure of up where it was fitted on the series, of down where it was not."""

    def predict_proba(self, X):
        known = (X[:, None, 0] == self.seen_[None, :, 0]).any(axis=1)
        return np.stack([1 - known, known], axis=1)


@pytest.mark.parametrize("folds", [2, 3, 5])
def test_rules_are_proposed_from_series_by_bases_that_have_not_seen_them(folds, walks):
    X, y = walks
    early = EarlyClassifier(Knowing(), checkpoints=3, fit_folds=folds, random_state=5)
    with warnings.catch_warnings():
        # The rule is as poor as the base.
        warnings.simplefilter("ignore")
        early.fit(X, y)
    said = early.traces(X, y).probs[:, 0, 1]
    known = said > 0
    assert known.sum() == len(early.fit_traces_) == 700
    # They answer together, and one of them has not seen it.
    assert np.array_equal(np.unique(said), np.float32([0, folds / (folds + 1)]))
    assert (early.fit_traces_.probs[:, :, 1] == 0).all()
    assert sorted(early.fit_traces_.labels) == sorted((y[known] == "up").astype(int))


def test_the_bases_of_the_folds_answer_together(walks):
    X, y = walks
    early = EarlyClassifier(LogisticRegression(), checkpoints=4).fit(X[:700], y[:700])
    assert [len(fitted) for fitted in early.fold_estimators_] == [4] * 5
    said = early.traces(X[700:], y[700:]).probs
    for c, end in enumerate(early.checkpoints_):
        bases = [fitted[c] for fitted in (early.estimators_, *early.fold_estimators_)]
        prefixes = X[700:, :, :end].reshape(300, -1)
        alone = [base.predict_proba(prefixes) for base in bases]
        assert len(alone) == 6 and not np.allclose(alone[0], alone[1])
        assert np.array_equal(said[:, c], np.mean(alone, axis=0).astype(np.float32))
    for one in (dict(ensemble=False), dict(fit_folds=None), dict(method="marginal")):
        early = EarlyClassifier(LogisticRegression(), checkpoints=4, **one).fit(X[:700], y[:700])
        assert early.fold_estimators_ == []
        alone = early.estimators_[-1].predict_proba(X[700:].reshape(300, -1)).astype(np.float32)
        assert np.array_equal(early.traces(X[700:], y[700:]).probs[:, -1], alone)


def test_networks_answer_together_with_their_scores(walks):
    X, y = walks
    early = EarlyClassifier(LSTM(max_epochs=2), checkpoints=3, fit_folds=8)
    with warnings.catch_warnings():
        # Trained too little to halt early.
        warnings.simplefilter("ignore")
        early.fit(X[:300], y[:300])
    (alone,), *others = (early.estimators_, *early.fold_estimators_)
    assert len(others) == 8
    traces = early.traces(X[700:], y[700:])
    networks = [alone, *(fitted for (fitted,) in others)]
    scores = [network.model_.predict_proba(X[700:])[1] for network in networks]
    together = np.mean(scores, axis=0)[:, early.checkpoints_ - 1]
    assert np.allclose(traces.scores, together, atol=1e-6)
    # Asked about one series alone, they say the same of it, to the bit.
    for i in range(700, 720):
        one = early.traces(X[i : i + 1], y[i : i + 1])
        assert np.array_equal(one.scores[0], traces.scores[i - 700])
        assert np.array_equal(one.probs[0], traces.probs[i - 700])


def record(early):
    return {
        part: early.rule_.record[part]["sequences"]
        for part in ("fitted_on", "screened_on", "certified_on")
        if early.rule_.record.get(part)
    }


def test_all_series_that_calibrate_certify(walks):
    X, y = walks
    early = EarlyClassifier(LogisticRegression(), checkpoints=10)
    assert record(early.fit(X, y)) == {"fitted_on": 700, "certified_on": 300}
    early.set_params(method="conditional").fit(X, y)
    assert record(early) == {"screened_on": 700, "certified_on": 300}
    early.set_params(method="marginal").fit(X, y)
    assert early.fit_traces_ is None and record(early) == {"certified_on": 300}
    early.set_params(method="adaptive", promise="average").fit(X, y)
    assert record(early) == {"fitted_on": 700, "certified_on": 300}
    early.set_params(fit_folds=None).fit(X, y)
    assert early.fit_traces_ is None and sum(record(early).values()) == 300


def test_more_options_of_calibrating_are_passed_on(walks):
    X, y = walks
    base = EarlyClassifier(LogisticRegression(), checkpoints=5, method="marginal")
    early = clone(base).set_params(options={"score": "margin", "grid_step": 0.05}).fit(X, y)
    rule = json.loads(early.rule_.to_json())
    assert (rule["score"], rule["grid_step"]) == ("margin", 0.05)
    with pytest.raises(ValueError, match="options has alpha: give it as a parameter"):
        clone(base).set_params(options={"alpha": 0.1}).fit(X, y)
    with pytest.raises(TypeError, match="unknown options: luck; the options are method"):
        clone(base).set_params(options={"luck": 7}).fit(X, y)


def test_either_promise_is_made(walks):
    X, y = walks
    found = {}
    for promise, word in (
        (None, "conditional"),
        ("halted-by", "conditional"),
        ("average", "marginal"),
    ):
        early = EarlyClassifier(LogisticRegression(), checkpoints=10, alpha=0.05, promise=promise)
        early.fit(X[:700], y[:700])
        assert early.rule_.promise == word
        found[promise] = early.evaluate(X[700:], y[700:])
        assert found[promise].gap <= 0.05
        labels = early.predict(X[700:])
        assert (labels == y[700:]).mean() == pytest.approx(found[promise].early_accuracy)
    assert found[None].t_avg == found["halted-by"].t_avg > found["average"].t_avg


def test_folds_halt_earlier_where_there_are_few_series(walks):
    X, y = walks
    found = {}
    for folds in (5, None):
        base = LogisticRegression()
        early = EarlyClassifier(base, checkpoints=10, alpha=0.05, fit_folds=folds)
        tried = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for seed in range(5):
                early.set_params(random_state=seed).fit(X[:600], y[:600])
                tried.append(early.evaluate(X[600:], y[600:]))
        assert np.mean([one.gap for one in tried]) <= 0.05
        found[folds] = np.mean([one.t_avg for one in tried])
    assert found[5] < found[None]


def test_folds_are_drawn_by_the_seed_alone(walks):
    X, y = walks
    early = EarlyClassifier(LogisticRegression(), checkpoints=5)
    rules = [
        clone(early).set_params(n_jobs=jobs, random_state=seed).fit(X, y).rule_
        for jobs, seed in [(None, 0), (2, 0), (1, 1)]
    ]
    assert rules[0] == rules[1] != rules[2]


def test_series_too_short_for_any_checkpoint_propose_nothing(walks):
    X, y = walks
    early = EarlyClassifier(LogisticRegression(), calibration_fraction=None, checkpoints=[6])
    cut = [case[:, :end] for case, end in zip(X, [5, 6, 20, 20] * 250, strict=True)]
    early.fit(cut, y)
    assert len(early.fit_traces_) == 750 and set(early.fit_traces_.lengths) == {1, 2}


def test_bases_may_say_the_same_of_two_series(walks):
    """Without a warning that the two may be one: they are known to differ."""
    X, y = walks
    clear = np.arange(1000) % 50 == 0
    X = np.where(clear[:, None, None], np.where(y == "up", 1e4, -1e4)[:, None, None] + X, X)
    early = EarlyClassifier(LogisticRegression(), checkpoints=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        early.fit(X[:700], y[:700]).calibrate(X[700:], y[700:])
    with pytest.warns(Alike, match="step for step"):
        rule = haltwise.calibrate(early.traces(X[700:], y[700:]), fit=early.fit_traces_)
    assert rule == early.rule_


class Memory:
    """A network that learned its training series by heart: of those it is right from the
    first time point on, of others it is as sure, by chance, until it has read 15."""

    def __init__(self, X, y):
        self.known = dict(zip(X[:, 0, 0].tolist(), y == "up", strict=True))

    def __call__(self, X):
        first = X[:, 0, 0]
        guess = [self.known.get(x, int(abs(x) * 1e6) % 2 == 0) for x in first.tolist()]
        up = np.repeat(np.array(guess)[:, None], X.shape[2], axis=1)
        up[:, 15:] = X.mean(axis=1)[:, 15:] > 0
        up = np.where(up, 0.99, 0.01)
        return np.stack([1 - up, up], axis=2)


def test_a_trained_function_is_not_calibrated_on_what_may_have_trained_it(walks):
    X, y = walks
    network = Memory(X[:400], y[:400])
    early = EarlyClassifier(network).fit(X[:400], y[:400])
    assert early.classes_.tolist() == ["down", "up"] and not hasattr(early, "rule_")
    for ask in (early.predict, early.predict_proba, early.update_predict):
        with pytest.raises(NotFittedError, match=r"calibrate\(X, y\).*new_series=True"):
            ask(X[400:])
    with pytest.raises(ValueError, match="all of these series were given to fit"):
        early.calibrate(X[100:300].astype(np.float32), y[100:300])
    early.calibrate(X[400:700], y[400:700])
    assert early.evaluate(X[700:], y[700:]).gap <= 0.1
    # Calibrated on the series that trained the base, it would break its promise.
    with pytest.warns(UserWarning, match="400 of the 401 series, series 1 the first, were"):
        early.calibrate(X[:401], y[:401])
    assert early.evaluate(X[700:], y[700:]).gap > 0.4


def test_a_function_may_be_fitted_on_series_that_are_said_to_be_new(walks):
    X, y = walks
    early = EarlyClassifier(softmax_of_drift, new_series=True, checkpoints=5)
    assert clone(early).get_params()["new_series"] is True
    early.fit(X[:700], y[:700])
    assert (
        early.rule_
        == EarlyClassifier(softmax_of_drift, checkpoints=5)
        .fit(X[700:], y[700:])
        .calibrate(X[:700], y[:700])
        .rule_
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        early.set_params(alpha=0.2).calibrate(X[:700], y[:700])
    for wrong, message in [
        (clone(early).set_params(estimator=LogisticRegression()), "new_series is for a function"),
        (clone(early).set_params(calibration_fraction=None), "contradict each other"),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong.fit(X, y)
        for ask in (wrong.calibrate, wrong.traces, wrong.score):
            with pytest.raises(NotFittedError, match="not ready; call"):
                ask(X, y)


def test_what_trained_a_base_does_not_calibrate_it(walks):
    X, y = walks
    early = EarlyClassifier(Fixed(), checkpoints=2).fit(X, y)
    trained = early.estimators_[-1].seen_.reshape(-1, 2, 20)
    with pytest.raises(ValueError, match="all of these series were given to fit"):
        early.calibrate(trained[:200], y[:200])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # This base always says the same.
        warnings.filterwarnings("ignore", ".*number the classes alike")
        aside = ~np.isin(X[:, 0, 0], trained[:, 0, 0])
        early.calibrate(X[aside], y[aside])


def normalised(X):
    """By the whole series, as z-normalisation does."""
    spread = X.std(axis=2, keepdims=True) + 1e-8
    return softmax_of_drift((X - X.mean(axis=2, keepdims=True)) / spread)


def undefined_alone(X):
    """The same where nothing guards against a division by 0."""
    with np.errstate(invalid="ignore"):
        return softmax_of_drift(X * X.std(axis=2, keepdims=True) / X.std(axis=2, keepdims=True))


def backwards(X):
    """The other half of a bidirectional network."""
    return softmax_of_drift(np.cumsum(X[:, :, ::-1], axis=2)[:, :, ::-1] / 20)


def one_ahead(X):
    """A convolution in the middle of its window."""
    padded = np.pad(X, ((0, 0), (0, 0), (0, 1)))
    return softmax_of_drift((padded[:, :, :-1] + padded[:, :, 1:]) / 2)


def from_the_end(X):
    """Knows how much is still to come."""
    probs = softmax_of_drift(X)
    probs[:, -1] = [0.1, 0.9]
    return probs


def by_padding(X):
    """Counts the zeros that a series is filled up with."""
    over = (X == 0).all(axis=1).sum(axis=1)
    return softmax_of_drift(X * (1 + over)[:, None, None])


def by_batch(X):
    """Batch normalisation that still learns."""
    return softmax_of_drift(X - X.mean(axis=0))


def with_dropout(X):
    return softmax_of_drift(X * (DROPS.random(X.shape) > 0.1))


DROPS = np.random.default_rng(0)
LOOKS_AHEAD = [
    normalised,
    undefined_alone,
    backwards,
    one_ahead,
    from_the_end,
    by_padding,
    by_batch,
    with_dropout,
]


@pytest.mark.parametrize("function", LOOKS_AHEAD, ids=lambda function: function.__name__)
def test_a_function_that_looks_ahead_is_refused(function, walks):
    X, y = walks
    early = EarlyClassifier(function, checkpoints=20).fit(X[:300], y[:300])
    found = r"series \d+, time point \d+: .* class '(up|down)' [\d.e-]+ in the .* but [\d.ena-]+ if"
    for ask in (early.calibrate, early.traces):
        with pytest.raises(ValueError, match=found):
            ask(X[300:], y[300:])
    assert not hasattr(early, "rule_")
    with pytest.raises(ValueError, match=found):
        EarlyClassifier(function, new_series=True).fit(X, y)


def test_looking_ahead_is_found_where_only_padding_follows(walks):
    """Series that end early are compared with themselves alone."""
    X, y = walks
    lengths = np.where(np.arange(700) % 100 == 50, 9, 20)
    cut = [case[:, :end] for case, end in zip(X[300:], lengths, strict=True)]
    early = EarlyClassifier(by_padding, checkpoints=[8, 9]).fit(X[:300], y[:300])
    with pytest.raises(ValueError, match=r"series \d*51, time point [89]: "):
        early.traces(cut, y[300:])


def test_a_function_that_fails_on_what_is_live_is_refused(walks):
    X, y = walks

    def wide(X):
        return softmax_of_drift(X) if X.shape[2] > 8 else np.zeros(0)

    early = EarlyClassifier(wide, checkpoints=10).fit(X[:300], y[:300])
    with pytest.raises(ValueError, match="cut at time point 2, as live ones are: .*shape"):
        early.calibrate(X[300:], y[300:])


@pytest.mark.parametrize(("kind", "noise"), [("f4", 1e-4), ("f8", 1e-4), ("f2", 1e-3)])
def test_rounding_is_not_taken_for_looking_ahead(kind, noise, walks):
    X, y = walks
    rng = np.random.default_rng(0)

    def rounded(X):
        up = (softmax_of_drift(X)[:, :, 1] + rng.normal(0, noise, X[:, 0].shape)).clip(0, 1)
        return np.stack([1 - up, up], axis=2).astype(kind)

    lengths = rng.integers(8, 21, size=700)
    cut = [case[:, :end] for case, end in zip(X[300:], lengths, strict=True)]
    early = EarlyClassifier(rounded, checkpoints=10).fit(X[:300], y[:300])
    early.traces(cut, y[300:])
    assert early.calibrate(X[300:], y[300:]).rule_.halts_early


TIE = (0.5 - 1e-9, 0.5 + 1e-9)


@pytest.mark.parametrize(
    ("base", "options"),
    [
        (Fixed(TIE), {}),
        (lambda X: np.tile(TIE, (len(X), X.shape[2], 1)), {"new_series": True}),
    ],
    ids=["a classifier", "a function"],
)
def test_the_label_that_is_served_is_the_one_that_was_certified(base, options, walks):
    """float64 tells these probabilities apart, float32, which certifies, does not."""
    X, _ = walks
    y = np.where(np.arange(1000) % 18 == 0, "up", "down")
    early = EarlyClassifier(base, checkpoints=5, **options).fit(X[:700], y[:700])
    X, y = X[700:], y[700:]
    certified = early.evaluate(X, y).early_accuracy
    assert certified > 0.9
    probs, decided = early.predict_proba_early(X)
    assert decided.all() and probs.dtype == np.float32
    for labels in (
        early.predict(X),
        early.predict_early(X)[0],
        early.classes_[probs.argmax(axis=1)],
        early.classes_[early.state_info[:, 2]],
        early.update_predict(X, range(300))[0],
        early.classes_[early.update_predict_proba(X, range(300))[0].argmax(axis=1)],
    ):
        assert (labels == "down").all()
    assert early.score(X, y) == pytest.approx(certified)


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
        return early.score_early(X, y).harmonic_mean

    search = GridSearchCV(
        EarlyClassifier(LogisticRegression(), checkpoints=2),
        {"estimator__C": [0.1, 1.0], "alpha": [0.1, 0.2]},
        scoring=harmonic_mean,
        cv=2,
    )
    flat = X[:, 0]
    search.fit(flat[:600], y[:600])
    # The choice is certified on series that took no part in the search.
    chosen = search.best_estimator_.calibrate(flat[600:900], y[600:900])
    assert (chosen.predict(flat[900:]) == y[900:]).mean() > 0.8


@pytest.mark.filterwarnings("ignore:the rule halts no sequence early")
def test_searches_and_cross_validation_work_with_their_defaults(walks):
    X, y = walks[0][:300, 0], walks[1][:300]
    early = EarlyClassifier(PrefixClassifier(trees=10), checkpoints=4)
    usual = cross_val_score(early, X, y, cv=3)
    assert np.array_equal(usual, cross_val_score(early, X, y, cv=3, scoring="accuracy"))
    assert usual.shape == (3,) and usual.min() > 0.6
    search = GridSearchCV(early, {"alpha": [0.05, 0.2]}, cv=2).fit(X, y)
    assert search.predict(X).shape == (300,) and np.isfinite(search.best_score_)
    assert len(cross_val_predict(make_pipeline(early), X, y, cv=2)) == 300


@pytest.mark.filterwarnings("ignore:the rule halts no sequence early")
def test_a_class_that_only_long_series_show_is_no_problem():
    rng = np.random.default_rng(0)
    y = np.arange(900) % 3
    X = [rng.normal(label, 1, size=(1, 4 if label == 2 else 8)) for label in y]
    early = EarlyClassifier(LogisticRegression(), checkpoints=[4]).fit(X, y)
    traces = early.traces(X, y)
    assert (traces.probs[y < 2, 1, 2] == 0).all()


@pytest.mark.parametrize("base", [None, LogisticRegression(), LSTM(max_epochs=3)], ids=str)
def test_progress_is_shown_to_those_who_ask(base, walks, capsys):
    X, y = walks[0][:100], walks[1][:100]
    early = EarlyClassifier(base, checkpoints=4, fit_folds=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        early.fit(X, y)
        assert capsys.readouterr().err == ""
        early.set_params(verbose=True).fit(X, y)
    said = capsys.readouterr().err
    done = {None: "4/4", LSTM: "3/3"}.get(base and type(base), "12/12")
    assert "training" in said and done in said
    assert early.estimator is base


def few(n):
    """One of n series that is not drawn to calibrate on."""
    return min(train_test_split(np.arange(n), test_size=0.3, random_state=0)[0])


def test_wrong_input_is_refused_with_words(walks):
    X, y = walks
    early = EarlyClassifier(LogisticRegression(), checkpoints=[5, 10]).fit(X, y)
    infinite = X.copy()
    infinite[900, 1, 3] = -np.inf
    for call, message in [
        (lambda: early.predict(X[:, :1]), "the series have 1 channels"),
        (lambda: early.predict(X[:, :, :3]), "the first checkpoint is at 5"),
        (lambda: early.predict(np.zeros((2, 2, 30))), "fit saw at most 20"),
        (lambda: early.predict(np.zeros((2, 2, 2, 2))), "series must be numbers"),
        (lambda: early.predict(X * 1j), "Complex data not supported"),
        (lambda: early.fit(X[:0], y[:0]), r"0 sample\(s\)"),
        (lambda: early.fit(X, None), "requires y to be passed"),
        (lambda: EarlyClassifier().fit(infinite, y), "series 901, time point 4, channel 2 is -inf"),
        (lambda: early.predict(list(infinite)), "series 901, time point 4, channel 2 is -inf"),
        (lambda: early.fit(X, y[:10]), "10 labels for 1000 series"),
        (lambda: early.fit(X, ["same"] * 1000), "at least two classes, .* has one class, 'same'"),
        (lambda: clone(early).set_params(checkpoints=[30]).fit(X, y), "between 1 and 20"),
        (lambda: clone(early).set_params(checkpoints=0).fit(X, y), "at least 1"),
        (lambda: clone(early).set_params(checkpoints="all").fit(X, y), "or a list of time points"),
        (lambda: clone(early).set_params(checkpoints=[0.5]).fit(X, y), "or a list of time points"),
        (lambda: clone(early).set_params(calibration_fraction=2).fit(X, y), "between 0 and 1, or"),
        (lambda: EarlyClassifier(object()).fit(X, y), "has no predict_proba"),
        (lambda: EarlyClassifier(lambda X: X[:3], new_series=True).fit(X, y), "is needed"),
        (lambda: early.update_predict(X, ids=["a"]), "as many different ids"),
        (lambda: clone(early).set_params(promise="any").fit(X, y), '"halted-by", "average"'),
        (
            lambda: clone(early).set_params(promise="average", method="conditional").fit(X, y),
            "promise goes with the method adaptive only",
        ),
        (lambda: clone(early).set_params(fit_folds=1).fit(X, y), "at least 2, or None"),
        (
            lambda: clone(early).fit(X[:50], np.where(np.arange(50) == few(50), "rare", "usual")),
            "without one of 5 folds, fewer than two .* or ask for no folds",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    early = EarlyClassifier(LogisticRegression(), checkpoints=[5, 10]).fit(X, y)
    early.predict_early(X[:, :, :5])
    with pytest.raises(ValueError, match="left .* undecided"):
        early.update_predict(X[:1])
    with pytest.raises(NotFittedError):
        EarlyClassifier().predict(X)
