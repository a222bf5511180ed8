//! `haltwise calibrate`: traces in, a certified rule out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use haltwise::{
    Alpha, AtNever, CalibrateError, Calibration, Certifying, Delta, Fitting, GapScore, Grid, Key,
    Outputs, Rule, ScoreChoice, ScoreSource, Screening, SetAside, SetRecord, Split, Traces,
};
use haltwise_io::{
    SetReader, Snapshot, certify_parts, gather_evidence, rule_json, trace_files, write_rule,
};
use haltwise_report::words;

use crate::memory::{MemoryArgs, Plan};
use crate::screen::{Part, fit, screen};
use crate::show::{self, CAREFUL, GOOD, HEADING, count, styled};

/// Find a stopping rule and certify what it may cost
///
/// Reads what a classifier said about each sequence (a prediction, a score or
/// class probabilities per step, and the true label), and writes a rule: one
/// threshold per step. The traces must not have been used to train the
/// classifier.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise calibrate traces.npz -o rule.json
  haltwise calibrate --fit january.parquet february.parquet -o rule.json
  haltwise calibrate --method marginal traces.parquet -o rule.json
  haltwise calibrate --method conditional --screen january.csv february.csv -o rule.json
  haltwise calibrate monday.jsonl tuesday.jsonl --alpha 0.05 -o rule.json

  haltwise calibrate traces/ --memory 8GiB -o rule.json

Trace files: .npz .parquet .arrow .jsonl .csv; several, folders of them and patterns are read as
one set. Parquet may be larger than memory.")]
pub(crate) struct Args {
    /// Trace files, folders or patterns to calibrate on
    #[arg(required = true, value_name = "TRACES")]
    traces: Vec<PathBuf>,

    /// Where to write the rule
    #[arg(short, long, value_name = "RULE")]
    output: PathBuf,

    /// How to find the rule
    #[arg(long, value_enum, default_value_t = MethodArg::Adaptive)]
    method: MethodArg,

    /// What says how safe it is to stop [default: what the traces carry; with the adaptive
    /// method, that or the learned one, whichever promises to halt earlier]
    #[arg(long, value_enum)]
    score: Option<ScoreArg>,

    /// Fit to these traces, and certify on all of TRACES (repeat for more files)
    #[arg(long, value_name = "OTHER", conflicts_with = "fit_fraction")]
    fit: Vec<PathBuf>,

    /// Without --fit: the share of TRACES that is set aside to fit to [default: 0.3]
    #[arg(long, value_name = "SHARE", value_parser = crate::dataset::share)]
    fit_fraction: Option<f64>,

    /// With --method conditional: screen on these traces, and certify on all of TRACES (repeat
    /// for more files)
    #[arg(long, value_name = "OTHER", conflicts_with = "screen_fraction")]
    screen: Vec<PathBuf>,

    /// With --method conditional, without --screen: the share of TRACES that screens
    /// [default: 0.5]
    #[arg(long, value_name = "SHARE", value_parser = crate::dataset::share)]
    screen_fraction: Option<f64>,

    /// The seed of the split, where TRACES are split [default: 0]
    #[arg(long)]
    seed: Option<u64>,

    #[command(flatten)]
    levels: Levels,

    /// What the conditional method does at a step whose screened threshold is "never"
    #[arg(long, value_enum, default_value_t = AtNeverArg::Skip)]
    at_never: AtNeverArg,

    #[command(flatten)]
    memory: MemoryArgs,

    /// Print the rule as JSON instead of words
    #[arg(long)]
    json: bool,
}

/// The numbers a guarantee is stated in.
#[derive(clap::Args)]
pub(crate) struct Levels {
    /// The tolerated gap: the share of sequences for which stopping early may lose a right answer
    #[arg(long, default_value = "0.1", value_parser = level::<Alpha>)]
    pub(crate) alpha: Alpha,

    /// The probability with which the guarantee may fail
    #[arg(long, default_value = "0.01", value_parser = level::<Delta>)]
    pub(crate) delta: Delta,

