"""Calibrating on a real Spark cluster of several worker processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import simulated

import haltwise

pytest.importorskip("pyspark")
psutil = pytest.importorskip("psutil")
if not any(os.access(Path(d) / "java", os.X_OK) for d in os.environ["PATH"].split(":") if d):
    pytest.skip("Spark needs Java", allow_module_level=True)

import pyspark  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

from haltwise import spark  # noqa: E402

OPTIONS = {
    "adaptive": {"seed": 3},
    "conditional": {"screen_fraction": 0.4, "seed": 3},
    "marginal": {},
}

#: Beside those, what two executors are asked: every kind of score, and other frames.
GRID = [
    {"method": method, "score": score, **others}
    for method in OPTIONS
    for score in ("confidence", "gap")
    for others in ({}, {"fit": True}, {"screen": True})
    if ("fit" not in others or method == "adaptive" or score == "gap")
    and ("screen" not in others or method == "conditional")
]


@pytest.fixture(scope="module")
def traces() -> haltwise.Traces:
    plain = simulated(6000, seed=5)
    ids = [f"s{i}" for i in range(len(plain))]
    return haltwise.Traces(plain.scores, plain.predictions, plain.labels, ids=ids)


@pytest.fixture(scope="module")
def rules(traces) -> dict[str, haltwise.Rule]:
    """What one machine makes of the same traces."""
    return {
        method: haltwise.calibrate(traces, method=method, **options)
        for method, options in OPTIONS.items()
    }


def session(executors: int) -> SparkSession:
    """A cluster of its own: each executor is a process with one core."""
    os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master(f"local-cluster[{executors},1,512]")
        .config("spark.executor.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )


def frame(cluster: SparkSession, traces: haltwise.Traces, partitions: int):
    order = np.random.default_rng(1).permutation(len(traces))
    rows = [
        (
            traces.ids[i],
            int(traces.labels[i]),
            [int(p) for p in traces.predictions[i]],
            [float(s) for s in traces.scores[i]],
        )
        for i in order
    ]
    schema = "id string, label int, predictions array<int>, scores array<float>"
    return cluster.createDataFrame(rows, schema).repartition(partitions)


@pytest.mark.parametrize("executors", [1, 2])
def test_any_number_of_executors_gives_the_rule_of_one_machine(executors, traces, rules):
    cluster = session(executors)
    try:
        df = frame(cluster, traces, 7).cache()
        # With one executor the cluster itself is what is tested; one method will do.
        for method in OPTIONS if executors == 2 else ["adaptive"]:
            assert spark.calibrate(df, method=method, **OPTIONS[method]) == rules[method], method
        if executors == 2:
            other = simulated(1500, seed=8)
            ids = [f"o{i}" for i in range(len(other))]
            other = haltwise.Traces(other.scores, other.predictions, other.labels, ids=ids)
            others = frame(cluster, other, 3).cache()
            for asked in GRID:
                options = {k: v for k, v in asked.items() if k not in ("fit", "screen")}
                roles = [role for role in ("fit", "screen") if role in asked]
                here = haltwise.calibrate(traces, **options, **dict.fromkeys(roles, other))
                there = spark.calibrate(df, **options, **dict.fromkeys(roles, others))
                assert there.to_json() == here.to_json(), asked
            # Other promises: groups, units, weights, costs, losses; without labels.
            from pyspark.sql import functions as f

            number = f.expr("cast(substring(id, 2) as int)")
            with_columns = (
                df.withColumn("site", f.when(number % 3 == 0, "a").otherwise("b"))
                .withColumn("patient", f.floor(number / 5))
                .withColumn("w", f.when(number % 2 == 0, 1.0).otherwise(0.5))
                .withColumn("tokens", f.transform("scores", lambda score: f.lit(2.0)))
            ).cache()
            numbers = np.arange(len(traces))
            columns = {
                "site": np.where(numbers % 3 == 0, "a", "b"),
                "patient": numbers // 5,
                "w": np.where(numbers % 2 == 0, 1.0, 0.5),
                "tokens": np.full(traces.scores.shape, 2.0),
            }
            for asked in (
                {"loss": "disagreement", "by": "site"},
                {"unit": "patient"},
                {"weight": "w", "weight_bound": 1.0, "method": "conditional"},
                {"cost": "tokens", "by": "label"},
            ):
                here = haltwise.calibrate(traces._with(**columns), **asked)
                there = spark.calibrate(with_columns, **asked)
                assert there.to_json() == here.to_json(), asked
            # A gap cannot be counted without a label, on one machine or on many.
            some = df.withColumn("label", f.when(number % 5 == 0, f.col("label"))).cache()
            labels = np.where(numbers % 5 == 0, np.array(traces.labels), np.nan)
            for method in ("conditional", "marginal"):
                with pytest.raises(ValueError, match="label"):
                    haltwise.calibrate(
                        scores=np.array(traces.scores),
                        predictions=np.array(traces.predictions),
                        labels=labels,
                        method=method,
                    )
                with pytest.raises(ValueError, match="label"):
                    spark.calibrate(some, method=method)
            free = spark.calibrate(df.drop("label"), loss="disagreement")
            assert (
                free.thresholds.tolist()
                == haltwise.calibrate(traces, loss="disagreement").thresholds.tolist()
            )
            # Ids that come out differently the next time are noticed.
            anew = f.udf(lambda id: f"{id}-{np.random.default_rng().random()}").asNondeterministic()
            renamed = df.withColumn("id", anew("id"))
            with pytest.raises(ValueError, match="voids the guarantee"):
                spark.calibrate(renamed, method="conditional")
            with pytest.raises(ValueError, match="the id 's\\d+' comes twice"):
                spark.calibrate(df.union(df.limit(1)))
            with pytest.raises(ValueError, match="needs the column id"):
                spark.calibrate(df.drop("id"))
    finally:
        cluster.stop()


def executors_of_this_process() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    found = []
    for child in children:
        try:
            if any("CoarseGrainedExecutorBackend" in word for word in child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            pass
    return found


def test_one_of_four_executors_killed_while_counting_changes_nothing(
    traces, rules, tmp_path, monkeypatch
):
    cluster = session(4)
    try:
        df = frame(cluster, traces, 8)
        started = tmp_path / "started"
        screened = threading.Event()
        count = spark._Frame.count

        def tell_and_count(frame, proposal):
            started.unlink(missing_ok=True)
            screened.set()
            return count(frame, proposal)

        monkeypatch.setattr(spark._Frame, "count", tell_and_count)

        def slowly(batches):
            # Tells that the job is under way, and gives time to be killed.
            for batch in batches:
                started.touch()
                time.sleep(0.3)
                yield batch

        slow = df.mapInArrow(slowly, df.schema)
        killed = []

        def kill():
            screened.wait()
            while not started.exists():
                time.sleep(0.01)
            victim = executors_of_this_process()[0]
            victim.send_signal(signal.SIGKILL)
            killed.append(victim.pid)

        killer = threading.Thread(target=kill)
        killer.start()
        rule = spark.calibrate(slow, method="conditional", **OPTIONS["conditional"])
        killer.join()
        assert killed and not psutil.pid_exists(killed[0])
        assert rule == rules["conditional"]
    finally:
        cluster.stop()
