"""Ours, and the rivals on our probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from outcomes import ALPHAS, WEIGHTS, Clock, Outcome, outcome, price, shares_of
from sets import Split
from sklearn.model_selection import train_test_split
from triggers import first, settings, threshold_halts, triggered

#: What `EarlyClassifier` promises in each of our rows.
OURS = {"haltwise average": "average", "haltwise halted-by": "halted-by"}
#: The thresholds among which one is tuned to a price.
FINE = tuple(round(0.01 * i, 2) for i in range(101))


def haltwise_rules(of: Split, seed: int) -> Iterator[tuple[str, Outcome]]:
    """`EarlyClassifier` as it comes, at these checkpoints. One fit makes a rule for each promise
    and alpha, as if it had been chosen beforehand; and one for each price of time, with an alpha
    that is chosen on the fitting traces."""
    import haltwise

    rows, aside = train_test_split(np.arange(len(of.y)), test_size=0.3, random_state=seed)
    rows, aside = np.sort(rows), np.sort(aside)
    X, y = of.X[aside], of.y[aside]
    clock = Clock()
    early = haltwise.EarlyClassifier(
        checkpoints=of.points, calibration_fraction=None, random_state=seed
    )
    early.fit(of.X[rows], of.y[rows]).calibrate(X, y)
    fit_s = clock.lap()
    early.predict(of.new)
    predict_s = clock.lap()
    # The base's answers do not depend on the options.
    traces, new = early.traces(X, y), early.traces(of.new, of.truth)
    early.traces = lambda X, y: traces
    answers = early.classes_[new.probs.argmax(axis=2)]

    def tried(name: str, knob: str, at: np.ndarray, *times: float) -> tuple[str, Outcome]:
        said = answers[np.arange(len(at)), at]
        return name, outcome(of, knob, at, said, answers[:, -1], *times)

    for name, promise in OURS.items():
        for alpha in ALPHAS:
            rule = early.set_params(alpha=alpha, promise=promise).calibrate(X, y).rule_
            yield tried(name, f"{alpha:g}", rule.halt(probs=new.probs) - 1, fit_s, predict_s)
        for weight, alpha in chosen(early.fit_traces_, promise, shares_of(of)):
            rule = early.set_params(alpha=alpha, promise=promise).calibrate(X, y).rule_
            yield tried(name, price(weight), rule.halt(probs=new.probs) - 1)
    for alpha in ALPHAS:
        threshold = tuned(traces.probs, early.classes_, y, alpha)
        yield tried("tuned threshold", f"{alpha:g}", first(new.probs.max(axis=2) >= threshold))


def chosen(fitting: Any, promise: str, shares: np.ndarray) -> Iterator[tuple[float, float]]:
    """For each price of time the alpha whose rule costs least on the fitting traces. Half of them
    certifies a rule that the other half proposes; the series that certify for good are not looked
    at."""
    import haltwise

    propose, certify = fitting[::2], fitting[1::2]
    # Labels are numbers here, as the probabilities are in order.
    answers, found = certify.probs.argmax(axis=2), []
    for alpha in ALPHAS:
        rule = haltwise.calibrate(certify, fit=propose, alpha=alpha, promise=promise)
        at = rule.halt(probs=certify.probs) - 1
        wrong = (answers[np.arange(len(at)), at] != certify.labels).mean()
        found.append((wrong, shares[at].mean()))
    for weight in WEIGHTS:
        yield weight, ALPHAS[cheapest(found, weight)]


def cheapest(found: list[tuple[float, float]], weight: float) -> int:
    """Which of these shares of wrong answers and of what is read costs least."""
    return int(np.argmin([wrong + weight * early for wrong, early in found]))


def prefix_rivals(of: Split, seed: int) -> Iterator[tuple[str, Outcome]]:
    """The rivals with our probabilities: our classifier trained on all series to fit, and what it
    says about each of them when left out."""
    import haltwise

    clock = Clock()
    ours = haltwise.PrefixClassifier(checkpoints=of.points, random_state=seed).fit(of.X, of.y)
    fit_s = clock.lap()
    new = ours.answers(of.new)
    known, times = ours.fit_traces_.probs, {"fit_s": fit_s, "predict_s": clock.lap()}
    yield from triggered("prefix", of, known, new, **times)
    answers = ours.classes_[new.argmax(axis=2)]

    def tried(name: str, knob: str, at: np.ndarray) -> tuple[str, Outcome]:
        said = answers[np.arange(len(at)), at]
        return name, outcome(of, knob, at, said, answers[:, -1])

    for threshold, consecutive in settings():
        at = threshold_halts(new, new.argmax(axis=2), threshold, consecutive)
        yield tried("prefix threshold", f"{threshold:g} x{consecutive}", at)
    # A threshold tuned on what was left out: to a gap, and to a price.
    sure, right = known.max(axis=2), ours.classes_[known.argmax(axis=2)] == of.y[:, None]
    for alpha in ALPHAS:
        threshold = tuned(known, ours.classes_, of.y, alpha)
        yield tried("prefix tuned", f"{alpha:g}", first(new.max(axis=2) >= threshold))
    shares, found = shares_of(of), []
    for threshold in FINE:
        at = first(sure >= threshold)
        found.append((1 - right[np.arange(len(at)), at].mean(), shares[at].mean()))
    for weight in WEIGHTS:
        threshold = FINE[cheapest(found, weight)]
        yield tried("prefix tuned", price(weight), first(new.max(axis=2) >= threshold))


def tuned(probs: np.ndarray, classes: np.ndarray, truth: np.ndarray, alpha: float) -> float:
    """Tuning without a test: the lowest threshold on the largest probability that would have kept
    the gap on these series."""
    sure, right = probs.max(axis=2), classes[probs.argmax(axis=2)] == truth[:, None]
    for threshold in np.unique(sure):
        stopped = right[np.arange(len(truth)), first(sure >= threshold)]
        if (right[:, -1] & ~stopped).mean() <= alpha:
            return float(threshold)
    return float("inf")
