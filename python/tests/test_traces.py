"""Traces to and from files, pandas, polars and Arrow."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from conftest import simulated

from haltwise import Traces, _core, calibrate, read_traces, write_traces
from haltwise.traces import _asked


def same(left: Traces, right: Traces) -> None:
    assert len(left) == len(right)
    ends = np.full(len(left), left.t_max) if left.lengths is None else left.lengths
    within = np.arange(left.t_max) < ends[:, None]
    for name in ("predictions", "scores", "probs"):
        a, b = getattr(left, name), getattr(right, name)
        if a is not None:
            assert np.array_equal(a[within].astype(b.dtype), b[within]), name
    names = [t.labels if t.classes is None else t.classes[t.labels] for t in (left, right)]
    assert np.array_equal(*names)
    assert left.ids == right.ids or left.ids is None


def examples() -> list[Traces]:
    plain = simulated(30)
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), size=(20, 4)).astype(np.float32)
    ids = [f"s{i}" for i in range(20)]
    return [
        plain,
        Traces(plain.scores, plain.predictions, plain.labels, lengths=np.arange(30) % 10 + 1),
        Traces(probs=probs, labels=np.arange(20) % 3, ids=ids),
        Traces(probs.max(axis=2), labels=np.arange(20) % 3, probs=probs),
    ]


FRAMES = [
    ("pandas", Traces.to_pandas, Traces.from_pandas),
    ("polars", Traces.to_polars, Traces.from_polars),
    ("arrow", Traces.to_arrow, Traces.from_arrow),
    ("polars by way of Arrow", Traces.to_polars, Traces.from_arrow),
    (
        "pandas by way of Arrow",
        Traces.to_pandas,
        lambda frame: Traces.from_arrow(pa.table(dict(frame))),
    ),
]


@pytest.mark.parametrize("to, back", [f[1:] for f in FRAMES], ids=[f[0] for f in FRAMES])
@pytest.mark.parametrize("example", range(4))
def test_a_row_per_sequence_comes_back(to, back, example):
    traces = examples()[example]
    if back is FRAMES[-1][2] and traces.probs is not None:
        pytest.skip("Arrow takes no columns of arrays from pandas")
    same(traces, back(to(traces)))


@pytest.mark.parametrize("to, back", [f[1:] for f in FRAMES[:3]], ids=[f[0] for f in FRAMES[:3]])
def test_a_row_per_step_comes_back_without_probabilities(to, back):
    for traces in examples()[:2]:
        same(traces, back(to(traces, "step")))
    again = back(to(examples()[2], "step"))
    assert np.allclose(again.scores, examples()[2].probs.max(axis=2))


@pytest.mark.parametrize("rows", ["sequence", "step"])
def test_the_class_that_is_written_is_the_one_that_counts(rows, rule):
    """Rules judge float32, in which these are ties, or lie past 1 by rounding."""
    steps = [[0.5 - 1e-9, 0.5 + 1e-9], [1.00005, -0.00005]] * 5
    scores = np.full((3, 10), 0.5)
    traces = Traces(scores, labels=[0, 0, 1], probs=np.tile(steps, (3, 1, 1)))
    again = Traces.from_pandas(traces.to_pandas(rows))
    assert rule.evaluate(again) == rule.evaluate(traces)
    assert (again.predictions == 0).all()
    bare = Traces(probs=traces.probs, labels=traces.labels).to_pandas("step")
    assert (bare["prediction"] == 0).all()
    assert Traces.from_pandas(bare).scores[0].tolist() == [0.5, 1.0] * 5


def test_names_of_classes_survive():
    traces = Traces([[0.5, 0.9]] * 2, [["b", "a"], ["b", "b"]], ["a", "b"])
    for frame in (traces.to_pandas(), traces.to_pandas("step")):
        same(traces, Traces.from_pandas(frame))
    assert traces.to_polars()["label"].to_list() == ["a", "b"]


def test_frames_that_others_made_are_read():
    frame = pd.DataFrame(
        {"label": [1, 0], "predictions": [[0, 1], [0]], "scores": [[0.5, 1.0], [0.25]]}
    )
    traces = Traces.from_pandas(frame)
    assert traces.lengths.tolist() == [2, 1] and traces.scores[0].tolist() == [0.5, 1.0]
    probs = pl.DataFrame({"label": [1], "probs": [[[0.5, 0.5], [0.25, 0.75]]]})
    assert Traces.from_polars(probs).probs.shape == (1, 2, 2)
    batch = pa.RecordBatch.from_pylist([{"label": 1, "predictions": [1], "scores": [0.5]}])
    assert len(Traces.from_arrow(batch)) == 1


@pytest.mark.parametrize(
    "frame, message",
    [
        ({"label": [1], "scores": [[0.5]]}, "the data frame: columns are missing"),
        ({"label": [1], "predictions": [[0]], "scores": [[2.0]]}, "row 1.*the score 2 is not"),
        ({"label": [1], "predictions": [[0]], "scores": [None]}, "its type is Null"),
        ({"label": [1.5], "predictions": [[0]], "scores": [[0.5]]}, "column label: its type"),
    ],
)
def test_a_frame_that_is_wrong_is_refused_like_a_file(frame, message):
    with pytest.raises(ValueError, match=message):
        Traces.from_pandas(pd.DataFrame(frame))


@pytest.mark.parametrize("name", ["t.npz", "t.parquet", "t.arrow", "t.jsonl", "t.csv"])
def test_files_come_back(name, tmp_path):
    traces = simulated(50)
    traces.ids = [f"s{i}" for i in range(50)]
    told = []
    write_traces(tmp_path / name, traces)
    again = read_traces(tmp_path / name, progress=lambda done, total: told.append((done, total)))
    same(traces, again)
    assert again.ids == traces.ids
    assert told[-1][0] == told[-1][1] == (tmp_path / name).stat().st_size


def test_several_files_are_one_set(tmp_path):
    traces = simulated(2000)
    paths = [tmp_path / f"{i}.parquet" for i in range(3)]
    for i, path in enumerate(paths):
        write_traces(path, traces[i * 700 : (i + 1) * 700], rows="sequence")
    assert calibrate(read_traces(paths)) == calibrate(traces)


def test_files_that_are_wrong_say_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_traces(tmp_path / "none.npz")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ValueError, match="empty.csv: it is empty"):
        read_traces(tmp_path / "empty.csv")
    (tmp_path / "t.txt").write_text("x")
    with pytest.raises(ValueError, match="its extension is none of a trace file"):
        read_traces(tmp_path / "t.txt")
    with pytest.raises(FileNotFoundError, match="does not exist; create it first"):
        write_traces(tmp_path / "none" / "t.npz", simulated(3))
    # The core says so too, whoever calls it.
    with pytest.raises(FileNotFoundError, match="none.npz: there is no such file"):
        _core.read_traces([str(tmp_path / "none.npz")], _asked(), None)
    with pytest.raises(ValueError, match="rows must be"):
        write_traces(tmp_path / "t.parquet", simulated(3), rows="column")


def test_what_progress_raises_stops_the_reading(tmp_path):
    write_traces(tmp_path / "t.csv", simulated(50))

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_traces(tmp_path / "t.csv", progress=stop)


def test_a_bar_is_shown_if_asked_for(tmp_path, capsys):
    write_traces(tmp_path / "t.npz", simulated(50))
    read_traces(tmp_path / "t.npz", progress=True)
    assert "reading traces" in capsys.readouterr().err


def test_parts_are_taken_by_slice_mask_and_position():
    traces = simulated(10)
    traces.ids = [str(i) for i in range(10)]
    assert traces[2:4].ids == ["2", "3"]
    assert traces[np.arange(10) % 2 == 0].ids == ["0", "2", "4", "6", "8"]
    assert traces[[3, 1]].labels.tolist() == traces.labels[[3, 1]].tolist()
    assert traces[-1].ids == ["9"]


def test_traces_show_themselves():
    assert repr(simulated(1200)) == "Traces(1,200 sequences of 10 steps)"
    assert repr(examples()[2]) == "Traces(20 sequences of 4 steps, 3 probabilities each)"
    assert "up to 10 steps" in repr(examples()[1])
