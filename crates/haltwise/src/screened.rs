//! What was fixed before certifying, with all that is needed to certify it
//! elsewhere: the traces that certify may be anywhere, and too many for one
//! machine.

use serde::{Deserialize, Serialize};

use crate::calibrate::{CalibrateError, Calibration, ProposalEvidence};
use crate::candidates::{AtNever, Candidates};
use crate::evidence::{Evidence, EvidenceError};
use crate::grid::Grid;
use crate::level::{Alpha, Delta};
use crate::outputs::Fitting;
use crate::propose::{Proposal, ScoreChoice};
use crate::rule::{Classifier, Rule, SetRecord, Split};
use crate::score::ScoreSource;
use crate::screen::{ScreenBy, screen};
use crate::trace::{Certifying, Key, Screening, Traces};

/// Candidates, the levels they are to be tested at, and where they come from.
///
/// The levels are fixed here, before any evidence: choosing them after seeing
/// it would void the guarantee.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct Screened {
    calibration: Calibration,
    proposed: Proposed,
    split: Option<Split>,
    set_aside: Option<SetAside>,
    all: Option<SetRecord>,
    classifier: Option<Classifier>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Proposed {
    /// The candidates of one of the paper's methods.
    Paper {
        candidates: Candidates,
        score: ScoreSource,
        screened_on: Option<SetRecord>,
    },
    Adaptive(Proposal),
}

/// Which sequences of a set were fitted to or screened on, and must not
/// certify: those whose [draw](Key::draw) is below a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetAside {
    /// The seed of the draw.
    pub seed: u64,
    /// The number.
    pub below: u64,
}

impl SetAside {
    /// So large a share of all sequences.
    pub fn share(share: f64, seed: u64) -> Self {
        // 2⁶⁴·share; the cast saturates.
        let below = (share.clamp(0.0, 1.0) * 2f64.powi(64)) as u64;
        Self { seed, below }
    }

    /// Whether the sequence of this key is among them.
    pub fn has(&self, key: Key) -> bool {
        key.draw(self.seed) < self.below
    }
}

impl Calibration {
    /// Fixes one threshold for all steps, to be certified on average. There is
    /// nothing to screen, but the longest sequence must be known.
    pub fn screened_marginal(&self, t_max: usize, score: ScoreSource) -> Screened {
        self.screened(Proposed::Paper {
            candidates: Candidates::one_threshold(self.grid.clone(), t_max),
            score,
            screened_on: None,
        })
    }

    /// Screens, and fixes the backward walk for sequences of up to `t_max`
    /// steps, or as many as the longest that screens.
    pub fn screened_conditional(
        &self,
        screening: &Screening,
        t_max: usize,
    ) -> Result<Screened, CalibrateError> {
        let traces = screening.traces();
        if traces.is_empty() {
            return Err(CalibrateError::Empty("screening"));
        }
        let eta = screen(
            screening,
            self.alpha,
            self.delta,
            &self.grid,
            ScreenBy::Risk,
        )
        .extended(t_max);
        Ok(self.screened(Proposed::Paper {
            candidates: Candidates::backward(&eta, self.at_never),
            score: traces.source().clone(),
            screened_on: Some(SetRecord::of(traces)),
        }))
    }

    /// Fits a score and proposes, for certifying on so many sequences of up to
    /// so many steps, what the method `adaptive` tests.
    pub fn screened_adaptive(
        &self,
        fitting: &Fitting,
        choice: &ScoreChoice,
        certifying: usize,
        t_max: usize,
    ) -> Result<Screened, CalibrateError> {
        let proposal = self.propose(fitting, choice, certifying, t_max)?;
        Ok(self.screened(Proposed::Adaptive(proposal)))
    }

    fn screened(&self, proposed: Proposed) -> Screened {
        Screened {
            calibration: self.clone(),
            proposed,
            split: None,
            set_aside: None,
            all: None,
            classifier: None,
        }
    }
}

impl Screened {
    /// Records the set that evidence is to be gathered from, all of it.
    pub fn of_all(mut self, all: SetRecord) -> Self {
        self.all = Some(all);
        self
    }

    /// Records which part of the set was set aside, and by what split.
    pub fn with_split(mut self, split: Split, set_aside: SetAside) -> Self {
        self.split = Some(split);
        self.set_aside = Some(set_aside);
        self
    }

    /// Records the classifier that the traces are of, where it is known.
    pub fn with_classifier(mut self, classifier: Option<Classifier>) -> Self {
        self.classifier = classifier;
        self
    }

