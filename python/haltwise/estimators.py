"""Early classifiers in scikit-learn's and aeon's conventions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split

from ._arrays import Array, as_array, check_axes, floats
from ._core import Stream
from ._series import Collection, collection
from .calibration import Method, calibrate
from .lstm import Model, train
from .rule import Evaluation, Rule
from .traces import Traces

#: A function from a padded batch (n_cases, n_channels, n_timepoints) to the class
#: probabilities after each time point, (n_cases, n_timepoints, n_classes).
StepProbabilities = Callable[[NDArray[Any]], Any]


class LSTM(BaseEstimator):  # type: ignore[misc]
    """The built-in two-head LSTM, as the base of an :class:`EarlyClassifier`; its
    score is the confidence head's. Parameters as for :func:`haltwise.train`."""

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

    def fit(self, X: Any, y: Any) -> LSTM:
        """Trains the network; `model_` is a :class:`haltwise.Model`."""
        self.model_: Model = train(X, y, **self.get_params())
        return self


class EarlyClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Makes a classifier that stops early of any classifier, with a guarantee on
    what stopping costs.

    At chosen checkpoints of a series the base says what it believes; the rule,
    calibrated on series the base was not trained on, says where to stop. With
    probability 1 - `delta`, stopping early loses a right answer for at most `alpha`
    of the series halted by any checkpoint.

    Parameters
    ----------
    estimator : classifier, LSTM, callable or None
        A scikit-learn or aeon classifier with ``predict_proba``, of which one clone
        is fitted per checkpoint on the series cut there (scikit-learn's get the
        channels one after the other in one row); or :class:`LSTM`, the default,
        which reads every step; or a function from a padded batch
        (n_cases, n_channels, n_timepoints) to the class probabilities after each
        time point (n_cases, n_timepoints, n_classes), of a network in PyTorch or
        Keras, say, that is trained already.
    alpha : float, default=0.1
        The tolerated gap: the share of sequences for which stopping early may lose a right answer.
    delta : float, default=0.01
        The probability with which the guarantee may fail.
    method : str
        How the rule is found, see :func:`haltwise.calibrate`.
    checkpoints : int or list of int, default=20
        The lengths at which to decide, counted in time points from 1; a number asks
        for so many, evenly spaced. The full length is always one of them.
    calibration_fraction : float or None, default=0.3
        The part of the series that ``fit`` sets aside, drawn by class, to calibrate
        on. With None, ``fit`` trains on all, and ``calibrate`` must be called with
        other series.
    random_state : int, default=0
        Draws the parts.

    Attributes
    ----------
    classes_ : array
        The classes.
    checkpoints_ : array of int
        The lengths at which decisions are made.
    rule_ : Rule
        The calibrated rule; its step t is the t-th checkpoint.
    estimators_ : list
        The fitted bases: one per checkpoint, or the one that reads all steps.
    state_info : array of (n_cases, 4)
        As in aeon, of the last call: the index of the checkpoint where each case
        stands, whether it was decided there, the predicted class and the length.

    Notes
    -----
    A series that ends between two checkpoints is judged, as by its full prediction,
    at the last one that it reached.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> y = np.repeat(["down", "up"], 300)
    >>> drift = np.where(y == "up", 0.5, -0.5)[:, None]
    >>> X = np.cumsum(drift + np.random.default_rng(0).normal(size=(600, 20)), axis=1)
    >>> early = EarlyClassifier(LogisticRegression(), checkpoints=10).fit(X, y)
    >>> labels, decided = early.predict(X[:, :4])    # the first 4 points of each
    >>> labels, decided = early.predict(X)           # all of them: everyone is decided
    >>> bool(decided.all())
    True
    """

    _live: dict[Hashable, _Case]
    state_info: NDArray[np.int64] | None

    def __init__(
        self,
        estimator: Any = None,
        *,
        alpha: float = 0.1,
        delta: float = 0.01,
        method: Method = "adaptive",
        checkpoints: int | Sequence[int] = 20,
        calibration_fraction: float | None = 0.3,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.delta = delta
        self.method = method
        self.checkpoints = checkpoints
        self.calibration_fraction = calibration_fraction
        self.random_state = random_state

    # Fitting.

    def fit(self, X: Any, y: Any) -> EarlyClassifier:
        """Trains the base and, on a part set aside, calibrates.

        Parameters
        ----------
        X : array of (n_cases, n_channels, n_timepoints) or (n_cases, n_timepoints), or a list
            The series; a list of (n_channels, n_timepoints) arrays where lengths differ.
        y : array of (n_cases)
            The true classes.
        """
        series, labels = _labelled(X, y)
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise ValueError("a classifier needs at least two classes")
        self.n_classes_ = len(self.classes_)
        self.n_channels_ = series.channels
        self.n_timepoints_ = series.timepoints
        self.checkpoints_ = _checkpoints(self.checkpoints, series.timepoints)
        self.reset_state_info()
        self.__dict__.pop("rule_", None)
        # What is trained already does not have to give up series to training.
        trained = _is_function(self.estimator)
        rows = np.arange(len(series))
        aside = rows if trained else rows[:0]
        if self.calibration_fraction is not None and not trained:
            rows, aside = train_test_split(
                rows,
                test_size=self.calibration_fraction,
                random_state=self.random_state,
                stratify=labels,
            )
            rows, aside = np.sort(rows), np.sort(aside)
        self._base = _base(self.estimator, self.checkpoints_, self.classes_)
        self.estimators_ = self._base.fit(series[rows], labels[rows])
        if self.calibration_fraction is not None:
            self.calibrate(series[aside], labels[aside])
        return self

    def calibrate(self, X: Any, y: Any) -> EarlyClassifier:
        """Finds a new rule on these series, which the base must not have been
        trained on."""
        self.rule_: Rule = calibrate(
            self.traces(X, y), alpha=self.alpha, delta=self.delta, method=self.method
        )
        self.reset_state_info()
        return self

    def traces(self, X: Any, y: Any) -> Traces:
        """What the base says about every series at every checkpoint."""
        self._check("checkpoints_", "fit")
        series, labels = _labelled(X, y)
        self._check_series(series)
        reached = self._reached(series)
        n, steps = len(series), len(self.checkpoints_)
        probs = np.zeros((n, steps, self.n_classes_), np.float32)
        scores: Array | None = None
        for c in range(steps):
            running = np.flatnonzero(reached > c)
            if not len(running):
                break
            found, score = self._base.step(series, running, c)
            probs[running, c] = found
            if score is not None:
                scores = np.zeros((n, steps), np.float32) if scores is None else scores
                scores[running, c] = score
        lengths = None if (reached == steps).all() else reached
        return Traces(scores, labels=labels, probs=probs, lengths=lengths, classes=self.classes_)

    def evaluate(self, X: Any, y: Any) -> Evaluation:
        """What the rule does to these series: accuracy, gap and halt times."""
        self._check("rule_", "calibrate")
        return self.rule_.evaluate(self.traces(X, y))

    # Deciding.

    def predict(self, X: Any, *, ended: Any = False) -> tuple[Array, NDArray[np.bool_]]:
        """The classes, -1 where the rule asks to read on, and which were decided.

        The base is asked about a series only until it halts. At the full length
        everything is decided; a shorter series that is over as well says so by
        `ended`, for all or one by one.
        """
        probs, decided = self.predict_proba(X, ended=ended)
        return self._labels(probs, decided), decided

    def predict_proba(self, X: Any, *, ended: Any = False) -> tuple[Array, NDArray[np.bool_]]:
        """The class probabilities where each series halted, a row of -1 where the
        rule asks to read on, and which were decided."""
        series = self._ready(X)
        self.reset_state_info()
        self._live.update((i, _Case(self.rule_)) for i in range(len(series)))
        self._by_position = True
        return self._advance(series, range(len(series)), ended)

    def update_predict(
        self, X: Any, ids: Iterable[Hashable] | None = None, *, ended: Any = False
    ) -> tuple[Array, NDArray[np.bool_]]:
        """The same for series that have grown since.

        Parameters
        ----------
        X : series, as for :meth:`fit`, each from its beginning
        ids : sequence of hashable
            Which series these are; new ones are begun, and one that was decided keeps
            its decision until :meth:`forget`. Without ids they are, as in aeon, the
            series that the last call left undecided, in the same order.
        ended : bool or array of bool
            Which series are over, though shorter than the longest.
        """
        probs, decided = self.update_predict_proba(X, ids, ended=ended)
        return self._labels(probs, decided), decided

    def update_predict_proba(
        self, X: Any, ids: Iterable[Hashable] | None = None, *, ended: Any = False
    ) -> tuple[Array, NDArray[np.bool_]]:
        """As :meth:`update_predict`, with probabilities for classes."""
        series = self._ready(X)
        if ids is None:
            if not self._live:
                return self.predict_proba(series, ended=ended)
            undecided = [case for case in self._live.values() if case.probs is None]
            if not self._by_position or len(undecided) != len(series):
                raise ValueError(
                    f"{len(series)} series, but the last call left {len(undecided)} undecided; "
                    "give those, in the same order, or ids, or call reset_state_info for new ones"
                )
            self._live = dict(enumerate(undecided))
            return self._advance(series, range(len(series)), ended)
        names = list(ids)
        if len(names) != len(series) or len(set(names)) != len(names):
            raise ValueError(f"{len(series)} series need as many different ids")
        if self._by_position:
            self.reset_state_info()
        for name in names:
            self._live.setdefault(name, _Case(self.rule_))
        return self._advance(series, names, ended)

    def forget(self, ids: Iterable[Hashable]) -> None:
        """Drops live series: they are over, or were acted on."""
        for name in ids:
            self._live.pop(name, None)

    def reset_state_info(self) -> None:
        """Drops all live series."""
        self._live = {}
        self._by_position = False
        self.state_info = None

    def get_state_info(self) -> NDArray[np.int64] | None:
        """`state_info`, as aeon's method of this name."""
        return self.state_info

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[float, float, float]:
        """As in aeon: the harmonic mean of accuracy and 1 - earliness, the accuracy,
        and the earliness (the mean share of a series that was read)."""
        series, labels = _labelled(X, y)
        self.predict(series)
        assert self.state_info is not None
        right = self.classes_[self.state_info[:, 2]] == labels
        accuracy = float(np.average(right, weights=sample_weight))
        earliness = float(
            np.average(self.state_info[:, 3] / self.n_timepoints_, weights=sample_weight)
        )
        return _harmonic_mean(accuracy, 1 - earliness), accuracy, earliness

    def _ready(self, X: Any) -> Collection:
        self._check("rule_", "calibrate")
        series = collection(X)
        self._check_series(series)
        return series

    def _check(self, attribute: str, first: str) -> None:
        if not hasattr(self, attribute):
            raise NotFittedError(
                f"this EarlyClassifier is not ready; call {first} with appropriate arguments"
            )

    def _check_series(self, series: Collection) -> None:
        if series.channels != self.n_channels_:
            raise ValueError(
                f"the series have {series.channels} channels, those fitted had {self.n_channels_}"
            )
        if series.timepoints > self.n_timepoints_:
            raise ValueError(
                f"a series has {series.timepoints} time points, those fitted had "
                f"{self.n_timepoints_} at the most"
            )

    def _reached(self, series: Collection) -> NDArray[np.int64]:
        """How many checkpoints each series has come to."""
        reached = np.searchsorted(self.checkpoints_, series.lengths, side="right")
        if len(reached) and reached.min() == 0:
            i = int(reached.argmin())
            raise ValueError(
                f"series {i} has {series.lengths[i]} time points; the first checkpoint is at "
                f"{self.checkpoints_[0]}"
            )
        return reached.astype(np.int64)

    def _advance(
        self, series: Collection, names: Iterable[Hashable], ended: Any
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Shows each series to its stream, checkpoint by checkpoint until it halts."""
        cases = [self._live[name] for name in names]
        reached = self._reached(series)
        for c in range(int(reached.max(initial=0))):
            running = np.array(
                [
                    i
                    for i, case in enumerate(cases)
                    if case.probs is None and case.stream.steps == c < reached[i]
                ],
                np.int64,
            )
            if not len(running):
                continue
            probs, scores = self._base.step(series, running, c)
            own = [None] * len(running) if scores is None else scores.tolist()
            for i, row, score in zip(running, probs, own, strict=True):
                cases[i].see(row, score)
        for case, over in zip(cases, np.broadcast_to(ended, len(cases)), strict=True):
            if over:
                case.end()
        self.state_info = np.array(
            [
                [case.stream.steps - 1, case.probs is not None, case.believed.argmax(), 0]
                for case in cases
            ],
            np.int64,
        ).reshape(-1, 4)
        self.state_info[:, 3] = self.checkpoints_[self.state_info[:, 0]]
        decided = self.state_info[:, 1].astype(bool)
        undecided = np.full(self.n_classes_, -1.0)
        rows = [undecided if case.probs is None else case.probs for case in cases]
        return np.array(rows).reshape(-1, self.n_classes_), decided

    def _labels(self, probs: Array, decided: NDArray[np.bool_]) -> Array:
        labels: Array = self.classes_[probs.argmax(axis=1)]
        if decided.all():
            return labels
        # As in aeon: -1, which is "-1" beside names.
        return np.where(decided, labels, np.array(-1).astype(_with_minus_one(labels.dtype)))

    def compute_harmonic_mean(self, state_info: Array, y: Any) -> tuple[float, float, float]:
        """As in aeon: what :meth:`score` returns, from a state of which all cases
        are decided."""
        labels = as_array(y)
        accuracy = float(np.mean(self.classes_[state_info[:, 2]] == labels))
        earliness = float(np.mean(state_info[:, 3] / self.n_timepoints_))
        return _harmonic_mean(accuracy, 1 - earliness), accuracy, earliness

    @staticmethod
    def filter_X(X: Any, decisions: NDArray[np.bool_]) -> Any:
        """The series that are not decided yet."""
        if isinstance(X, list):
            return [case for case, decided in zip(X, decisions, strict=True) if not decided]
        return X[~decisions]


class _Case:
    """One live series: its stream, and what the base believed last."""

    def __init__(self, rule: Rule) -> None:
        self.stream: Stream = rule.stream()
        self.believed: Array = np.zeros(1)
        #: The probabilities at the halt; None while it runs.
        self.probs: Array | None = None

    def see(self, probs: Array, score: float | None) -> None:
        self.believed = probs
        if self.stream.observe(score, probs=probs):
            self.end()

    def end(self) -> None:
        if self.probs is None:
            self.probs = self.believed


class _PerCheckpoint:
    """One clone of a classifier per checkpoint."""

    def __init__(self, estimator: Any, checkpoints: Array, classes: Array) -> None:
        self.estimator, self.checkpoints, self.classes = estimator, checkpoints, classes
        # scikit-learn's read rows, aeon's read channels.
        self.flat = not any(base.__module__.startswith("aeon.") for base in type(estimator).mro())
        self.fitted: list[Any] = []

    def fit(self, series: Collection, labels: Array) -> list[Any]:
        for end in self.checkpoints:
            reach = series.lengths >= end
            if len(np.unique(labels[reach])) < 2:
                raise ValueError(
                    f"fewer than two classes have series of {end} time points or more; leave "
                    "that checkpoint out"
                )
            # Not safe: aeon's are cloned by scikit-learn as well.
            self.fitted.append(
                clone(self.estimator).fit(self.cut(series, reach, end), labels[reach])
            )
        return self.fitted

    def cut(self, series: Collection, rows: Array, end: int) -> Array:
        prefix = series.cases[rows, :, :end]
        return prefix.reshape(len(prefix), -1) if self.flat else prefix

    def step(self, series: Collection, rows: Array, c: int) -> tuple[Array, None]:
        """The probabilities of these rows at checkpoint `c`."""
        fitted = self.fitted[c]
        found = np.zeros((len(rows), len(self.classes)))
        # A class that no series of this length had is never believed in.
        columns = np.searchsorted(self.classes, fitted.classes_)
        found[:, columns] = fitted.predict_proba(self.cut(series, rows, self.checkpoints[c]))
        return found, None


class _EveryStep:
    """A base that reads every step, of which the checkpoints are picked. It reads
    each batch once, and the last answer is kept for the next checkpoint."""

    def __init__(self, checkpoints: Array, classes: Array) -> None:
        self.checkpoints, self.classes = checkpoints, classes
        self.batch: Collection | None = None

    def read(self, series: Collection) -> tuple[Array, Array | None]:
        raise NotImplementedError

    def step(self, series: Collection, rows: Array, c: int) -> tuple[Array, Array | None]:
        if self.batch is not series:
            self.answer = self.read(series)
            self.batch = series
        probs, scores = self.answer
        t = self.checkpoints[c] - 1
        return probs[rows, t], None if scores is None else scores[rows, t]

    def __getstate__(self) -> dict[str, Any]:
        kept = {k: v for k, v in self.__dict__.items() if k != "answer"}
        return {**kept, "batch": None}


class _Network(_EveryStep):
    def __init__(self, estimator: LSTM, checkpoints: Array, classes: Array) -> None:
        super().__init__(checkpoints, classes)
        self.estimator = estimator

    def fit(self, series: Collection, labels: Array) -> list[Any]:
        # By number: names would be sorted as text.
        numbers = np.searchsorted(self.classes, labels)
        self.fitted: LSTM = clone(self.estimator).fit(series, numbers)
        found = self.fitted.model_.classes
        self.columns = np.array([int(name) for name in found])
        return [self.fitted]

    def read(self, series: Collection) -> tuple[Array, Array]:
        found, scores = self.fitted.model_.predict_proba(series, device=self.fitted.device)
        probs = np.zeros((*found.shape[:2], len(self.classes)), found.dtype)
        probs[:, :, self.columns] = found
        return probs, scores


class _Function(_EveryStep):
    def __init__(self, function: StepProbabilities, checkpoints: Array, classes: Array) -> None:
        super().__init__(checkpoints, classes)
        self.function = function

    def fit(self, series: Collection, labels: Array) -> list[Any]:
        return [self.function]

    def read(self, series: Collection) -> tuple[Array, None]:
        probs, _ = floats(self.function(series.cases), "the function's answer", ["n", "T", "K"])
        wanted = (len(series), series.timepoints, len(self.classes))
        if probs.shape != wanted:
            raise ValueError(f"the function's answer has shape {probs.shape}, {wanted} is needed")
        return probs, None


def _base(estimator: Any, checkpoints: Array, classes: Array) -> Any:
    if estimator is None:
        estimator = LSTM()
    if isinstance(estimator, LSTM):
        return _Network(estimator, checkpoints, classes)
    if _is_function(estimator):
        return _Function(estimator, checkpoints, classes)
    if not hasattr(estimator, "predict_proba"):
        raise ValueError(f"{estimator!r} has no predict_proba, which is needed")
    return _PerCheckpoint(estimator, checkpoints, classes)


def _is_function(estimator: Any) -> bool:
    return callable(estimator) and not hasattr(estimator, "fit")


def _labelled(X: Any, y: Any) -> tuple[Collection, Array]:
    series, labels = collection(X), as_array(y)
    check_axes(labels, "y", ["n"])
    if len(labels) != len(series):
        raise ValueError(f"{len(labels)} labels for {len(series)} series")
    if labels.dtype.kind == "O":
        labels = labels.astype(str)
    return series, labels


def _checkpoints(wanted: int | Sequence[int], timepoints: int) -> NDArray[np.int64]:
    if isinstance(wanted, (int, np.integer)):
        if wanted < 1:
            raise ValueError(f"checkpoints must be at least 1, but {wanted} was given")
        ends = np.linspace(0, timepoints, int(wanted) + 1)[1:].round()
        return np.unique(ends.clip(min=1)).astype(np.int64)
    ends = np.unique(np.asarray(wanted, np.int64))
    if len(ends) and (ends[0] < 1 or ends[-1] > timepoints):
        raise ValueError(f"checkpoints must lie between 1 and {timepoints}, the longest series")
    return np.union1d(ends, [timepoints])


def _harmonic_mean(accuracy: float, saved: float) -> float:
    total = accuracy + saved
    return 2 * accuracy * saved / total if total else 0.0


def _with_minus_one(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "U":
        return np.promote_types(dtype, "U2")
    return np.promote_types(dtype, np.int8)
