"""Early classifiers in scikit-learn's and aeon's conventions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from hashlib import blake2b
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split

from ._arrays import Array, as_array, check_axes, floats
from ._core import Stream, check_options
from ._options import Method, Options, Promise
from ._series import Collection, collection
from .calibration import Alike, calibrate, checked
from .lstm import Model, train
from .rule import Evaluation, Rule
from .traces import Traces

#: A function from a padded batch (n_cases, n_channels, n_timepoints) to the class
#: probabilities after each time point, (n_cases, n_timepoints, n_classes).
StepProbabilities = Callable[[NDArray[Any]], Any]

#: How many checkpoints, and series at each, are read again to see whether a function
#: looks ahead.
CHECKED_CHECKPOINTS, CHECKED_SERIES = 8, 16


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
    options : dict, optional
        More options of :func:`haltwise.calibrate`, by name, such as ``{"score": "margin"}``.
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

    _live: dict[Hashable, _Case]
    state_info: NDArray[np.int64] | None

    def __init__(
        self,
        estimator: Any = None,
        *,
        alpha: float = 0.1,
        delta: float = 0.01,
        method: Method = "adaptive",
        promise: Promise | None = None,
        options: Options | None = None,
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
        self.options = options
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
        if _is_function(self.estimator):
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
        folds = [] if _is_function(self.estimator) else self._folds(labels)
        base = _base(self.estimator, self.checkpoints_, self.classes_)
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
            self._base = _Together([base, *others])
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
        own: Options = {
            "alpha": self.alpha,
            "delta": self.delta,
            "method": self.method,
            "promise": self.promise,
        }
        more = self.options or {}
        twice = sorted(set(own) & set(more))
        if twice:
            raise ValueError(f"options has {', '.join(twice)}: give it as a parameter of its own")
        check_options(checked({**own, **more}))
        return {**own, **more}

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
        if _is_function(self.estimator):
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
        if isinstance(self._base, _Function):
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
        if hasattr(self, attribute):
            return
        if hasattr(self, "estimators_") and _is_function(self.estimator):
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
            # In float32, in which rules are certified: where the largest of two probabilities
            # is another in float64, the label that is served would not be the one certified.
            probs = probs.astype(np.float32, copy=False)
            own = [None] * len(running) if scores is None else scores.tolist()
            for i, row, score in zip(running, probs, own, strict=True):
                cases[i].see(row, score)
                # No series is longer: at the full length each is over.
                if c + 1 == len(self.checkpoints_):
                    cases[i].end()
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

    def trainings(self, series: Collection, labels: Array) -> list[Any]:
        """What is to be done to train it, in any order, as joblib's calls."""
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
        # Not safe: aeon's are cloned by scikit-learn as well.
        return clone(self.estimator).fit(self.cut(series, reach, end), labels[reach])

    def trained(self, fitted: list[Any]) -> list[Any]:
        """Takes what came of that."""
        self.fitted = fitted
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

    def trainings(self, series: Collection, labels: Array) -> list[Any]:
        # By number: names would be sorted as text.
        numbers = np.searchsorted(self.classes, labels)
        return [delayed(clone(self.estimator).fit)(series, numbers)]

    def trained(self, fitted: list[Any]) -> list[Any]:
        (self.fitted,) = fitted
        found = self.fitted.model_.classes
        self.columns = np.array([int(name) for name in found])
        return fitted

    def read(self, series: Collection) -> tuple[Array, Array]:
        found, scores = self.fitted.model_.predict_proba(series, device=self.fitted.device)
        probs = np.zeros((*found.shape[:2], len(self.classes)), found.dtype)
        probs[:, :, self.columns] = found
        return probs, scores


class _Function(_EveryStep):
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
        """Refuses a function that said at a checkpoint, having read whole series, what it
        does not say when it reads them no further."""
        tolerance = 1e-2 if self.answer[0].dtype.itemsize == 2 else 1e-3
        for c in _spread(int(reached.max(initial=0)), CHECKED_CHECKPOINTS):
            there = np.flatnonzero(reached > c)
            # From short to long: padding follows the short ones.
            there = there[np.argsort(series.lengths[there], kind="stable")]
            rows = there[_spread(len(there), CHECKED_SERIES)]
            # Every other one is cut earlier still, and padded as in a batch of unequal ones.
            at = np.where(np.arange(len(rows)) % 2, c // 2, c)
            again = self.read_cut(series, rows, self.checkpoints[at])
            same = np.isclose(again, found[rows, at], rtol=0, atol=tolerance, equal_nan=True)
            if not same.all():
                i = int(np.argmin(same.all(axis=1)))
                whole = found[rows[i], at[i]]
                raise ValueError(self.looks_ahead(rows[i], at[i], whole, again[i], tolerance))

    def read_cut(self, series: Collection, rows: Array, ends: Array) -> Array:
        """What the function says at the end of these series, each cut at its own."""
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
        """What there is to say about series `i` at checkpoint `c`."""
        # What is not a number is furthest.
        k = int(np.argmax(np.nan_to_num(np.abs(whole - cut), nan=np.inf)))
        return (
            f"series {i}, time point {self.checkpoints[c]}: the function gives class "
            f"{self.classes[k].item()!r} {whole[k]:.6g} having read the whole batch, but "
            f"{cut[k]:.6g} where the series is cut there, as a live one is; {tolerance:g} apart "
            "would pass as rounding. Let each answer depend on nothing but the time points up to "
            "its own: no normalising over the series, no layer that reads backwards or past the "
            "present, no statistics of the batch, no dropout (eval mode). A network that computes "
            "in half precision should answer in float16, which may be 0.01 apart"
        )


class _Together:
    """Bases of one kind, with the mean of what they say."""

    def __init__(self, bases: list[Any]) -> None:
        self.bases = bases

    def step(self, series: Collection, rows: Array, c: int) -> tuple[Array, Array | None]:
        probs, scores = zip(*(base.step(series, rows, c) for base in self.bases), strict=True)
        # Not np.mean: it adds in an order that depends on how many rows there are, and a
        # series must be judged alike whoever else is asked about.
        n = len(self.bases)
        return sum(probs) / n, None if scores[0] is None else sum(scores) / n


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


def _fingerprints(series: Collection) -> list[bytes]:
    """What tells each series by its numbers, of whatever type and padding they are."""
    with np.errstate(over="ignore"):
        prefixes = (
            case[:, :end].astype(np.float32).tobytes()
            for case, end in zip(series.cases, series.lengths, strict=True)
        )
        return [blake2b(prefix, digest_size=16).digest() for prefix in prefixes]


def _spread(n: int, most: int) -> NDArray[np.int64]:
    """Up to `most` of the numbers below `n`, evenly, the first and the last among them."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))


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
