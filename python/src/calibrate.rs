//! From traces to a rule: what `haltwise calibrate` does with files, done with
//! arrays.

use haltwise::{
    Alpha, AtNever, CalibrateError, Calibration, Certifying, Delta, Fitting, GapScore, Grid,
    Outputs, ScoreChoice, ScoreSource, Screening, SetRecord, Split, Traces,
};
use pyo3::prelude::*;

use crate::arrays::{Arrays, Views};
use crate::failure::{Failure, value_error};
use crate::rule::Rule;

/// The share that is set aside for fitting, unless said otherwise.
const FIT_FRACTION: f64 = 0.3;

/// The share that screens, unless said otherwise: the paper's half.
const SCREEN_FRACTION: f64 = 0.5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Adaptive,
    Conditional,
    Marginal,
    ScreenOnly,
}

impl Method {
    fn of(word: &str) -> PyResult<Self> {
        match word {
            "adaptive" => Ok(Self::Adaptive),
            "conditional" => Ok(Self::Conditional),
            "marginal" => Ok(Self::Marginal),
            "screen-only" => Ok(Self::ScreenOnly),
            _ => Err(value_error(format_args!(
                "method must be 'adaptive', 'conditional', 'marginal' or 'screen-only', but \
                 {word:?} was given"
            ))),
        }
    }
}

/// Which score is wanted.
#[derive(Clone, PartialEq)]
pub(crate) enum Wanted {
    /// What the traces carry or, with the adaptive method, the better one.
    Any,
    Plain(ScoreSource),
    Learned,
}

impl Wanted {
    pub(crate) fn of(word: Option<&str>) -> PyResult<Self> {
        match word {
            None => Ok(Self::Any),
            Some("confidence") => Ok(Self::Plain(ScoreSource::Confidence)),
            Some("max-probability") => Ok(Self::Plain(ScoreSource::MaxProbability)),
            Some("margin") => Ok(Self::Plain(ScoreSource::Margin)),
            Some("gap") => Ok(Self::Learned),
            Some(word) => Err(value_error(format_args!(
                "score must be 'confidence', 'max-probability', 'margin' or 'gap', but {word:?} \
                 was given"
            ))),
        }
    }

    pub(crate) fn choice(self) -> ScoreChoice {
        match self {
            Self::Any => ScoreChoice::Better,
            Self::Plain(source) => ScoreChoice::Fixed(source),
            Self::Learned => ScoreChoice::Learned,
        }
    }
}

pub(crate) fn at_never_of(word: &str) -> PyResult<AtNever> {
    match word {
        "skip" => Ok(AtNever::Skip),
        "stop" => Ok(AtNever::Stop),
        _ => Err(value_error(format_args!(
            "at_never must be 'skip' or 'stop', but {word:?} was given"
        ))),
    }
}

/// All that is asked for, checked before anything is read.
struct Task {
    calibration: Calibration,
    method: Method,
    score: Wanted,
    fit_fraction: f64,
    screen_fraction: f64,
    seed: u64,
}

/// Finds a rule. `fit` and `screen` are other traces to fit to and to screen
/// on; without them the traces are split by the fractions and the seed.
#[pyfunction]
#[pyo3(signature = (traces, *, method, score, fit, fit_fraction, screen, screen_fraction, seed, alpha, delta, grid_step, at_never))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn calibrate(
    py: Python<'_>,
    traces: Arrays<'_>,
    method: &str,
    score: Option<&str>,
    fit: Option<Arrays<'_>>,
    fit_fraction: Option<f64>,
    screen: Option<Arrays<'_>>,
    screen_fraction: Option<f64>,
    seed: Option<u64>,
    alpha: f64,
    delta: f64,
    grid_step: f64,
    at_never: &str,
) -> PyResult<Rule> {
    let calibration = Calibration {
        alpha: Alpha::try_from(alpha).map_err(value_error)?,
        delta: Delta::try_from(delta).map_err(value_error)?,
        grid: Grid::try_from(grid_step).map_err(value_error)?,
        at_never: at_never_of(at_never)?,
    };
    let (method, score) = (Method::of(method)?, Wanted::of(score)?);
    let fits = method == Method::Adaptive || score == Wanted::Learned;
    let screens = method == Method::Conditional;
    refuse(
        (screen.is_some() || screen_fraction.is_some()) && !screens,
        "screen and screen_fraction go with the method 'conditional' only",
    )?;
    refuse(
        (fit.is_some() || fit_fraction.is_some()) && !fits,
        "fit and fit_fraction go with the method 'adaptive' or the score 'gap' only",
    )?;
    refuse(
        screen.is_some() && screen_fraction.is_some() || fit.is_some() && fit_fraction.is_some(),
        "a fraction splits the traces, which other traces make needless; give one or the other",
    )?;
    refuse(
        seed.is_some() && !(fits && fit.is_none() || screens && screen.is_none()),
        "seed is for splitting the traces, and nothing is split here",
    )?;
    let task = Task {
        calibration,
        method,
        score,
        fit_fraction: share("fit_fraction", fit_fraction.unwrap_or(FIT_FRACTION))?,
        screen_fraction: share(
            "screen_fraction",
            screen_fraction.unwrap_or(SCREEN_FRACTION),
        )?,
        seed: seed.unwrap_or(0),
    };
    let traces = traces.views()?;
    let fit = fit.as_ref().map(Arrays::views).transpose()?;
    let screen = screen.as_ref().map(Arrays::views).transpose()?;
    let rule = py.detach(|| task.rule(&traces, fit.as_ref(), screen.as_ref()))?;
    Ok(Rule(rule))
}

