"""An early classifier in one file: the model, and as texts beside it the rule and what only Python
knows."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, TypeVar

from ._series import DIGEST
from .prefix import PrefixClassifier, _listed
from .rule import Rule
from .traces import PathLike

if TYPE_CHECKING:
    from .estimators import EarlyClassifier

Early = TypeVar("Early", bound="EarlyClassifier")

#: The names of the texts: the rule's own file, and the parameters and training series.
RULE, EARLY = "haltwise-rule", "haltwise-early"


def texts_of(early: EarlyClassifier, fitted: PrefixClassifier) -> dict[str, str]:
    """What the file holds besides the fitted model."""
    parameters = early.get_params(deep=False)
    estimator = parameters.pop("estimator")
    known = {
        "parameters": parameters,
        "estimator": None if estimator is None else estimator.get_params(),
        "n_timepoints": early.n_timepoints_,
        "trained_on": b64encode(b"".join(sorted(early._trained_on))).decode(),
    }
    return {RULE: early.rule_.to_json(), EARLY: json.dumps(known, default=_listed)}


def read_early(cls: type[Early], path: PathLike) -> tuple[Early, PrefixClassifier, Rule]:
    """The parts of a file: an early classifier that is not fitted yet, its base and its rule."""
    fitted, texts = PrefixClassifier._load(path)
    if RULE not in texts or EARLY not in texts:
        raise ValueError(
            f"{path}: it is a model without a rule; EarlyClassifier.save writes both, and "
            "PrefixClassifier.load reads this one"
        )
    known: dict[str, Any] = json.loads(texts[EARLY])
    own = known["estimator"]
    estimator = None if own is None else PrefixClassifier(**own)
    early = cls(estimator, **known["parameters"])
    early.n_timepoints_ = known["n_timepoints"]
    digests = b64decode(known["trained_on"])
    early._trained_on = {digests[i : i + DIGEST] for i in range(0, len(digests), DIGEST)}
    return early, fitted, Rule.from_json(texts[RULE])
