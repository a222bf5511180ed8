"""What the adapters for aeon and sktime have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from sklearn.base import clone

from ._arrays import Array
from .estimators import EarlyClassifier, EarlyScore
from .prefix import PrefixClassifier

if TYPE_CHECKING:
    from typing_extensions import Self

Early = tuple[Array, NDArray[Any]]


class Adapter:
    """The methods that ``BaseEarlyClassifier`` asks for, in aeon and in sktime."""

    early: EarlyClassifier | None
    state_info: Any

    def _fit(self, X: Array, y: Array) -> Self:
        early = EarlyClassifier() if self.early is None else self.early
        self.early_: EarlyClassifier = clone(early).fit(X, y)
        return self

    def _predict(self, X: Array) -> Early:
        return self._noted(self.early_.predict_early(X))

    def _predict_proba(self, X: Array) -> Early:
        return self._noted(self.early_.predict_proba_early(X))

    def _update_predict(self, X: Array) -> Early:
        return self._noted(self.early_.update_predict(X))

    def _update_predict_proba(self, X: Array) -> Early:
        return self._noted(self.early_.update_predict_proba(X))

    def _noted(self, said: Early) -> Early:
        self.state_info = self.early_.state_info
        return said

    def _score(self, X: Array, y: Array) -> EarlyScore:
        return self.early_.score_early(X, y)


def small() -> list[dict[str, Any]]:
    """The parameters that the checks of aeon and sktime try an adapter with."""
    base = PrefixClassifier(trees=10)
    return [
        {"early": EarlyClassifier(base, checkpoints=4)},
        {"early": EarlyClassifier(base, checkpoints=2, promise="average", alpha=0.2)},
    ]
