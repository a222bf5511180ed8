//! `haltwise evaluate`: what a rule does to traces.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use haltwise::Rule;
use haltwise::evaluate::Evaluation;
use haltwise_io::{Columns, Files, trace_files};
use haltwise_report::format::short;
use haltwise_report::{
    Compared, Context, Standing, judge, report_comparison, report_evaluation, words,
};

use crate::memory::MemoryLimit;
use crate::show::{self, CAREFUL, GOOD, HEADING, count, number, percent, percent_column, styled};

/// Apply a rule to traces and measure accuracy, gap and halt times
///
/// The traces should be new: the rule's own traces flatter it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise evaluate rule.json test.npz
  haltwise evaluate rule.json test.npz --report report.html
  haltwise evaluate rule.json test.npz --compare other.json --report both.html
  haltwise evaluate rule.json test.parquet --json | jq .gap

Traces may be larger than memory: each sequence is read, judged and dropped.")]
pub(crate) struct Args {
    /// The rule file
    rule: PathBuf,

    /// Trace files, folders or patterns to apply it to; several are read as one set
    #[arg(required = true, value_name = "TRACES")]
    traces: Vec<PathBuf>,

    /// Write a report with figures as one HTML file
    #[arg(long, value_name = "HTML")]
    report: Option<PathBuf>,

    /// Show another rule beside it in the report (repeat for more)
    #[arg(long, value_name = "RULE", requires = "report")]
    compare: Vec<PathBuf>,

    #[command(flatten)]
    memory: MemoryLimit,

