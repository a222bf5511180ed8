"""An early classifier with tslearn's methods."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.metrics import accuracy_score
from tslearn.bases import TimeSeriesMixin
from tslearn.utils import to_time_series, to_time_series_dataset

from ._arrays import Array
from .estimators import EarlyClassifier

__all__ = ["TslearnEarlyClassifier"]


class TslearnEarlyClassifier(TimeSeriesMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """An :class:`haltwise.EarlyClassifier` with the methods of tslearn's
    ``NonMyopicEarlyClassifier``. Series are (n_series, n_timestamps, n_features), filled up with
    NaN if lengths differ, and are over.

    Parameters
    ----------
    early : EarlyClassifier, optional
        The early classifier; ``fit`` trains a clone. By default ``EarlyClassifier()``.
    cost_time_parameter : float, default=1.0
        What a time point costs in ``early_classification_cost``. The rule does not depend on it.

    Attributes
    ----------
    early_ : EarlyClassifier
        The fitted early classifier, with its ``rule_``.
    classes_ : array
        The classes.
    """

    def __init__(
        self, early: EarlyClassifier | None = None, cost_time_parameter: float = 1.0
    ) -> None:
        self.early = early
        self.cost_time_parameter = cost_time_parameter

    def fit(self, X: Any, y: Any) -> TslearnEarlyClassifier:
        """Trains and calibrates a clone of `early`."""
        early = EarlyClassifier() if self.early is None else self.early
        self.early_: EarlyClassifier = clone(early).fit(_series(X), y)
        self.classes_ = self.early_.classes_
        return self

    def predict(self, X: Any) -> Array:
        """The class of each series."""
        return self.predict_class_and_earliness(X)[0]

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The class probabilities of each series."""
        return self.predict_proba_and_earliness(X)[0]

    def predict_class_and_earliness(self, X: Any) -> tuple[Array, NDArray[np.int64]]:
        """The class of each series, and after how many time points it was decided."""
        probs, points = self.predict_proba_and_earliness(X)
        return self.classes_[probs.argmax(axis=1)], points

    def predict_proba_and_earliness(self, X: Any) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The class probabilities of each series, and after how many time points it was decided."""
        return self.early_._halted(self.early_._ready(_series(X)))

    def early_classification_cost(self, X: Any, y: Any) -> float:
        """The share of wrong answers, plus the mean cost of the time points read."""
        said, points = self.predict_class_and_earliness(X)
        return float(1 - accuracy_score(y, said) + np.mean(points * self.cost_time_parameter))


def _series(X: Any) -> list[Array]:
    """As in aeon: (n_features, n_timestamps) each, without what fills it up."""
    return [to_time_series(case, remove_nans=True).T for case in to_time_series_dataset(X)]
