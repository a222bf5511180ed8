//! `haltwise calibrate`: traces in, a certified rule out.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use haltwise::corridor::Calibrated;
use haltwise::plan::Purpose;
use haltwise::rule::Conflict;
use haltwise::{Inputs, Plan, Rule};
use haltwise_io::{Columns, Files, read_rule, rule_json, trace_files, write_rule};
use haltwise_report::words;

use crate::memory::MemoryArgs;
use crate::plan::PlanArgs;
use crate::show::{self, CAREFUL, GOOD, HEADING, count, styled};

/// Find a stopping rule and certify what it may cost
///
/// Reads what a classifier said about each sequence (a prediction, a score or
/// class probabilities per step, and the true label where it is known), and writes a
/// rule: one threshold per step. The traces must not have been used to train the
/// classifier.
#[derive(clap::Args)]
#[command(after_help = format!("\
Examples:
  haltwise calibrate traces.npz -o rule.json
  haltwise calibrate --fit january.parquet february.parquet -o rule.json
  haltwise calibrate --method marginal traces.parquet -o rule.json
  haltwise calibrate --method conditional --screen january.csv february.csv -o rule.json
  haltwise calibrate monday.jsonl tuesday.jsonl --alpha 0.05 -o rule.json

  haltwise calibrate unlabelled.parquet --loss disagreement -o rule.json
  haltwise calibrate visits.parquet --by hospital --unit patient -o rule.json
  haltwise calibrate traces/ --memory 8GiB -o rule.json

Trace files: {}. Several files, folders and patterns
are read as one set. Parquet may be larger than memory.", haltwise_io::Format::usual_extensions()))]
pub(crate) struct Args {
    /// Trace files, folders or patterns to calibrate on
    #[arg(required = true, value_name = "TRACES")]
    traces: Vec<PathBuf>,

    /// Where to write the rule
    #[arg(short, long, value_name = "RULE")]
    output: PathBuf,

    /// Fit to these traces, and certify on all of TRACES (repeat for more files). At most 10,000
    /// are used, drawn at random
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

    #[command(flatten)]
    outcome: OutcomeArgs,
}

/// How a rule is shown, and what counts as success.
#[derive(clap::Args)]
pub(crate) struct OutcomeArgs {
    /// Print the rule as JSON instead of words, with "certified": whether any rule that halts
    /// early was certified
    #[arg(long)]
    json: bool,

    /// Fail and write nothing unless a rule that halts early was certified
    #[arg(long)]
    require: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let plan = args
        .plan
        .plan(!args.fit.is_empty(), !args.screen.is_empty());
    check(&args)?;
    let files = [&args.traces[..], &args.fit, &args.screen].concat();
    show::check_rule_output(&args.output, &trace_files(&files)?)?;
    let Calibrated { rule, warnings } = calibrate(&args, &plan)?;
    for warning in warnings {
        show::warn(warning);
    }
    finish(&rule, &args.output, &args.outcome)
}

fn calibrate(args: &Args, plan: &Plan) -> anyhow::Result<Calibrated> {
    let files = [&args.traces[..], &args.fit, &args.screen].concat();
    let classifier = show::classifier(&files)?;
    show::reading(|progress| {
        let progress = RefCell::new(progress);
        let mut shown = [(); 3].map(|()| |done, total| (progress.borrow_mut())(done, total));
        let [of_traces, of_fit, of_screen] = &mut shown;
        let traces = args.memory.files(&args.traces, plan, of_traces)?;
        let other = |paths: &[PathBuf], progress| match paths {
            [] => Ok(None),
            paths => {
                let files = Files::new(paths, args.memory.bytes(), progress)?;
                Ok(Some(files.with(Columns::of(plan.terms()))))
            }
        };
        let fit = other(&args.fit, of_fit)?;
        let screen = other(&args.screen, of_screen)?;
        plan.calibrate(Inputs {
            fit: fit.as_ref(),
            screen: screen.as_ref(),
            classifier,
            ..Inputs::one(&traces)
        })
    })
}

