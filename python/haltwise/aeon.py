"""An early classifier that is aeon's ``BaseEarlyClassifier``."""

from __future__ import annotations

from typing import Any

from aeon.classification.early_classification import BaseEarlyClassifier

from ._adapters import Adapter, small
from .estimators import EarlyClassifier

__all__ = ["AeonEarlyClassifier"]


class AeonEarlyClassifier(Adapter, BaseEarlyClassifier):  # type: ignore[misc]
    """An :class:`haltwise.EarlyClassifier` for aeon: ``predict`` also says which series are
    decided, and ``score`` returns three numbers.

    aeon's methods cannot say that a series is over before the full length, so all series that
    are to be decided must have it. :class:`haltwise.EarlyClassifier` takes any length.

    Parameters
    ----------
    early : EarlyClassifier, optional
        The early classifier; ``fit`` trains a clone. By default ``EarlyClassifier()``.

    Attributes
    ----------
    early_ : EarlyClassifier
        The fitted early classifier, with its ``rule_``.

    Examples
    --------
    >>> import numpy as np
    >>> from haltwise import EarlyClassifier
    >>> from haltwise.aeon import AeonEarlyClassifier
    >>> y = np.repeat(["down", "up"], 200)
    >>> drift = np.where(y == "up", 0.5, -0.5)[:, None, None]
    >>> X = np.cumsum(drift + np.random.default_rng(0).normal(size=(400, 1, 20)), axis=2)
    >>> early = AeonEarlyClassifier(EarlyClassifier(checkpoints=10)).fit(X, y)
    >>> labels, decided = early.predict(X)
    >>> harmonic_mean, accuracy, earliness = early.score(X, y)
    """

    _tags = {  # noqa: RUF012
        "capability:multivariate": True,
        "capability:missing_values": True,
        "X_inner_type": "numpy3D",
    }

    def __init__(self, early: EarlyClassifier | None = None) -> None:
        self.early = early
        super().__init__()

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """What aeon's checks try it with."""
        return small()
