"""Every promise through every door: arrays, frames, files and the command line give the
same bytes."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest

import haltwise
from haltwise import Candidates, Evidence, Traces, calibrate

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N, T = 3000, 6


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(5)
    sure = rng.random(N)
    labels = rng.integers(0, 3, N)
    t = np.arange(1, T + 1)
    seen = (t >= rng.geometric(0.3 + 0.6 * sure)[:, None]) | (t == T)
    predictions = np.where(seen, labels[:, None], (labels[:, None] + 1) % 3)
    scores = (sure[:, None] * (0.7 + 0.04 * t)).astype(np.float32)
    patient = rng.integers(0, 900, N)
    return {
        "id": [f"s{i}" for i in range(N)],
        "label": labels,
        "predictions": predictions,
        "scores": scores,
        "losses": np.where(seen, 0, 0.5).astype(np.float32),
        "site": rng.choice(["north", "south"], N),
        "patient": patient,
        "w": np.where(patient % 3 == 0, 1.0, 0.5),
        "tokens": np.tile([1.0, 1, 1, 5, 5, 5], (N, 1)).astype(np.float32),
    }


ASKED = [
    {"loss": "disagreement"},
    {"loss": "given", "alpha": 0.05},
    {"by": "site"},
    {"by": "label"},
    {"unit": "patient"},
    {"weight": "w", "weight_bound": 1.0},
    {"cost": "tokens"},
    {"promise": "average"},
    {"promise": "average", "loss": "disagreement", "by": "site"},
    {"loss": "given", "by": "site", "unit": "patient", "weight": "w", "weight_bound": 1.0},
    {"method": "conditional", "by": "site", "loss": "disagreement"},
    {"method": "marginal", "loss": "given", "unit": "patient"},
]


def table(drawn, missing=None):
    columns = {}
    for name, values in drawn.items():
        listed = [row.tolist() for row in values] if np.ndim(values) == 2 else values
        columns[name] = pa.array(listed, type=_type(name))
    if missing is not None:
        labels = [None if gone else int(v) for gone, v in zip(missing, drawn["label"], strict=True)]
        columns["label"] = pa.array(labels, pa.int64())
    return pa.table(columns)


def _type(name):
    kinds = {"scores": pa.float32(), "losses": pa.float32(), "tokens": pa.float32()}
    if name == "predictions":
        return pa.list_(pa.int64())
    return pa.list_(kinds[name]) if name in kinds else None


def arrays(drawn, labels=None):
    return Traces(
        drawn["scores"],
        drawn["predictions"],
        drawn["label"] if labels is None else labels,
        ids=drawn["id"],
        losses=drawn["losses"],
        columns={name: drawn[name] for name in ("site", "patient", "w", "tokens")},
    )


def commanded(command, folder, asked, *words):
    options = [f"--{name.replace('_', '-')}={value}" for name, value in asked.items()]
    run = [command, "calibrate", str(folder / "t.parquet"), *options, *words]
    subprocess.run([*run, "-o", str(folder / "rule.json")], check=True, capture_output=True)
    return (folder / "rule.json").read_text()


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: " ".join(map(str, asked.values())))
def test_every_door_gives_the_same_bytes(drawn, command, tmp_path, asked):
    pq.write_table(table(drawn), tmp_path / "t.parquet", row_group_size=500)
    said = commanded(command, tmp_path, asked)
    rule = calibrate(arrays(drawn), **asked)
    assert rule.to_json() == said
    assert rule.halts_early
    columns = {name: asked[name] for name in ("by", "unit", "weight", "cost") if name in asked}
    losses = {"losses": True} if asked.get("loss") == "given" else {}
    read = haltwise.read_traces(tmp_path / "t.parquet", **columns, **losses)
    assert calibrate(read, **asked).to_json() == said
    framed = Traces.from_arrow(table(drawn), **columns, **losses)
    assert calibrate(framed, **asked).to_json() == said
    found = rule.evaluate(arrays(drawn))
    if "by" in asked:
        assert {group["group"] for group in found.by_group} == set(rule.groups)
    if "cost" in asked:
        assert found.cost["mean"] < found.cost["full"] == 18.0


def test_few_labels_through_every_door(drawn, command, tmp_path):
    missing = np.random.default_rng(1).random(N) < 0.7
    pq.write_table(table(drawn, missing), tmp_path / "t.parquet")
    said = commanded(command, tmp_path, {})
    labels = np.where(missing, np.nan, drawn["label"])
    rule = calibrate(arrays(drawn, labels))
    assert rule.to_json() == said
    assert "few-labels" in rule.record["proof"]
    assert "random part of all" not in rule.describe()
    found = rule.evaluate(arrays(drawn, labels))
    assert found.unlabelled == int(missing.sum())
    masked = np.ma.masked_array(drawn["label"], missing)
    assert calibrate(arrays(drawn, masked)).to_json() == said
    nothing = [None] * N
    with pytest.raises(ValueError, match="the loss disagreement needs none"):
        calibrate(arrays(drawn, nothing))


def test_parts_add_up_with_groups_and_losses(drawn):
    traces = arrays(drawn)
    for asked in ({"by": "site"}, {"loss": "given"}, {"unit": "patient"}):
        fitting, rest = traces[:1000], traces[1000:]
        if "unit" in asked:
            # Parts that hold whole units.
            order = np.argsort(drawn["patient"], kind="stable")
            fitting, rest = traces[order[:1000]], traces[order[1000:]]
            first = rest.columns["patient"][0]
            rest = rest[rest.columns["patient"] != first]
        candidates = Candidates.adaptive(fitting, len(rest), **asked)
        whole = Evidence(candidates, rest)
        if "unit" in asked:
            middle = rest.columns["patient"][len(rest) // 2]
            cut = int(np.argmax(rest.columns["patient"] == middle))
            with pytest.raises(ValueError, match="one unit were counted in different parts"):
                half = len(rest) // 2 + 1
                sum(Evidence(candidates, part) for part in (rest[:half], rest[half - 1 :]))
        else:
            cut = 700
        parts = sum(Evidence(candidates, part) for part in (rest[:cut], rest[cut:]))
        assert json.loads(parts.to_json()) == json.loads(whole.to_json())
        assert parts.certify() == whole.certify()


def test_evidence_is_looked_at_as_often_as_was_planned(drawn):
    traces = Traces(drawn["scores"], drawn["predictions"], drawn["label"], ids=drawn["id"])
    fitting, first, more = traces[:1000], traces[1000:1800], traces[1800:]
    candidates = Candidates.adaptive(fitting, 1000, looks=[500, 1500])
    evidence = Evidence(candidates, first)
    assert json.loads(evidence.certify().to_json())["looks"]["made"] == 1
    later = json.loads((evidence + Evidence(candidates, more)).certify().to_json())
    assert later["looks"] == {"planned": [500, 1500], "made": 2, "sequences": 2000}
    with pytest.raises(ValueError, match="first look is planned after 500"):
        Evidence(candidates, first[:300]).certify()
    with pytest.raises(ValueError, match="each larger than the last"):
        Candidates.adaptive(fitting, 1000, looks=[500, 500])


def test_a_regression_is_promised_about(drawn):
    rng = np.random.default_rng(2)
    truth = rng.normal(0, 1, N)
    guesses = truth[:, None] + rng.normal(0, 1, (N, T)) / np.arange(1, T + 1) ** 2
    rule = calibrate(
        drawn["scores"], guesses, truth, loss="absolute", scale=2.0, alpha=0.1, delta=0.05
    )
    assert rule.halts_early
    assert "further from the truth" in rule.describe()
    found = rule.evaluate(drawn["scores"], guesses, truth)
    assert found.gap <= 0.1 and found.late_accuracy is None


def test_a_forecast_says_what_more_traces_would_buy(drawn):
    pilot = arrays(drawn)[:300]
    small, large = haltwise.forecast(pilot, [100, 2000], loss="disagreement", by="site")
    assert small["traces"] == 100 and large["certified"] >= small["certified"]
    assert large["t_avg"]["low"] <= large["t_avg"]["mean"] <= large["t_avg"]["high"]
    with pytest.raises(TypeError, match="unknown options: alfa"):
        haltwise.forecast(pilot, [100], alfa=0.1)


def test_what_is_wrong_is_said_with_its_remedy(drawn):
    traces = arrays(drawn)
    for asked, expected in [
        ({"by": "ward"}, "there is no column 'ward'.*There are: site, patient, w, tokens"),
        ({"weight": "w"}, "weight needs weight_bound"),
        ({"weight": "w", "weight_bound": 0.7}, "above the bound 0.7"),
        ({"loss": "absolute"}, "loss needs scale"),
        ({"loss": "gaps"}, "loss must be one of"),
        ({"cost": "tokens", "method": "marginal"}, "goes with the method adaptive only"),
        ({"by": np.zeros(N)}, "must be strings, integers or booleans"),
        ({"by": ["one"] * N}, "the same value in the column `by`"),
        ({"by": [f"g{i}" for i in range(N)]}, "more than 1000 values"),
    ]:
        with pytest.raises(ValueError, match=expected):
            calibrate(traces, **asked)


def test_a_rule_of_some_groups_reads_the_others_to_the_end(drawn):
    site = np.where(np.arange(N) % 75 == 0, "islet", drawn["site"])
    traces = (drawn["scores"], drawn["predictions"], drawn["label"])
    with pytest.warns(UserWarning, match=r"halts some groups only.*islet: tested on"):
        rule = calibrate(*traces, by=site, score="confidence")
    assert (rule.halts_in, rule.groups) == (["north", "south"], ["islet", "north", "south"])
    assert "reads islet to the end" in rule.describe()
    everywhere = rule.halt(drawn["scores"], groups=["north"] * N)
    assert (everywhere < T).any()
    halts = rule.halt(drawn["scores"], groups=site)
    assert (halts == np.where(site == "islet", T, everywhere)).all()
    arrays = {"predictions": drawn["predictions"], "groups": site}
    assert (rule.halt(drawn["scores"], **arrays) == halts).all()
    columns = Traces(*traces, columns={"by": site})
    assert (rule.halt(columns) == halts).all()
    by_group = {group["group"]: group["t_avg"] for group in rule.evaluate(columns).by_group}
    assert by_group["islet"] == 1 > by_group["north"]
    with pytest.warns(UserWarning, match="does not name its group"):
        assert (rule.halt(drawn["scores"]) == T).all()
    with pytest.warns(UserWarning, match='not certified for the group "east"'):
        stream = rule.stream(group="east")
    with pytest.raises(ValueError, match="2 groups"):
        rule.halt(drawn["scores"], groups=["north", "south"])

    def halt(stream, scores):
        for score in scores:
            if stream.observe(score):
                break
        return stream.steps

    sure = drawn["scores"][np.argmin(everywhere)]
    assert halt(stream, sure) == halt(rule.stream("islet"), sure) == T
    assert halt(rule.stream("south"), sure) == everywhere.min() < T
    monitor = haltwise.Monitor(rule)
    with pytest.raises(ValueError, match='reads the group "islet" to the end'):
        monitor.begin("1", group="islet")
    with pytest.raises(ValueError, match='promises nothing to the group "east"'):
        monitor.begin("1", group="east")
