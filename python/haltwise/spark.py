"""Traces too large for one machine: calibrating on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import _core
from ._options import Options
from .calibration import COLUMNS as COLUMN_OPTIONS
from .calibration import checked, found, spelt_out
from .rule import Rule
from .traces import _stream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from typing_extensions import Unpack

COLUMNS = ("id", "label", "predictions", "scores", "probs")


@spelt_out()
def calibrate(
    df: DataFrame,
    *,
    fit: DataFrame | None = None,
    screen: DataFrame | None = None,
    **options: Unpack[Options],
) -> Rule:
    """Finds and certifies a rule from a DataFrame of traces, a row per sequence.

    A hash of the ids sets some sequences aside. The driver makes candidates from those. The
    executors count what each candidate would do to the other sequences, and the driver
    certifies the sum. The rule equals that of :func:`haltwise.calibrate` for the same traces
    on one machine, for any partition of them and however often a task runs again.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        The columns ``id`` and, if it is known, ``label``; and the lists ``predictions`` and
        ``scores``, the list of lists ``probs``, or all of them. Classes are numbers from 0.
        `calibrate` reads the frame several times: cache it if it is costly to compute, or
        could come out differently.
    fit, screen : pyspark.sql.DataFrame, optional
        Other traces to fit to and to screen on. Without them, `df` is split.
    **options

    Columns are given by their names. With the conditional method, all traces that screen come to
    the driver: with many traces, choose a small `screen_fraction`. To fit, at most 10,000 traces
    come.

    Returns
    -------
    Rule

    Raises
    ------
    ValueError
        A column is missing, an id comes twice, or the data changed meanwhile.
    """
    asked = checked(options)
    fitting = None if fit is None else _Frame(fit, asked)
    screening = None if screen is None else _Frame(screen, asked)
    return found(_core.calibrate_cluster(_Frame(df, asked), fitting, screening, asked))


class _Frame:
    """How the driver reads a frame. Each method is a job."""

    def __init__(self, df: DataFrame, options: dict[str, Any]) -> None:
        from pyspark.sql import functions as f

        columns = [name for name in COLUMNS if name in df.columns]
        listed = next((name for name in ("scores", "probs") if name in columns), None)
        if "id" not in columns or listed is None:
            raise ValueError(
                "the DataFrame needs the column id, and predictions and scores or probs, and "
                f"label if it is known; it has {', '.join(df.columns)}"
            )
        asked = [options[name] for name in COLUMN_OPTIONS]
        asked = [name for name in asked if isinstance(name, str) and name not in COLUMNS]
        if options["loss"] == "given":
            asked.append("losses")
        missing = [name for name in asked if name not in df.columns]
        if missing:
            raise ValueError(
                f"the DataFrame has no column {missing[0]!r}; it has {', '.join(df.columns)}"
            )
        self.unit = options["unit"]
        self.df = df.select(
            f.col("id").cast("string").alias("id"), *columns[1:], *dict.fromkeys(asked)
        )
        if self.unit is not None:
            # A whole unit on one machine, because it counts as one.
            self.df = self.df.withColumn(self.unit, f.col(self.unit).cast("string"))
            self.df = self.df.repartition(self.unit)
        repeated = self.df.groupBy("id").count().where("count > 1").select("id").take(1)
        if repeated:
            raise ValueError(
                f"the id {repeated[0][0]!r} comes twice; a sequence may count only once, "
                "so drop the repeat or give it an id of its own"
            )

    def survey(self, who: str) -> list[str]:
        """What each partition looks like."""
        parts = self._each(lambda: _core.Surveying(who))
        if not parts:
            raise ValueError("there are no traces")
        return parts

    def count(self, proposal: str) -> list[str]:
        """What each partition counts."""
        return self._each(lambda: _core.Gathering(proposal))

    def _each(self, begin: Callable[[], Any]) -> list[str]:
        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            worker = begin()
            for batch in batches:
                if batch.num_rows:
                    worker.add(_stream(pa.Table.from_batches([batch])))
            yield pa.RecordBatch.from_pydict({"found": [worker.finish()]})

        return [part.found for part in self.df.mapInArrow(work, "found string").collect()]

    def rows(self, seed: int, below: int) -> bytes:
        """The sequences whose draws are below a number."""

        drawn = "id" if self.unit is None else self.unit

        def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            for batch in batches:
                draws = _core.draws(batch.column(drawn).to_pylist(), seed)
                yield batch.filter(pa.array(draws < below))

        table = self.df.mapInArrow(keep, self.df.schema).toArrow()
        return _stream(table) if table.num_rows else b""
