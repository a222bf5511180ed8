"""Early classifiers in scikit-learn's conventions."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from copy import copy
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.utils import get_tags

from ._arrays import Array
from ._bases import LSTM, Function, Prefix, Together, base_of, checkpoints_of, is_function, run
from ._core import check_options
from ._live import Case, EarlyStream, LiveSeries
from ._options import Method, Options, Promise
from ._saved import read_early, texts_of
from ._series import Collection, check_length, collection, fingerprints, is_one
from ._targets import classes_of, folds_of, labelled, parts_of, shares_of
from .calibration import Alike, calibrate, checked
from .prefix import PrefixClassifier, PrefixStream
from .rule import Evaluation, Rule
from .traces import PathLike, Traces

__all__ = [
    "LSTM",
    "EarlyClassifier",
    "EarlyScore",
    "EarlyStream",
    "PrefixClassifier",
    "PrefixStream",
]


class EarlyScore(NamedTuple):
    """What early answers are worth, as in aeon: the harmonic mean of the accuracy and
    1 - earliness, the accuracy, and the earliness: the mean share of a series that is read."""

    harmonic_mean: float
    accuracy: float
    earliness: float


class EarlyClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Makes any classifier stop early, with a guarantee on what stopping costs.

    At chosen checkpoints of a series the base predicts, and the rule says whether to stop.
    The rule is calibrated on series that did not train the base. With probability
    1 - `delta`, stopping early loses a right answer for at most `alpha` of the series halted
    by any checkpoint, or, with ``promise="average"``, of all series.

    Parameters
    ----------
    estimator : classifier, PrefixClassifier, LSTM, callable or None
        :class:`PrefixClassifier`, the default, which reads a series once and answers at all
        checkpoints. Or a scikit-learn or aeon classifier with ``predict_proba``: ``fit`` trains one
        clone per checkpoint, on the series cut there (scikit-learn's get the channels one after the
        other in one row). Or :class:`LSTM`, which reads every step. Or a function of a trained
        network, say in PyTorch or Keras: from a padded batch (n_cases, n_channels, n_timepoints)
        to the class probabilities after each time point, (n_cases, n_timepoints, n_classes).
        Calibrate a function on series that did not train it (see `new_series`). It must not look
        ahead (see the notes).
    alpha : float, default=0.1
        The tolerated gap: the share of sequences for which stopping early may lose a right answer.
    delta : float, default=0.01
        The probability with which the guarantee may fail.
    method : str
        How the rule is found, see :func:`haltwise.calibrate`.
    promise : str, optional
        With the adaptive method: ``"halted-by"``, the default, bounds the gap among the series
        halted by each checkpoint. ``"average"`` bounds it on average over all series; it halts
        earlier, and may lose more among early halts.
    options : dict, optional
        More options of :func:`haltwise.calibrate`, by name, such as ``{"score": "margin"}``.
    checkpoints : int or list of int, default=20
        The lengths at which to decide, counted in time points from 1. A number means this
        many, evenly spaced. The full length is always one of them; with the default base, only if
        at least ten of the series to train on reach it.
    calibration_fraction : float or None, default=0.3
        The share of the series that ``fit`` sets aside at random to calibrate on. With None,
        ``fit`` trains on all; then call ``calibrate`` with other series. Ignored with a
        function, which is already trained.
    new_series : bool, default=False
        With a function: True says that none of the series given to ``fit`` trained it, so
        ``fit`` calibrates on all of them. Otherwise ``fit`` only notes the classes and the
        checkpoints; then call ``calibrate`` with new series.
    fit_folds : int or None, default=5
        The series that propose a rule must not certify it. With a number, the training series
        propose: they are cut into this many parts, and bases that are trained on the other
        parts judge each part. Then all calibration series certify. With None, the
        calibration series are split, as by :func:`haltwise.calibrate`: training takes a fifth
        of the time, and rules halt later. Ignored with the default base, which needs no folds:
        it answers about each training series as if it had not seen it. Ignored with a function,
        and with methods that learn nothing.
    ensemble : bool, default=True
        With `fit_folds`: True keeps the bases of the parts. They answer together with the base
        trained on all series, with the mean of their probabilities, and rules halt earlier.
        With six bases an answer takes six times as long. False drops them. Ignored without folds.
    n_jobs : int or None, default=None
        How many bases train at a time, in threads. There is one per checkpoint, for all series
        and for each part of `fit_folds`. None is 1, -1 all processors. joblib's
        ``parallel_config`` chooses processes instead. Any number gives the same rule. The default
        base is one, and uses all processors (see :class:`PrefixClassifier`).
    random_state : int, default=0
        The seed that draws the parts.
    verbose : bool, default=False
        Whether ``fit`` shows a progress bar.

    Attributes
    ----------
    classes_ : array
        The classes.
    undecided_ : object
        What stands for the class of a series that is not decided yet: -1 (``"-1"`` beside names).
        If that is a class, the first of -2, -3, ... that is none.
    n_features_in_ : int
        The numbers of the longest series: channels times time points.
    checkpoints_ : array of int
        The lengths at which decisions are made.
    rule_ : Rule
        The calibrated rule; its step t is the t-th checkpoint.
    estimators_ : list
        The fitted bases: one per checkpoint, or the one that reads all steps.
    fold_estimators_ : list of list
        The bases of each fold, trained without it, if they answer together.
    fit_traces_ : Traces or None
        What was said about the training series, each judged by bases that had not seen it: those
        of `fit_folds`, or the default base with that series left out.
    state_info : array of (n_cases, 4)
        As in aeon, after the last call about growing series: each case's last checkpoint (its
        index; -1 if it has reached none), whether it is decided, the predicted class and the
        length.

    Notes
    -----
    ``predict``, ``predict_proba`` and ``score`` are scikit-learn's: series are over, each gets
    one label, and ``score`` is the accuracy of those labels. So ``cross_val_score`` and
    ``GridSearchCV`` work. :meth:`score_early` also measures how early they come.
    ``predict_early`` and ``update_predict`` are for series that grow: they say which are decided.
    Only these two keep a state. For aeon, sktime and tslearn there are adapters
    (``haltwise.aeon``, ``haltwise.sktime``, ``haltwise.tslearn``).

    If a series ends between two checkpoints, its full prediction is that at the last
    checkpoint it reached.

    Probabilities are judged and returned in float32, as rules are certified. Of equal
    probabilities, the first is the label.

    A function reads whole batches, for speed, and so could look ahead. ``calibrate``,
    ``traces`` and ``evaluate`` test that. They read up to 16 series again at each of up to 8
    checkpoints, cut there or filled up with zeros, as live series are. That costs up to 8
    calls, about as much as reading 64 more series. They refuse answers that then differ by
    more than rounding: 0.001, or 0.01 for float16. The test is a sample: a function that
    looks ahead only in rare cases may pass.

    The guarantee is for one rule, fixed before anyone looks at the series that calibrate it.
    A search such as ``GridSearchCV``, over `alpha` or anything else, tries many rules on the
    same series. The best of K had K chances to look better than it is, so its guarantee is
    void. Choose beforehand; or search on some series and :meth:`calibrate` the choice on
    others, once.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> y = np.repeat(["down", "up"], 300)
    >>> drift = np.where(y == "up", 0.5, -0.5)[:, None]
    >>> X = np.cumsum(drift + np.random.default_rng(0).normal(size=(600, 20)), axis=1)
    >>> early = EarlyClassifier(LogisticRegression(), checkpoints=10).fit(X, y)
    >>> labels = early.predict(X)                    # of each, where it halts
    >>> labels, decided = early.predict_early(X[:, :4])    # the first 4 points of each
    >>> labels, decided = early.predict_early(X)     # all of them: everyone is decided
    >>> bool(decided.all())
    True
    """

    _live: LiveSeries

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
        verbose: bool = False,
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
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        base = PrefixClassifier() if self.estimator is None else self.estimator
        known = hasattr(base, "__sklearn_tags__")
        tags.input_tags.allow_nan = get_tags(base).input_tags.allow_nan if known else True
        return tags

    # Fitting.

    def fit(self, X: Any, y: Any) -> EarlyClassifier:
        """Trains the base, and calibrates on a part set aside. A function is already trained;
        ``fit`` calibrates it only with `new_series`.

        Parameters
        ----------
        X : array of (n_cases, n_channels, n_timepoints) or (n_cases, n_timepoints), or a list
            The series; a list of (n_channels, n_timepoints) arrays if lengths differ.
        y : array of (n_cases)
            The true classes.
        """
        self._asked()
        series, labels = labelled(X, y)
        self.classes_ = classes_of(labels)
        self.n_classes_ = len(self.classes_)
        self.n_channels_, self.n_timepoints_ = series.channels, series.timepoints
        self.n_features_in_ = series.channels * series.timepoints
        self.checkpoints_ = checkpoints_of(self.checkpoints, series.timepoints)
        self.reset_state_info()
        # A fit that fails leaves nothing of the last one behind.
        for made in ("rule_", "estimators_", "fold_estimators_", "fit_traces_"):
            self.__dict__.pop(made, None)
        rows, aside = self._parts(labels)
        self.class_prior_ = shares_of(labels[rows] if len(rows) else labels, self.classes_)
        self._train(series[rows], labels[rows])
        self._trained_on = set(fingerprints(series[rows]))
        if len(aside):
            self._calibrate(series[aside], labels[aside])
        return self

    def _parts(self, labels: Array) -> tuple[Array, Array]:
        """The rows that train, or may have trained, the base, and the rows to calibrate on."""
        rows = np.arange(len(labels))
        if is_function(self.estimator):
            if self.new_series and self.calibration_fraction is None:
                raise ValueError(
                    "new_series=True and calibration_fraction=None contradict each other: the "
                    "first makes fit calibrate, the second forbids it; leave one out"
                )
            return (rows[:0], rows) if self.new_series else (rows, rows[:0])
        if self.new_series:
            raise ValueError(
                "new_series is for a function that is already trained; fit trains this base, and "
                "sets new series aside by itself (calibration_fraction), so leave it out"
            )
        if self.calibration_fraction is None:
            return rows, rows[:0]
        return parts_of(labels, self.calibration_fraction, self.random_state)

    def _train(self, series: Collection, labels: Array) -> None:
        """Trains the base on all of these and, to propose rules, on all but each fold."""
        base = base_of(self.estimator, self.checkpoints_, self.classes_)
        if isinstance(base, Prefix) and self.verbose:
            base.estimator = clone(base.estimator).set_params(verbose=True)
        folds: list[Array] = []
        needs_folds = not isinstance(base, (Function, Prefix)) and self._learns()
        if needs_folds and self.fit_folds is not None:
            folds = folds_of(labels, self.fit_folds, self.random_state)
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
        # The default base is one, and shows its own progress.
        show = self.verbose and not isinstance(base, Prefix)
        trained = run(trainings, self.n_jobs, show)
        self._base = base
        self.estimators_: list[Any] = base.trained(trained[:each])
        self.fold_estimators_: list[list[Any]] = []
        self.fit_traces_: Traces | None = None
        if isinstance(base, Prefix):
            self.checkpoints_ = base.checkpoints
            self.fit_traces_ = base.fitted.fit_traces_ if self._learns() else None
        if not folds:
            return
        # Series that end before the first checkpoint have no prediction.
        folds = [fold[series.lengths[fold] >= self.checkpoints_[0]] for fold in folds]
        said, others = [], []
        for k, fold in enumerate(folds, 1):
            other = copy(base)
            fitted = other.trained(trained[k * each : (k + 1) * each])
            said.append(self._answers(other, series[fold]))
            if self.ensemble:
                # A copy does not hold the batch that was read last.
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

    def _learns(self) -> str | None:
        """The option of :func:`haltwise.calibrate` for traces from elsewhere, if any."""
        return {"adaptive": "fit", "conditional": "screen"}.get(self.method)

    def _asked(self) -> dict[str, Any]:
        """The options for :func:`haltwise.calibrate`."""
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
        """Finds a new rule on these series, which must not have trained the base.

        It recognises series that were given to ``fit``, by their numbers. It warns if some
        are such, and refuses if all are.

        The guarantee is for the first rule from a set of series. To ask again, say with
        another `alpha`, and choose the rule that looks best, voids it.
        """
        self._check("estimators_", "fit")
        series, labels = labelled(X, y)
        self._check_new(series)
        return self._calibrate(series, labels)

    def _check_new(self, series: Collection) -> None:
        known = np.array([told in self._trained_on for told in fingerprints(series)], bool)
        if not known.any():
            return
        risk = "a rule calibrated on what trained the base promises what it cannot keep"
        if not known.all():
            # Allowed, because data sets may have the same series twice.
            warnings.warn(
                f"{known.sum()} of the {len(known)} series, series {known.argmax() + 1} the first, "
                f"were also given to fit; {risk}",
                stacklevel=3,
            )
            return
        remedy = "calibrate on others"
        if is_function(self.estimator):
            remedy += ", or set new_series=True before fit if none of them trained the function"
        raise ValueError(f"all of these series were given to fit; {risk}: {remedy}")

    def _calibrate(self, X: Collection, y: Array) -> EarlyClassifier:
        asked = self._asked()
        learns = self._learns()
        if learns and self.fit_traces_ is not None:
            asked[learns] = self.fit_traces_
        with warnings.catch_warnings():
            # These series are known to differ, and bases often predict the same for two.
            warnings.simplefilter("ignore", Alike)
            self.rule_: Rule = calibrate(self.traces(X, y), **asked)
        self.reset_state_info()
        return self

    def traces(self, X: Any, y: Any) -> Traces:
        """What the base says about every series at every checkpoint. Refuses a function that
        looks ahead."""
        self._check("estimators_", "fit")
        series, labels = labelled(X, y)
        self._check_series(series)
        probs, scores, reached = self._answers(self._base, series)
        if isinstance(self._base, Function):
            self._base.check_causal(series, reached, probs)
        return self._traces(probs, scores, reached, labels)

    def _answers(
        self, base: Any, series: Collection
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None, NDArray[np.int64]]:
        """What this base says about every series at every checkpoint that the series reached:
        probabilities, scores if it gives any, and the number of checkpoints."""
        reached = self._reached_first(series)
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

    def predict(self, X: Any) -> Array:
        """The class of each series where the rule halts it, or at its end: the series are taken
        to be over. Show growing ones to :meth:`update_predict`."""
        probs = self.predict_proba(X)
        labels: Array = self.classes_[probs.argmax(axis=1)]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The class probabilities of each series where the rule halts it, or at its end."""
        return self._halted(self._ready(X))[0]

    def score_early(self, X: Any, y: Any, sample_weight: Any = None) -> EarlyScore:
        """How right and how early the answers are. ``score`` is their accuracy alone, as
        everywhere in scikit-learn."""
        self._check("rule_", "calibrate")
        series, labels = labelled(X, y)
        self._check_series(series)
        probs, points = self._halted(series)
        said = self.classes_[probs.argmax(axis=1)]
        accuracy = float(accuracy_score(labels, said, sample_weight=sample_weight))
        earliness = float(np.average(points / series.lengths, weights=sample_weight))
        total = accuracy + 1 - earliness
        mean = 2 * accuracy * (1 - earliness) / total if total else 0.0
        return EarlyScore(mean, accuracy, earliness)

    def _halted(self, series: Collection) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The class probabilities of each series at its halt, and the time points read."""
        self._reached_first(series)
        live = LiveSeries.of(len(series), self.rule_, self.class_prior_)
        cases = self._shown(live, series, range(len(series)), ended=True)
        probs = np.array([case.probs for case in cases], np.float32).reshape(-1, self.n_classes_)
        last = np.array([case.stream.steps for case in cases], np.int64) - 1
        # A series that was not halted has been read to its end, also behind its last checkpoint.
        halted = np.array([case.stream.reason == "threshold" for case in cases])
        return probs, np.where(halted, self.checkpoints_[last], series.lengths)

    # Deciding about series that grow.

    def predict_early(self, X: Any, *, ended: Any = False) -> tuple[Array, NDArray[np.bool_]]:
        """The classes (`undecided_` if the rule says to read on), and which series are decided.

        The base is asked about a series only until it halts. At the full length every series
        is decided. If a shorter series is over, say so by `ended`, for all or one by one. Then
        :meth:`update_predict` goes on with those that are undecided.
        """
        probs, decided = self.predict_proba_early(X, ended=ended)
        return self._labels(probs, decided), decided

    def predict_proba_early(self, X: Any, *, ended: Any = False) -> tuple[Array, NDArray[np.bool_]]:
        """The class probabilities at each series' halt (a row of -1 if the rule says to read
        on), and which series are decided."""
        series = self._ready(X, live=True)
        self._live = LiveSeries.of(len(series), self.rule_, self.class_prior_)
        return self._advance(series, range(len(series)), ended)

    def update_predict(
        self, X: Any, ids: Iterable[Hashable] | None = None, *, ended: Any = False
    ) -> tuple[Array, NDArray[np.bool_]]:
        """:meth:`predict_early` for live series that have grown since the last call.

        Parameters
        ----------
        X : series, as for :meth:`fit`, each from its beginning
            None may be shorter than it was. Before the first checkpoint it is undecided. One
            series of one channel may be an array of its time points.
        ids : sequence of hashable
            The names of the series. A new id begins a series. A decided series keeps its
            decision until :meth:`forget`. Without ids, as in aeon, these are the series that
            the last call left undecided, in the same order.
        ended : bool or array of bool
            Which series are over, although they are shorter than the longest.
        """
        probs, decided = self.update_predict_proba(X, ids, ended=ended)
        return self._labels(probs, decided), decided

    def update_predict_proba(
        self, X: Any, ids: Iterable[Hashable] | None = None, *, ended: Any = False
    ) -> tuple[Array, NDArray[np.bool_]]:
        """As :meth:`update_predict`, with probabilities instead of classes."""
        series = self._ready(X, live=True)
        if ids is None:
            if not self._live.cases:
                return self.predict_proba_early(series, ended=ended)
            return self._advance(series, self._live.undecided(len(series)), ended)
        names = self._live.named(ids, len(series), self.rule_, self.class_prior_)
        return self._advance(series, names, ended)

    def stream(self) -> EarlyStream:
        """One live series, shown time point by time point. Needs the default base."""
        base = self._prefix("show series as they grow to update_predict")
        series = base.fitted.stream()
        return EarlyStream(self.rule_, series, self.classes_, len(self.checkpoints_))

    def _prefix(self, instead: str) -> Prefix:
        self._check("rule_", "calibrate")
        if not isinstance(self._base, Prefix):
            raise ValueError(
                f"this needs the default base, PrefixClassifier; with another one, {instead}"
            )
        return self._base

    def forget(self, ids: Iterable[Hashable]) -> None:
        """Drops live series that you no longer need."""
        for name in ids:
            self._live.cases.pop(name, None)

    def reset_state_info(self) -> None:
        """Drops all live series."""
        self._live = LiveSeries()

    @property
    def state_info(self) -> NDArray[np.int64] | None:
        """As in aeon, see above; None before any call about growing series."""
        return self._live.info if hasattr(self, "_live") else None

    # Files.

    def save(self, path: PathLike) -> None:
        """Writes model and rule to one file, whole or not at all. Needs the default base. On the
        command line, it stands for a model (``haltwise score``) and for a rule (``haltwise
        evaluate``, ``decide``, ``serve``).

        `fit_traces_` are not in it: a loaded classifier that is calibrated anew splits the new
        series, as by :func:`haltwise.calibrate`.
        """
        base = self._prefix("pickle it")
        base.fitted._save(path, texts_of(self, base.fitted))

    @classmethod
    def load(cls, path: PathLike) -> EarlyClassifier:
        """Reads a file of :meth:`save`."""
        early, fitted, rule = read_early(cls, path)
        base = base_of(fitted, fitted.checkpoints_, fitted.classes_)
        early.estimators_ = base.trained([fitted])
        early.fold_estimators_, early.fit_traces_ = [], None
        early._base, early.rule_ = base, rule
        early.classes_, early.n_classes_ = fitted.classes_, fitted.n_classes_
        early.n_channels_, early.checkpoints_ = fitted.n_channels_, fitted.checkpoints_
        early.n_features_in_ = early.n_channels_ * early.n_timepoints_
        early.class_prior_ = fitted.stream().latest
        early.reset_state_info()
        return early

    def _ready(self, X: Any, live: bool = False) -> Collection:
        self._check("rule_", "calibrate")
        if live and self.n_channels_ == 1 and not isinstance(X, Collection) and is_one(X):
            X = np.asarray(X).reshape(1, 1, -1)
        series = collection(X)
        self._check_series(series)
        return series

    def _check(self, attribute: str, first: str) -> None:
        if hasattr(self, attribute):
            return
        if hasattr(self, "estimators_") and is_function(self.estimator):
            raise NotFittedError(
                "this EarlyClassifier is not calibrated: fit cannot know which series trained the "
                "function; call calibrate(X, y) with series that did not, or, if none of the "
                "series given to fit trained it, set new_series=True before fit"
            )
        first = first if hasattr(self, "estimators_") else "fit"
        raise NotFittedError(
            f"this EarlyClassifier is not ready; call {first} with appropriate arguments"
        )

    def _check_series(self, series: Collection) -> None:
        if series.channels != self.n_channels_:
            raise ValueError(
                f"the series have {series.channels} channels, but fit saw {self.n_channels_}"
            )
        check_length(series, self.n_timepoints_)

    def _reached(self, series: Collection) -> NDArray[np.int64]:
        """How many checkpoints each series has reached."""
        return np.searchsorted(self.checkpoints_, series.lengths, side="right").astype(np.int64)

    def _reached_first(self, series: Collection) -> NDArray[np.int64]:
        """The same for series that are over, which must have reached one."""
        reached = self._reached(series)
        if len(reached) and reached.min() == 0:
            i = int(reached.argmin())
            raise ValueError(
                f"series {i + 1} has {series.lengths[i]} time points; the first checkpoint is at "
                f"{self.checkpoints_[0]}: leave it out, or show it to update_predict if it grows"
            )
        return reached

    def _shown(
        self, live: LiveSeries, series: Collection, names: Iterable[Hashable], ended: Any
    ) -> list[Case]:
        return live.advance(
            series,
            names,
            ended,
            base=self._base,
            reached=self._reached(series),
            steps=len(self.checkpoints_),
        )

    def _advance(
        self, series: Collection, names: Iterable[Hashable], ended: Any
    ) -> tuple[Array, NDArray[np.bool_]]:
        cases = self._shown(self._live, series, names, ended)
        # Before the first checkpoint nothing was read: the last of these is for index -1.
        points = np.append(self.checkpoints_, 0)
        info = [
            [at, case.probs is not None, case.believed.argmax(), points[at]]
            for case in cases
            for at in [case.stream.steps - 1]
        ]
        self._live.info = np.array(info, np.int64).reshape(-1, 4)
        decided = self._live.info[:, 1].astype(bool)
        undecided = np.full(self.n_classes_, -1, np.float32)
        rows = [undecided if case.probs is None else case.probs for case in cases]
        return np.array(rows, np.float32).reshape(-1, self.n_classes_), decided

    @property
    def undecided_(self) -> Any:
        """What stands for the class of a series that is not decided yet."""
        known = set(self.classes_.tolist())
        named = self.classes_.dtype.kind == "U"
        numbers = (str(-k) if named else -k for k in count(1))
        return next(number for number in numbers if number not in known)

    def _labels(self, probs: Array, decided: NDArray[np.bool_]) -> Array:
        labels: Array = self.classes_[probs.argmax(axis=1)]
        if decided.all():
            return labels
        undecided = np.array(self.undecided_)
        if undecided.dtype.kind != "U":
            undecided = undecided.astype(np.min_scalar_type(undecided))
        return np.where(decided, labels, undecided)

    @staticmethod
    def filter_X(X: Any, decisions: NDArray[np.bool_]) -> Any:
        """The series that are not yet decided."""
        if isinstance(X, list):
            return [case for case, decided in zip(X, decisions, strict=True) if not decided]
        return X[~decisions]
