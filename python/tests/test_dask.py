"""The recipe for Dask in docs/scale.md."""

from __future__ import annotations

import numpy as np
import pytest

import haltwise
from haltwise import Candidates, Evidence

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")


def test_evidence_adds_up_over_workers(traces, tmp_path):
    screening, certifying = traces[:2000], traces[2000:]
    files = []
    for i, part in enumerate(np.array_split(np.arange(len(certifying)), 5)):
        files.append(str(tmp_path / f"{i}.parquet"))
        haltwise.write_traces(files[-1], certifying[part])
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        candidates = Candidates.backward(screening)
        parts = client.map(lambda f: Evidence(candidates, haltwise.read_traces(f)), files)
        rule = sum(client.gather(parts)).certify()
    assert rule == haltwise.calibrate(certifying, screen=screening, method="conditional")
