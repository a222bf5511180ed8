//! What screening proposes, with all that is needed to certify it elsewhere:
//! the traces that certify may be anywhere, and too many for one machine.

use serde::{Deserialize, Serialize};

use crate::calibrate::{CalibrateError, Calibration};
use crate::candidates::Candidates;
use crate::evidence::{Evidence, EvidenceError};
use crate::rule::{Rule, SetRecord, Split};
use crate::screen::screen;
use crate::trace::{ScoreSource, Screening};

/// Candidates, the levels they are to be tested at, and where they come from.
///
/// The levels are fixed here, before any evidence: choosing them after seeing
/// it would void the guarantee.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct Proposal {
    calibration: Calibration,
    candidates: Candidates,
    score: ScoreSource,
    screened_on: Option<SetRecord>,
    split: Option<Split>,
    all: Option<SetRecord>,
}

impl Calibration {
    /// Proposes one threshold for all steps, to be certified on average. There
    /// is nothing to screen, but the longest sequence must be known.
    pub fn propose_marginal(&self, t_max: usize, score: ScoreSource) -> Proposal {
        Proposal {
            calibration: self.clone(),
            candidates: Candidates::one_threshold(self.grid.clone(), t_max),
            score,
            screened_on: None,
            split: None,
            all: None,
        }
    }

    /// Screens, and proposes the backward walk for sequences of up to `t_max`
    /// steps, or as many as the longest that screens.
    pub fn propose_conditional(
        &self,
        screening: &Screening,
        t_max: usize,
    ) -> Result<Proposal, CalibrateError> {
        let traces = screening.traces();
        if traces.is_empty() {
            return Err(CalibrateError::Empty("screening"));
        }
        let eta = screen(screening, self.alpha, &self.grid).extended(t_max);
        Ok(Proposal {
            calibration: self.clone(),
            candidates: Candidates::backward(&eta, self.at_never),
            score: traces.source(),
            screened_on: Some(SetRecord {
                sequences: traces.len() as u64,
                fingerprint: traces.fingerprint(),
            }),
            split: None,
            all: None,
        })
    }
}

impl Proposal {
    /// Records the set that evidence is to be gathered from, all of it; where
    /// it was split, what screening left of it is to certify.
    pub fn of_all(mut self, all: SetRecord, split: Option<Split>) -> Self {
        self.all = Some(all);
        self.split = split;
        self
    }

    /// What is to be certified, and at which levels.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// The rules to test, in their order.
    pub fn candidates(&self) -> &Candidates {
        &self.candidates
    }

    /// How the scores come about.
    pub fn source(&self) -> ScoreSource {
        self.score
    }

    /// The traces that screened.
    pub fn screened_on(&self) -> Option<SetRecord> {
        self.screened_on
    }

    /// How screening and certifying traces are split from one set, if they are.
    pub fn split(&self) -> Option<Split> {
        self.split
    }

    /// The set that evidence is to be gathered from, all of it, where that is
    /// known.
    pub fn all(&self) -> Option<SetRecord> {
        self.all
    }

    /// Certifies the candidates on all the evidence there is for them.
    pub fn certify(&self, evidence: &Evidence) -> Result<Rule, CalibrateError> {
        if *evidence.candidates() != self.candidates {
            return Err(EvidenceError::OtherCandidates.into());
        }
        if evidence.source() != self.score {
            return Err(EvidenceError::OtherScore(evidence.source(), self.score).into());
        }
        if evidence.sequences() == 0 {
            return Err(CalibrateError::Empty("certifying"));
        }
        let rule = self.calibration.from_evidence(evidence, self.screened_on)?;
        Ok(match self.split {
            Some(split) => rule.with_split(split),
            None => rule,
        })
    }
}

/// A proposal as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    alpha: crate::level::Alpha,
    delta: crate::level::Delta,
    grid_step: crate::grid::Grid,
    at_never: crate::candidates::AtNever,
    score: ScoreSource,
    screened_on: Option<SetRecord>,
    split: Option<Split>,
    all: Option<SetRecord>,
    candidates: Candidates,
}

