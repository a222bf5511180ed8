"""The bases of an early classifier. Each answers at a checkpoint for some rows of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError

from ._arrays import Array, floats
from ._series import Collection, check_length, collection, time_points
from ._targets import classes_of, labelled
from .lstm import Model, train
from .prefix import PrefixClassifier

#: A function from a padded batch (n_cases, n_channels, n_timepoints) to the class
#: probabilities after each time point, (n_cases, n_timepoints, n_classes).
StepProbabilities = Callable[[NDArray[Any]], Any]

#: How many checkpoints, and series at each, are read again to test whether a function
#: looks ahead.
CHECKED_CHECKPOINTS, CHECKED_SERIES = 8, 16


class LSTM(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The built-in two-head LSTM, as the base of an :class:`EarlyClassifier`. Its score is
    the confidence head's. Alone, it answers at the end of each series.

    Parameters
    ----------
    hidden, layers, learning_rate, batch, patience, max_epochs, normalise, seed, device
        As for :func:`haltwise.train`.
    verbose : bool, default=False
        Whether ``fit`` shows a progress bar.

    Attributes
    ----------
    classes_ : array
        The classes.
    model_ : Model
        The trained network.
    """

    def __init__(
        self,
        hidden: int = 32,
        layers: int = 1,
        learning_rate: float = 1e-3,
        batch: int = 64,
        patience: int = 30,
        max_epochs: int = 10_000,
        normalise: bool = True,
        seed: int = 0,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.hidden = hidden
        self.layers = layers
        self.learning_rate = learning_rate
        self.batch = batch
        self.patience = patience
        self.max_epochs = max_epochs
        self.normalise = normalise
        self.seed = seed
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: Any, y: Any) -> LSTM:
        """Trains the network."""
        series, labels = labelled(X, y)
        self.classes_ = classes_of(labels)
        self.n_timepoints_ = series.timepoints
        self.n_features_in_ = series.channels * series.timepoints
        options = self.get_params()
        self.model_: Model = train(series, labels, progress=options.pop("verbose"), **options)
        return self

    def predict(self, X: Any) -> Array:
        """The most probable class of each series."""
        probs = self.predict_proba(X)
        labels: Array = self.classes_[probs.argmax(axis=1)]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The class probabilities at the end of each series, (n_cases, n_classes)."""
        if not hasattr(self, "model_"):
            raise NotFittedError("this LSTM is not fitted; call fit first")
        series = collection(X)
        check_length(series, self.n_timepoints_)
        probs, _ = self.model_.predict_proba(series, device=self.device)
        last: NDArray[np.float32] = probs[np.arange(len(probs)), series.lengths - 1]
        return last


class PerCheckpoint:
    """One clone of a classifier per checkpoint."""

    def __init__(self, estimator: Any, checkpoints: Array, classes: Array) -> None:
        self.estimator, self.checkpoints, self.classes = estimator, checkpoints, classes
        # scikit-learn's read rows, aeon's read channels.
        self.flat = not any(base.__module__.startswith("aeon.") for base in type(estimator).mro())

    def trainings(self, series: Collection, labels: Array) -> list[Any]:
        """The calls that train it, for joblib, in any order."""
        jobs = []
        for end in self.checkpoints:
            reach = series.lengths >= end
            if len(np.unique(labels[reach])) < 2:
                raise ValueError(
                    f"fewer than two classes have series of {end} time points or more; leave "
                    "that checkpoint out"
                )
            jobs.append(delayed(self.train)(series, labels, reach, end))
        return jobs

    def train(self, series: Collection, labels: Array, reach: Array, end: int) -> Any:
        # Not with safe=True: scikit-learn must also clone aeon's classifiers.
        return clone(self.estimator).fit(self.cut(series, reach, end), labels[reach])

    def trained(self, fitted: list[Any]) -> list[Any]:
        """Takes the results of those calls."""
        self.fitted = fitted
        return self.fitted

    def cut(self, series: Collection, rows: Array, end: int) -> Array:
        prefix = series.cases[rows, :, :end]
        return prefix.reshape(len(prefix), -1) if self.flat else prefix

    def step(self, series: Collection, rows: Array, c: int) -> tuple[Array, None]:
        """The probabilities of these rows at checkpoint `c`."""
        fitted = self.fitted[c]
        found = np.zeros((len(rows), len(self.classes)))
        # A class without series of this length has probability 0.
        columns = np.searchsorted(self.classes, fitted.classes_)
        found[:, columns] = fitted.predict_proba(self.cut(series, rows, self.checkpoints[c]))
        return found, None


class EveryStep:
    """A base that reads every step, from which the checkpoints are picked. It reads each batch
    once and holds its last answer for the next checkpoint."""

    def __init__(self, checkpoints: Array, classes: Array) -> None:
        self.checkpoints, self.classes = checkpoints, classes
        self.batch: Collection | None = None

    def read(self, series: Collection) -> tuple[Array, Array | None]:
        raise NotImplementedError

    def place(self, c: int) -> int:
        """The place of checkpoint `c` in its answers."""
        return int(self.checkpoints[c]) - 1

    def step(self, series: Collection, rows: Array, c: int) -> tuple[Array, Array | None]:
        if self.batch is not series:
            self.answer = self.read(series)
            self.batch = series
        probs, scores = self.answer
        t = self.place(c)
        return probs[rows, t], None if scores is None else scores[rows, t]

    def __getstate__(self) -> dict[str, Any]:
        kept = {k: v for k, v in self.__dict__.items() if k != "answer"}
        return {**kept, "batch": None}


class Network(EveryStep):
    def __init__(self, estimator: LSTM, checkpoints: Array, classes: Array) -> None:
        super().__init__(checkpoints, classes)
        self.estimator = estimator

    def trainings(self, series: Collection, labels: Array) -> list[Any]:
        return [delayed(clone(self.estimator).fit)(series, labels)]

    def trained(self, fitted: list[Any]) -> list[Any]:
        (self.fitted,) = fitted
        # A class without series has probability 0.
        self.columns = np.searchsorted(self.classes, self.fitted.classes_)
        return fitted

    def read(self, series: Collection) -> tuple[Array, Array]:
        found, scores = self.fitted.model_.predict_proba(series, device=self.fitted.device)
        probs = np.zeros((*found.shape[:2], len(self.classes)), found.dtype)
        probs[:, :, self.columns] = found
        return probs, scores


class Prefix(EveryStep):
    """The prefix classifier, which answers at the checkpoints only. What it says about its own
    training series, each left out, proposes rules."""

    #: Checkpoints that fewer training series reach are left out.
    ENOUGH = 10

    def __init__(self, estimator: PrefixClassifier, checkpoints: Array, classes: Array) -> None:
        super().__init__(checkpoints, classes)
        self.estimator = estimator

    def trainings(self, series: Collection, labels: Array) -> list[Any]:
        reach = np.sort(series.lengths)[::-1][: self.ENOUGH][-1]
        self.checkpoints = self.checkpoints[self.checkpoints <= reach]
        if not len(self.checkpoints):
            raise ValueError(
                f"fewer than {self.ENOUGH} series reach the first checkpoint; give an earlier one"
            )
        estimator = clone(self.estimator).set_params(checkpoints=self.checkpoints.tolist())
        return [delayed(estimator.fit)(series, labels)]

    def trained(self, fitted: list[Any]) -> list[Any]:
        (self.fitted,) = fitted
        return fitted

    def read(self, series: Collection) -> tuple[Array, None]:
        return self.fitted.answers(series), None

    def place(self, c: int) -> int:
        return c


class Function(EveryStep):
    def __init__(self, function: StepProbabilities, checkpoints: Array, classes: Array) -> None:
        super().__init__(checkpoints, classes)
        self.function = function

    def trainings(self, series: Collection, labels: Array) -> list[Any]:
        return []

    def trained(self, fitted: list[Any]) -> list[Any]:
        return [self.function]

    def read(self, series: Collection) -> tuple[Array, None]:
        probs, _ = floats(self.function(series.cases), "the function's answer", ["n", "T", "K"])
        wanted = (len(series), series.timepoints, len(self.classes))
        if probs.shape != wanted:
            raise ValueError(f"the function's answer has shape {probs.shape}, {wanted} is needed")
        return probs, None

    def check_causal(
        self, series: Collection, reached: NDArray[np.int64], found: NDArray[np.float32]
    ) -> None:
        """Refuses a function whose answer at a checkpoint depends on what comes after it."""
        tolerance = 1e-2 if self.answer[0].dtype.itemsize == 2 else 1e-3
        for c in _spread(int(reached.max(initial=0)), CHECKED_CHECKPOINTS):
            there = np.flatnonzero(reached > c)
            # From short to long: padding follows the short ones.
            there = there[np.argsort(series.lengths[there], kind="stable")]
            rows = there[_spread(len(there), CHECKED_SERIES)]
            # Every other series is cut earlier, and padded as in a batch of unequal lengths.
            at = np.where(np.arange(len(rows)) % 2, c // 2, c)
            again = self.read_cut(series, rows, self.checkpoints[at])
            same = np.isclose(again, found[rows, at], rtol=0, atol=tolerance, equal_nan=True)
            if not same.all():
                i = int(np.argmin(same.all(axis=1)))
                whole = found[rows[i], at[i]]
                raise ValueError(self.looks_ahead(rows[i], at[i], whole, again[i], tolerance))

    def read_cut(self, series: Collection, rows: Array, ends: Array) -> Array:
        """What the function says at the end of these series, each cut at its own end."""
        width = int(ends.max())
        before = np.arange(width) < ends[:, None]
        cases = np.where(before[:, None], series.cases[rows, :, :width], 0)
        try:
            probs, _ = self.read(Collection(cases, ends))
        except Exception as error:
            raise ValueError(
                f"the function fails on series cut at time point {width}, as live ones are: {error}"
            ) from error
        answer: Array = probs[np.arange(len(rows)), ends - 1]
        return answer

    def looks_ahead(self, i: int, c: int, whole: Array, cut: Array, tolerance: float) -> str:
        """The message about series `i` at checkpoint `c`."""
        # NaN counts as the largest difference.
        k = int(np.argmax(np.nan_to_num(np.abs(whole - cut), nan=np.inf)))
        return (
            f"series {i + 1}, time point {self.checkpoints[c]}: the function gives class "
            f"{self.classes[k].item()!r} {whole[k]:.6g} in the whole batch, but {cut[k]:.6g} if "
            f"the series is cut there, as a live one is; {tolerance:g} apart would pass as "
            "rounding. Let each answer depend only on the time points up to its own: no "
            "normalising over the series, no layer that reads backwards or past the present, no "
            "statistics of the batch, no dropout (eval mode). A network in half precision should "
            "answer in float16, which may be 0.01 apart"
        )


class Together:
    """Bases of one kind, which answer with their mean."""

    def __init__(self, bases: list[Any]) -> None:
        self.bases = bases

    def step(self, series: Collection, rows: Array, c: int) -> tuple[Array, Array | None]:
        probs, scores = zip(*(base.step(series, rows, c) for base in self.bases), strict=True)
        # Not np.mean: its order of adding depends on the number of rows, and the answer about
        # a series must not depend on the others.
        n = len(self.bases)
        return sum(probs) / n, None if scores[0] is None else sum(scores) / n


def base_of(estimator: Any, checkpoints: Array, classes: Array) -> Any:
    if estimator is None:
        estimator = PrefixClassifier()
    if isinstance(estimator, PrefixClassifier):
        return Prefix(estimator, checkpoints, classes)
    if isinstance(estimator, LSTM):
        return Network(estimator, checkpoints, classes)
    if is_function(estimator):
        return Function(estimator, checkpoints, classes)
    if not hasattr(estimator, "predict_proba"):
        raise ValueError(f"{estimator!r} has no predict_proba; use a classifier that has it")
    return PerCheckpoint(estimator, checkpoints, classes)


def run(trainings: list[Any], n_jobs: int | None, progress: bool) -> list[Any]:
    """The results of these calls, with a bar that counts them."""
    if not progress or not trainings:
        results: list[Any] = Parallel(n_jobs=n_jobs, prefer="threads")(trainings)
        return results
    from tqdm.auto import tqdm

    results = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(trainings)
    return list(tqdm(results, "training", len(trainings), unit=" classifiers"))


def is_function(estimator: Any) -> bool:
    return callable(estimator) and not hasattr(estimator, "fit")


def checkpoints_of(wanted: int | Sequence[int], timepoints: int) -> NDArray[np.int64]:
    """The lengths at which to decide, the full one among them."""
    if isinstance(wanted, (int, np.integer)):
        if wanted < 1:
            raise ValueError(f"checkpoints must be at least 1, but {wanted} was given")
        even = np.linspace(0, timepoints, int(wanted) + 1)[1:].round()
        return np.unique(even.clip(min=1)).astype(np.int64)
    ends = time_points(wanted)
    if len(ends) and (ends[0] < 1 or ends[-1] > timepoints):
        raise ValueError(f"checkpoints must lie between 1 and {timepoints}, the longest series")
    return np.union1d(ends, [timepoints])


def _spread(n: int, most: int) -> NDArray[np.int64]:
    """Up to `most` of the numbers below `n`, evenly, the first and the last among them."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))
