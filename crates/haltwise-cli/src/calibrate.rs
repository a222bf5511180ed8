//! `haltwise calibrate`: traces in, a certified rule out.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use haltwise::{
    Alpha, AtNever, Calibration, Certifying, Classifier, Counts, Delta, Grid, Method, Rule,
    Screening, Split, Test, Traces, halted_needed,
};
use haltwise_io::{rule_json, write_rule};

use crate::show::{self, CAREFUL, GOOD, HEADING, count, number, percent, styled};

/// Find a stopping rule and certify what it may cost
///
/// Reads what a classifier said about each sequence (a score and a prediction
/// per step, and the true label), and writes a rule: one threshold per step.
/// The traces must not have been used to train the classifier.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise calibrate traces.npz -o rule.json
  haltwise calibrate --method marginal traces.parquet -o rule.json
  haltwise calibrate --screen january.csv february.csv -o rule.json
  haltwise calibrate monday.jsonl tuesday.jsonl --alpha 0.05 -o rule.json

Trace files: .npz .parquet .arrow .jsonl .csv; several are read as one set.")]
pub(crate) struct Args {
    /// Trace files to calibrate on
    #[arg(required = true, value_name = "TRACES")]
    traces: Vec<PathBuf>,

    /// Where to write the rule
    #[arg(short, long, value_name = "RULE")]
    output: PathBuf,

    /// How to find the rule
    #[arg(long, value_enum, default_value_t = MethodArg::Conditional)]
    method: MethodArg,

    /// Screen on these traces and certify on all of TRACES (repeat for more files)
    #[arg(long, value_name = "OTHER", conflicts_with_all = ["screen_fraction", "seed"])]
    screen: Vec<PathBuf>,

    /// Without --screen: the share of TRACES that screens [default: 0.5]
    #[arg(long, value_name = "SHARE", value_parser = crate::dataset::share)]
    screen_fraction: Option<f64>,

    /// Without --screen: the seed of the split [default: 0]
    #[arg(long)]
    seed: Option<u64>,

    #[command(flatten)]
    levels: Levels,

    /// What the backward walk does at a step whose screened threshold is "never"
    #[arg(long, value_enum, default_value_t = AtNeverArg::Skip)]
    at_never: AtNeverArg,

    /// Print the rule as JSON instead of words
    #[arg(long)]
    json: bool,
}

/// The numbers a guarantee is stated in.
#[derive(clap::Args)]
pub(crate) struct Levels {
    /// The tolerated gap: the share of right answers that stopping early may lose
    #[arg(long, default_value = "0.1", value_parser = level::<Alpha>)]
    pub(crate) alpha: Alpha,

    /// The probability with which the guarantee may fail
    #[arg(long, default_value = "0.01", value_parser = level::<Delta>)]
    pub(crate) delta: Delta,

    /// The distance between the thresholds to choose from
    #[arg(long, default_value = "0.01", value_parser = level::<Grid>)]
    pub(crate) grid_step: Grid,
}

