"""From traces to a rule."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypedDict

import numpy as np

from . import _core
from ._arrays import is_ragged, natural
from .rule import Rule
from .traces import Traces, traces_of

Method = Literal["adaptive", "conditional", "marginal", "screen-only"]
Score = Literal["confidence", "max-probability", "margin", "gap"]
Loss = Literal["gap", "disagreement", "given", "absolute"]
#: Which sequences the guarantee of the adaptive method covers: those halted by each step, or all.
Promise = Literal["halted-by", "average"]


class Alike(UserWarning):
    """Certifying sequences are identical to sequences that the candidates were made from."""


def calibrate(
    scores: Any = None,
    predictions: Any = None,
    labels: Any = None,
    *,
    probs: Any = None,
    lengths: Any = None,
    ids: Iterable[str | int] | None = None,
    classes: Any = None,
    alpha: float = 0.1,
    delta: float = 0.01,
    method: Method = "adaptive",
    promise: Promise | None = None,
    score: Score | None = None,
    fit: Traces | None = None,
    fit_fraction: float | None = None,
    screen: Traces | None = None,
    screen_fraction: float | None = None,
    seed: int | None = None,
    grid_step: float | None = None,
    at_never: Literal["skip", "stop"] | None = None,
    screen_by: Literal["risk", "p-value"] | None = None,
    loss: Loss | None = None,
    losses: Any = None,
    scale: float | None = None,
    by: Any = None,
    unit: Any = None,
    weight: Any = None,
    weight_bound: float | None = None,
    cost: Any = None,
) -> Rule:
    """Finds a stopping rule and certifies what it may cost.

    With probability 1 - `delta` over the traces, stopping early loses a right
    answer for at most `alpha` of the sequences. Use traces of sequences that did
    not train the classifier.

    Parameters
    ----------
    scores, predictions, labels, probs, lengths, ids, classes
        The traces, as for :class:`Traces`, or a :class:`Traces` in place of `scores`.
    alpha : float
        The tolerated gap: the share of sequences for which stopping early may lose a right answer.
    delta : float
        The probability with which the guarantee may fail.
    method : str
        ``"adaptive"``: a learned score and threshold curves; halts earliest. It bounds the
        gap among the sequences halted by step t, for every t, or as `promise` says.
        ``"conditional"``: the paper's method, with the same promise. ``"marginal"``: the
        paper's method with one threshold, which bounds the gap on average.
        ``"screen-only"``: promises nothing.
    promise : str, optional
        What the adaptive method promises. ``"halted-by"``, the default, bounds the gap among
        the sequences halted by step t, for every t. ``"average"`` bounds it over all
        sequences; it halts earlier, and may lose more among early halts.
    score : str, optional
        How safe it is to stop: ``"confidence"`` (the given scores), ``"max-probability"``,
        ``"margin"`` (between the two largest probabilities) or ``"gap"``, learned from traces
        set aside. The default is the score of the traces; with the adaptive method, that
        or the learned one, whichever promises to halt earlier.
    fit : Traces
        Fit to these traces (at most 10,000, drawn at random) and certify on all others.
        Without it, the traces are split.
    fit_fraction : float, default 0.3
        The share of the traces to fit to.
    screen : Traces
        With the conditional method: screen on these traces and certify on all others.
    screen_fraction : float, default 0.5
        With the conditional method: the share of the traces that screens.
    seed : int, default 0
        Draws the split.
    grid_step : float, default 0.01
        With the paper's methods: the distance between candidate thresholds.
    at_never : str, default "skip"
        With the conditional method: what the backward walk does at a screened threshold
        of "never". ``"skip"`` goes on, ``"stop"`` ends there as the paper's listing does.
    screen_by : str, default "risk"
        With the conditional method: a threshold passes screening if its gap is at most
        alpha (``"risk"``), or if its p-value is at most delta (``"p-value"``).
    loss : str, optional
        What stopping early loses. ``"gap"``: a right answer (the default; labels may be
        missing). ``"disagreement"``: the early answer differs from the full one (needs no labels).
        ``"given"``: the values of `losses`. ``"absolute"``: how much further from the truth an
        early number is, in units of `scale`.
    losses : array of (n, T), optional
        With ``loss="given"``: the loss of stopping at each step, in [0, 1].
    scale : float, optional
        With ``loss="absolute"``: the distance that counts as a loss of 1.
    by : str or array of (n), optional
        Promise it for every value of this column, of this array, or of ``"label"``.
    unit : str or array of (n), optional
        Sequences with the same value (a patient, a driver) count as one draw.
    weight : str or array of (n), optional
        How much more often each sequence occurs where the rule will be used.
    weight_bound : float, optional
        With `weight`: the largest weight allowed.
    cost : str, array of (n, T), or array of (T), optional
        What reading costs: a column, a cost per sequence and step, or a cost per step. The
        rule then minimises the cost instead of the halt time.

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
    regression = loss == "absolute"
    traces = traces_of(
        scores, predictions, labels, probs, lengths, ids, classes, losses, regression
    )
    traces, names = named(traces, by=by, unit=unit, weight=weight, cost=cost)
    for name, others in (("fit", fit), ("screen", screen)):
        if others is not None and not isinstance(others, Traces):
            raise ValueError(f"{name} must be haltwise.Traces")
    options = options_of(
        alpha=alpha,
        delta=delta,
        method=method,
        promise=promise,
        score=score,
        fit_fraction=fit_fraction,
        screen_fraction=screen_fraction,
        seed=seed,
        grid_step=grid_step,
        at_never=at_never,
        screen_by=screen_by,
        loss=loss,
        scale=scale,
        weight_bound=weight_bound,
        **names,
    )
    fit = None if fit is None else picking(fit, options)
    screen = None if screen is None else picking(screen, options)
    return found(_core.calibrate(picking(traces, options), fit, screen, options))