/// Why a stored proposal cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the candidates contradict their record: {0}")]
pub struct ProposalError(&'static str);

impl From<Proposal> for Record {
    fn from(proposal: Proposal) -> Self {
        let Calibration {
            alpha,
            delta,
            grid,
            at_never,
        } = proposal.calibration;
        Self {
            alpha,
            delta,
            grid_step: grid,
            at_never,
            score: proposal.score,
            screened_on: proposal.screened_on,
            split: proposal.split,
            all: proposal.all,
            candidates: proposal.candidates,
        }
    }
}

impl TryFrom<Record> for Proposal {
    type Error = ProposalError;

    fn try_from(record: Record) -> Result<Self, ProposalError> {
        if record.candidates.t_max() == 0 {
            return Err(ProposalError("they are for no step at all"));
        }
        if !record.candidates.on(&record.grid_step) {
            return Err(ProposalError("a threshold is not on the grid"));
        }
        if record.split.is_some() && record.all.is_none() {
            return Err(ProposalError("a split, but not of what"));
        }
        let screened = record.screened_on.map_or(0, |set| set.sequences);
        if record.all.is_some_and(|all| all.sequences < screened) {
            return Err(ProposalError("more traces screened than there were"));
        }
        Ok(Self {
            calibration: Calibration {
                alpha: record.alpha,
                delta: record.delta,
                grid: record.grid_step,
                at_never: record.at_never,
            },
            candidates: record.candidates,
            score: record.score,
            screened_on: record.screened_on,
            split: record.split,
            all: record.all,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Process;
    use crate::trace::Certifying;

    #[test]
    fn proposing_and_certifying_apart_is_calibrating() {
        let process = &Process::hard_cases(Default::default())[4];
        let (screening, certifying) = process.draw(4_000, 3).split(0.5, 9);
        let calibration = Calibration::default();
        let proposal = calibration.propose_conditional(&screening, 8).unwrap();
        let stored = serde_json::to_string(&proposal).unwrap();
        let proposal: Proposal = serde_json::from_str(&stored).unwrap();
        let evidence = Evidence::collect(proposal.candidates().clone(), &certifying).unwrap();
        let rule = calibration.conditional(&screening, &certifying).unwrap();
        assert_eq!(proposal.certify(&evidence).unwrap(), rule);

        let marginal = calibration.propose_marginal(8, Default::default());
        let evidence = Evidence::collect(marginal.candidates().clone(), &certifying).unwrap();
        let rule = calibration.marginal(&certifying).unwrap();
        assert_eq!(marginal.certify(&evidence).unwrap(), rule);
        let mixed = proposal.certify(&evidence).unwrap_err().to_string();
        assert!(mixed.contains("other candidate rules"), "{mixed}");
    }

    #[test]
    fn no_evidence_certifies_nothing() {
        let proposal = Calibration::default().propose_marginal(8, Default::default());
        let nothing = Certifying::new(crate::Traces::builder().finish());
        let evidence = Evidence::collect(proposal.candidates().clone(), &nothing).unwrap();
        let refused = proposal.certify(&evidence);
        assert_eq!(refused, Err(CalibrateError::Empty("certifying")));
    }

    #[test]
    fn a_record_that_contradicts_itself_is_refused() {
        let proposal = Calibration::default().propose_marginal(8, Default::default());
        let text = serde_json::to_string(&proposal).unwrap();
        for (from, to) in [
            ("\"grid_step\":0.01", "\"grid_step\":0.05"),
            ("[0.01,8]", "[0.01,0]"),
            (
                "\"split\":null",
                "\"split\":{\"screen_fraction\":0.5,\"seed\":0}",
            ),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text);
            let refused = serde_json::from_str::<Proposal>(&changed).unwrap_err();
            assert!(refused.to_string().contains("contradict"), "{refused}");
        }
    }
}