fn level<T: TryFrom<f64, Error: std::fmt::Display>>(text: &str) -> Result<T, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| format!("{text} is not a number"))?;
    T::try_from(number).map_err(|e| e.to_string())
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum MethodArg {
    /// One threshold; the gap is controlled on average over all sequences
    Marginal,
    /// A threshold per step; the gap is controlled among the sequences halted by any step
    Conditional,
    /// The conditional method without its tests: promises nothing, for comparison
    ScreenOnly,
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
    let classifier = classifier(args.traces.iter().chain(&args.screen))?;
    let rule = calibrate(&args)?.with_classifier(classifier);
    write_rule(&args.output, &rule)?;
    if args.json {
        show::print(&rule_json(&rule)?)?;
    } else {
        let written = format!("Written to {}.\n", show::file(&args.output));
        show::print(&(describe(&rule) + &written))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The classifier whose traces the files hold, where they say so.
fn classifier<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> anyhow::Result<Option<Classifier>> {
    let mut found: Option<(&PathBuf, Option<Classifier>)> = None;
    for path in paths {
        let classifier = show::classifier(path)?;
        match &found {
            Some((other, first)) if *first != classifier => bail!(
                "{} and {} are traces of different classifiers; a rule is for one",
                show::file(other),
                show::file(path)
            ),
            Some(_) => {}
            None => found = Some((path, classifier)),
        }
    }
    Ok(found.and_then(|(_, classifier)| classifier))
}

/// Refuses what cannot be meant, before reading anything.
fn check(args: &Args) -> anyhow::Result<()> {
    let splits = args.screen_fraction.is_some() || args.seed.is_some();
    if (splits || !args.screen.is_empty()) && args.method != MethodArg::Conditional {
        let message = "--screen, --screen-fraction and --seed go with --method conditional only: \
                       the other methods use all traces for one thing";
        crate::usage_error(message);
    }
    for path in &args.screen {
        if args.traces.iter().any(|other| same_file(path, other)) {
            bail!(
                "{} would both screen and certify, which voids the guarantee; give it once, and \
                 it is split",
                show::file(path)
            );
        }
    }
    Ok(())
}

fn same_file(a: &std::path::Path, b: &std::path::Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

fn calibrate(args: &Args) -> anyhow::Result<Rule> {
    let calibration = Calibration {
        alpha: args.levels.alpha,
        delta: args.levels.delta,
        grid: args.levels.grid_step.clone(),
        at_never: args.at_never.into(),
    };
    let traces = show::read(&args.traces)?;
    let rule = match args.method {
        MethodArg::Marginal => calibration.marginal(&Certifying::new(traces)),
        MethodArg::ScreenOnly => calibration.screen_only(&Screening::new(traces)),
        MethodArg::Conditional if args.screen.is_empty() => {
            return split_and_calibrate(args, &calibration, traces);
        }
        MethodArg::Conditional => {
            let screening = show::read(&args.screen)?;
            if screening.fingerprint() == traces.fingerprint() {
                bail!(
                    "the screening and certifying traces are the same, which voids the guarantee"
                );
            }
            calibration.conditional(&Screening::new(screening), &Certifying::new(traces))
        }
    };
    Ok(rule?)
}

fn split_and_calibrate(
    args: &Args,
    calibration: &Calibration,
    traces: Traces,
) -> anyhow::Result<Rule> {
    let split = Split {
        screen_fraction: args.screen_fraction.unwrap_or(0.5),
        seed: args.seed.unwrap_or(0),
    };
    let total = traces.len();
    let (screening, certifying) = traces.split(split.screen_fraction, split.seed);
    let rule = calibration
        .conditional(&screening, &certifying)
        .with_context(|| {
            let traces = count(total as u64, "trace is", "traces are");
            format!("{traces} too few to split in two")
        })?;
    Ok(rule.with_split(split))
}

/// The rule in plain words.
fn describe(rule: &Rule) -> String {
    let heading = |text: &str| styled(HEADING, text);
    let mut text = heading("What is guaranteed") + "\n";
    text += &show::paragraph(&guarantee(rule));
    text += &format!("\n{}\n", heading("What to expect"));
    text += &show::paragraph(&expectation(rule));
    text += &format!("\n{}\n", heading("Halt when the score reaches"));
    text += &show::thresholds(rule.thresholds());
    if rule.promise().is_some() {
        text += &format!("\n{}\n", heading("How it was certified"));
        text += &show::paragraph(&certification(rule));
    }
    text + "\n"
}

fn guarantee(rule: &Rule) -> String {
    let mut text = show::promise(rule);
    if let Some(set) = rule.certified_on() {
        text += &format!(
            " This holds for new sequences that come about like the {} it was certified on \
             (independent draws from one source, none of them used to train the classifier or to \
             screen), read by the same classifier. It says nothing about a source that has changed.",
            count(set.sequences, "trace", "traces")
        );
    }
    text
}

fn expectation(rule: &Rule) -> String {
    let Some(expected) = rule.expected() else {
        return match rule.method() {
            Method::ScreenOnly => "Certify the thresholds before relying on them.".into(),
            _ => styled(CAREFUL, "No saving: every sequence is read to its end."),
        };
    };
    if !rule.halts_early() {
        return styled(CAREFUL, "No saving: every sequence is read to its end.");
    }
    let t_max = rule.t_max();
    let read = format!(
        "reads {} of {t_max} steps ({})",
        styled(GOOD, format!("{:.1}", expected.t_avg * t_max as f64)),
        styled(GOOD, percent(expected.t_avg)),
    );
    let gap = percent(expected.gap);
    format!("On average it {read}, and loses {gap} of the answers, as measured while certifying.")
}

fn certification(rule: &Rule) -> String {
    let sequences = rule.certified_on().map_or(0, |set| set.sequences);
    let passed = rule.trail().iter().filter(|test| test.rejected).count();
    let mut text = format!(
        "{} on {}.",
        count(
            passed as u64,
            "rule passed its test",
            "rules passed their tests"
        ),
        count(sequences, "trace", "traces"),
    );
    match rule.trail().last() {
        Some(failed) if !failed.rejected => {
            text += &format!(" The next one failed: {}", failure(rule, failed, sequences));
        }
        Some(_) => text += " None failed.",
        None => text += " There was none to test: screening found no threshold to propose.",
    }
    text
}

/// Why a test failed, and what would help.
fn failure(rule: &Rule, test: &Test, sequences: u64) -> String {
    let seen = Counts {
        halted: test.halted,
        gaps: test.gaps,
    };
    let alpha = show::level(rule.alpha().get());
    let tried = match test.threshold {
        Some(threshold) => format!("halting from step {} on at {threshold}", test.opens),
        None => format!("never halting at step {}", test.opens),
    };
    let found = format!(
        "{tried} gives {} among {} by step {} (p-value {:.2e}, more than {}).",
        count(test.gaps, "gap", "gaps"),
        count(test.halted, "halted sequence", "halted sequences"),
        test.step,
        test.p_value,
        rule.delta().get(),
    );
    match halted_needed(seen, rule.alpha(), rule.delta()) {
        Some(needed) if seen.halted == 0 => format!(
            "{found} With no one halted by then there is no evidence; at least {} must have, \
             without a gap.",
            number(needed)
        ),
        None => format!(
            "{found} That is {}, not below {alpha}: more traces would not help, a better score \
             or a larger --alpha would.",
            percent(seen.gap().unwrap_or(0.0))
        ),
        Some(needed) => {
            // As many more traces as halted sequences are short.
            let factor = needed as f64 / test.halted as f64;
            let traces = (sequences as f64 * factor).ceil() as u64;
            let share = rule.split().map_or(1.0, |s| 1.0 - s.screen_fraction);
            let total = (traces as f64 / share).ceil() as u64;
            let split = match rule.split() {
                Some(_) => format!(" ({} before the split)", number(total)),
                None => String::new(),
            };
            format!(
                "{found} At that rate, {} halted by then would be needed, so about {} to certify \
                 on{split}; a larger --alpha or --delta helps too.",
                number(needed),
                count(traces, "trace", "traces"),
            )
        }
    }
}
