"""Series as in aeon: (n_cases, n_channels, n_timepoints), or a list of
(n_channels, n_timepoints) arrays if lengths differ."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._arrays import Array, as_array

#: The bytes of a fingerprint.
DIGEST = 16


@dataclass(frozen=True)
class Collection:
    """Series of known lengths, padded with zeros to the longest."""

    cases: Array
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def channels(self) -> int:
        """Numbers per time point."""
        return int(self.cases.shape[1])

    @property
    def timepoints(self) -> int:
        """The length of the longest series."""
        return int(self.cases.shape[2])

    def __getitem__(self, which: Any) -> Collection:
        return Collection(self.cases[which], self.lengths[which])


@dataclass(frozen=True)
class Sequences:
    """The same as the network reads them: (n, steps, features)."""

    values: NDArray[np.float32]
    lengths: NDArray[np.uint32] | None


def collection(X: Any) -> Collection:
    """Series from an array of two or three axes, or a list of arrays."""
    if isinstance(X, Collection):
        return X
    if hasattr(X, "tocsr"):
        raise TypeError("series must be dense, but X is sparse: give X.toarray()")
    if isinstance(X, (list, tuple)) and X and all(np.ndim(case) == 2 for case in X):
        return _padded([as_array(case) for case in X])
    try:
        cases = as_array(X)
    except ValueError:
        rows = [np.atleast_2d(as_array(case)) for case in X]
        return _padded(rows)
    if cases.dtype.kind == "c":
        raise ValueError("Complex data not supported: series must be real numbers")
    if cases.dtype.kind == "O":
        cases = cases.astype(np.float64)
    if cases.ndim == 1:
        raise ValueError(
            f"one series alone has shape {cases.shape}, and series are (n_cases, n_channels, "
            "n_timepoints). Reshape your data: X.reshape(1, 1, -1) is one series of one channel"
        )
    if cases.ndim == 2:
        cases = cases[:, None, :]
    if cases.ndim != 3 or cases.dtype.kind not in "iubf":
        raise ValueError(
            "series must be numbers, (n_cases, n_channels, n_timepoints) or a list of "
            f"(n_channels, n_timepoints) arrays, but shape {cases.shape} of {cases.dtype} was given"
        )
    _check_finite(cases)
    return Collection(cases, np.full(len(cases), cases.shape[2], np.int64))


def _padded(cases: list[Array]) -> Collection:
    channels = {case.shape[0] for case in cases}
    if len(channels) > 1 or any(case.ndim != 2 for case in cases):
        raise ValueError("all series must have the same number of channels")
    lengths = np.array([case.shape[1] for case in cases], np.int64)
    padded = np.zeros((len(cases), channels.pop(), int(lengths.max())), np.result_type(*cases))
    for to, case in zip(padded, cases, strict=True):
        to[:, : case.shape[1]] = case
    _check_finite(padded)
    return Collection(padded, lengths)


def _check_finite(cases: Array) -> None:
    """Refuses an infinity here, where its row is the user's."""
    if cases.dtype.kind != "f" or not np.isinf(cases).any():
        return
    i, channel, point = np.argwhere(np.isinf(cases))[0]
    raise ValueError(
        f"series {i + 1}, time point {point + 1}, channel {channel + 1} is "
        f"{cases[i, channel, point]}: give a finite number, or NaN if the value is missing"
    )


def sequences(series: Collection) -> Sequences:
    """Series as the network reads them."""
    values = np.ascontiguousarray(series.cases.transpose(0, 2, 1), np.float32)
    if (series.lengths == series.timepoints).all():
        return Sequences(values, None)
    return Sequences(values, series.lengths.astype(np.uint32))


def fingerprints(series: Collection) -> list[bytes]:
    """A digest of each series' numbers, for any type and padding."""
    with np.errstate(over="ignore"):
        prefixes = (
            case[:, :end].astype(np.float32).tobytes()
            for case, end in zip(series.cases, series.lengths, strict=True)
        )
        return [blake2b(prefix, digest_size=DIGEST).digest() for prefix in prefixes]


def check_length(series: Collection, longest: int) -> None:
    """Refuses series longer than those that a classifier was fitted to."""
    if series.timepoints > longest:
        raise ValueError(
            f"a series has {series.timepoints} time points, but fit saw at most {longest}"
        )


def time_points(checkpoints: Any) -> NDArray[np.int64]:
    """The checkpoints of a list, in their order."""
    ends = np.unique(np.asarray(checkpoints))
    if len(ends) and ends.dtype.kind not in "iu":
        raise ValueError(
            "checkpoints must be how many there are, or a list of time points, but "
            f"{checkpoints!r} was given"
        )
    return ends.astype(np.int64)


def is_one(X: Any) -> bool:
    """Whether this is the time points of one series."""
    if isinstance(X, (list, tuple)):
        return bool(X) and all(np.ndim(value) == 0 for value in X)
    return getattr(X, "ndim", None) == 1
