"""Traces: what a classifier said about each sequence."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Union

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._arrays import Array, classes_of, counts, floats
from ._progress import bytes_bar

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

PathLike = Union[str, "os.PathLike[str]"]
Layout = Literal["sequence", "step"]
Progress = bool | Callable[[int, int], object]


class Traces:
    """What a classifier said about a set of sequences: at each step a prediction
    and a score in [0, 1], and the true label.

    Parameters
    ----------
    scores : array of (n, T), or None
        How safe it looks to stop, at each step. Without it, the largest of the
        step's probabilities.
    predictions : array of (n, T), or None
        The predicted class at each step. Without it, the class of the largest
        probability in float32, the first of equals.
    labels : array of (n)
        The true class.
    probs : array of (n, T, K), or None
        The class probabilities at each step.
    lengths : array of (n), or None
        How many steps each sequence has, where not all have T.
    ids : sequence of str or int, or None
        What the sequences are called. An id decides on which side of a split
        its sequence falls; without ids, its position does.
    classes : sequence of K names, or None
        The classes in the order of `probs`; needed where labels are names and
        `probs` is given.

    Classes are integers from 0, or names; arrays may be NumPy's, tensors or
    lists, of any float or integer type, and lists may hold rows of unequal
    length. What is contiguous is not copied.

    Examples
    --------
    >>> traces = Traces(scores=[[0.2, 0.9], [0.6, 0.7]],
    ...                 predictions=[["no", "yes"], ["no", "no"]], labels=["yes", "no"])
    >>> traces
    Traces(2 sequences of 2 steps, 2 classes)
    """

    labels: NDArray[np.uint32]
    predictions: Array | None
    scores: Array | None
    probs: Array | None
    lengths: NDArray[np.uint32] | None
    ids: list[str] | None
    classes: Array | None

    def __init__(
        self,
        scores: Any = None,
        predictions: Any = None,
        labels: Any = None,
        *,
        probs: Any = None,
        lengths: Any = None,
        ids: Iterable[str | int] | None = None,
        classes: Any = None,
    ) -> None:
        if labels is None:
            raise ValueError("labels are missing: the true class of each sequence is needed")
        if probs is None and (scores is None or predictions is None):
            raise ValueError("give either probs, or both scores and predictions")
        found: list[Array | None] = [None if lengths is None else counts(lengths, "lengths")]
        self.scores, self.probs = None, None
        if scores is not None:
            self.scores, ends = floats(scores, "scores", ["n", "T"])
            found.append(ends)
        if probs is not None:
            self.probs, ends = floats(probs, "probs", ["n", "T", "K"])
            found.append(ends)
        self.labels, self.predictions, ends, self.classes = classes_of(
            labels, predictions, classes, probs is not None
        )
        found.append(ends)
        self.lengths = _one_of(found)
        self.ids = None if ids is None else [str(id) for id in ids]
        if self.probs is None or self.classes is None:
            return
        if len(self.classes) != self.probs.shape[2]:
            raise ValueError(
                f"{len(self.classes)} classes but {self.probs.shape[2]} probabilities per step"
            )

    @property
    def t_max(self) -> int:
        """The number of steps of the longest sequence."""
        if self.lengths is not None and len(self.lengths):
            return int(self.lengths.max())
        return int(self._steps().shape[1])

    def _steps(self) -> Array:
        """An array that has a row per sequence and a column per step."""
        for array in (self.scores, self.predictions, self.probs):
            if array is not None:
                return array
        raise AssertionError("traces have scores or probs")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, which: Any) -> Traces:
        """The sequences at these positions: a slice, a mask or an array."""
        if isinstance(which, (int, np.integer)):
            which = [which]
        which = np.arange(len(self))[which]
        part = object.__new__(Traces)
        part.labels = self.labels[which]
        for name in ("predictions", "scores", "probs", "lengths"):
            array = getattr(self, name)
            setattr(part, name, None if array is None else array[which])
        part.ids = None if self.ids is None else [self.ids[i] for i in which]
        part.classes = self.classes
        return part

    def __repr__(self) -> str:
        few = "" if self.lengths is None else "up to "
        text = f"Traces({len(self):,} sequences of {few}{self.t_max} steps"
        if self.probs is not None:
            return f"{text}, {self.probs.shape[2]} probabilities each)"
        return f"{text}, {len(self.classes)} classes)" if self.classes is not None else f"{text})"

    @classmethod
    def from_arrow(cls, table: Any) -> Traces:
        """Traces from a pyarrow table, record batch or reader, or anything else
        that speaks Arrow's C interface; columns as in a trace file."""
        import pyarrow as pa

        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            table = pa.table(table)
        return cls._from_stream("the Arrow table", _stream(table))

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame) -> Traces:
        """Traces from a pandas frame with one row per sequence (`label`, and the
        lists `predictions` and `scores`, or `probs`; optionally `id`) or one row
        per step (`id`, `t`, `label`, `prediction`, `score`)."""
        import pyarrow as pa

        if "probs" in frame.columns:
            # Arrow takes lists of lists, not arrays of two axes.
            frame = frame.assign(probs=[np.asarray(p).tolist() for p in frame["probs"]])
        table = pa.Table.from_pandas(frame, preserve_index=False)
        return cls._from_stream("the data frame", _stream(table))

    @classmethod
    def from_polars(cls, frame: pl.DataFrame) -> Traces:
        """Traces from a polars frame, with the columns of :meth:`from_pandas`."""
        buffer = io.BytesIO()
        frame.write_ipc_stream(buffer)
        return cls._from_stream("the data frame", buffer.getvalue())

    @classmethod
    def _from_stream(cls, name: str, stream: bytes) -> Traces:
        return cls(**_core.read_arrow(name, stream))

    def to_pandas(self, rows: Layout = "sequence") -> pd.DataFrame:
        """A pandas frame with a row per sequence, or a row per step. Classes are
        given by name, or by number beside probabilities."""
        import pandas as pd

        return pd.DataFrame(self._columns(rows))

    def to_polars(self, rows: Layout = "sequence") -> pl.DataFrame:
        """A polars frame with a row per sequence, or a row per step."""
        import polars as pl

        return pl.DataFrame(self._columns(rows))

    def to_arrow(self, rows: Layout = "sequence") -> pa.Table:
        """A pyarrow table with a row per sequence, or a row per step."""
        import pyarrow as pa

        return pa.table(self._columns(rows))

    def _judged(self) -> NDArray[np.float32]:
        """The probabilities as rules judge them: classes that float64 tells apart may be
        equal here, and then it is the first that counts."""
        assert self.probs is not None
        return self.probs.astype(np.float32, copy=False)

    def _columns(self, rows: Layout) -> dict[str, Any]:
        if rows not in ("sequence", "step"):
            raise ValueError(f"rows must be 'sequence' or 'step', but {rows!r} was given")
        # Beside probabilities classes are numbers: a name would not say whose is whose.
        names = self.classes if self.probs is None or rows == "step" else None
        named = (lambda array: array) if names is None else (lambda array: names[array])
        n, width = self._steps().shape[:2]
        lengths = np.full(n, width) if self.lengths is None else self.lengths
        scores, predictions = self.scores, self.predictions
        if scores is None and rows == "step":
            scores = self._judged().max(axis=2).clip(max=1)
        if predictions is None and (rows == "step" or scores is not None):
            predictions = self._judged().argmax(axis=2)
        if rows == "step":
            within = np.arange(width) < lengths[:, None]
            sequence, t = np.nonzero(within)
            ids = self.ids if self.ids is not None else [str(i) for i in range(n)]
            assert scores is not None and predictions is not None
            return {
                "id": np.asarray(ids, dtype=object)[sequence] if n else [],
                "t": t + 1,
                "label": named(self.labels)[sequence],
                "prediction": named(predictions[within].astype(np.int64)),
                "score": scores[within],
            }
        columns: dict[str, Any] = {} if self.ids is None else {"id": self.ids}
        columns["label"] = named(self.labels)
        cut = list(zip(range(n), lengths, strict=True))
        if predictions is not None:
            columns["predictions"] = [
                named(predictions[i, :end].astype(np.int64)).tolist() for i, end in cut
            ]
        if scores is not None:
            columns["scores"] = [scores[i, :end] for i, end in cut]
        if self.probs is not None:
            columns["probs"] = [self.probs[i, :end].tolist() for i, end in cut]
        return columns


