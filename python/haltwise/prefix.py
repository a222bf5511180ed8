"""The prefix classifier: an answer for every prefix of a series, in one pass."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from . import _core
from ._arrays import Array
from ._progress import checkpoints_bar
from ._series import Collection, check_length, collection, sequences, time_points
from ._targets import classes_of, labelled
from .traces import PathLike, Traces

if TYPE_CHECKING:
    from typing_extensions import Self

#: The name under which a model file holds what only Python knows.
PYTHON = "haltwise-python"


class PrefixClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that answers for every prefix of a series, and reads the series once.

    Random convolutions of the series and its differences are counted as they are read. At each
    checkpoint a linear model of the counts and trees of the values answer together. How much each
    of the two counts is decided by their answers about training series that are left out. Series
    may have many channels, unequal lengths and missing values (NaN).

    It is the default base of :class:`EarlyClassifier`, and stands alone as a classifier in
    scikit-learn's and aeon's conventions.

    Parameters
    ----------
    checkpoints : int or list of int, default=32
        After how many time points it answers. A number means this many, evenly spaced, or every
        time point if there are fewer. The last one is the longest length that at least ten
        training series reach.
    trees : int, default=100
        The trees at each checkpoint. With 0 the linear model answers alone.
    n_jobs : int or None, default=None
        How many threads. None and -1 take all processors. Any number gives the same bits.
    random_state : int, default=0
        The seed of all random choices.
    verbose : bool, default=False
        Whether ``fit`` shows a progress bar.

    Attributes
    ----------
    classes_ : array
        The classes.
    n_features_in_ : int
        The numbers of the longest series: channels times time points.
    checkpoints_ : array of int
        After how many time points it answers.
    fit_traces_ : Traces
        What the model says about its own training series, each left out. They may fit a rule
        (``haltwise.calibrate(new, fit=classifier.fit_traces_)``), and must not certify it. After
        :meth:`load` there are none.
    training_ : dict
        How it was fitted, with the accuracy of those answers at each checkpoint.

    Notes
    -----
    A series that ends between two checkpoints is answered as at the last one that it reached.
    Before the first one, the answer is how common each class was in training.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.repeat(["down", "up"], 100)
    >>> drift = np.where(y == "up", 0.5, -0.5)[:, None]
    >>> X = np.cumsum(drift + np.random.default_rng(0).normal(size=(200, 20)), axis=1)
    >>> classifier = PrefixClassifier().fit(X, y)
    >>> classifier.predict_proba(X[:, :5]).shape     # the first 5 points of each
    (200, 2)
    >>> classifier.answers(X).shape                  # after every time point
    (200, 20, 2)
    """

    _model: _core.PrefixModel

    def __init__(
        self,
        checkpoints: int | Sequence[int] = 32,
        *,
        trees: int = 100,
        n_jobs: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.checkpoints = checkpoints
        self.trees = trees
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any) -> PrefixClassifier:
        """Fits the model.

        Parameters
        ----------
        X : array of (n_cases, n_channels, n_timepoints) or (n_cases, n_timepoints), or a list
            The series; a list of (n_channels, n_timepoints) arrays if lengths differ. NaN is a
            missing value.
        y : array of (n_cases)
            The true classes.
        """
        series, labels = labelled(X, y)
        classes = classes_of(labels)
        with checkpoints_bar(self.verbose) as tell:
            self._model, found = _core.PrefixModel.fit(
                sequences(series),
                np.searchsorted(classes, labels).astype(np.uint32),
                [str(name) for name in classes],
                _wanted(self.checkpoints),
                self.trees,
                self.random_state,
                self._threads(),
                tell,
            )
        self._describe(classes, series.timepoints)
        self.fit_traces_: Traces | None = self._traces(found, labels, leave_out=True)
        return self

    def _describe(self, classes: Array, timepoints: int | None) -> None:
        described = json.loads(self._model.describe())
        self.classes_ = classes
        self.n_classes_ = len(classes)
        self.n_channels_, self.n_timepoints_ = int(described["channels"]), timepoints
        if timepoints is not None:
            self.n_features_in_ = self.n_channels_ * timepoints
        self.checkpoints_ = np.array(described["checkpoints"], np.int64)
        self.training_: dict[str, Any] = described["training"]

    def predict(self, X: Any) -> Array:
        """The most probable class of each series."""
        probs = self.predict_proba(X)
        labels: Array = self.classes_[probs.argmax(axis=1)]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The class probabilities, (n_cases, n_classes), from series of any length."""
        last: NDArray[np.float32] = self.answers(X)[:, -1]
        return last

    def answers(self, X: Any) -> NDArray[np.float32]:
        """The class probabilities at every checkpoint, (n_cases, n_checkpoints, n_classes). Past
        the end of a series its last answer is repeated."""
        probs: NDArray[np.float32] = self._ask(collection(X))["probs"]
        return probs

    def traces(self, X: Any, y: Any) -> Traces:
        """What the model says about every series at every checkpoint that it reaches. Use series
        that did not train it: a rule calibrated on training series promises nothing."""
        series, labels = labelled(X, y)
        return self._traces(self._ask(series), labels)

    def stream(self) -> PrefixStream:
        """A series that arrives time point by time point."""
        self._check()
        return PrefixStream(self._model.stream())

    def _ask(self, series: Collection) -> dict[str, Any]:
        self._check()
        if self.n_timepoints_ is not None:
            check_length(series, self.n_timepoints_)
        return self._model.answers(sequences(series), self._threads())

    def _traces(self, found: dict[str, Any], y: Array, leave_out: bool = False) -> Traces:
        probs, reached = found["probs"], found["reached"]
        if reached.min() == 0:
            if not leave_out:
                row = int(reached.argmin()) + 1
                raise ValueError(
                    f"series {row} ends before the first checkpoint, which is at "
                    f"{self.checkpoints_[0]}: leave it out, or fit with earlier checkpoints"
                )
            rows = np.flatnonzero(reached)
            probs, reached, y = probs[rows], reached[rows], y[rows]
        lengths = None if (reached == len(self.checkpoints_)).all() else reached
        return Traces(labels=y, probs=probs, lengths=lengths, classes=self.classes_)

    def _threads(self) -> int | None:
        if self.n_jobs is None or self.n_jobs == -1:
            return None
        if self.n_jobs < 1:
            raise ValueError(f"n_jobs must be at least 1, -1 or None, but {self.n_jobs} was given")
        return self.n_jobs

    def _check(self) -> None:
        if not hasattr(self, "_model"):
            raise NotFittedError("this PrefixClassifier is not fitted; call fit first")

    # Files.

    def save(self, path: PathLike) -> None:
        """Writes one file, whole or not at all. :meth:`load` and the command line read it
        (``haltwise score``, ``haltwise inspect``)."""
        self._check()
        self._save(path, {})

    def _save(self, path: PathLike, texts: dict[str, str]) -> None:
        own = {
            "parameters": self.get_params(),
            "classes": self.classes_.tolist(),
            "type": self.classes_.dtype.str,
            "timepoints": self.n_timepoints_,
        }
        known = {PYTHON: json.dumps(own, default=_listed), **texts}
        self._model.save(os.fspath(path), known)

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Reads a file of :meth:`save`, :meth:`EarlyClassifier.save` or ``haltwise train``."""
        return cls._load(path)[0]

    @classmethod
    def _load(cls, path: PathLike) -> tuple[Self, dict[str, str]]:
        model, texts = _core.PrefixModel.load(os.fspath(path))
        own = json.loads(texts.get(PYTHON, "{}"))
        classifier = cls(**own.get("parameters", {}))
        classifier._model = model
        names = own.get("classes", json.loads(model.describe())["classes"])
        # The command line does not note the longest series.
        classifier._describe(np.array(names, own.get("type")), own.get("timepoints"))
        classifier.fit_traces_ = None
        return classifier, texts


