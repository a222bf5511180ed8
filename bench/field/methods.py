"""The early classifiers: how each is fitted, and what it does at each setting of its knob."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from ours import OURS, haltwise_rules, prefix_rivals
from outcomes import ALPHAS, WEIGHTS, Clock, Outcome, outcome, price, same
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sets import Split
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import RidgeClassifierCV
from sklearn.utils import check_random_state
from triggers import first, settings, threshold_halts, triggered

TREES = 25
#: The share of right answers that TEASER's one-class machines may reject. The first is its
#: default.
NUS = (0.05, 0.2, 0.5)


class Forest(ClassifierMixin, BaseEstimator):
    """The base of all methods: a forest that reads the channels of a series as one row. With a
    `memory`, it is not fitted again to the same series with the same seed."""

    memory: dict[Any, Any] | None = None
    usual: int = TREES

    def __init__(self, trees: int | None = None, random_state: Any = None) -> None:
        self.trees = trees
        self.random_state = random_state

    def fit(self, X: np.ndarray, y: np.ndarray) -> Forest:
        rows = np.ascontiguousarray(X.reshape(len(X), -1))
        memory = Forest.memory if isinstance(self.random_state, int) else None
        if memory is None:
            self.forest_ = self.grown(rows, y)
        else:
            told = blake2b(rows.tobytes() + np.asarray(y).tobytes()).digest()
            key = (told, rows.shape, self.trees or self.usual, self.random_state)
            if key not in memory:
                memory[key] = self.grown(rows, y)
            self.forest_ = memory[key]
        self.classes_ = self.forest_.classes_
        return self

    def grown(self, rows: np.ndarray, y: np.ndarray) -> RandomForestClassifier:
        trees = self.trees or self.usual
        return RandomForestClassifier(trees, random_state=self.random_state).fit(rows, y)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.forest_.predict_proba(X.reshape(len(X), -1))

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


# Thresholds on the largest probability: aeon's and sktime's ProbabilityThreshold. They are fitted
# once, and the decisions of each setting follow from the probabilities. In every run the peer
# itself plays the default setting, and must decide the same.


def broken(rows: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """The largest of each row. Ties are broken at random, as both peers do."""
    return np.array([int(rng.choice(np.flatnonzero(row == row.max()))) for row in rows])


Decided = tuple[float, int, np.ndarray, np.ndarray]


def aeon_threshold(of: Split, seed: int) -> Iterator[tuple[str, Outcome]]:
    from aeon.classification.early_classification import ProbabilityThresholdEarlyClassifier

    clock = Clock()
    peer = ProbabilityThresholdEarlyClassifier(
        Forest(), classification_points=of.points, random_state=seed
    ).fit(of.X, of.y)
    fit_s = clock.lap()
    said, _ = peer.predict(of.new)
    predict_s, halted = clock.lap(), peer.state_info[:, 0]
    full = peer.estimators_[-1].predict(of.new)
    swept = checked(aeon_sweep(peer, of), peer, said, halted)
    for knob, at, labels in swept:
        yield "aeon threshold", outcome(of, knob, at, labels, full, fit_s, predict_s)


def aeon_sweep(peer: Any, of: Split) -> Iterator[Decided]:
    """The settings, where each halts, and its answer there."""
    rng = check_random_state(peer.random_state)
    seeds = [rng.randint(np.iinfo(np.int32).max) for _ in of.points]
    at_each = [
        peer._predict_proba_for_estimator(of.new, i, check_random_state(s))
        for i, s in enumerate(seeds)
    ]
    probs, classes = (np.stack(parts, axis=1) for parts in zip(*at_each, strict=True))
    for threshold, consecutive in settings():
        at = threshold_halts(probs, classes, threshold, consecutive)
        # Ties are broken again for the answer.
        stopped = probs[np.arange(len(at)), at]
        said = peer.classes_[broken(stopped, check_random_state(peer.random_state))]
        yield threshold, consecutive, at, said


def sktime_threshold(of: Split, seed: int) -> Iterator[tuple[str, Outcome]]:
    from sktime.classification.early_classification import ProbabilityThresholdEarlyClassifier

    clock = Clock()
    peer = ProbabilityThresholdEarlyClassifier(
        estimator=Forest(), classification_points=of.points, random_state=seed
    ).fit(of.X, of.y)
    fit_s = clock.lap()
    said, halted = play_sktime(peer, of)
    predict_s = clock.lap()
    full = peer._estimators[-1].predict(of.new)
    swept = checked(sktime_sweep(peer, of), peer, said, halted)
    for knob, at, labels in swept:
        yield "sktime threshold", outcome(of, knob, at, labels, full, fit_s, predict_s)


def sktime_sweep(peer: Any, of: Split) -> Iterator[Decided]:
    """The same for sktime's, which breaks ties the same way for decisions and answers."""
    seen = [peer.predict_proba(of.new[:, :, :end]) for end in of.points]
    probs = np.stack(seen, axis=1)
    drawn = [broken(rows, check_random_state(peer.random_state)) for rows in seen]
    classes = np.stack(drawn, axis=1)
    for threshold, consecutive in settings():
        at = threshold_halts(probs, classes, threshold, consecutive)
        yield threshold, consecutive, at, peer.classes_[classes[np.arange(len(at)), at]]


