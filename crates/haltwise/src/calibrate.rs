//! From traces to a rule: one parameter struct, one function per method.

use crate::candidates::{AtNever, Candidates, Family};
use crate::certify::{Promise, certify};
use crate::evidence::{Counts, Evidence, EvidenceError};
use crate::grid::Grid;
use crate::level::{Alpha, Delta};
use crate::rule::{Expected, Method, Record, Rule, SetRecord, Thresholds};
use crate::screen::screen;
use crate::trace::{Certifying, ScoreSource, Screening, Traces};

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
    #[error("there are no {0} traces")]
    Empty(&'static str),
    /// The candidates are neither one threshold nor a backward walk.
    #[error("a list of rules can be certified, but makes no rule of a known method")]
    Listed,
    /// The screening and certifying traces do not go together.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
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
            return Err(EvidenceError::OtherScore(screened.source(), traces.source()).into());
        }
        let eta = screen(screening, self.alpha, &self.grid);
        let candidates = Candidates::backward(&eta.extended(traces.t_max()), self.at_never);
        let evidence = Evidence::collect(candidates, certifying)?;
        self.from_evidence(&evidence, Some(set_record(screened)))
    }

    /// The paper's Algorithm 1 alone. The rule promises nothing.
    pub fn screen_only(&self, screening: &Screening) -> Result<Rule, CalibrateError> {
        let traces = nonempty(screening.traces(), "screening")?;
        let eta = screen(screening, self.alpha, &self.grid);
        let mut record = self.record(Method::ScreenOnly, eta, traces.source());
        record.screened_on = Some(set_record(traces));
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
        let mut record = self.record(method, thresholds, evidence.source());
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
            grid_step: self.grid.clone(),
            at_never: self.at_never,
            score,
            t_max: thresholds.t_max(),
            thresholds,
            expected: None,
            screened_on: None,
            certified_on: None,
            split: None,
            classifier: None,
            trail: Vec::new(),
        }
    }
}

fn nonempty<'a>(traces: &'a Traces, which: &'static str) -> Result<&'a Traces, CalibrateError> {
    if traces.is_empty() {
        return Err(CalibrateError::Empty(which));
    }
    Ok(traces)
}

fn set_record(traces: &Traces) -> SetRecord {
    SetRecord {
        sequences: traces.len() as u64,
        fingerprint: traces.fingerprint(),
    }
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