    /// Print one JSON object instead of words
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(report) = &args.report {
        let rules = args.compare.iter().chain([&args.rule]).cloned();
        let read: Vec<PathBuf> = trace_files(&args.traces)?
            .into_iter()
            .chain(rules)
            .collect();
        show::check_page_output(report, &read)?;
    }
    let mut all = vec![evaluated(&args.rule, &args)?];
    if let Some(report) = &args.report {
        for path in &args.compare {
            all.push(evaluated(path, &args)?);
        }
        show::write_page(report, &page(&args, &all))?;
    }
    let (_, rule, evaluation) = &all[0];
    match args.json {
        true => show::print_json(evaluation)?,
        false => show::print(&describe(rule, evaluation))?,
    }
    if let (Some(path), false) = (&args.report, args.json) {
        show::print(&format!("\nThe report is {}.\n", show::file(path)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A rule, and its effect on the traces of files, which are read and dropped.
fn evaluated(path: &Path, args: &Args) -> anyhow::Result<Evaluated> {
    let traces = &args.traces;
    let rule = show::read_rule(path, traces)?;
    let found = show::reading(|progress| {
        let columns = Columns::of(rule.terms()).where_there();
        Files::new(traces, args.memory.bytes(), progress)?
            .with(columns)
            .evaluate(&rule)
    })
    .with_context(|| {
        let score = rule.source();
        format!(
            "{}: the rule judges a score that is {score}",
            show::file(path)
        )
    })?;
    for warning in found.warnings {
        show::warn(warning);
    }
    Ok((path.to_path_buf(), rule, found.evaluation))
}

/// A rule file, its rule, and what that does to the traces.
type Evaluated = (PathBuf, Rule, Evaluation);

/// The report on one rule, or on several side by side.
fn page(args: &Args, evaluated: &[Evaluated]) -> String {
    let mut context = Context::new(env!("CARGO_PKG_VERSION"));
    for file in &args.traces {
        context = context.source("traces", file.display().to_string());
    }
    if let [(path, rule, evaluation)] = evaluated {
        let context = context.source("rule", path.display().to_string());
        return report_evaluation(rule, evaluation, &context);
    }
    let compared: Vec<Compared> = evaluated
        .iter()
        .map(|(path, rule, evaluation)| {
            Compared::new(path.display().to_string(), rule.clone(), evaluation.clone())
        })
        .collect();
    report_comparison(&compared, &context)
}

fn describe(rule: &Rule, evaluation: &Evaluation) -> String {
    let e = evaluation;
    let heading = |text: &str| styled(HEADING, text) + "\n";
    let mut text = heading("What is promised") + &show::paragraph(&words::promise(rule)) + "\n";
    let set = count(e.n as u64, "sequence", "sequences");
    text += &heading(&format!("What was measured on {set}"));
    text += &show::paragraph(&verdict(rule, e));
    let mut row = |name: &str, value: String, note: String| {
        text += &format!("  {name:<28}{value:>8}  {note}\n");
    };
    let error = |se: f64| format!("± {:.2} points (standard error)", 100.0 * se);
    let interval =
        |(low, high): (f64, f64)| format!("95% interval {}–{}", percent(low), percent(high));
    if let Some(accuracy) = e.accuracy {
        row(
            "accuracy, read to the end",
            percent_column(accuracy.late),
            error(accuracy.late_se),
        );
        row(
            "accuracy, stopping early",
            percent_column(accuracy.early),
            error(accuracy.early_se),
        );
    }
    let loss = words::loss(rule);
    row(loss, percent_column(e.gap), interval(e.gap_interval));
    for (share, gap) in &e.gap_earliest {
        let Some(gap) = gap else { continue };
        let share_of = share.parse().map_or_else(|_| share.clone(), percent);
        let around = e
            .gap_earliest_interval
            .get(share)
            .copied()
            .unwrap_or((0.0, 1.0));
        row(
            &format!("{loss}, first {share_of} to halt"),
            percent_column(*gap),
            interval(around),
        );
    }
    row(
        "mean halt step",
        percent_column(e.t_avg),
        format!(
            "of {}, {}",
            count(e.t_max as u64, "step", "steps"),
            error(e.t_avg_se)
        ),
    );
    // If all sequences have one length, the two differ by rounding only.
    if (e.steps_read - e.t_avg).abs() > 1e-9 {
        let note = "of the steps there were: not all sequences have t_max".into();
        row("steps read", percent_column(e.steps_read), note);
    }
    if let Some(cost) = e.cost {
        let note = format!("{} of {} to the end", short(cost.mean), short(cost.full));
        row("mean cost", percent_column(cost.mean / cost.full), note);
    }
    if e.unlabelled > 0 {
        let note = "of the sequences have no label".into();
        let share = e.unlabelled as f64 / e.n as f64;
        row("unlabelled", percent_column(share), note);
    }
    if e.thinned > 0 {
        let all = (e.n + e.thinned) as u64;
        let note = format!("of {} kept, as the weights say", number(all));
        row("in the declared mix", number(e.n as u64), note);
    }
    text += "\n";
    if !e.by_group.is_empty() {
        let by = rule.terms().by.as_deref().unwrap_or("group");
        text += &heading(&format!("For every {by}"));
        text += &groups(rule, e);
        text += "\n";
    }
    text += &heading("Step by step");
    text + &steps(rule, e)
}

/// One line per group.
fn groups(rule: &Rule, e: &Evaluation) -> String {
    let loss = words::loss(rule);
    let head = [
        "",
        "sequences",
        "t_avg",
        loss,
        "95% interval",
        "highest by a step",
    ];
    let mut lines = vec![head.map(str::to_owned)];
    for group in &e.by_group {
        let highest = group.by_step.iter().filter_map(|step| step.gap_by);
        let (low, high) = group.gap_interval;
        lines.push([
            group.group.clone(),
            number(group.n as u64),
            format!("{:.3}", group.t_avg),
            percent(group.gap),
            format!("{}–{}", percent(low), percent(high)),
            percent(highest.fold(0.0, f64::max)),
        ]);
    }
    show::columns(&lines)
}

/// Whether the promise was kept on these traces, as far as they can tell.
fn verdict(rule: &Rule, e: &Evaluation) -> String {
    let judged = judge(rule, e);
    let style = match judged.standing {
        Some(Standing::Within) if e.calibrated_on.is_none() => GOOD,
        _ => CAREFUL,
    };
    styled(style, judged.words)
}

/// One line per step at which anyone halted; the ends, where there are many.
fn steps(rule: &Rule, e: &Evaluation) -> String {
    let mut text = format!(
        "  {:>6}  {:>9}  {:>9}  {:>9}  {:>8}  {}\n",
        "step",
        "threshold",
        "halted",
        "halted by",
        match words::loss(rule) {
            "gap" => "gap by",
            _ => "loss by",
        },
        "95% interval"
    );
    let halting: Vec<_> = e.by_step.iter().filter(|s| s.halted > 0).collect();
    const SHOWN: usize = 24;
    for (i, step) in halting.iter().enumerate() {
        if halting.len() > SHOWN && i == SHOWN / 2 {
            text += &format!(
                "  {:>6}  ({} more steps: see --json)\n",
                "…",
                halting.len() - SHOWN
            );
        }
        if halting.len() > SHOWN && (SHOWN / 2..halting.len() - SHOWN / 2).contains(&i) {
            continue;
        }
        let threshold = match rule.thresholds().values().get(step.t - 1) {
            None | Some(&f32::INFINITY) => "never".into(),
            Some(value) => value.to_string(),
        };
        let (low, high) = step.gap_by_interval;
        text += &format!(
            "  {:>6}  {threshold:>9}  {:>9}  {:>9}  {:>8}  {}–{}\n",
            step.t,
            number(step.halted),
            number(step.halted_by),
            step.gap_by.map_or_else(String::new, percent_column),
            percent(low),
            percent(high),
        );
    }
    text
}