def play_sktime(peer: Any, of: Split) -> tuple[np.ndarray, np.ndarray]:
    """sktime's answers, and where it gives them. It holds no state: at each checkpoint we ask about
    all series, and it says which answers are safe. The first safe answer counts."""
    n = len(of.new)
    said, at, state = np.zeros(n, int), np.full(n, -1), None
    for t, end in enumerate(of.points):
        prefix = of.new[:, :, :end]
        probs = peer.predict_proba(prefix)
        safe, state = peer.decide_prediction_safety(prefix, probs, state)
        now = np.asarray(safe) & (at < 0)
        at[now] = t
        said[now] = peer.classes_[broken(probs, check_random_state(peer.random_state))][now]
    return said, at


def checked(
    swept: Iterator[Decided], peer: Any, said: np.ndarray, halted: np.ndarray
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    default = (peer.probability_threshold, peer.consecutive_predictions)
    for threshold, consecutive, at, labels in swept:
        if (threshold, consecutive) == default:
            same(at, halted, labels, said)
        yield f"{threshold:g} x{consecutive}", at, labels


# TEASER's own code fits its one-class machines anew for each setting. The forests are remembered
# from one setting to the next.


def teaser(package: str, nus: tuple[float, ...]) -> Callable[..., Iterator[tuple[str, Outcome]]]:
    def tried(of: Split, seed: int) -> Iterator[tuple[str, Outcome]]:
        import importlib

        module = importlib.import_module(f"{package}.classification.early_classification")
        try:
            Forest.memory = {} if len(nus) > 1 else None
            for nu in nus:
                options = {} if nu == NUS[0] else one_class(nu)
                clock = Clock()
                peer = module.TEASER(
                    Forest(), classification_points=of.points, random_state=seed, **options
                ).fit(of.X, of.y)
                fit_s = clock.lap()
                said, _ = peer.predict(of.new)
                # Remembered forests are not timed.
                times = (fit_s, clock.lap()) if nu == NUS[0] else ()
                bases = peer.estimators_ if package == "aeon" else peer._estimators
                full = bases[-1].predict(of.new)
                at = peer.state_info[:, 0]
                said = np.asarray(said).astype(int)
                yield f"{package} TEASER", outcome(of, f"{nu:g}", at, said, full, *times)
        finally:
            Forest.memory = None

    return tried


def one_class(nu: float) -> dict[str, Any]:
    """TEASER's default machine and grid, except for nu."""
    from sklearn.svm import OneClassSVM

    gammas = [100, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1.5, 1]
    machine = OneClassSVM(tol=1e-4, nu=nu)
    return {"one_class_classifier": machine, "one_class_param_grid": {"gamma": gammas}}


# The usual base of CALIMERA and ECONOMY-gamma: MiniRocket and a ridge at every checkpoint.


def rocket_rivals(of: Split, seed: int) -> Iterator[tuple[str, Outcome]]:
    clock = Clock()
    at_each = [rocket(of, end, seed) for end in of.points]
    known, new = (np.stack(parts, axis=1) for parts in zip(*at_each, strict=True))
    yield from triggered("rocket", of, known, new, fit_s=clock.lap())
    # Its answers at full length: a classifier that never stops early.
    full = np.unique(of.y)[new[:, -1].argmax(axis=1)]
    yield "MiniRocket", outcome(of, "full", np.full(len(new), len(of.points) - 1), full, full)


def rocket(of: Split, end: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities after `end` points: of series to fit that are left out, and of new ones. As
    in CALIMERA's own code, a ridge reads MiniRocket's features, or the values of less than nine
    points; one number then scales its scores."""
    X, new = of.X[:, :, :end], of.new[:, :, :end]
    if end < 9:
        rows, fresh = X.reshape(len(X), -1), new.reshape(len(new), -1)
    else:
        from aeon.transformations.collection.convolution_based import MiniRocket

        transform = MiniRocket(random_state=seed).fit(X)
        rows, fresh = np.asarray(transform.transform(X)), np.asarray(transform.transform(new))
    middle, wide = rows.mean(axis=0), np.linalg.norm(rows, axis=0)
    wide[wide == 0] = 1
    ridge = RidgeClassifierCV(np.logspace(-3, 3, 10), scoring="accuracy", store_cv_results=True)
    ridge.fit((rows - middle) / wide, of.y)
    best = int(np.flatnonzero(ridge.alphas == ridge.alpha_)[0])
    left_out = ridge.cv_results_[:, :, best] + ridge.intercept_
    scores = ridge.decision_function((fresh - middle) / wide).reshape(len(fresh), -1)
    if left_out.shape[1] == 1:
        left_out, scores = (np.hstack([-part, part]) for part in (left_out, scores))
    truth = np.searchsorted(ridge.classes_, of.y)

    def loss(log_scale: float) -> float:
        said = log_softmax(np.exp(log_scale) * left_out, axis=1)
        return float(-said[np.arange(len(truth)), truth].mean())

    scale = np.exp(minimize_scalar(loss, bounds=(-4, 6), method="bounded").x)
    return softmax(scale * left_out, axis=1), softmax(scale * scores, axis=1)


# tslearn's classifier decides after every time point. It is given series of as many points as there
# are checkpoints, each with all values since the last one: distances stay the same.


def tslearn_non_myopic(of: Split, seed: int) -> Iterator[tuple[str, Outcome]]:
    from tslearn.early_classification import NonMyopicEarlyClassifier

    X, new = blocks(of.X, of.points), blocks(of.new, of.points)
    clock = Clock()
    peer = NonMyopicEarlyClassifier(cost_time_parameter=0.0, random_state=seed).fit(X, of.y)
    fit_s, steps = clock.lap(), len(of.points)
    # The costs that it expects without a price, from each checkpoint on.
    expected = [[peer._expected_costs(one[:t]) for t in range(1, steps + 1)] for one in new]
    at_each = (peer.classifiers_[t].predict(new[:, :t]) for t in range(1, steps + 1))
    answers = np.stack(list(at_each), axis=1)
    predict_s = None
    for weight in WEIGHTS:
        prices = weight / steps * np.arange(1, steps + 1)
        halts = [[np.argmin(c + prices[t:]) == 0 for t, c in enumerate(one)] for one in expected]
        at = first(np.array(halts))
        said = answers[np.arange(len(at)), at]
        if predict_s is None:
            peer.cost_time_parameter = weight / steps
            clock.lap()
            theirs, points = peer.predict_class_and_earliness(new)
            predict_s = clock.lap()
            same(at, points - 1, said, theirs)
        yield "tslearn", outcome(of, price(weight), at, said, answers[:, -1], fit_s, predict_s)


def blocks(X: np.ndarray, points: list[int]) -> np.ndarray:
    """The values from one checkpoint to the next, filled up with zeros to one length."""
    starts = [0, *points[:-1]]
    widest = max(end - start for start, end in zip(starts, points, strict=True))
    filled = np.zeros((len(X), len(points), X.shape[1] * widest))
    for t, (start, end) in enumerate(zip(starts, points, strict=True)):
        part = X[:, :, start:end].reshape(len(X), -1)
        filled[:, t, : part.shape[1]] = part
    return filled


@dataclass(frozen=True)
class Task:
    """One task for a set and a seed, and the rows that it makes."""

    package: str
    run: Callable[[Split, int], Iterator[tuple[str, Outcome]]]
    rows: tuple[tuple[str, str], ...]
    seeds: tuple[int, ...]
    #: Tasks of a lower turn come first, for all sets and seeds.
    turn: int = 0


def tasks() -> list[Task]:
    alphas, prices = [f"{alpha:g}" for alpha in ALPHAS], [price(w) for w in WEIGHTS]
    knobs = [f"{threshold:g} x{consecutive}" for threshold, consecutive in settings()]
    five = (0, 1, 2, 3, 4)

    def rows(names: tuple[str, ...], knobs: list[str]) -> tuple[tuple[str, str], ...]:
        return tuple((name, knob) for name in names for knob in knobs)

    def nus(of: tuple[float, ...]) -> list[str]:
        return [f"{nu:g}" for nu in of]

    return [
        Task(
            "haltwise",
            haltwise_rules,
            rows(tuple(OURS), [*alphas, *prices]) + rows(("tuned threshold",), alphas),
            five,
        ),
        Task(
            "haltwise",
            prefix_rivals,
            rows(("prefix CALIMERA", "prefix ECONOMY"), prices)
            + rows(("prefix threshold",), knobs)
            + rows(("prefix tuned",), [*alphas, *prices]),
            five,
        ),
        Task("tslearn", tslearn_non_myopic, rows(("tslearn",), prices), five),
        Task(
            "aeon",
            rocket_rivals,
            (*rows(("rocket CALIMERA", "rocket ECONOMY"), prices), ("MiniRocket", "full")),
            five,
        ),
        Task("aeon", aeon_threshold, rows(("aeon threshold",), knobs), five),
        Task("sktime", sktime_threshold, rows(("sktime threshold",), knobs), five),
        # TEASER takes most of the time, so it comes last: its default; its sweep, for one seed;
        # sktime's, which differs only in its random numbers, for one seed; all other seeds.
        Task("aeon", teaser("aeon", NUS[:1]), rows(("aeon TEASER",), nus(NUS[:1])), five[:1], 1),
        Task("aeon", teaser("aeon", NUS[1:]), rows(("aeon TEASER",), nus(NUS[1:])), five[:1], 2),
        Task(
            "sktime", teaser("sktime", NUS[:1]), rows(("sktime TEASER",), nus(NUS[:1])), five[:1], 3
        ),
        Task("aeon", teaser("aeon", NUS[:1]), rows(("aeon TEASER",), nus(NUS[:1])), five[1:], 4),
    ]


def quiet() -> None:
    """Silences rules that halt late: that is one of the outcomes here."""
    warnings.simplefilter("ignore")
