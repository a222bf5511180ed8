//! `haltwise calibrate`: traces in, a certified rule out.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use haltwise::{
    Calibrated, Counts, Delta, FamilyKind, Given, Method, Plan, Rule, ScoreSource, Test,
    halted_needed,
};
use haltwise_io::{Files, rule_json, trace_files, write_rule};

use crate::memory::MemoryArgs;
use crate::plan::PlanArgs;
use crate::show::{self, CAREFUL, GOOD, HEADING, count, number, percent, styled};

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

    /// Fit to these traces, and certify on all of TRACES (repeat for more files); of more than
    /// 10,000 sequences, so many are drawn
    #[arg(long, value_name = "OTHER")]
    fit: Vec<PathBuf>,

    /// With --method conditional: screen on these traces, and certify on all of TRACES (repeat
    /// for more files)
    #[arg(long, value_name = "OTHER")]
    screen: Vec<PathBuf>,

    #[command(flatten)]
    plan: PlanArgs,

    #[command(flatten)]
    memory: MemoryArgs,

    /// Print the rule as JSON instead of words
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let plan = args
        .plan
        .plan(!args.fit.is_empty(), !args.screen.is_empty());
    check(&args)?;
    let files = [&args.traces[..], &args.fit, &args.screen].concat();
    show::check_output(&args.output, &trace_files(&files)?)?;
    let Calibrated { rule, remarks } = calibrate(&args, &plan)?;
    for remark in remarks {
        show::warn(remark);
    }
    finish(&rule, &args.output, args.json)
}

