"""Certified early stopping for classifiers that read a stream.

>>> import haltwise
>>> rule = haltwise.calibrate(probs=probs, labels=labels)    # doctest: +SKIP
>>> steps = rule.halt(scores)                                # doctest: +SKIP

See ``docs/python.md`` for a walk through, and :func:`calibrate` to begin with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._core import VERSION as __version__
from ._core import Stream
from ._thoughts import thoughts
from ._votes import votes
from .calibration import calibrate, forecast
from .evidence import Candidates, Evidence
from .lstm import Model, train
from .monitor import Monitor
from .rule import Evaluation, Rule, write_report
from .traces import Traces, read_traces, write_traces

if TYPE_CHECKING:
    from .estimators import (
        LSTM,
        EarlyClassifier,
        EarlyScore,
        EarlyStream,
        PrefixClassifier,
        PrefixStream,
    )

#: scikit-learn is loaded only where its conventions are asked for.
ESTIMATORS = (
    "LSTM",
    "EarlyClassifier",
    "EarlyScore",
    "EarlyStream",
    "PrefixClassifier",
    "PrefixStream",
)

__all__ = [
    "LSTM",
    "Candidates",
    "EarlyClassifier",
    "EarlyScore",
    "EarlyStream",
    "Evaluation",
    "Evidence",
    "Model",
    "Monitor",
    "PrefixClassifier",
    "PrefixStream",
    "Rule",
    "Stream",
    "Traces",
    "__version__",
    "calibrate",
    "forecast",
    "read_traces",
    "thoughts",
    "train",
    "votes",
    "write_report",
    "write_traces",
]


def __getattr__(name: str) -> Any:
    if name in ESTIMATORS:
        from . import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