    /// What is to be certified, and at which levels.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// The families of candidates, in the order of their tests.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidates> {
        let (one, many) = match &self.proposed {
            Proposed::Paper { candidates, .. } => (Some(candidates), &[][..]),
            Proposed::Adaptive(proposal) => (None, &proposal.families[..]),
        };
        one.into_iter()
            .chain(many.iter().map(|family| &family.candidates))
    }

    /// The most steps a sequence may have.
    pub fn t_max(&self) -> usize {
        self.candidates().map(Candidates::t_max).max().unwrap_or(0)
    }

    /// The score that the candidates judge.
    pub fn source(&self) -> &ScoreSource {
        match &self.proposed {
            Proposed::Paper { score, .. } => score,
            Proposed::Adaptive(proposal) => proposal.source(),
        }
    }

    /// The traces that were fitted to or screened on.
    pub fn made_from(&self) -> Option<SetRecord> {
        match &self.proposed {
            Proposed::Paper { screened_on, .. } => *screened_on,
            Proposed::Adaptive(proposal) => Some(proposal.fitted_on),
        }
    }

    /// The set that evidence is to be gathered from, all of it, where that is
    /// known.
    pub fn all(&self) -> Option<SetRecord> {
        self.all
    }

    /// Whether a part of that set was set aside.
    pub fn is_split(&self) -> bool {
        self.set_aside.is_some()
    }

    /// Whether the sequence of this key may certify.
    pub fn certifies(&self, key: Key) -> bool {
        self.set_aside.is_none_or(|set_aside| !set_aside.has(key))
    }

    /// No evidence yet.
    pub fn no_evidence(&self) -> Result<ProposalEvidence, EvidenceError> {
        let none =
            |candidates: &Candidates| Evidence::none(candidates.clone(), self.source().clone());
        let families: Result<_, _> = self.candidates().map(none).collect();
        Ok(ProposalEvidence(families?))
    }

    /// Counts more certifying traces.
    pub fn count(
        &self,
        evidence: &mut ProposalEvidence,
        certifying: &Certifying,
    ) -> Result<(), EvidenceError> {
        let mut families = evidence.0.iter_mut();
        families.try_for_each(|evidence| evidence.count(certifying))
    }

    /// Lets traces that were set aside help to certify what is the same
    /// whatever they say: the clock.
    pub fn count_set_aside(
        &self,
        evidence: &mut ProposalEvidence,
        set_aside: Traces,
    ) -> Result<(), EvidenceError> {
        match &self.proposed {
            Proposed::Adaptive(proposal) => evidence.add_fitting(proposal, set_aside),
            Proposed::Paper { .. } => Ok(()),
        }
    }

    /// Certifies the candidates on all the evidence there is for them.
    pub fn certify(&self, evidence: &ProposalEvidence) -> Result<Rule, CalibrateError> {
        self.check(evidence)?;
        let Some(first) = evidence.0.first().filter(|first| first.sequences() > 0) else {
            return Err(CalibrateError::Empty("certifying"));
        };
        let rule = match &self.proposed {
            Proposed::Paper { screened_on, .. } => {
                self.calibration.from_evidence(first, *screened_on)?
            }
            Proposed::Adaptive(proposal) => self
                .calibration
                .certify_proposal(proposal, evidence, self.split)?,
        };
        let rule = rule.with_classifier(self.classifier.clone());
        Ok(match self.split {
            Some(split) => rule.with_split(split),
            None => rule,
        })
    }

    /// Refuses evidence for other candidates.
    pub fn check(&self, evidence: &ProposalEvidence) -> Result<(), EvidenceError> {
        evidence.check(self.candidates(), self.source())
    }
}

/// What was screened as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    alpha: Alpha,
    delta: Delta,
    grid_step: Grid,
    at_never: AtNever,
    split: Option<Split>,
    set_aside: Option<SetAside>,
    all: Option<SetRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    classifier: Option<Classifier>,
    proposed: Proposed,
}

