"""Early classifiers in scikit-learn's and aeon's conventions."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from copy import copy
from hashlib import blake2b
from typing import Any, get_args

import numpy as np
from joblib import Parallel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split

from ._arrays import Array, as_array, check_axes
from ._bases import LSTM, Function, Together, base_of, is_function
from ._live import LiveSeries
from ._series import Collection, collection
from .calibration import Alike, Method, Promise, calibrate
from .rule import Evaluation, Rule
from .traces import Traces

__all__ = ["LSTM", "EarlyClassifier"]


class EarlyClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Makes a classifier that stops early of any classifier, with a guarantee on
    what stopping costs.

    At chosen checkpoints of a series the base says what it believes; the rule,
    calibrated on series the base was not trained on, says where to stop. With
    probability 1 - `delta`, stopping early loses a right answer for at most `alpha`
    of the series halted by any checkpoint; or, if `promise` says so, of all series.

    Parameters
    ----------
    estimator : classifier, LSTM, callable or None
        A scikit-learn or aeon classifier with ``predict_proba``, of which one clone
        is fitted per checkpoint on the series cut there (scikit-learn's get the
        channels one after the other in one row); or :class:`LSTM`, the default,
        which reads every step; or a function from a padded batch
        (n_cases, n_channels, n_timepoints) to the class probabilities after each
        time point (n_cases, n_timepoints, n_classes), of a network in PyTorch or
        Keras, say, that is trained already. A function must be calibrated on series
        that did not train it, see `new_series`, and must not look ahead, see the notes.
    alpha : float, default=0.1
        The tolerated gap: the share of sequences for which stopping early may lose a right answer.
    delta : float, default=0.01
        The probability with which the guarantee may fail.
    method : str
        How the rule is found, see :func:`haltwise.calibrate`.
    promise : str, optional
        With the adaptive method: whether the gap is kept among the series halted by each
        checkpoint (``"halted-by"``, the default) or on average over all (``"average"``),
        which halts earlier and may lose more among early halts.
    checkpoints : int or list of int, default=20
        The lengths at which to decide, counted in time points from 1; a number asks
        for this many, evenly spaced. The full length is always one of them.
    calibration_fraction : float or None, default=0.3
        The part of the series that ``fit`` sets aside to calibrate on, drawn by chance
        alone. With None, ``fit`` trains on all, and ``calibrate`` must be called with
        other series. Of no meaning with a function, which leaves nothing to train.
    new_series : bool, default=False
        With a function: says that none of the series that ``fit`` is given took part in
        training it, so that ``fit`` may calibrate on all of them. Without that ``fit``
        only notes the classes and the checkpoints, and ``calibrate`` must be called with
        series that are new.
    fit_folds : int or None, default=5
        What a rule is proposed from, its score and its candidates, must not certify it.
        With a number, it is proposed from the series trained on: they are cut into this many
        parts, each is judged by bases that are trained on the others, and
        all series that are calibrated on certify. With None, the series to calibrate on are
        split, as by :func:`haltwise.calibrate`: training takes a fifth of the time, and rules
        halt later. Of no meaning with a function, and with methods that learn nothing.
    ensemble : bool, default=True
        With `fit_folds`, whether the bases that were trained for them are kept and answer
        together with those trained on all series, with the mean of what they say: they are
        there, and together they know more, so that rules halt earlier. An answer takes as
        many times longer as there are bases. With False they are dropped.
    n_jobs : int or None, default=None
        How many bases are trained at a time, in threads: one per checkpoint, for all series
        and for each part of `fit_folds`. None is 1, -1 all processors; joblib's
        ``parallel_config`` asks for processes instead. The same rule comes of any number.
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
    fold_estimators_ : list of list
        The same of each fold, trained without it, where they answer together.
    fit_traces_ : Traces or None
        What the bases of `fit_folds` said about the series trained on, each by those that
        had not seen it.
    state_info : array of (n_cases, 4)
        As in aeon, of the last call: the index of the checkpoint where each case
        stands, whether it was decided there, the predicted class and the length.

    Notes
    -----
    A series that ends between two checkpoints is judged, as by its full prediction,
    at the last one that it reached.

    The probabilities are judged and returned in float32, in which rules are certified;
    of equals the first is the label.

    A function reads whole batches, for speed, and so could look ahead. Wherever traces
    are made (``calibrate``, ``traces``, ``evaluate``) it reads some series again, cut at
    a checkpoint or filled up with zeros from there on, as live ones are: up to 16 series
    at each of up to 8 checkpoints. That costs up to 8 calls, and about as much as
    reading 64 more series. Answers that then differ by more than rounding, 0.001 (0.01
    where they are float16), are refused. The check is a sample: a function that looks
    ahead in rare cases only may pass.

    The guarantee is for one rule, fixed before a look at the series that calibrate it.
    A search such as ``GridSearchCV``, over `alpha` or anything else, tries out many
    rules on the same series, and the best of K has K chances to look better than it
    is: its guarantee is void. Choose beforehand; or search on some series and call
    :meth:`calibrate` of what was chosen with others, once.

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

    _live: LiveSeries
    state_info: NDArray[np.int64] | None

    def __init__(
        self,
        estimator: Any = None,
        *,
        alpha: float = 0.1,
        delta: float = 0.01,
        method: Method = "adaptive",
        promise: Promise | None = None,
        checkpoints: int | Sequence[int] = 20,
        calibration_fraction: float | None = 0.3,
        new_series: bool = False,
        fit_folds: int | None = 5,
        ensemble: bool = True,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.delta = delta
        self.method = method
        self.promise = promise
        self.checkpoints = checkpoints
        self.calibration_fraction = calibration_fraction
        self.new_series = new_series
        self.fit_folds = fit_folds
        self.ensemble = ensemble
        self.n_jobs = n_jobs
        self.random_state = random_state

    # Fitting.

    def fit(self, X: Any, y: Any) -> EarlyClassifier:
        """Trains the base and, on a part set aside, calibrates. A function is trained
        already, and calibrated here only if `new_series` says that it may be.

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
        # A fit that fails leaves nothing of the last one behind.
        for made in ("rule_", "estimators_", "fold_estimators_", "fit_traces_"):
            self.__dict__.pop(made, None)
        self._asked()
        rows, aside = self._parts(labels)
        self._train(series[rows], labels[rows])
        self._trained_on = set(_fingerprints(series[rows]))
        if len(aside):
            self._calibrate(series[aside], labels[aside])
        return self

    def _parts(self, labels: Array) -> tuple[Array, Array]:
        """The rows that train, or may have trained, the base, and those to calibrate on."""
        rows = np.arange(len(labels))
        if is_function(self.estimator):
            if self.new_series and self.calibration_fraction is None:
                raise ValueError(
                    "new_series=True has fit calibrate, calibration_fraction=None has it not: "
                    "they contradict each other; leave one out"
                )
            return (rows[:0], rows) if self.new_series else (rows, rows[:0])
        if self.new_series:
            raise ValueError(
                "new_series is for a function that is trained already; this base is trained by "
                "fit, which sets new series aside by itself (calibration_fraction)"
            )
        if self.calibration_fraction is None:
            return rows, rows[:0]
        # Not by class: the guarantee is for series drawn independently, and fixed shares of
        # the classes would tie them to each other.
        rows, aside = train_test_split(
            rows, test_size=self.calibration_fraction, random_state=self.random_state
        )
        missing = np.setdiff1d(self.classes_, labels[rows]).tolist()
        if missing:
            name = missing[0]
            raise ValueError(
                f"class {name!r} has no series among the {len(rows)} to train on: all of its "
                f"{np.sum(labels == name)} were drawn to calibrate on; give more series of it, "
                "or train on all (calibration_fraction=None) and calibrate on other series"
            )
        return np.sort(rows), np.sort(aside)

    def _train(self, series: Collection, labels: Array) -> None:
        """Trains the base on all of these and, to propose rules from, on all but each fold."""
        folds = [] if is_function(self.estimator) else self._folds(labels)
        base = base_of(self.estimator, self.checkpoints_, self.classes_)
        trainings = base.trainings(series, labels)
        each = len(trainings)
        for fold in folds:
            rest = np.setdiff1d(np.arange(len(labels)), fold)
            try:
                trainings += base.trainings(series[rest], labels[rest])
            except ValueError as error:
                raise ValueError(
                    f"without one of {len(folds)} folds, {error}, give more series, or ask for "
                    "no folds (fit_folds=None)"
                ) from error
        trained = Parallel(n_jobs=self.n_jobs, prefer="threads")(trainings)
        self._base = base
        self.estimators_: list[Any] = base.trained(trained[:each])
        self.fold_estimators_: list[list[Any]] = []
        self.fit_traces_: Traces | None = None
        if not folds:
            return
        # What ends before the first checkpoint says nothing.
        folds = [fold[series.lengths[fold] >= self.checkpoints_[0]] for fold in folds]
        said, others = [], []
        for k, fold in enumerate(folds, 1):
            other = copy(base)
            fitted = other.trained(trained[k * each : (k + 1) * each])
            said.append(self._answers(other, series[fold]))
            if self.ensemble:
                # A copy has forgotten what it read last.
                others.append(copy(other))
                self.fold_estimators_.append(fitted)
        if others:
            self._base = Together([base, *others])
        probs, scores, reached = zip(*said, strict=True)
        self.fit_traces_ = self._traces(
            np.concatenate(probs),
            None if scores[0] is None else np.concatenate(scores),
            np.concatenate(reached),
            labels[np.concatenate(folds)],
        )

    def _folds(self, labels: Array) -> list[Array]:
        """The rows of each fold, drawn by chance, each class spread over all of them. Unlike
        the series that certify, those that propose may be tied to each other."""
        if self.fit_folds is None or not self._learns():
            return []
        if self.fit_folds < 2:
            raise ValueError(
                f"fit_folds must be at least 2, or None for no folds, but {self.fit_folds} was "
                "given"
            )
        drawn = np.random.default_rng(self.random_state).permutation(len(labels))
        drawn = drawn[np.argsort(labels[drawn], kind="stable")]
        return [np.sort(drawn[k :: self.fit_folds]) for k in range(self.fit_folds)]

    def _learns(self) -> str | None:
        """What traces from elsewhere would be for, if for anything."""
        return {"adaptive": "fit", "conditional": "screen"}.get(self.method)

    def _asked(self) -> dict[str, Any]:
        """What is asked for, as options of :func:`haltwise.calibrate`."""
        words = get_args(Promise)
        if self.promise is not None and self.promise not in words:
            raise ValueError(f"promise must be one of {', '.join(words)}, not {self.promise!r}")
        if self.promise is not None and self.method != "adaptive":
            raise ValueError(
                "promise goes with the method adaptive only: each of the paper's makes one of "
                "the two; leave it out"
            )
        return {
            "alpha": self.alpha,
            "delta": self.delta,
            "method": self.method,
            "promise": self.promise,
        }

    def calibrate(self, X: Any, y: Any) -> EarlyClassifier:
        """Finds a new rule on these series, which the base must not have been trained on.

        Series that ``fit`` trained on, or a function may have been trained on, are told
        by their numbers: refused if all are such, warned of if some are.

        The guarantee is for the first rule that a set of series is asked for: to ask
        again, with another `alpha` say, and take the rule that looks best voids it.
        """
        self._check("estimators_", "fit")
        series, labels = _labelled(X, y)
        self._check_new(series)
        return self._calibrate(series, labels)

    def _check_new(self, series: Collection) -> None:
        known = np.array([told in self._trained_on for told in _fingerprints(series)], bool)
        if not known.any():
            return
        risk = "a rule calibrated on what trained the base promises what it cannot keep"
        if not known.all():
            # As may be, where series repeat themselves.
            warnings.warn(
                f"{known.sum()} of the {len(known)} series, series {known.argmax()} the first, "
                f"were given to fit as well; {risk}",
                stacklevel=3,
            )
            return
        remedy = "calibrate on others"
        if is_function(self.estimator):
            remedy += ", or say new_series=True before fit if none of them trained the function"
        raise ValueError(f"all of these series were given to fit as well; {risk}: {remedy}")

    def _calibrate(self, X: Collection, y: Array) -> EarlyClassifier:
        asked = self._asked()
        learns = self._learns()
        if learns and self.fit_traces_ is not None:
            asked[learns] = self.fit_traces_
        with warnings.catch_warnings():
            # These series are known to be others, and bases often say the same of two.
            warnings.simplefilter("ignore", Alike)
            self.rule_: Rule = calibrate(self.traces(X, y), **asked)
        self.reset_state_info()
        return self

    def traces(self, X: Any, y: Any) -> Traces:
        """What the base says about every series at every checkpoint; refuses a function
        that looks ahead."""
        self._check("estimators_", "fit")
        series, labels = _labelled(X, y)
        self._check_series(series)
        probs, scores, reached = self._answers(self._base, series)
        if isinstance(self._base, Function):
            self._base.check_causal(series, reached, probs)
        return self._traces(probs, scores, reached, labels)

    def _answers(
        self, base: Any, series: Collection
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None, NDArray[np.int64]]:
        """What this base says about every series at every checkpoint that it has come to:
        probabilities, scores if it gives any, and how many checkpoints those are."""
        reached = self._reached(series)
        n, steps = len(series), len(self.checkpoints_)
        probs = np.zeros((n, steps, self.n_classes_), np.float32)
        scores: NDArray[np.float32] | None = None
        for c in range(steps):
            running = np.flatnonzero(reached > c)
            if not len(running):
                break
            probs[running, c], score = base.step(series, running, c)
            if score is not None:
                scores = np.zeros((n, steps), np.float32) if scores is None else scores
                scores[running, c] = score
        return probs, scores, reached

    def _traces(
        self, probs: Array, scores: Array | None, reached: NDArray[np.int64], labels: Array
    ) -> Traces:
        lengths = None if (reached == len(self.checkpoints_)).all() else reached
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
        self._live = LiveSeries(self.rule_, len(series))
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
            if not self._live.cases:
                return self.predict_proba(series, ended=ended)
            return self._advance(series, self._live.undecided(len(series)), ended)
        return self._advance(series, self._live.named(ids, len(series), self.rule_), ended)

    def forget(self, ids: Iterable[Hashable]) -> None:
        """Drops live series: they are over, or were acted on."""
        for name in ids:
            self._live.cases.pop(name, None)

    def reset_state_info(self) -> None:
        """Drops all live series."""
        self._live = LiveSeries()
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
        if hasattr(self, attribute):
            return
        if hasattr(self, "estimators_") and is_function(self.estimator):
            raise NotFittedError(
                "this EarlyClassifier is not calibrated: fit cannot know which series trained the "
                "function; call calibrate(X, y) with series that did not, or, if none of those "
                "given to fit did, say new_series=True before fit"
            )
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
        cases = self._live.advance(
            series,
            names,
            ended,
            base=self._base,
            reached=self._reached(series),
            steps=len(self.checkpoints_),
        )
        self.state_info = np.array(
            [
                [case.stream.steps - 1, case.probs is not None, case.believed.argmax(), 0]
                for case in cases
            ],
            np.int64,
        ).reshape(-1, 4)
        self.state_info[:, 3] = self.checkpoints_[self.state_info[:, 0]]
        decided = self.state_info[:, 1].astype(bool)
        undecided = np.full(self.n_classes_, -1, np.float32)
        rows = [undecided if case.probs is None else case.probs for case in cases]
        return np.array(rows, np.float32).reshape(-1, self.n_classes_), decided

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


def _fingerprints(series: Collection) -> list[bytes]:
    """What tells each series by its numbers, of whatever type and padding they are."""
    with np.errstate(over="ignore"):
        prefixes = (
            case[:, :end].astype(np.float32).tobytes()
            for case, end in zip(series.cases, series.lengths, strict=True)
        )
        return [blake2b(prefix, digest_size=16).digest() for prefix in prefixes]


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
