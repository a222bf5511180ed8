"""Evidence: the counts that certifying reads, gathered anywhere and added up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._arrays import natural
from .rule import Rule
from .traces import Traces

if TYPE_CHECKING:
    from typing_extensions import Self


class Candidates:
    """Candidate rules in the order in which they are to be tested, fixed without
    a look at the certifying traces. Picklable; :meth:`to_json` for any other way
    to send them."""

    __slots__ = ("_inner",)
    _inner: _core.Candidates

    def __init__(self) -> None:
        raise TypeError("use Candidates.backward or Candidates.one_threshold")

    @classmethod
    def _of(cls, core: _core.Candidates) -> Self:
        candidates = object.__new__(cls)
        candidates._inner = core
        return candidates

    @classmethod
    def backward(
        cls,
        screening: Traces,
        *,
        alpha: float = 0.1,
        grid_step: float = 0.01,
        at_never: Literal["skip", "stop"] = "skip",
        t_max: int | None = None,
    ) -> Self:
        """Screens a threshold per step from these traces, revealed from the last
        step back: the candidates of the conditional method, for sequences of up to
        `t_max` steps (by default, as many as the screening traces have)."""
        steps = natural(t_max, "t_max")
        return cls._of(_core.Candidates.backward(screening, alpha, grid_step, at_never, steps))

    @classmethod
    def one_threshold(cls, t_max: int, *, grid_step: float = 0.01) -> Self:
        """One threshold for all steps, from 1 down to 0: the candidates of the
        marginal method."""
        natural(t_max, "t_max")
        return cls._of(_core.Candidates.one_threshold(t_max, grid_step))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The candidates that :meth:`to_json` wrote."""
        return cls._of(_core.Candidates(text))

    def to_json(self) -> str:
        """The candidates as text."""
        return self._inner.json()

    @property
    def t_max(self) -> int:
        """The most steps a sequence may have."""
        return self._inner.t_max()

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, c: int) -> NDArray[np.float32]:
        """The thresholds of the rule in place `c`; infinity is never."""
        place = c + len(self) if c < 0 else c
        found = self._inner.thresholds(place) if place >= 0 else None
        if found is None:
            raise IndexError(f"there are {len(self)} candidates")
        return found

    def __repr__(self) -> str:
        return f"Candidates({len(self)} rules of {self.t_max} steps)"

    def __eq__(self, other: object) -> bool:
        return self._inner == other._inner if isinstance(other, Candidates) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Candidates._of, (self._inner,))


class Evidence:
    """How many sequences each candidate halts at each step, and how many of those
    have a gap. Evidence of disjoint sets of traces adds up to that of their union:

    >>> total = sum(Evidence(candidates, part) for part in parts)   # doctest: +SKIP
    >>> rule = total.certify()                                      # doctest: +SKIP

    Nothing here can tell whether two sets overlap: no sequence may be counted
    twice. Picklable; :meth:`to_json` for any other way to send it.
    """

    __slots__ = ("_inner",)
    _inner: _core.Evidence

    def __init__(self, candidates: Candidates, certifying: Traces) -> None:
        self._inner = _core.Evidence.collect(candidates._inner, certifying)

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

    def certify(self, *, alpha: float = 0.1, delta: float = 0.01) -> Rule:
        """Tests the candidates in their order and makes a rule of the last one
        that passed."""
        return Rule._of(self._inner.certify(alpha, delta))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The evidence that :meth:`to_json` wrote; refused where it is damaged."""
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
    def fingerprint(self) -> str:
        """A digest of the traces that were counted; it adds up too."""
        return self._inner.fingerprint()

    @property
    def halted(self) -> NDArray[np.uint64]:
        """Per candidate and step, how many sequences halted there."""
        return self._inner.counts()[0]

    @property
    def gaps(self) -> NDArray[np.uint64]:
        """Per candidate and step, how many of those had a gap."""
        return self._inner.counts()[1]

    def __repr__(self) -> str:
        return f"Evidence({self.sequences:,} sequences, {self.candidates!r})"

    def __eq__(self, other: object) -> bool:
        return self._inner == other._inner if isinstance(other, Evidence) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Evidence._of, (self._inner,))
