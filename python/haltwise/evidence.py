"""Evidence: the counts that certifying reads, gathered anywhere and added up."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._arrays import natural
from ._options import EVIDENCE, OPTIONS, Method, Options
from .calibration import checked, picking, spelt_out
from .rule import Rule
from .traces import Traces

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


#: The options of candidates. The way of making them gives the method.
TAKEN = {name: option for name, option in {**OPTIONS, **EVIDENCE}.items() if name != "method"}


def asked_by(method: Method, options: Options) -> dict[str, Any]:
    """The options of a method, as the Rust side takes them."""
    return {**checked(options, TAKEN), "method": method}


class Candidates:
    """Candidate rules in the order of their tests, fixed before anyone looks at the
    certifying traces. To send them, pickle them or use :meth:`to_json`."""

    __slots__ = ("_inner",)
    _inner: _core.Candidates

    def __init__(self) -> None:
        raise TypeError("use Candidates.adaptive, .backward or .one_threshold")

    @classmethod
    def _of(cls, core: _core.Candidates) -> Self:
        candidates = object.__new__(cls)
        candidates._inner = core
        return candidates

    @classmethod
    @spelt_out(TAKEN)
    def adaptive(
        cls,
        fitting: Traces,
        certifying: int,
        *,
        t_max: int | None = None,
        **options: Unpack[Options],
    ) -> Self:
        """The candidates of the adaptive method: learns a score and proposes threshold curves
        from these traces.

        About `certifying` other traces, of up to `t_max` steps, will certify them at `alpha`
        and `delta`. By default `t_max` is that of the fitting traces. The options are those of
        :func:`haltwise.calibrate`, with columns by their names. `looks` lists numbers of
        traces: the evidence may be certified at each of them, while it grows, with a
        share of `delta`."""
        asked = asked_by("adaptive", options)
        fitting = picking(fitting, asked)
        number, steps = natural(certifying, "certifying"), natural(t_max, "t_max")
        return cls._of(_core.Candidates.fixed_by(fitting, steps, number, asked))

    @classmethod
    @spelt_out(TAKEN)
    def backward(
        cls,
        screening: Traces,
        *,
        t_max: int | None = None,
        **options: Unpack[Options],
    ) -> Self:
        """The candidates of the conditional method: screens a threshold per step from these
        traces, and opens them from the last step back. They are for sequences of up to
        `t_max` steps (by default that of the screening traces). The options are those of
        :func:`haltwise.calibrate`, with columns by their names, and `looks`."""
        asked = asked_by("conditional", options)
        screening = picking(screening, asked)
        steps = natural(t_max, "t_max")
        return cls._of(_core.Candidates.fixed_by(screening, steps, None, asked))

    @classmethod
    def one_threshold(
        cls, t_max: int, *, alpha: float = 0.1, delta: float = 0.01, grid_step: float = 0.01
    ) -> Self:
        """The candidates of the marginal method: one threshold for all steps, from 1 down to
        0, on the given scores."""
        natural(t_max, "t_max")
        asked = asked_by("marginal", {"alpha": alpha, "delta": delta, "grid_step": grid_step})
        return cls._of(_core.Candidates.one_threshold(t_max, asked))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The candidates that :meth:`to_json` wrote."""
        return cls._of(_core.Candidates(text))

    def to_json(self) -> str:
        """The candidates as text."""
        return self._inner.json()

    @property
    def thresholds(self) -> list[NDArray[np.float32]]:
        """The thresholds of each rule, in the order of the tests, family by family;
        infinity is never."""
        return self._inner.thresholds()

    def __repr__(self) -> str:
        return f"Candidates({self._inner.method()}, {len(self.thresholds)} rules)"

    def __eq__(self, other: object) -> bool:
        return self._inner == other._inner if isinstance(other, Candidates) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Candidates._of, (self._inner,))


class Evidence:
    """How many sequences each candidate halts at each step, and how many of those have a
    gap. Evidence of disjoint sets of traces adds up to the evidence of their union:

    >>> total = sum(Evidence(candidates, part) for part in parts)   # doctest: +SKIP
    >>> rule = total.certify()                                      # doctest: +SKIP

    Sequences that the candidates were made from are refused, as far as they can be
    recognised. Count no sequence twice. With ids, :meth:`certify` refuses a sum that counts
    sequences twice, as far as a sample tells. Without ids nothing can tell. To send
    evidence, pickle it or use :meth:`to_json`.
    """

    __slots__ = ("_inner",)
    _inner: _core.Evidence

    def __init__(self, candidates: Candidates, certifying: Traces) -> None:
        terms = json.loads(candidates._inner.terms())
        certifying = certifying._held_to(terms, lenient=False)
        self._inner = _core.Evidence.collect(candidates._inner, certifying)
        alike = self._inner.alike()
        if alike:
            warnings.warn(
                f"{alike} of these sequences are identical, step for step, to sequences that the "
                "candidates were made from. If they are the same sequences, nothing is guaranteed",
                stacklevel=2,
            )

    @classmethod
    def _of(cls, core: _core.Evidence) -> Self:
        evidence = object.__new__(cls)
        evidence._inner = core
        return evidence

    def __add__(self, other: object) -> Evidence:
        if not isinstance(other, Evidence):
            return NotImplemented
        return Evidence._of(self._inner.add(other._inner))

    def __radd__(self, other: object) -> Evidence:
        # sum() begins with 0.
        if isinstance(other, int) and other == 0:
            return self
        return NotImplemented

    def certify(self) -> Rule:
        """Tests the candidates in their order, at the levels fixed with them, and returns the
        best that passed as a rule."""
        return Rule._of(self._inner.certify())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The evidence that :meth:`to_json` wrote. Damaged text is refused."""
        return cls._of(_core.Evidence(text))

    def to_json(self) -> str:
        """The evidence as text."""
        return self._inner.json()

    @property
    def candidates(self) -> Candidates:
        """The rules the evidence is about."""
        return Candidates._of(self._inner.candidates())

    @property
    def sequences(self) -> int:
        """How many sequences were counted."""
        return self._inner.sequences()

    @property
    def halted(self) -> NDArray[np.uint64]:
        """Per candidate and step, how many sequences halted there."""
        return np.array(self._inner.counts()[0], np.uint64)

    @property
    def gaps(self) -> NDArray[np.uint64]:
        """Per candidate and step, how many of those had a gap."""
        return np.array(self._inner.counts()[1], np.uint64)

    def __repr__(self) -> str:
        return f"Evidence({self.sequences:,} sequences, {self.candidates!r})"

    def __eq__(self, other: object) -> bool:
        return self._inner == other._inner if isinstance(other, Evidence) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Evidence._of, (self._inner,))