def _one_of(found: list[Array | None]) -> NDArray[np.uint32] | None:
    """The lengths, from whichever arrays told them; all must agree."""
    told = [lengths for lengths in found if lengths is not None]
    for lengths in told[1:]:
        if not np.array_equal(told[0], lengths):
            raise ValueError("scores, predictions, probs and lengths disagree about the lengths")
    return told[0].astype(np.uint32) if told else None


def _stream(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read_traces(paths: PathLike | Iterable[PathLike], *, progress: Progress = False) -> Traces:
    """Reads trace files (``.npz``, ``.parquet``, ``.arrow``, ``.jsonl``, ``.csv``),
    several as one set.

    Parameters
    ----------
    paths : path, or several
    progress : bool or callable
        Show a bar of tqdm; or call this with the bytes done and the bytes in all.

    Returns
    -------
    Traces

    Raises
    ------
    ValueError
        What is wrong, in which file and where.
    OSError
        A file is missing or may not be read.
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    files = [os.fspath(path) for path in paths]
    for file in files:
        # Python's own exception for a file that cannot be opened.
        with open(file, "rb"):
            pass
    with bytes_bar(progress, "reading traces") as tell:
        return Traces(**_core.read_traces(files, tell))


def write_traces(path: PathLike, traces: Traces, *, rows: Layout = "sequence") -> None:
    """Writes a trace file, whole or not at all, in the format of its extension.

    Classes are written as numbers. `rows` is the layout of Parquet and Arrow
    files: a row per sequence, or a row per step.
    """
    if rows not in ("sequence", "step"):
        raise ValueError(f"rows must be 'sequence' or 'step', but {rows!r} was given")
    _core.write_traces(os.fspath(path), traces, rows == "step")


def traces_of(
    scores: Any, predictions: Any, labels: Any, probs: Any, lengths: Any, ids: Any, classes: Any
) -> Traces:
    """The traces that a function was given: as such, or as arrays."""
    if isinstance(scores, Traces):
        others = (predictions, labels, probs, lengths, ids, classes)
        if any(other is not None for other in others):
            raise ValueError("give traces alone, or the arrays they would be made of")
        return scores
    return Traces(
        scores, predictions, labels, probs=probs, lengths=lengths, ids=ids, classes=classes
    )