    /// The distance between the thresholds that the paper's methods choose from
    #[arg(long, default_value = "0.01", value_parser = level::<Grid>)]
    pub(crate) grid_step: Grid,
}

impl Levels {
    /// What to calibrate for.
    pub(crate) fn calibration(&self, at_never: AtNeverArg) -> Calibration {
        Calibration {
            alpha: self.alpha,
            delta: self.delta,
            grid: self.grid_step.clone(),
            at_never: at_never.into(),
        }
    }
}

fn level<T: TryFrom<f64, Error: std::fmt::Display>>(text: &str) -> Result<T, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| format!("{text} is not a number"))?;
    T::try_from(number).map_err(|e| e.to_string())
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum MethodArg {
    /// A learned score and threshold curves; the gap is controlled among the sequences halted by
    /// any step
    Adaptive,
    /// The paper's; one threshold; the gap is controlled on average over all sequences
    Marginal,
    /// The paper's; a threshold per step, the gap is controlled among the sequences halted by any
    /// step
    Conditional,
    /// The conditional method without its tests: promises nothing, for comparison
    ScreenOnly,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ScoreArg {
    /// The score that the traces carry
    Confidence,
    /// The largest class probability
    MaxProbability,
    /// The largest class probability less the second largest
    Margin,
    /// The probability that stopping costs nothing, learned from traces that are set aside
    Gap,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum AtNeverArg {
    /// Go on: there is nothing to test at that step
    Skip,
    /// End there, as the paper's listing does
    Stop,
}

impl From<AtNeverArg> for AtNever {
    fn from(arg: AtNeverArg) -> Self {
        match arg {
            AtNeverArg::Skip => Self::Skip,
            AtNeverArg::Stop => Self::Stop,
        }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    check(&args)?;
    let files = [&args.traces[..], &args.fit, &args.screen].concat();
    show::check_output(&args.output, &trace_files(&files)?)?;
    let classifier = show::classifier(&files)?;
    let rule = calibrate(&args)?.with_classifier(classifier);
    finish(&rule, &args.output, args.json)
}

/// Writes a rule and says what it is.
pub(crate) fn finish(rule: &Rule, output: &Path, json: bool) -> anyhow::Result<ExitCode> {
    write_rule(output, rule)?;
    if json {
        show::print(&rule_json(rule)?)?;
    } else {
        let written = format!("Written to {}.\n", show::file(output));
        show::print(&(describe(rule) + &written))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The share of the traces that is set aside for fitting, unless said otherwise.
pub(crate) const FIT_FRACTION: f64 = 0.3;

/// The share that screens, unless said otherwise: the paper's half.
pub(crate) const SCREEN_FRACTION: f64 = 0.5;

impl Args {
    /// Whether traces are needed to fit to.
    fn fits(&self) -> bool {
        self.method == MethodArg::Adaptive || self.score == Some(ScoreArg::Gap)
    }

    /// Whether the traces are to be split.
    fn splits(&self) -> bool {
        let screens = self.method == MethodArg::Conditional;
        self.fits() && self.fit.is_empty() || screens && self.screen.is_empty()
    }

    fn seed(&self) -> u64 {
        self.seed.unwrap_or(0)
    }

    /// The seed of the split into a screening and a certifying part. Where a
    /// part to fit to was drawn before, another one: the same draw again would
    /// take from the rest only what is left of its share.
    fn screen_seed(&self) -> u64 {
        match self.fits() && self.fit.is_empty() {
            true => !self.seed(),
            false => self.seed(),
        }
    }

    /// How TRACES are split into a screening and a certifying part.
    fn screen_split(&self) -> Split {
        Split {
            screen_fraction: Some(self.screen_fraction.unwrap_or(SCREEN_FRACTION)),
            seed: self.seed(),
            ..Split::default()
        }
    }

    /// The screening part.
    fn screens(&self) -> SetAside {
        let share = self.screen_fraction.unwrap_or(SCREEN_FRACTION);
        SetAside::share(share, self.screen_seed())
    }

    fn fit_fraction(&self) -> f64 {
        self.fit_fraction.unwrap_or(FIT_FRACTION)
    }
}

/// Refuses what cannot be meant, before reading anything.
fn check(args: &Args) -> anyhow::Result<()> {
    let screens = args.screen_fraction.is_some() || !args.screen.is_empty();
    if screens && args.method != MethodArg::Conditional {
        crate::usage_error("--screen and --screen-fraction go with --method conditional only");
    }
    if (args.fit_fraction.is_some() || !args.fit.is_empty()) && !args.fits() {
        crate::usage_error(
            "--fit and --fit-fraction go with --method adaptive or --score gap only",
        );
    }
    if args.seed.is_some() && !args.splits() {
        crate::usage_error("--seed is for splitting TRACES, and nothing is split here");
    }
    for (others, what) in [(&args.fit, "be fitted to"), (&args.screen, "screen")] {
        for path in others {
            if args.traces.iter().any(|other| same_file(path, other)) {
                bail!(
                    "{} would both {what} and certify, which voids the guarantee; give it once, \
                     and it is split",
                    show::file(path)
                );
            }
        }
    }
    Ok(())
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

fn calibrate(args: &Args) -> anyhow::Result<Rule> {
    let calibration = args.levels.calibration(args.at_never);
    if args.method == MethodArg::Adaptive {
        return adaptive(args, &calibration);
    }
    if args.score == Some(ScoreArg::Gap) {
        return learned(args, &calibration);
    }
    let snapshot = Snapshot::new(&args.traces)?;
    match args.memory.plan(&snapshot, &calibration.grid)? {
        Plan::Keep => kept(args, &calibration, &snapshot),
        plan => streamed(args, &calibration, &snapshot, plan),
    }
}

/// Reads the traces once and keeps them.
fn kept(args: &Args, calibration: &Calibration, snapshot: &Snapshot) -> anyhow::Result<Rule> {
    let score = plain(args.score);
    let read = |snapshot: &Snapshot, parts, part_of: &(dyn Fn(Key) -> Option<usize> + Sync)| {
        let reader = SetReader {
            snapshot,
            score: score.as_ref(),
            grid: Some(&calibration.grid),
        };
        show::reading(|progress| Ok(reader.read(parts, part_of, progress)?.0))
    };
    if args.method == MethodArg::Conditional && args.screen.is_empty() {
        // Split while reading: no trace is copied.
        let split = args.screen_split();
        let screens = args.screens();
        let mut parts = read(snapshot, 2, &|key| Some(usize::from(!screens.has(key))))?;
        let total = parts.iter().map(Traces::len).sum();
        let certifying = Certifying::new(parts.swap_remove(1));
        let screening = Screening::new(parts.swap_remove(0));
        let rule = calibration.conditional(&screening, &certifying);
        return Ok(rule.map_err(|e| too_few(e, total))?.with_split(split));
    }
    let all = |snapshot: &Snapshot| -> anyhow::Result<Traces> {
        Ok(read(snapshot, 1, &|_| Some(0))?.swap_remove(0))
    };
    let screening = match args.screen.is_empty() {
        true => None,
        false => Some(all(&Snapshot::new(&args.screen)?)?),
    };
    of_the_paper(args, calibration, all(snapshot)?, screening)
}

/// Reads the traces twice: once to screen on as many as fit, once to count.
fn streamed(
    args: &Args,
    calibration: &Calibration,
    snapshot: &Snapshot,
    plan: Plan,
) -> anyhow::Result<Rule> {
    let score = plain(args.score);
    let reader = SetReader {
        snapshot,
        score: score.as_ref(),
        grid: Some(&calibration.grid),
    };
    if args.method == MethodArg::ScreenOnly {
        let sample = plan.sample(SetAside::share(1.0, 0));
        let mut parts = show::reading(|progress| {
            Ok(reader
                .read(1, |key| sample.has(key).then_some(0), progress)?
                .0)
        })?;
        return Ok(calibration.screen_only(&Screening::new(parts.swap_remove(0)))?);
    }
    let screened = if args.method == MethodArg::Marginal {
        screen(calibration, reader, Part::None, 0, plan)?
    } else if args.screen.is_empty() {
        let part = Part::Split(args.screen_split(), args.screens());
        screen(calibration, reader, part, 0, plan)?
    } else {
        // The longest of the certifying traces must be known first.
        let seen = show::reading(|progress| Ok(reader.read(0, |_| None, progress)?.1))?;
        let screening = Snapshot::new(&args.screen)?;
        let plan = args.memory.plan(&screening, &calibration.grid)?;
        let reader = SetReader {
            snapshot: &screening,
            ..reader
        };
        screen(calibration, reader, Part::Whole, seen.t_max, plan)?
    };
    let evidence = show::reading(|progress| gather_evidence(&screened, snapshot, progress))?;
    // Its traces stand for the evidence, which has no file.
    Ok(certify_parts([Ok((args.traces[0].clone(), evidence))])?)
}

/// The kind of score that an option stands for; `None` where that is the
/// traces' own or a learned one.
pub(crate) fn plain(score: Option<ScoreArg>) -> Option<ScoreSource> {
    match score? {
        ScoreArg::Confidence => Some(ScoreSource::Confidence),
        ScoreArg::MaxProbability => Some(ScoreSource::MaxProbability),
        ScoreArg::Margin => Some(ScoreSource::Margin),
        ScoreArg::Gap => None,
    }
}

/// The scores that the method `adaptive` may choose from.
pub(crate) fn choice(score: Option<ScoreArg>) -> ScoreChoice {
    match (score, plain(score)) {
        (_, Some(source)) => ScoreChoice::Fixed(source),
        (Some(_), None) => ScoreChoice::Learned,
        (None, None) => ScoreChoice::Better,
    }
}

/// Reads the traces twice, once to fit to some, once to count: few are kept,
/// so that they may be larger than memory.
fn adaptive(args: &Args, calibration: &Calibration) -> anyhow::Result<Rule> {
    let choice = choice(args.score);
    if !args.fit.is_empty() {
        let outputs = show::read_outputs(&args.traces)?;
        let fitting = fitting(args, &outputs)?;
        let rule = calibration.adaptive(&fitting, &choice, &outputs);
        return rule.with_context(|| unlike(args));
    }
    let snapshot = Snapshot::new(&args.traces)?;
    let screened = fit(
        calibration,
        &snapshot,
        &choice,
        args.fit_fraction(),
        args.seed(),
    )?;
    let evidence = show::reading(|progress| gather_evidence(&screened, &snapshot, progress))?;
    // Its traces stand for the evidence, which has no file.
    Ok(certify_parts([Ok((args.traces[0].clone(), evidence))])?)
}

/// The traces to fit to, if none of them is to certify.
fn fitting(args: &Args, certifying: &Outputs) -> anyhow::Result<Fitting> {
    let fitting = show::read_outputs(&args.fit)?;
    refuse_same(fitting.fingerprint() == certifying.fingerprint())?;
    let shared = fitting.shared_with(certifying);
    if shared > 0 {
        bail!(
            "{} in both --fit and TRACES, with the same ids, which voids the guarantee; drop \
             them from one, or give one set, and it is split",
            count(shared as u64, "sequence is", "sequences are")
        );
    }
    warn_of_alike(fitting.alike(certifying));
    Ok(Fitting::new(fitting))
}

/// Which sets do not go together.
fn unlike(args: &Args) -> String {
    let files = |paths: &[PathBuf]| {
        let names: Vec<String> = paths
            .iter()
            .map(|path| show::file(path).to_string())
            .collect();
        names.join(", ")
    };
    let (traces, fit) = (files(&args.traces), files(&args.fit));
    format!("{traces} (TRACES, beside {fit} to fit to)")
}

/// One of the paper's methods on a score that is learned first.
fn learned(args: &Args, calibration: &Calibration) -> anyhow::Result<Rule> {
    let outputs = show::read_outputs(&args.traces)?;
    let (fitting, outputs) = match args.fit.is_empty() {
        true => outputs.split(args.fit_fraction(), args.seed()),
        false => (fitting(args, &outputs)?, outputs),
    };
    let score = GapScore::learn(&fitting, args.levels.alpha)?.context(
        "there is no gap in the traces to fit to, so nothing to learn a score from; use another \
         --score",
    )?;
    let source = ScoreSource::Gap(Box::new(score));
    let scored = |outputs: &Outputs| outputs.traces(&source).with_context(|| unlike(args));
    let fitted_on = SetRecord::of(&scored(fitting.outputs())?);
    let screening = match args.screen.is_empty() {
        true => None,
        false => Some(show::read_scored(&args.screen, &source)?),
    };
    let rule = of_the_paper(args, calibration, scored(&outputs)?, screening)?;
    let rule = rule.with_fitted_on(fitted_on);
    if !args.fit.is_empty() {
        return Ok(rule);
    }
    let split = Split {
        fit_fraction: Some(args.fit_fraction()),
        screen_fraction: rule.split().and_then(|split| split.screen_fraction),
        seed: args.seed(),
    };
    Ok(rule.with_split(split))
}

fn of_the_paper(
    args: &Args,
    calibration: &Calibration,
    traces: Traces,
    screening: Option<Traces>,
) -> anyhow::Result<Rule> {
    if args.method == MethodArg::Marginal {
        return Ok(calibration.marginal(&Certifying::new(traces))?);
    }
    if args.method == MethodArg::ScreenOnly {
        return Ok(calibration.screen_only(&Screening::new(traces))?);
    }
    if let Some(screening) = screening {
        refuse_same(screening.fingerprint() == traces.fingerprint())?;
        let (screening, certifying) = (Screening::new(screening), Certifying::new(traces));
        return Ok(calibration.conditional(&screening, &certifying)?);
    }
    let (split, screens) = (args.screen_split(), args.screens());
    let total = traces.len();
    let share = split.screen_fraction.unwrap_or(SCREEN_FRACTION);
    let (screening, certifying) = traces.split(share, screens.seed);
    let rule = calibration.conditional(&screening, &certifying);
    Ok(rule.map_err(|e| too_few(e, total))?.with_split(split))
}

/// What went wrong with parts of so many traces; where one is empty, why.
pub(crate) fn too_few(error: CalibrateError, total: usize) -> anyhow::Error {
    let empty = matches!(error, CalibrateError::Empty(_));
    let error = anyhow::Error::from(error);
    if !empty {
        return error;
    }
    let traces = count(total as u64, "trace is", "traces are");
    error.context(format!("{traces} too few to split in two"))
}

/// Ids may be missing or new, but the same sequence says the same.
fn warn_of_alike(alike: usize) {
    if alike > 0 {
        show::warn(format_args!(
            "{} in --fit what one of TRACES says, step for step; if they are the same \
             sequences, nothing is guaranteed: drop them from one of the two",
            count(alike as u64, "sequence says", "sequences say")
        ));
    }
}

/// Refuses to certify on what candidates were made from.
fn refuse_same(same: bool) -> anyhow::Result<()> {
    if same {
        bail!(
            "the traces to certify on are the very ones given beside them (--fit or --screen), \
             which voids the guarantee; give others, or leave the option out, and they are split"
        );
    }
    Ok(())
}

/// The rule in plain words.
fn describe(rule: &Rule) -> String {
    let heading = |text: &str| styled(HEADING, text);
    let mut text = heading("What is guaranteed") + "\n";
    text += &show::paragraph(&words::guarantee(rule));
    text += &format!("\n{}\n", heading("What to expect"));
    let style = if rule.halts_early() && rule.promise().is_some() {
        GOOD
    } else {
        CAREFUL
    };
    text += &show::paragraph(&styled(style, words::expectation(rule)));
    text += &format!("\n{}\n", heading("Halt when the score reaches"));
    text += &words::thresholds(rule.thresholds());
    text += &show::paragraph(&words::needed_live(rule));
    if rule.promise().is_some() {
        text += &format!("\n{}\n", heading("How it was certified"));
        text += &show::paragraph(&words::certification(rule));
    }
    text + "\n"
}
