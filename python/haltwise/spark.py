"""Traces that have outgrown one machine: calibrating on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from . import _core
from ._arrays import natural
from .calibration import Score
from .rule import Rule
from .traces import Traces

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

COLUMNS = ("id", "label", "predictions", "scores", "probs")


def calibrate(
    df: DataFrame,
    *,
    alpha: float = 0.1,
    delta: float = 0.01,
    method: Literal["adaptive", "conditional", "marginal"] = "adaptive",
    score: Score | None = None,
    fit_fraction: float = 0.3,
    screen_fraction: float = 0.5,
    seed: int = 0,
    grid_step: float = 0.01,
    at_never: Literal["skip", "stop"] = "skip",
) -> Rule:
    """Finds and certifies a rule from a DataFrame of traces, a row per sequence.

    Candidates are made on the driver from the sequences that a hash of their id
    sets aside; the executors count what each candidate would do to the others, and
    the driver certifies the sum. The rule equals the one that
    :func:`haltwise.calibrate` finds for the same traces on one machine, however
    they are partitioned and however often a task has to be run again.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        The columns ``id`` and ``label``, and the lists ``predictions`` and ``scores``,
        or the list of lists ``probs``, or all of them. Classes are numbers from 0. It
        is gone through several times: cache what is costly to compute, and what
        might come out differently the next time.
    alpha, delta, method, score, fit_fraction, screen_fraction, seed, grid_step, at_never
        As for :func:`haltwise.calibrate`. What is set aside to screen (of the
        conditional method) is brought to the driver: with many traces, choose a small
        `screen_fraction`. To fit, no more than 10,000 traces are.

    Returns
    -------
    Rule

    Raises
    ------
    ValueError
        Columns are missing, an id comes twice, or the data changed meanwhile.
    """
    from pyspark.sql import functions as f

    columns = [name for name in COLUMNS if name in df.columns]
    listed = next((name for name in ("scores", "probs") if name in columns), None)
    if "id" not in columns or "label" not in columns or listed is None:
        raise ValueError(
            "the DataFrame needs the columns id and label, and predictions and scores or probs; "
            f"found are {', '.join(df.columns)}"
        )
    number = natural(seed, "seed")
    assert number is not None
    df = df.select(f.col("id").cast("string").alias("id"), *columns[1:])
    repeated = df.groupBy("id").count().where("count > 1").select("id").take(1)
    if repeated:
        raise ValueError(
            f"the id {repeated[0][0]!r} comes twice; a sequence may count only once, "
            "so drop the repeat or give it an id of its own"
        )
    extent = df.agg(f.count(f.lit(1)), f.max(f.size(listed))).first()
    assert extent is not None
    sequences, t_max = int(extent[0]), int(extent[1] or 0)
    if not sequences:
        raise ValueError("there are no traces")
    set_aside, below = None, 0
    share = fit_fraction if method == "adaptive" else screen_fraction
    if method == "marginal":
        score = score or ("confidence" if "scores" in columns else "max-probability")
    else:
        set_aside, below = _set_aside(df, method, share, number, sequences)
    screened = _core.screen(
        set_aside,
        method=method,
        score=score,
        alpha=alpha,
        delta=delta,
        grid_step=grid_step,
        at_never=at_never,
        share=share,
        seed=number,
        below=below,
        sequences=sequences,
        t_max=t_max,
    )

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        gathering = _core.Gathering(screened)
        for batch in batches:
            if batch.num_rows:
                gathering.add(_stream([batch]))
        yield pa.RecordBatch.from_pydict({"evidence": [gathering.finish()]})

    parts = df.mapInArrow(count, "evidence string").collect()
    return Rule._of(_core.certify(screened, [part.evidence for part in parts], sequences))


def _set_aside(
    df: DataFrame, method: str, share: float, seed: int, sequences: int
) -> tuple[Traces, int]:
    """The sequences that are set aside, and the number that their draws are below."""
    below = _core.draws_below(share)
    if method == "conditional":
        return _drawn(df, seed, below)[0], below
    # Those with the smallest draws; a little more than enough of them is fetched.
    most = min(_core.most_fitting(), max(sequences - 1, 1))
    enough = _core.draws_below(min(1.0, 1.2 * most / sequences + 10 / sequences))
    traces, draws = _drawn(df, seed, min(below, enough))
    if len(draws) < most and enough < below:
        traces, draws = _drawn(df, seed, below)
    if not len(draws):
        raise ValueError(f"{sequences} traces are too few to split in two")
    order = draws.argsort(kind="stable")[:most]
    return traces[order], int(draws[order[-1]]) + 1


def _drawn(df: DataFrame, seed: int, below: int) -> tuple[Traces, Any]:
    """The sequences whose draws are below a number, and their draws."""

    def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            draws = _core.draws(batch.column("id").to_pylist(), seed)
            yield batch.filter(pa.array(draws < below))

    table = df.mapInArrow(keep, df.schema).toArrow()
    if not table.num_rows:
        raise ValueError("no sequence is set aside; choose a larger share, or give more traces")
    traces = Traces.from_arrow(table)
    return traces, _core.draws(table.column("id").to_pylist(), seed)


def _stream(batches: list[pa.RecordBatch]) -> bytes:
    """Batches as the bytes of an Arrow stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()