fn calibrate(args: &Args, plan: &Plan) -> anyhow::Result<Calibrated> {
    let files = [&args.traces[..], &args.fit, &args.screen].concat();
    let classifier = show::classifier(&files)?;
    show::reading(|progress| {
        let progress = RefCell::new(progress);
        let mut shown = [(); 3].map(|()| |done, total| (progress.borrow_mut())(done, total));
        let [of_traces, of_fit, of_screen] = &mut shown;
        let traces = args.memory.files(&args.traces, plan.grid(), of_traces)?;
        let other = |paths: &[PathBuf], progress| match paths {
            [] => Ok(None),
            paths => Files::new(paths, args.memory.bytes(), progress).map(Some),
        };
        let fit = other(&args.fit, of_fit)?;
        let screen = other(&args.screen, of_screen)?;
        plan.calibrate(Given {
            traces: &traces,
            fit: fit.as_ref(),
            screen: screen.as_ref(),
            classifier,
        })
    })
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

/// Refuses files that would serve two parts, before reading anything.
fn check(args: &Args) -> anyhow::Result<()> {
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

/// The rule in plain words.
fn describe(rule: &Rule) -> String {
    let heading = |text: &str| styled(HEADING, text);
    let mut text = heading("What is guaranteed") + "\n";
    text += &show::paragraph(&guarantee(rule));
    text += &format!("\n{}\n", heading("What to expect"));
    text += &show::paragraph(&expectation(rule));
    text += &format!("\n{}\n", heading("Halt when the score reaches"));
    text += &show::thresholds(rule.thresholds());
    text += &show::paragraph(&needed_live(rule));
    if rule.promise().is_some() {
        text += &format!("\n{}\n", heading("How it was certified"));
        text += &show::paragraph(&certification(rule));
    }
    text + "\n"
}

/// What the score is, and what a live stream must send for it.
fn needed_live(rule: &Rule) -> String {
    let source = rule.source();
    let sends = match source {
        ScoreSource::Confidence => "each step's \"score\"",
        ScoreSource::MaxProbability | ScoreSource::Margin => "each step's \"probs\"",
        ScoreSource::Gap(learned) => match (learned.uses_score(), learned.classes()) {
            (true, 0) => "each step's \"score\" and \"prediction\"",
            (true, _) => "each step's \"score\" and \"probs\"",
            (false, _) => "each step's \"probs\"",
        },
    };
    format!("The score is {source}; `haltwise decide` needs {sends}.")
}

fn guarantee(rule: &Rule) -> String {
    let mut text = show::promise(rule);
    if let Some(set) = rule.certified_on() {
        text += &format!(
            " This holds for new sequences that come about like the {} it was certified on \
             (independent draws from one source, none of them used to train the classifier, to \
             fit or to screen), read by the same classifier. It says nothing about a source that has changed.",
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
    format!(
        "On average it {read}, and loses a right answer for {gap} of the sequences, as measured \
         while certifying."
    )
}

fn certification(rule: &Rule) -> String {
    let sequences = rule.certified_on().map_or(0, |set| set.sequences);
    let passed = rule.trail().iter().filter(|test| test.rejected).count() as u64;
    let mut text = format!(
        "{} on {}.",
        count(passed, "rule passed its test", "rules passed their tests"),
        count(sequences, "trace", "traces"),
    );
    if rule.method() == Method::Adaptive {
        return text + &of_families(rule, passed, sequences);
    }
    match rule.trail().last() {
        Some(failed) if !failed.rejected => {
            let delta = rule.delta().get();
            let why = failure(rule, failed, delta, sequences);
            text += &format!(" The next one failed: {why}");
        }
        Some(_) => text += " None failed.",
        None => text += " There was none to test: screening found no threshold to propose.",
    }
    text
}

/// How the rule was chosen among several families, or why none was.
fn of_families(rule: &Rule, passed: u64, sequences: u64) -> String {
    let shares: Vec<String> = rule
        .families()
        .iter()
        .map(|family| {
            let level = show::level(rule.delta().get() * family.share);
            format!("{} at {level}", show::family(family.kind))
        })
        .collect();
    let mut text = format!(
        " They were tested in {} at shares of delta: {}.",
        count(shares.len() as u64, "family", "families"),
        shares.join(", ")
    );
    let first = rule.families().first().zip(rule.trail().first());
    match (passed, first) {
        (0, Some((family, failed))) => {
            let level = rule.delta().get() * family.share;
            let delta = Delta::try_from(level).unwrap_or(rule.delta());
            let least = halted_needed(Counts::default(), rule.alpha(), delta).unwrap_or(0);
            if sequences >= least {
                let why = failure(rule, failed, level, sequences);
                text += &format!(" The first one failed: {why}");
            }
            text += &format!(
                " Any rule needs at least {} without a gap to pass.",
                count(least, "halted sequence", "halted sequences")
            );
        }
        (0, None) => text += " There was none to test.",
        (_, Some((family, failed))) if !curve_passed(rule) => {
            let level = rule.delta().get() * family.share;
            let why = failure(rule, failed, level, sequences);
            text += &format!(
                " No curve passed, so everyone halts at one step, the earliest that passed. The \
                 first curve failed: {why}"
            );
        }
        _ => text += " Of those that passed, the one that halts earliest was chosen.",
    }
    text
}

/// Whether any threshold curve passed, or there was none to test.
fn curve_passed(rule: &Rule) -> bool {
    let families = rule.tests_by_family();
    let mut curves = families.filter(|(family, _)| family.kind == FamilyKind::Curves);
    let passed = |tests: &[Test]| tests.iter().any(|test| test.rejected);
    curves
        .next()
        .is_none_or(|(_, tests)| passed(tests) || curves.any(|(_, tests)| passed(tests)))
}

/// Why a test failed, and what would help.
fn failure(rule: &Rule, test: &Test, level: f64, sequences: u64) -> String {
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
        "{tried} gives {} among {} by step {} (p-value {:.2e}, more than {level}).",
        count(test.gaps, "gap", "gaps"),
        count(test.halted, "halted sequence", "halted sequences"),
        test.step,
        test.p_value,
    );
    let delta = Delta::try_from(level).unwrap_or(rule.delta());
    match halted_needed(seen, rule.alpha(), delta) {
        Some(needed) if seen.halted == 0 => format!(
            "{found} With no one halted by then there is no evidence; at least {} must have, \
             without a gap.",
            number(needed)
        ),
        None => format!(
            "{found} That is {}, not below {alpha}: more traces would not help, a better score \
             or a larger --alpha would (for a rule certified on traces not looked at yet).",
            percent(seen.gap().unwrap_or(0.0))
        ),
        Some(needed) => {
            // As many more traces as halted sequences are short.
            let factor = needed as f64 / test.halted as f64;
            let traces = (sequences as f64 * factor).ceil() as u64;
            let share = rule.split().map_or(1.0, |s| s.certifying_share());
            let total = (traces as f64 / share).ceil() as u64;
            let split = match rule.split() {
                Some(_) => format!(" ({} before the split)", number(total)),
                None => String::new(),
            };
            format!(
                "{found} At that rate, {} halted by then would be needed, so about {} to certify \
                 on{split}; a larger --alpha or --delta helps too, for a rule certified on traces \
                 not looked at yet.",
                number(needed),
                count(traces, "trace", "traces"),
            )
        }
    }
}
