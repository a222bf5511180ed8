"""From traces to a rule."""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import numpy as np

from . import _core
from ._arrays import is_ragged, natural
from ._options import OPTIONS, Option, Options
from .rule import Rule
from .traces import Traces, traces_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

Function = TypeVar("Function", bound=Callable[..., Any])


class Alike(UserWarning):
    """Certifying sequences are identical to sequences that the candidates were made from."""


def spelt_out(listed: Mapping[str, Option] = OPTIONS) -> Callable[[Function], Function]:
    """Spells out `**options` in a function's signature, and in its docstring if that has them as a
    parameter."""

    def spell(function: Function) -> Function:
        signature = inspect.signature(function)
        given = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        taken = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
            for name, (annotation, default, _) in listed.items()
            if name not in signature.parameters
        ]
        spelt = signature.replace(parameters=[*given, *taken])
        function.__signature__ = spelt  # type: ignore[attr-defined]
        docs = "".join(doc for _, _, doc in listed.values())
        # How far docstrings are indented depends on the version of Python.
        function.__doc__ = re.sub(
            r"^( *)\*\*options\n",
            lambda place: indent(docs, place[1]),
            function.__doc__ or "",
            flags=re.MULTILINE,
        )
        return function

    return spell


@spelt_out()
def calibrate(
    scores: Any = None,
    predictions: Any = None,
    labels: Any = None,
    *,
    probs: Any = None,
    lengths: Any = None,
    ids: Iterable[str | int] | None = None,
    classes: Any = None,
    fit: Traces | None = None,
    screen: Traces | None = None,
    losses: Any = None,
    **options: Unpack[Options],
) -> Rule:
    """Finds a stopping rule and certifies what it may cost.

    With probability 1 - `delta` over the traces, stopping early loses a right
    answer for at most `alpha` of the sequences. Use traces of sequences that did
    not train the classifier.

    Parameters
    ----------
    scores, predictions, labels, probs, lengths, ids, classes
        The traces, as for :class:`Traces`, or a :class:`Traces` in place of `scores`.
    fit : Traces
        Fit to these traces (at most 10,000, drawn at random) and certify on all others.
        Without it, the traces are split.
    screen : Traces
        With the conditional method: screen on these traces and certify on all others.
    losses : array of (n, T), optional
        With ``loss="given"``: the loss of stopping at each step, in [0, 1].
    **options

    Returns
    -------
    Rule
        It equals the rule that ``haltwise calibrate`` writes for the same traces.

    Warns
    -----
    UserWarning
        Why nothing could be certified; or the same sequences seem to be in two parts.

    Raises
    ------
    ValueError
        The arrays do not fit together, or have invalid values.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.arange(4000) % 2
    >>> predictions = np.stack([0 * labels, labels, labels], axis=1)
    >>> scores = np.tile([0.2, 0.9, 1.0], (4000, 1))
    >>> rule = calibrate(scores, predictions, labels)
    >>> rule.halt([[0.1, 0.95, 0.99]])
    array([2])
    """
    regression = options.get("loss") == "absolute"
    traces = traces_of(
        scores, predictions, labels, probs, lengths, ids, classes, losses, regression
    )
    traces, asked = asked_of(traces, options)
    for name, others in (("fit", fit), ("screen", screen)):
        if others is not None and not isinstance(others, Traces):
            raise ValueError(f"{name} must be haltwise.Traces")
    fit = None if fit is None else picking(fit, asked)
    screen = None if screen is None else picking(screen, asked)
    names = traces._class_names()
    return found(_core.calibrate(picking(traces, asked), fit, screen, asked, names))


def asked_of(traces: Traces, options: Mapping[str, Any]) -> tuple[Traces, dict[str, Any]]:
    """The options, as the Rust side takes them. Arrays in place of columns get a name, and go to
    the traces."""
    asked = checked(options)
    arrays: dict[str, Any] = {}
    for name in COLUMNS:
        value = asked[name]
        if value is None or isinstance(value, str) or (name == "cost" and is_per_step(value)):
            continue
        arrays[name] = value
        asked[name] = name
    return (traces._with(**arrays) if arrays else traces), asked


#: The options that name columns, or are arrays in place of one.
COLUMNS = [name for name, option in OPTIONS.items() if option.annotation == "Any"]


def is_per_step(cost: Any) -> bool:
    """Whether costs are the same for all sequences."""
    return np.ndim(cost) == 1 and not is_ragged(cost)


def checked(options: Mapping[str, Any], known: Collection[str] = OPTIONS.keys()) -> dict[str, Any]:
    """All these options by name, as the Rust side takes them."""
    strange = set(options) - set(known)
    if strange:
        raise TypeError(
            f"unknown options: {', '.join(sorted(strange))}; the options are {', '.join(known)}"
        )
    asked: dict[str, Any] = {name: options.get(name) for name in known}
    asked["seed"] = natural(asked["seed"], "seed")
    cost = asked["cost"]
    if cost is not None and not isinstance(cost, str) and is_per_step(cost):
        asked["cost"] = [float(step) for step in cost]
    return asked


def picking(traces: Traces, options: dict[str, Any]) -> Traces:
    """The traces with the columns that the options name."""
    cost = options["cost"]
    return traces._for(
        loss=options["loss"],
        by=options["by"],
        unit=options["unit"],
        weight=options["weight"],
        cost=cost if isinstance(cost, str) else None,
    )


class Range(TypedDict):
    """The expected value, and its 90% range."""

    mean: float
    low: float
    high: float


class Size(TypedDict, total=False):
    """What more traces would buy."""

    traces: int
    t_avg: Range
    cost: Range
    certified: float


def forecast(
    traces: Traces,
    sizes: Sequence[int] = (200, 500, 1000, 2000, 5000),
    *,
    seed: int = 0,
    **options: Any,
) -> list[Size]:
    """Predicts from a pilot set what more traces would buy. For each number of traces: how
    early rules would halt (`t_avg`, with a 90% range), what they would cost, and the chance
    that any is certified (`certified`).

    Parameters
    ----------
    traces : Traces
        The pilot set, a few hundred sequences.
    sizes : sequence of int
        The numbers of traces.
    seed : int
        The seed of the draws.
    **options
        The options of :func:`calibrate`: alpha, delta, method, loss, by, …
    """
    traces, asked = asked_of(traces, options)
    found: dict[str, Any] = json.loads(
        _core.forecast(picking(traces, asked), list(sizes), natural(seed, "seed"), asked)
    )
    sizes_found: list[Size] = found["sizes"]
    return sizes_found


def found(calibrated: tuple[_core.Rule, list[tuple[bool, str]]], stacklevel: int = 3) -> Rule:
    """Warns of what the user should check, and returns the rule."""
    core, found_warnings = calibrated
    rule = Rule._of(core)
    for alike, text in found_warnings:
        warnings.warn(text, Alike if alike else UserWarning, stacklevel=stacklevel)
    if not core.halts_early():
        why = rule.shortfall() or ""
        warnings.warn(f"the rule halts no sequence early. {why}".strip(), stacklevel=stacklevel)
    elif rule.halts_in is not None:
        warnings.warn(f"the rule halts some groups only. {rule.shortfall()}", stacklevel=stacklevel)
    return rule