/// Why stored candidates cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the candidates contradict their record: {0}")]
pub struct ScreenedError(&'static str);

impl From<Screened> for Record {
    fn from(screened: Screened) -> Self {
        let Calibration {
            alpha,
            delta,
            grid,
            at_never,
        } = screened.calibration;
        Self {
            alpha,
            delta,
            grid_step: grid,
            at_never,
            split: screened.split,
            set_aside: screened.set_aside,
            all: screened.all,
            classifier: screened.classifier,
            proposed: screened.proposed,
        }
    }
}

impl TryFrom<Record> for Screened {
    type Error = ScreenedError;

    fn try_from(record: Record) -> Result<Self, ScreenedError> {
        let screened = Self {
            calibration: Calibration {
                alpha: record.alpha,
                delta: record.delta,
                grid: record.grid_step,
                at_never: record.at_never,
            },
            proposed: record.proposed,
            split: record.split,
            set_aside: record.set_aside,
            all: record.all,
            classifier: record.classifier,
        };
        match screened.contradiction() {
            Some(what) => Err(ScreenedError(what)),
            None => Ok(screened),
        }
    }
}

impl Screened {
    fn contradiction(&self) -> Option<&'static str> {
        if self.candidates().any(|c| c.t_max() != self.t_max()) || self.t_max() == 0 {
            return Some("they are not for the same number of steps, at least one");
        }
        if self.split.is_some() != self.set_aside.is_some() {
            return Some("a split, but not what was set aside, or the reverse");
        }
        let used = self.made_from().map_or(0, |set| set.sequences);
        if self.is_split() && self.all.is_some_and(|all| all.sequences < used) {
            return Some("more traces were set aside than there were");
        }
        match &self.proposed {
            Proposed::Paper { candidates, .. } => {
                (!candidates.on(&self.calibration.grid)).then_some("a threshold is not on the grid")
            }
            Proposed::Adaptive(proposal) => {
                (!proposal.spends_delta()).then_some("the shares of delta are more than all of it")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::{Outputs, Sequence};
    use crate::simulate::{Process, Walk, Walked};

    fn through_its_file(screened: &Screened) -> Screened {
        serde_json::from_str(&serde_json::to_string(screened).unwrap()).unwrap()
    }

    #[test]
    fn screening_and_certifying_apart_is_calibrating() {
        let process = &Process::hard_cases(Default::default())[4];
        let (screening, certifying) = process.draw(4_000, 3).split(0.5, 9);
        let calibration = Calibration::default();
        let screened = calibration.screened_conditional(&screening, 8).unwrap();
        let screened = through_its_file(&screened);
        let mut evidence = screened.no_evidence().unwrap();
        screened.count(&mut evidence, &certifying).unwrap();
        let rule = calibration.conditional(&screening, &certifying).unwrap();
        assert_eq!(screened.certify(&evidence).unwrap(), rule);

        let marginal = calibration.screened_marginal(8, Default::default());
        let mut evidence = marginal.no_evidence().unwrap();
        marginal.count(&mut evidence, &certifying).unwrap();
        let rule = calibration.marginal(&certifying).unwrap();
        assert_eq!(marginal.certify(&evidence).unwrap(), rule);
        let mixed = screened.certify(&evidence).unwrap_err().to_string();
        assert!(mixed.contains("other candidate rules"), "{mixed}");
    }

    fn outputs(n: u64) -> Outputs {
        let walk = Walk::new(5, 12, 1);
        let (mut outputs, mut drawn) = (Outputs::new(), Walked::default());
        for number in 0..n {
            walk.draw(number, &mut drawn);
            let sequence = Sequence {
                id: Some(&number.to_string()),
                label: drawn.label,
                predictions: &drawn.predictions,
                scores: Some(&drawn.scores),
                probs: None,
            };
            outputs.push(sequence).unwrap();
        }
        outputs
    }

    #[test]
    fn fitting_and_certifying_apart_is_the_adaptive_method() {
        let calibration = Calibration::default();
        let choice = ScoreChoice::Better;
        let rule = calibration
            .adaptive_split(outputs(2_000), &choice, 0.3, 5)
            .unwrap();
        let (fitting, rest) = outputs(2_000).split(0.3, 5);
        let t_max = rest.t_max();
        let screened = calibration
            .screened_adaptive(&fitting, &choice, rest.len(), t_max)
            .unwrap();
        let screened = screened
            .of_all(SetRecord {
                sequences: 2_000,
                fingerprint: Default::default(),
            })
            .with_split(rule.split().unwrap(), SetAside::share(0.3, 5));
        let screened = through_its_file(&screened);
        let mut evidence = screened.no_evidence().unwrap();
        let traces = |outputs: &Outputs| outputs.traces(screened.source()).unwrap();
        for part in [rest.select(0..700), rest.select(700..rest.len())] {
            screened
                .count(&mut evidence, &Certifying::new(traces(&part)))
                .unwrap();
        }
        screened
            .count_set_aside(&mut evidence, traces(fitting.outputs()))
            .unwrap();
        assert_eq!(screened.certify(&evidence).unwrap(), rule);
        assert!(rule.halts_early());
    }

    #[test]
    fn no_evidence_certifies_nothing() {
        let screened = Calibration::default().screened_marginal(8, Default::default());
        let refused = screened.certify(&screened.no_evidence().unwrap());
        assert_eq!(refused, Err(CalibrateError::Empty("certifying")));
    }

    #[test]
    fn a_record_that_contradicts_itself_is_refused() {
        let calibration = Calibration::default();
        let marginal = calibration.screened_marginal(8, Default::default());
        let fitting = Fitting::new(outputs(500));
        let adaptive = calibration.screened_adaptive(&fitting, &ScoreChoice::Better, 500, 12);
        for (screened, from, to) in [
            (&marginal, "\"grid_step\":0.01", "\"grid_step\":0.05"),
            (&marginal, "[0.01,8]", "[0.01,0]"),
            (&marginal, "\"split\":null", "\"split\":{\"seed\":0}"),
            (&adaptive.unwrap(), "\"share\":0.25", "\"share\":0.9"),
        ] {
            let text = serde_json::to_string(screened).unwrap();
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            let refused = serde_json::from_str::<Screened>(&changed).unwrap_err();
            assert!(refused.to_string().contains("contradict"), "{refused}");
        }
    }
}