/// Writes a rule and says what it is.
pub(crate) fn finish(
    rule: &Rule,
    output: &Path,
    outcome: &OutcomeArgs,
) -> anyhow::Result<ExitCode> {
    if outcome.require && !rule.is_certified() {
        bail!(
            "nothing was certified, so {} is not written. {}",
            show::file(output),
            words::certification(rule)
        );
    }
    let before = read_rule(output).ok();
    match before.and_then(|before| Some((rule.conflict(&before)?, before))) {
        None => {}
        Some((Conflict::TestedBefore, before)) => bail!(refusal(output, rule, &before)),
        Some((Conflict::OtherSettings, _)) => show::warn(format_args!(
            "this rule takes the place of one that these traces certified at other settings. Each \
             promise holds for itself, but not for the better of the two. To compare settings, give \
             --purpose explore: such rules promise nothing"
        )),
        Some((Conflict::LosesPromise, _)) => show::warn(
            "this rule promises nothing, and takes the place of one that promised something",
        ),
    }
    write_rule(output, rule)?;
    if outcome.json {
        let mut fields: serde_json::Map<_, _> = serde_json::from_str(&rule_json(rule)?)?;
        fields.insert("certified".into(), rule.is_certified().into());
        show::print_json(&fields)?;
    } else {
        let nothing = match (rule.promise(), rule.is_certified()) {
            (_, true) => "",
            (Some(_), false) => " Nothing was certified: every sequence is read to its end.",
            (None, false) => " It promises nothing.",
        };
        let written = format!("Written to {}.{nothing}\n", show::file(output));
        show::print(&(describe(rule) + &written))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Why a rule must not replace the one at its place, and what to do instead.
fn refusal(output: &Path, rule: &Rule, before: &Rule) -> String {
    let output = show::file(output);
    match (rule.looks(), before.looks()) {
        (Some(looks), Some(made)) if looks.planned == made.planned => {
            let next = looks.planned.get(looks.made);
            let next = next.map_or("there is no other".into(), |next| {
                format!("the next is due at {}", count(*next, "trace", "traces"))
            });
            format!(
                "{output} is from look {} of {} already, on other traces; each look may be made \
                 once, and {next}",
                made.made,
                made.planned.len()
            )
        }
        _ if before.purpose() == Purpose::Explore => format!(
            "{output} explored some of these traces, and a setting that was chosen on traces cannot \
             be certified on them. Certify on new traces. If the setting was fixed before, remove \
             {output} first"
        ),
        _ => format!(
            "{output} was certified on some of these traces already, and testing them again together \
             with others spends delta twice. Plan for it: `haltwise screen --looks 500,1000,2000`, \
             then `evidence` and `certify` as traces come in. Or certify on new traces alone. If the \
             promise of {output} was never used, remove it first"
        ),
    }
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
    text += &show::paragraph(&words::guarantee(rule));
    text += &format!("\n{}\n", heading("What to expect"));
    let style = if rule.is_certified() { GOOD } else { CAREFUL };
    text += &show::paragraph(&styled(style, words::expectation(rule)));
    text += &format!("\n{}\n", heading("Halt when the score reaches"));
    text += &words::thresholds(rule.thresholds());
    text += &show::paragraph(&words::needed_live(rule));
    if rule.promise().is_some() {
        text += &format!("\n{}\n", heading("How it was certified"));
        text += &show::paragraph(&words::certification(rule));
        let groups = words::groups_needed(rule);
        if !groups.is_empty() {
            text += &show::paragraph(match rule.halts_in() {
                None => "Where tests failed, group by group:",
                Some(_) => "Groups that the rule reads to the end, and what would let them in:",
            });
            for line in groups {
                text += &format!("    {line}\n");
            }
        }
    }
    text + "\n"
}
