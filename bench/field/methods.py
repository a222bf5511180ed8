"""The early classifiers: how each is fitted, and what it does at each setting of its knob."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from sets import Split
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

TREES = 25
ALPHAS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4)
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
CONSECUTIVE = (1, 2)
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


@dataclass(frozen=True)
class Outcome:
    """What a method did to the new series at one setting of its knob."""

    knob: str
    accuracy: float
    full_accuracy: float
    earliness: float
    gap: float
    #: The largest gap among those halted by any checkpoint.
    worst_gap: float
    fit_s: float | None = None
    predict_s: float | None = None


def outcome(
    of: Split,
    knob: str,
    at: np.ndarray,
    said: np.ndarray,
    full: np.ndarray,
    fit_s: float | None = None,
    predict_s: float | None = None,
) -> Outcome:
    """`at` is the checkpoint, from 0, at which each series halted. `said` and `full` are the
    answers there and at full length. A series read to its end loses nothing, however ties are
    broken."""
    points = np.array(of.points)
    right = said == of.truth
    lost = (at < len(points) - 1) & (full == of.truth) & ~right
    by = [lost[at <= t].mean() for t in range(len(points)) if (at <= t).any()]
    return Outcome(
        knob,
        float(right.mean()),
        float((full == of.truth).mean()),
        float(points[at].mean() / points[-1]),
        float(lost.mean()),
        float(max(by)),
        fit_s,
        predict_s,
    )


class Clock:
    def __init__(self) -> None:
        self.start = time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        passed, self.start = now - self.start, now
        return passed


# Ours.


#: The options of our methods for `EarlyClassifier`: the promise, and the number of folds.
OURS: dict[str, tuple[str, int | None]] = {
    "haltwise average": ("average", 5),
    "haltwise halted-by": ("halted-by", 5),
    "haltwise average no folds": ("average", None),
    "haltwise halted-by no folds": ("halted-by", None),
}


def haltwise_rules(of: Split, seed: int) -> Iterator[tuple[str, Outcome]]:
    """A fit with folds and one without. Each makes a rule for each promise and alpha, as if it had
    been chosen beforehand."""
    for folds in dict.fromkeys(folds for _, folds in OURS.values()):
        yield from rules_of_a_fit(of, seed, folds)


def rules_of_a_fit(of: Split, seed: int, folds: int | None) -> Iterator[tuple[str, Outcome]]:
    import haltwise

    rows, aside = train_test_split(np.arange(len(of.y)), test_size=0.3, random_state=seed)
    rows, aside = np.sort(rows), np.sort(aside)
    X, y = of.X[aside], of.y[aside]
    clock = Clock()
    early = haltwise.EarlyClassifier(
        Forest(random_state=seed),
        checkpoints=of.points,
        calibration_fraction=None,
        fit_folds=folds,
        random_state=seed,
    )
    early.fit(of.X[rows], of.y[rows]).calibrate(X, y)
    fit_s = clock.lap()
    early.predict(of.new)
    predict_s = clock.lap()
    # The base's answers do not depend on the options.
    traces, new = early.traces(X, y), early.traces(of.new, of.truth)
    early.traces = lambda X, y: traces
    answers = early.classes_[new.probs.argmax(axis=2)]
    everyone = np.arange(len(of.new))

    def tried(name: str, alpha: float, at: np.ndarray, *times: float) -> tuple[str, Outcome]:
        said = answers[everyone, at]
        return name, outcome(of, f"{alpha:g}", at, said, answers[:, -1], *times)

    for alpha in ALPHAS:
        for name, (promise, wanted) in OURS.items():
            if wanted == folds:
                rule = early.set_params(alpha=alpha, promise=promise).calibrate(X, y).rule_
                yield tried(name, alpha, rule.halt(probs=new.probs) - 1, fit_s, predict_s)
        if folds is not None:
            threshold = tuned(traces.probs, early.classes_, y, alpha)
            yield tried("tuned threshold", alpha, first(new.probs.max(axis=2) >= threshold))


def tuned(probs: np.ndarray, classes: np.ndarray, truth: np.ndarray, alpha: float) -> float:
    """Tuning without a test: the lowest threshold on the largest probability that would have kept
    the gap on these series."""
    sure, right = probs.max(axis=2), classes[probs.argmax(axis=2)] == truth[:, None]
    for threshold in np.unique(sure):
        stopped = right[np.arange(len(truth)), first(sure >= threshold)]
        if (right[:, -1] & ~stopped).mean() <= alpha:
            return float(threshold)
    return float("inf")


def first(halts: np.ndarray) -> np.ndarray:
    """The first checkpoint of each row at which it halts, or the last."""
    halts[:, -1] = True
    return halts.argmax(axis=1)


# Thresholds on the largest probability: aeon's and sktime's ProbabilityThreshold. They are fitted
# once, and the decisions of each setting follow from the probabilities. In every run the peer
# itself plays the default setting, and must decide the same.


def threshold_halts(
    probs: np.ndarray, classes: np.ndarray, threshold: float, consecutive: int
) -> np.ndarray:
    """Where a threshold halts, given the probabilities (n, checkpoints, classes) and the predicted
    class at each checkpoint, with ties broken as the peer does."""
    n, steps = classes.shape
    sure = np.take_along_axis(probs, classes[:, :, None], axis=2)[:, :, 0] >= threshold
    count, last = np.zeros(n, int), np.zeros(n, int)
    halts = np.zeros((n, steps), bool)
    for t in range(steps):
        again = sure[:, t] & (classes[:, t] == last)
        count = np.where(again, count + 1, sure[:, t].astype(int))
        last = classes[:, t]
        halts[:, t] = count >= consecutive
    return first(halts)


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


def settings() -> list[tuple[float, int]]:
    return [(threshold, consecutive) for consecutive in CONSECUTIVE for threshold in THRESHOLDS]


def same(at: np.ndarray, theirs: np.ndarray, labels: np.ndarray, said: np.ndarray) -> None:
    if not (np.array_equal(at, theirs) and np.array_equal(labels, np.asarray(said).astype(int))):
        raise AssertionError("the sweep does not decide as the peer itself does")


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
    alphas = [f"{alpha:g}" for alpha in ALPHAS]
    ours = (*OURS, "tuned threshold")
    knobs = [f"{threshold:g} x{consecutive}" for threshold, consecutive in settings()]
    five = (0, 1, 2, 3, 4)

    def rows(names: tuple[str, ...], knobs: list[str]) -> tuple[tuple[str, str], ...]:
        return tuple((name, knob) for name in names for knob in knobs)

    def nus(of: tuple[float, ...]) -> list[str]:
        return [f"{nu:g}" for nu in of]

    return [
        Task("haltwise", haltwise_rules, rows(ours, alphas), five),
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
