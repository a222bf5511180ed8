//! From traces to a rule: one parameter struct, one function per method.

use serde::{Deserialize, Serialize};

use crate::candidates::{AtNever, Candidates, Family};
use crate::certify::{Promise, certify, certify_at};
use crate::evidence::{Counts, Evidence, EvidenceError};
use crate::grid::Grid;
use crate::level::{Alpha, Delta};
use crate::outputs::{Fitting, Outputs};
use crate::propose::{FamilyKind, Proposal, ScoreChoice, propose};
use crate::rule::{Expected, FamilyRecord, Method, Record, Rule, SetRecord, Split, Thresholds};
use crate::score::{ScoreSource, StepError};
use crate::screen::{ScreenBy, screen};
use crate::trace::{Certifying, Screening, Traces};

/// What to calibrate for. The defaults are the paper's: α = 0.1, δ = 0.01,
/// a grid of step 0.01; except that steps whose candidate is "never" are
/// skipped, which is valid and halts earlier.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Calibration {
    /// The tolerated gap.
    pub alpha: Alpha,
    /// The probability with which the promise may fail.
    pub delta: Delta,
    /// The thresholds to choose from.
    pub grid: Grid,
    /// What the backward walk does where the candidate is "never".
    pub at_never: AtNever,
}

/// Why traces cannot be calibrated on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// There is nothing to calibrate on.
    #[error("there are no {0} traces; give more, or a set of their own for each part")]
    Empty(&'static str),
    /// The candidates are neither one threshold nor a backward walk.
    #[error("a list of rules can be certified, but makes no rule of a known method")]
    Listed,
    /// The screening and certifying traces do not go together.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// The traces have no score of the kind that is wanted.
    #[error(transparent)]
    Score(#[from] StepError),
}

impl Calibration {
    /// The paper's Algorithm A.1: one threshold for all steps, the gap
    /// controlled on average. No screening is needed, so all traces certify.
    pub fn marginal(&self, certifying: &Certifying) -> Result<Rule, CalibrateError> {
        let traces = nonempty(certifying.traces(), "certifying")?;
        let candidates = Candidates::one_threshold(self.grid.clone(), traces.t_max());
        let evidence = Evidence::collect(candidates, certifying)?;
        self.from_evidence(&evidence, None)
    }

    /// The paper's Algorithms 1 and 2: screen a threshold per step, then
    /// certify on other traces that the gap is controlled among the sequences
    /// halted by any step.
    pub fn conditional(
        &self,
        screening: &Screening,
        certifying: &Certifying,
    ) -> Result<Rule, CalibrateError> {
        let screened = nonempty(screening.traces(), "screening")?;
        let traces = nonempty(certifying.traces(), "certifying")?;
        if screened.source() != traces.source() {
            return Err(EvidenceError::other_score(screened.source(), traces.source()).into());
        }
        let eta = screen(
            screening,
            self.alpha,
            self.delta,
            &self.grid,
            ScreenBy::Risk,
        );
        let candidates = Candidates::backward(&eta.extended(traces.t_max()), self.at_never);
        let evidence = Evidence::collect(candidates, certifying)?;
        self.from_evidence(&evidence, Some(SetRecord::of(screened)))
    }

    /// Earlier halting under the conditional promise: a learned score, threshold
    /// curves and a choice among all that pass.
    ///
    /// `certifying` must not have been used to train the classifier, and must
    /// have been drawn independently of `fitting`. Fitting traces that the
    /// classifier was trained on make a poor rule, but a valid one.
    pub fn adaptive(
        &self,
        fitting: &Fitting,
        choice: &ScoreChoice,
        certifying: &Outputs,
    ) -> Result<Rule, CalibrateError> {
        let proposal = self.propose(fitting, choice, certifying.len(), certifying.t_max())?;
        let traces = certifying.traces(proposal.source())?;
        let evidence = ProposalEvidence::collect(&proposal, &Certifying::new(traces))?;
        self.certify_proposal(&proposal, &evidence, None)
    }

    /// The same on one set, of which a part is set aside for fitting.
    pub fn adaptive_split(
        &self,
        outputs: Outputs,
        choice: &ScoreChoice,
        fit_fraction: f64,
        seed: u64,
    ) -> Result<Rule, CalibrateError> {
        let (fitting, certifying) = outputs.split(fit_fraction, seed);
        let t_max = certifying.t_max();
        let proposal = self.propose(&fitting, choice, certifying.len(), t_max)?;
        let traces = |outputs: &Outputs| outputs.traces(proposal.source());
        let certifying = Certifying::new(traces(&certifying)?);
        let mut evidence = ProposalEvidence::collect(&proposal, &certifying)?;
        evidence.add_fitting(&proposal, traces(fitting.outputs())?)?;
        let split = Split {
            fit_fraction: Some(fit_fraction),
            screen_fraction: None,
            seed,
        };
        self.certify_proposal(&proposal, &evidence, Some(split))
    }

    /// Fixes what `adaptive` will certify, on so many traces of up to so many
    /// steps, from the fitting traces alone.
    pub fn propose(
        &self,
        fitting: &Fitting,
        choice: &ScoreChoice,
        certifying: usize,
        t_max: usize,
    ) -> Result<Proposal, CalibrateError> {
        if fitting.outputs().is_empty() {
            return Err(CalibrateError::Empty("fitting"));
        }
        if certifying == 0 {
            return Err(CalibrateError::Empty("certifying"));
        }
        let (alpha, delta) = (self.alpha, self.delta);
        Ok(propose(fitting, choice, certifying, t_max, alpha, delta)?)
    }

    /// Certifies what was proposed, on evidence gathered for it: of all rules
    /// that pass, the one that halts earliest on the certifying traces.
    pub fn certify_proposal(
        &self,
        proposal: &Proposal,
        evidence: &ProposalEvidence,
        split: Option<Split>,
    ) -> Result<Rule, CalibrateError> {
        if !proposal.spends_delta() {
            return Err(EvidenceError::Damaged("the families spend more than delta").into());
        }
        evidence.check(proposal.candidates(), proposal.source())?;
        let mut trail = Vec::new();
        let mut families = Vec::new();
        let mut best: Option<(f64, usize, Thresholds, Expected)> = None;
        for (family, evidence) in std::iter::zip(&proposal.families, &evidence.0) {
            let level = self.delta.get() * family.share;
            let certified = certify_at(evidence, Promise::Conditional, self.alpha, level);
            for (c, test) in certified.trail.iter().enumerate() {
                let expected = expected(evidence.halted_at(c));
                let earlier = best
                    .as_ref()
                    .is_none_or(|&(t_avg, ..)| expected.t_avg < t_avg);
                if let Some(rule) = family
                    .candidates
                    .rule(c)
                    .filter(|_| test.rejected && earlier)
                {
                    best = Some((expected.t_avg, trail.len() + c + 1, rule, expected));
                }
            }
            families.push(FamilyRecord {
                kind: family.kind,
                share: family.share,
                sequences: evidence.sequences(),
                tests: certified.trail.len(),
            });
            trail.extend(certified.trail);
        }
        let t_max = proposal.families.first();
        let t_max = t_max.map_or(1, |family| family.candidates.t_max());
        let (chosen, thresholds, expected) = match best {
            Some((_, place, rule, expected)) => (Some(place), rule, Some(expected)),
            None => (None, Thresholds::never(t_max), None),
        };
        let mut record = self.record(Method::Adaptive, thresholds, proposal.score.clone());
        (record.grid_step, record.at_never) = (None, None);
        record.fitted_on = Some(proposal.fitted_on);
        record.certified_on = evidence.0.first().map(|evidence| SetRecord {
            sequences: evidence.sequences(),
            fingerprint: evidence.fingerprint(),
        });
        (record.families, record.trail, record.chosen) = (families, trail, chosen);
        (record.expected, record.split) = (expected, split);
        record.seal = Some(record.digest());
        Ok(Rule::from_record(record))
    }

    /// The paper's Algorithm 1 alone. The rule promises nothing.
    pub fn screen_only(&self, screening: &Screening) -> Result<Rule, CalibrateError> {
        let traces = nonempty(screening.traces(), "screening")?;
        let eta = screen(
            screening,
            self.alpha,
            self.delta,
            &self.grid,
            ScreenBy::Risk,
        );
        let mut record = self.record(Method::ScreenOnly, eta, traces.source().clone());
        record.screened_on = Some(SetRecord::of(traces));
        Ok(Rule::from_record(record))
    }

    /// Certifies evidence that was gathered, added up or stored before: for one
    /// threshold what the marginal method promises, for a backward walk what
    /// the conditional one does. A list of other rules is tested by [`certify`].
    ///
    /// `screened_on` are the traces the candidates came from, for the record.
    pub fn from_evidence(
        &self,
        evidence: &Evidence,
        screened_on: Option<SetRecord>,
    ) -> Result<Rule, CalibrateError> {
        let candidates = evidence.candidates();
        let (method, promise) = match candidates.family() {
            Family::OneThreshold(..) => (Method::Marginal, Promise::Marginal),
            Family::Backward(..) => (Method::Conditional, Promise::Conditional),
            Family::List(_) => return Err(CalibrateError::Listed),
        };
        let certified = certify(evidence, promise, self.alpha, self.delta);
        let thresholds = certified
            .chosen
            .and_then(|c| candidates.rule(c))
            .unwrap_or_else(|| Thresholds::never(candidates.t_max()));
        let mut record = self.record(method, thresholds, evidence.source().clone());
        record.trail = certified.trail;
        record.screened_on = screened_on;
        record.certified_on = Some(SetRecord {
            sequences: evidence.sequences(),
            fingerprint: evidence.fingerprint(),
        });
        record.expected = certified.chosen.map(|c| expected(evidence.halted_at(c)));
        Ok(Rule::from_record(record))
    }

    /// A record without tests.
    fn record(&self, method: Method, thresholds: Thresholds, score: ScoreSource) -> Record {
        Record {
            method,
            promise: method.promise(),
            alpha: self.alpha,
            delta: self.delta,
            grid_step: Some(self.grid.clone()),
            at_never: Some(self.at_never),
            score,
            t_max: thresholds.t_max(),
            thresholds,
            expected: None,
            fitted_on: None,
            screened_on: None,
            certified_on: None,
            split: None,
            classifier: None,
            families: Vec::new(),
            chosen: None,
            seal: None,
            trail: Vec::new(),
        }
    }
}

/// The evidence for all families of a [`Proposal`], in its order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProposalEvidence(pub(crate) Vec<Evidence>);

impl ProposalEvidence {
    /// Counts what every candidate would do to the certifying traces, whose
    /// scores must be of the proposal's [`source`](Proposal::source).
    pub fn collect(proposal: &Proposal, certifying: &Certifying) -> Result<Self, EvidenceError> {
        proposal.check_source(certifying.traces())?;
        let collect = |candidates: &Candidates| Evidence::collect(candidates.clone(), certifying);
        let evidence = proposal.candidates().map(collect);
        Ok(Self(evidence.collect::<Result<_, _>>()?))
    }

    /// The evidence for each family.
    pub fn families(&self) -> &[Evidence] {
        &self.0
    }

    /// The evidence of many parts of one set, given by positions; see
    /// [`Evidence::collect_parts`].
    pub fn collect_parts(
        proposal: &Proposal,
        traces: &Traces,
        parts: &[&[usize]],
    ) -> Result<Vec<Self>, EvidenceError> {
        proposal.check_source(traces)?;
        let mut found: Vec<Self> = parts.iter().map(|_| Self(Vec::new())).collect();
        for candidates in proposal.candidates() {
            let evidence = Evidence::collect_parts(candidates, traces, parts)?;
            for (found, evidence) in std::iter::zip(&mut found, evidence) {
                found.0.push(evidence);
            }
        }
        Ok(found)
    }

    /// Refuses evidence that was gathered for other candidates or scores.
    pub(crate) fn check<'a>(
        &self,
        candidates: impl Iterator<Item = &'a Candidates>,
        source: &ScoreSource,
    ) -> Result<(), EvidenceError> {
        if !candidates.eq(self.0.iter().map(Evidence::candidates)) {
            return Err(EvidenceError::OtherCandidates);
        }
        match self.0.iter().find(|evidence| evidence.source() != source) {
            Some(other) => Err(EvidenceError::other_score(other.source(), source)),
            None => Ok(()),
        }
    }

    /// Adds the evidence of other certifying traces for the same proposal.
    pub fn add(&mut self, other: &Self) -> Result<(), EvidenceError> {
        if self.0.len() != other.0.len() {
            return Err(EvidenceError::OtherCandidates);
        }
        for (mine, other) in std::iter::zip(&mut self.0, &other.0) {
            mine.add(other)?;
        }
        Ok(())
    }

    /// Lets the fitting traces help to certify the clock.
    ///
    /// The clock's rules are the same whatever the data, so all traces drawn
    /// like the certifying ones may test it; the fitting ones are, where both
    /// were split from one set.
    pub fn add_fitting(
        &mut self,
        proposal: &Proposal,
        fitting: Traces,
    ) -> Result<(), EvidenceError> {
        let fitting = Certifying::new(fitting);
        for (family, evidence) in std::iter::zip(&proposal.families, &mut self.0) {
            if family.kind == FamilyKind::Clock {
                evidence.count(&fitting)?;
            }
        }
        Ok(())
    }
}

fn nonempty<'a>(traces: &'a Traces, which: &'static str) -> Result<&'a Traces, CalibrateError> {
    if traces.is_empty() {
        return Err(CalibrateError::Empty(which));
    }
    Ok(traces)
}

/// What a rule did to the certifying traces.
fn expected(halted_at: &[Counts]) -> Expected {
    let (mut total, mut steps) = (Counts::default(), 0.0);
    for (t, &counts) in halted_at.iter().enumerate() {
        total += counts;
        steps += (t + 1) as f64 * counts.halted as f64;
    }
    Expected {
        t_avg: steps / total.halted as f64 / halted_at.len() as f64,
        gap: total.gap().unwrap_or(0.0),
    }
}