fn refuse(wrong: bool, message: &str) -> PyResult<()> {
    match wrong {
        true => Err(value_error(message)),
        false => Ok(()),
    }
}

fn share(name: &str, share: f64) -> PyResult<f64> {
    if share > 0.0 && share < 1.0 {
        return Ok(share);
    }
    Err(value_error(format_args!(
        "{name} must lie strictly between 0 and 1, but {share} was given"
    )))
}

type Found = Result<haltwise::Rule, Failure>;

impl Task {
    fn rule(
        &self,
        traces: &Views<'_>,
        fit: Option<&Views<'_>>,
        screen: Option<&Views<'_>>,
    ) -> Found {
        let source = match (self.method, &self.score) {
            (Method::Adaptive, _) => return self.adaptive(traces, fit),
            (_, Wanted::Learned) => return self.learned(traces, fit, screen),
            (_, Wanted::Any) => None,
            (_, Wanted::Plain(source)) => Some(source),
        };
        let screening = screen.map(|views| views.traces(source)).transpose()?;
        self.of_the_paper(traces.traces(source)?, screening)
    }

    fn adaptive(&self, traces: &Views<'_>, fit: Option<&Views<'_>>) -> Found {
        let outputs = traces.outputs()?;
        let choice = self.score.clone().choice();
        let Some(fit) = fit else {
            let total = outputs.len();
            let (share, seed) = (self.fit_fraction, self.seed);
            let rule = self
                .calibration
                .adaptive_split(outputs, &choice, share, seed);
            return rule.map_err(|e| too_few(total, &e));
        };
        let fitting = fit.outputs()?;
        refuse_same(fitting.fingerprint() == outputs.fingerprint())?;
        let fitting = Fitting::new(fitting);
        let rule = self.calibration.adaptive(&fitting, &choice, &outputs);
        rule.map_err(|e| Failure::Value(e.to_string()))
    }

    /// One of the paper's methods on a score that is learned first.
    fn learned(
        &self,
        traces: &Views<'_>,
        fit: Option<&Views<'_>>,
        screen: Option<&Views<'_>>,
    ) -> Found {
        let outputs = traces.outputs()?;
        let (fitting, outputs) = match fit {
            None => outputs.split(self.fit_fraction, self.seed),
            Some(fit) => {
                let fitting = fit.outputs()?;
                refuse_same(fitting.fingerprint() == outputs.fingerprint())?;
                (Fitting::new(fitting), outputs)
            }
        };
        let learned = GapScore::learn(&fitting, self.calibration.alpha);
        let learned = learned.map_err(|e| e.to_string())?.ok_or_else(|| {
            "there is no gap in the traces to fit to, so nothing to learn a score from; use \
             another score"
                .to_string()
        })?;
        let source = ScoreSource::Gap(Box::new(learned));
        let scored = |outputs: &Outputs| outputs.traces(&source).map_err(|e| e.to_string());
        let fitted_on = SetRecord::of(&scored(fitting.outputs())?);
        let screening = screen
            .map(|views| views.traces(Some(&source)))
            .transpose()?;
        let rule = self.of_the_paper(scored(&outputs)?, screening)?;
        let rule = rule.with_fitted_on(fitted_on);
        if fit.is_some() {
            return Ok(rule);
        }
        let split = Split {
            fit_fraction: Some(self.fit_fraction),
            screen_fraction: rule.split().and_then(|split| split.screen_fraction),
            seed: self.seed,
        };
        Ok(rule.with_split(split))
    }

    fn of_the_paper(&self, traces: Traces, screening: Option<Traces>) -> Found {
        let calibration = &self.calibration;
        let rule = match (self.method, screening) {
            (Method::Marginal, _) => calibration.marginal(&Certifying::new(traces)),
            (Method::ScreenOnly, _) => calibration.screen_only(&Screening::new(traces)),
            (_, Some(screening)) => {
                refuse_same(screening.fingerprint() == traces.fingerprint())?;
                calibration.conditional(&Screening::new(screening), &Certifying::new(traces))
            }
            (_, None) => {
                let total = traces.len();
                let (screening, certifying) = traces.split(self.screen_fraction, self.seed);
                let split = Split {
                    screen_fraction: Some(self.screen_fraction),
                    seed: self.seed,
                    ..Split::default()
                };
                let rule = calibration.conditional(&screening, &certifying);
                let rule = rule.map_err(|e| too_few(total, &e))?;
                return Ok(rule.with_split(split));
            }
        };
        rule.map_err(|e| Failure::Value(e.to_string()))
    }
}

fn too_few(total: usize, error: &CalibrateError) -> Failure {
    Failure::Value(match error {
        CalibrateError::Empty(_) => {
            format!("{total} traces are too few to split in two: {error}")
        }
        error => error.to_string(),
    })
}

/// Refuses to certify on what candidates were made from.
pub(crate) fn refuse_same(same: bool) -> Result<(), String> {
    match same {
        true => Err("both sets of traces are the same, which voids the guarantee".into()),
        false => Ok(()),
    }
}
