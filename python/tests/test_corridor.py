"""One corridor: the command line, arrays, files and frames give the same bytes, whatever
the method, the score, the split, with ids and without."""

from __future__ import annotations

import itertools
import subprocess

import numpy as np
import pytest

import haltwise

METHODS = ["adaptive", "conditional", "marginal"]
SCORES = [None, "confidence", "max-probability", "margin", "gap"]


def classified(n: int, seed: int, named: bool) -> haltwise.Traces:
    """Traces with scores and class probabilities, of unequal lengths."""
    rng = np.random.default_rng(seed)
    steps, classes = 9, 3
    labels = rng.integers(classes, size=n)
    sure = np.linspace(0.5, 4, steps) * rng.uniform(0.3, 1.5, (n, 1))
    logits = rng.normal(size=(n, steps, classes))
    logits[np.arange(n), :, labels] += sure
    probs = np.exp(logits)
    probs = (probs / probs.sum(axis=2, keepdims=True)).astype(np.float32)
    scores = rng.uniform(0, 1, (n, steps)) * probs.max(axis=2)
    ids = [f"s{seed}-{i}" for i in range(n)] if named else None
    lengths = rng.integers(5, steps + 1, n)
    return haltwise.Traces(
        scores.astype(np.float32), labels=labels, probs=probs, lengths=lengths, ids=ids
    )


def options(method: str, score: str | None, others: bool) -> dict[str, str]:
    """Which other traces a combination takes, by the role they play."""
    fits = method == "adaptive" or score == "gap"
    roles = {"fit": fits, "screen": method == "conditional"}
    return {role: role for role, wanted in roles.items() if wanted and others}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("named", [True, False])
def test_every_door_gives_the_same_bytes(command, tmp_path, named):
    sets = {
        "traces": classified(900, 1, named),
        "fit": classified(400, 2, named),
        "screen": classified(500, 3, named),
    }
    for name, traces in sets.items():
        haltwise.write_traces(tmp_path / f"{name}.parquet", traces)
    files = {name: haltwise.read_traces(tmp_path / f"{name}.parquet") for name in sets}
    frames = {name: haltwise.Traces.from_pandas(t.to_pandas()) for name, t in sets.items()}
    combinations = list(itertools.product(METHODS, SCORES, [False, True]))
    assert len(combinations) == 30
    for method, score, others in combinations:
        roles = options(method, score, others)
        if others and not roles:
            continue
        words = [f"--{role} {tmp_path}/{role}.parquet" for role in roles]
        words += [] if score is None else [f"--score {score}"]
        out = tmp_path / "rule.json"
        line = f"calibrate {tmp_path}/traces.parquet --method {method} -o {out}"
        for memory in [[], ["--memory", "256.02MiB"]] if method == "marginal" else [[]]:
            arguments = [*line.split(), *" ".join(words).split(), *memory]
            run = subprocess.run([command, *arguments], capture_output=True, text=True)
            assert run.returncode == 0, run.stderr
            expected = out.read_text()
            for door in (sets, files, frames):
                given = {role: door[role] for role in roles}
                rule = haltwise.calibrate(door["traces"], method=method, score=score, **given)
                assert rule.to_json() == expected, (method, score, others, named)


def test_evidence_on_the_fitting_traces_is_refused(traces):
    candidates = haltwise.Candidates.adaptive(traces[:1000], 1000)
    with pytest.raises(ValueError, match="which voids the guarantee"):
        haltwise.Evidence(candidates, traces[:1000])


def test_other_traces_that_share_sequences_are_refused():
    traces = classified(900, 1, True)
    with pytest.raises(ValueError, match="with the same ids, are also among those"):
        haltwise.calibrate(traces, fit=traces[:300])
    with pytest.raises(ValueError, match="with the same ids, are also among those"):
        haltwise.calibrate(traces, screen=traces[:300], method="conditional")
    nameless = classified(900, 1, False)
    with pytest.warns(UserWarning, match="300 certifying sequences are identical"):
        haltwise.calibrate(nameless, fit=nameless[:300])


def test_an_option_without_effect_is_refused(traces):
    with pytest.raises(ValueError, match="grid_step goes with the paper's methods only"):
        haltwise.calibrate(traces, grid_step=0.01)
    with pytest.raises(ValueError, match="screen_by goes with the methods conditional and screen"):
        haltwise.calibrate(traces, screen_by="risk")
    with pytest.raises(TypeError, match="unknown options: at_never; the options are method, score"):
        haltwise.calibrate(traces, at_never="skip")
    with pytest.raises(ValueError, match="give fit or fit_fraction, not both"):
        haltwise.calibrate(traces, fit=traces[:10], fit_fraction=0.3)


def test_evaluating_on_a_part_of_the_rules_own_traces_is_noticed():
    traces = classified(900, 1, True)
    rule = haltwise.calibrate(traces)
    with pytest.warns(UserWarning, match="made from these very traces"):
        rule.evaluate(traces)
    with pytest.warns(UserWarning, match="made from some of these traces"):
        rule.evaluate(traces[::3])
    rule.evaluate(classified(300, 7, True))
