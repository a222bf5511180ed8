"""Evidence: gathered in parts, sent anywhere, added up."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from conftest import simulated

from haltwise import Candidates, Evidence, Traces, calibrate


def test_any_way_of_cutting_the_data_gives_the_same_rule(traces):
    screening, certifying = traces[:2000], traces[2000:]
    candidates = Candidates.backward(screening)
    cuts = np.array_split(np.arange(2000), [13, 400, 401, 1500])
    parts = [Evidence(candidates, certifying[cut]) for cut in cuts if len(cut)]
    expected = calibrate(certifying, screen=screening, method="conditional")
    assert sum(parts).certify() == expected


def test_the_adaptive_method_adds_up_too(traces):
    fitting, certifying = traces[:1500], traces[1500:]
    candidates = Candidates.adaptive(fitting, len(certifying))
    candidates = pickle.loads(pickle.dumps(candidates))
    parts = [Evidence(candidates, certifying[cut]) for cut in (slice(0, 7), slice(7, None))]
    total = sum(Evidence.from_json(part.to_json()) for part in parts)
    assert total.sequences == 2500 and "adaptive" in repr(total)
    assert total.certify() == calibrate(certifying, fit=fitting)


def test_levels_are_fixed_with_the_candidates(traces):
    one, other = (Candidates.one_threshold(traces.t_max, alpha=alpha) for alpha in (0.1, 0.2))
    assert Evidence(other, traces).certify().alpha == 0.2
    with pytest.raises(TypeError):
        Evidence(one, traces).certify(alpha=0.2)
    with pytest.raises(ValueError, match="at other levels"):
        Evidence(one, traces[:2000]) + Evidence(other, traces[2000:])


def test_one_threshold_gives_the_marginal_rule(traces):
    candidates = Candidates.one_threshold(traces.t_max)
    evidence = Evidence(candidates, traces[:1000]) + Evidence(candidates, traces[1000:])
    assert evidence.certify() == calibrate(traces, method="marginal")


def test_evidence_and_candidates_can_be_sent(traces):
    candidates = Candidates.backward(traces[:2000])
    evidence = Evidence(candidates, traces[2000:])
    for thing in (candidates, evidence):
        assert pickle.loads(pickle.dumps(thing)) == thing
        assert type(thing).from_json(thing.to_json()) == thing
    assert evidence.candidates == candidates


def test_evidence_tells_what_was_counted(traces):
    evidence = Evidence(Candidates.backward(traces[:2000]), traces[2000:])
    assert evidence.sequences == 2000
    assert evidence.halted.shape == (len(evidence.candidates.thresholds), 10)
    assert (evidence.halted.sum(axis=1) == 2000).all()
    assert (evidence.gaps <= evidence.halted).all()
    assert np.isinf(evidence.candidates.thresholds[0][:-1]).all()


def test_what_does_not_add_up_is_refused(traces):
    one = Evidence(Candidates.backward(traces[:1000]), traces[1000:1500])
    other = Evidence(Candidates.backward(traces[:1500]), traces[1500:])
    with pytest.raises(ValueError, match="gathered for other candidate rules"):
        one + other
    with pytest.raises(TypeError):
        one + 1
    with pytest.raises(ValueError, match="which voids the guarantee"):
        Evidence(Candidates.backward(traces[:1000]), traces[:1000])
    with pytest.raises(ValueError, match="at the most"):
        Evidence(Candidates.backward(traces[:1000]), simulated(10, steps=11))
    with pytest.raises(ValueError, match="damaged"):
        Evidence.from_json(one.to_json().replace('"sequences":500', '"sequences":499', 1))


def test_sequences_without_a_label_are_no_evidence_of_small_gaps(traces):
    without = np.where(np.arange(len(traces)) % 5 == 0, np.array(traces.labels), np.nan)
    some = Traces(np.array(traces.scores), np.array(traces.predictions), without)
    every = [
        Candidates.backward(traces[:2000]),
        Candidates.one_threshold(traces.t_max),
        Candidates.adaptive(traces[:1500], 2000),
    ]
    for candidates in every:
        labelled = Evidence(candidates, traces[2000:2500])
        with pytest.raises(ValueError, match="has no label, so its gap is unknown"):
            labelled + Evidence(candidates, some[2500:])


@pytest.mark.parametrize("t_max", [-1, 0, 2**24, 2**62])
def test_steps_that_no_sequence_has_are_refused(t_max):
    with pytest.raises(ValueError, match="t_max must"):
        Candidates.one_threshold(t_max)
    with pytest.raises(ValueError, match="t_max must|invalid|at least one"):
        Candidates.from_json(Candidates.one_threshold(3).to_json().replace(",3]", f",{t_max}]"))