class PrefixStream:
    """One series that arrives time point by time point, as a :class:`PrefixClassifier` sees it.
    The cost of a time point does not grow with the time that has passed."""

    __slots__ = ("_inner",)

    def __init__(self, inner: _core.PrefixStream) -> None:
        self._inner = inner

    def observe(self, values: Any) -> NDArray[np.float32] | None:
        """Takes in the next time point: a number per channel, NaN if it is missing. At a
        checkpoint, returns the class probabilities, to the bit those of
        :meth:`PrefixClassifier.answers`; else None."""
        return self._inner.observe(np.atleast_1d(np.asarray(values, np.float32)))

    @property
    def latest(self) -> NDArray[np.float32]:
        """The latest class probabilities; before the first checkpoint, how common each class was
        in training."""
        return self._inner.latest()

    @property
    def points(self) -> int:
        """How many time points it has taken in."""
        return self._inner.points()

    @property
    def reached(self) -> int:
        """How many checkpoints it has reached."""
        return self._inner.reached()


def _wanted(checkpoints: int | Sequence[int]) -> int | list[int]:
    if isinstance(checkpoints, (int, np.integer)):
        if checkpoints < 1:
            raise ValueError(f"checkpoints must be at least 1, but {checkpoints} was given")
        return int(checkpoints)
    ends = time_points(checkpoints)
    if not len(ends) or ends[0] < 1:
        raise ValueError(
            f"checkpoints must be numbers of time points, but {ends.tolist()} was given"
        )
    return [int(end) for end in ends]


def _listed(value: Any) -> Any:
    """NumPy's values as JSON has them."""
    return value.tolist()