def named(traces: Traces, **columns: Any) -> tuple[Traces, dict[str, Any]]:
    """Columns by name. An array in place of a name gets the option's name."""
    names: dict[str, Any] = {}
    given: dict[str, Any] = {}
    for option, value in columns.items():
        if value is None or isinstance(value, str):
            names[option] = value
        elif option == "cost" and np.ndim(value) == 1 and not is_ragged(value):
            names[option] = [float(cost) for cost in value]
        else:
            names[option] = option
            given[option] = value
    return (traces._with(**given) if given else traces), names


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
    columns = {name: options.pop(name, None) for name in ("by", "unit", "weight", "cost")}
    traces, names = named(traces, **columns)
    asked = options_of(**options, **names)
    found: dict[str, Any] = json.loads(
        _core.forecast(picking(traces, asked), list(sizes), natural(seed, "seed"), asked)
    )
    sizes_found: list[Size] = found["sizes"]
    return sizes_found


def options_of(seed: int | None = None, **given: Any) -> dict[str, Any]:
    """All options of a plan, as the Rust side takes them."""
    names = (
        "method promise score alpha delta fit_fraction screen_fraction grid_step at_never "
        "screen_by loss scale by unit weight weight_bound cost looks"
    )
    strange = set(given) - set(names.split())
    if strange:
        raise TypeError(f"unknown options: {', '.join(sorted(strange))}")
    return {"seed": natural(seed, "seed"), **{name: given.get(name) for name in names.split()}}


def found(calibrated: tuple[_core.Rule, list[tuple[bool, str]]], stacklevel: int = 3) -> Rule:
    """Warns of what the user should check, and returns the rule."""
    core, remarks = calibrated
    rule = Rule._of(core)
    for alike, remark in remarks:
        warnings.warn(remark, Alike if alike else UserWarning, stacklevel=stacklevel)
    if not core.halts_early():
        warnings.warn(rule.shortfall() or "the rule halts no sequence early", stacklevel=stacklevel)
    return rule
