//! `haltwise monitor`: tests whether a rule still keeps its promise.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use haltwise::Rule;
use haltwise::evaluate::CalibratedOn;
use haltwise::monitor::{Auditor, MOST_UNITS, Monitor, Verdict, Watch};
use haltwise::plan::Delta;
use haltwise::terms::Terms;
use haltwise::traces::SetSummary;
use haltwise_io::{Columns, read_rule_text, trace_files, visit_traces};
use haltwise_report::words;
use haltwise_serve::StoredMonitor;
use serde::Serialize;
use serde_json::Value;

use crate::show::{self, CAREFUL, GOOD, HEADING, count, number, percent, percent_column, styled};

/// Test whether a rule still keeps its promise, and alarm if it does not
///
/// Audit a random share of your live streams: answer them when the rule halts, but read
/// them to their end. The traces of these streams, in the order in which the streams
/// began, are the audits. You may repeat the test after every stream; with units, repeat it
/// only when every unit in the files is complete. If the promise holds, the probability that
/// it ever raises an alarm is at most --delta.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise monitor rule.json audits.parquet
  haltwise monitor rule.json monday.jsonl tuesday.jsonl --json | jq .alarm
  haltwise monitor rule.json a/ b/ c/            # the stores of three servers, as one

The e-value is the evidence against the promise. When it reaches 1/delta, an alarm is
raised, and stays. \"since\" and \"alarm_at\" count audits from 1. Each interval is for the
average gap since a start; all intervals hold at all moments at once. \"recent\" starts with
the latest block since which at least 500 streams halted by the step. \"all_clear\" says that
both averages are at most alpha. It does not say that the gap is at most alpha now.
\"thins_steps\" says that only 64 of the steps at which the rule may halt are watched.

If the rule was calibrated with --unit, each unit is one audit: give all of its streams. Test
again only when all units in the files are complete, because the next test would count an
incomplete unit in another way. The time of a test must not depend on what the units lost.

\"unwatched\" counts streams that could not be tested. Audits from where the rule is used
need no weights; audits of another mix need the column of weights. A change may begin at
any block of 100 audits, or of ten minutes in the stores of servers.")]
pub(crate) struct Args {
    /// The rule file
    rule: PathBuf,

    /// Trace files, folders or patterns, in the order in which the streams began; or the
    /// stores of servers
    #[arg(required = true, value_name = "AUDITS")]
    audits: Vec<PathBuf>,

    /// The probability that a false alarm is ever raised [default: 0.01, or the servers']
    #[arg(long, value_name = "PROBABILITY")]
    delta: Option<f64>,

    /// Print one JSON object instead of words
    #[arg(long)]
    json: bool,
}

/// The output of --json.
#[derive(Serialize)]
struct Found<'a> {
    #[serde(flatten)]
    verdict: &'a Verdict,
    labels_wanted: &'a [Value],
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let delta = match args
        .delta
        .map_or_else(|| Ok(Delta::default()), Delta::try_from)
    {
        Ok(delta) => delta,
        Err(error) => crate::usage_error(&format!("--delta: {error}")),
    };
    let rule = show::read_rule(&args.rule, &args.audits)?;
    let Some(watch) = Watch::of(&rule, delta) else {
        bail!(
            "{}: there is no promise to watch: {}",
            show::file(&args.rule),
            words::NOT_WATCHED
        );
    };
    let (monitor, verdict, labels_wanted) = match of_stores(&args, &rule)? {
        Some((monitor, wanted)) => {
            let verdict = monitor.verdict();
            (monitor, verdict, wanted)
        }
        None => {
            let (mut monitor, mut auditor) = (Monitor::new(watch), Auditor::new(rule.clone()));
            let wanted = of_traces(&args, &mut auditor, &mut monitor)?;
            let verdict = auditor.verdict(&monitor);
            (monitor, verdict, wanted)
        }
    };
    if args.json {
        show::print_json(&Found {
            verdict: &verdict,
            labels_wanted: &labels_wanted,
        })?;
    } else {
        show::print(&describe(&rule, &monitor, &verdict))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The monitor of all servers whose stores are named, and the labels they want;
/// `None` if none is.
fn of_stores(args: &Args, rule: &Rule) -> anyhow::Result<Option<(Monitor, Vec<Value>)>> {
    let (_, json) = read_rule_text(&args.rule)?;
    let name = args.rule.file_stem().unwrap_or_default().to_string_lossy();
    let (mut monitors, mut wanted) = (Vec::new(), Vec::new());
    for path in &args.audits {
        if let Some(stored) = StoredMonitor::read(path, &name, rule, &json)? {
            if let Some(damage) = &stored.damage {
                show::warn(damage);
            }
            monitors.push(stored.monitor);
            wanted.push(stored.labels_wanted);
        }
    }
    if monitors.is_empty() {
        return Ok(None);
    }
    if monitors.len() < args.audits.len() {
        bail!("some of these are stores of servers and some are traces; name either");
    }
    if args.delta.is_some() {
        crate::usage_error("--delta is that of the servers, whose stores are named here");
    }
    let monitor = Monitor::sum(&monitors).context("the stores do not go together")?;
    if let Some(warning) = unshared(monitors.len(), monitor.watch()) {
        show::warn(warning);
    }
    // The first of each, then the second: every server has its most wanted first.
    let most = wanted.iter().map(Vec::len).max().unwrap_or(0);
    let mixed = (0..most).flat_map(|i| wanted.iter().filter_map(move |ids| ids.get(i).cloned()));
    Ok(Some((monitor, mixed.collect())))
}

/// The warning for a sum of this many stores, if its servers did not share delta with it.
fn unshared(stores: usize, watch: &Watch) -> Option<String> {
    let (servers, delta) = (watch.servers() as usize, watch.delta().get());
    if stores == 1 || stores == servers {
        return None;
    }
    let sum = format!("these {stores} stores are summed");
    Some(match servers {
        1 => format!(
            "{sum}, which is one more test, and each server tests with all of its delta: together \
             they raise a false alarm with a probability of up to {}; start each server with \
             --servers {stores}",
            percent(delta * (stores + 1) as f64)
        ),
        _ => format!(
            "{sum}, but {servers} servers share delta; name the stores of all of them, because \
             the sum of others is a test that delta does not pay for"
        ),
    })
}

/// Shows the traces of files to a monitor, in their order.
fn of_traces(
    args: &Args,
    auditor: &mut Auditor,
    monitor: &mut Monitor,
) -> anyhow::Result<Vec<Value>> {
    let rule = &auditor.rule().clone();
    let files = trace_files(&args.audits)?;
    let (mut set, mut remembered) = (SetSummary::default(), 0);
    let mut bytes = Vec::new();
    let terms = Terms {
        by: rule.terms().by.clone(),
        unit: rule.terms().unit.clone(),
        weight: rule.terms().weight.clone(),
        ..Terms::default()
    };
    // Audits from where the rule is used have no weights; groups and units are asked for
    // below.
    let columns = Columns::of(&terms).where_there();
    let (mut waiting, mut thinned) = (Vec::new(), 0);
    show::reading(|progress| {
        visit_traces(&files, &columns, progress, &mut |trace| {
            let Some(found) = auditor.audit(trace).map_err(|e| e.to_string())? else {
                thinned += 1;
                return Ok(());
            };
            if let Some(pending) = monitor.take(&found) {
                waiting.push((trace.id().map(str::to_owned), pending));
            }
            let print = trace.fingerprint(&mut bytes);
            set += SetSummary::one(print);
            remembered += u64::from(rule.remembers(print));
            Ok(())
        })
        .map(drop)
    })
    .with_context(|| {
        let score = rule.source();
        format!(
            "{}: the rule judges a score that is {score}",
            show::file(&args.rule)
        )
    })?;
    // The files are all there is: no unit has more streams. So the test may be repeated only
    // when all of their units are complete.
    monitor.close_units(u64::MAX);
    if thinned > 0 {
        let audits = count(thinned, "audit", "audits");
        match rule.terms().weight {
            Some(_) => show::note(format_args!(
                "weights leave {audits} out; the others are in the declared mix"
            )),
            None => show::note(format_args!(
                "the rule reads the groups of {audits} to the end; there is nothing to watch"
            )),
        }
    }
    if let Some(doubt) = auditor.label_doubt() {
        show::warn(format_args!(
            "{doubt}. With such labels the monitor sees no loss, so this test means nothing"
        ));
    }
    match CalibratedOn::of(rule, set, remembered) {
        None => {}
        Some(CalibratedOn::All) => show::warn(
            "the rule was made from these very traces: they are no audits, and flatter it",
        ),
        Some(CalibratedOn::Some) => show::warn(format_args!(
            "some of these traces are among those that the rule was made from ({} of the {} that it \
             remembers): they are no audits, and flatter it",
            number(remembered),
            Rule::REMEMBERED
        )),
    }
    let worth = monitor.worth(waiting.iter().map(|(_, pending)| pending));
    let mut wanted: Vec<(f64, &Option<String>)> =
        std::iter::zip(worth, waiting.iter().map(|(id, _)| id)).collect();
    wanted.sort_by(|a, b| b.0.total_cmp(&a.0));
    let ids = wanted.into_iter().filter_map(|(_, id)| id.clone());
    Ok(ids.map(Value::from).collect())
}

fn describe(rule: &Rule, monitor: &Monitor, verdict: &Verdict) -> String {
    let heading = |text: &str| styled(HEADING, text) + "\n";
    let mut text = heading("What is promised") + &show::paragraph(&words::promise(rule)) + "\n";
    let audits = if monitor.watch().is_by_unit() {
        count(verdict.audits, "audited unit", "audited units")
    } else {
        count(verdict.audits, "audit", "audits")
    };
    text += &heading(&format!("What {audits} say"));
    text += &show::paragraph(&verdict_words(monitor, verdict));
    let line = 1.0 / monitor.watch().delta().get();
    let mut row = |name: &str, value: String, note: String| {
        text += &format!("  {name:<28}{value:>10}  {note}\n");
    };
    row(
        "evidence (e-value)",
        in_short(verdict.e_value),
        format!("an alarm is raised at {}", in_short(line)),
    );
    if verdict.unknown > 0 {
        let note = "counted as harmless in the alarm, as gaps in the upper ends below".into();
        row("not known yet", number(verdict.unknown), note);
    }
    let unwatched = verdict.unwatched;
    if unwatched.of_closed_units > 0 {
        let note = "streams that began when their unit was over: they count for nothing".into();
        row("not watched", number(unwatched.of_closed_units), note);
    }
    if unwatched.of_new_units > 0 {
        let note = format!(
            "streams of units beyond the first {}",
            number(MOST_UNITS as u64)
        );
        row("not watched", number(unwatched.of_new_units), note);
    }
    if unwatched.without_unit + unwatched.without_group > 0 {
        let note = "streams of no unit or group that the promise covers".into();
        let streams = unwatched.without_unit + unwatched.without_group;
        row("not watched", number(streams), note);
    }
    let (low, high) = verdict.interval;
    row(
        &format!("gap, {}", among(verdict.worst_step)),
        verdict.gap.map_or_else(|| "–".into(), percent_column),
        format!(
            "since audit {}, interval {}–{}",
            number(verdict.since),
            percent(low),
            percent(high)
        ),
    );
    text + "\n" + &heading("Step by step") + &steps(verdict)
}

/// The verdict in a sentence or two.
fn verdict_words(monitor: &Monitor, verdict: &Verdict) -> String {
    let watch = monitor.watch();
    let alpha = percent(watch.alpha().get());
    if let Some(alarm) = monitor.alarm() {
        let at = number(alarm.at);
        let found = format!(
            "Alarm: the promise does not hold any more. It was raised at audit {at}; {} it fails \
             since about audit {}.",
            by(alarm.step),
            number(alarm.since)
        );
        let remedy = "Read to the end until there is a new rule, and calibrate it on audits \
                      from then on.";
        return styled(CAREFUL, format!("{found} {remedy}"));
    }
    if verdict.all_clear {
        let words = format!(
            "No alarm, and more: at confidence {}, the gap by every watched step was at most \
             {alpha} on average since the first audit, and on average in the recent past, which \
             begins at audit {}{}. That says nothing of any single moment.",
            percent(1.0 - watch.delta().get()),
            number(verdict.recent_since()),
            // Each step and group has a start of its own.
            if verdict.by_step.len() > 1 {
                " or later"
            } else {
                ""
            }
        );
        return styled(GOOD, words);
    }
    let mut words = String::from(
        "No alarm: nothing here speaks against the promise enough to be more than chance.",
    );
    if verdict.pools_classes {
        words += " The true classes are watched together: this says nothing of any one class.";
    }
    if verdict.thins_steps {
        words += " Only some steps are watched: this says nothing of the steps between them.";
    }
    if verdict.unwatched.of_new_units > 0 {
        words += " New units are not watched any more. Calibrate a new rule, or begin a new store.";
        return styled(CAREFUL, words);
    }
    styled(GOOD, words)
}

/// Among whom a gap is.
fn among(step: Option<u32>) -> String {
    step.map_or_else(|| "all streams".into(), |t| format!("halted by {t}"))
}

/// The place of the failure, as the beginning of a clause.
fn by(step: Option<u32>) -> String {
    step.map_or_else(
        || "on average".into(),
        |t| format!("among those halted by step {t}"),
    )
}

/// A number that may be very large or very small.
fn in_short(value: f64) -> String {
    match value {
        v if (1e-3..1e5).contains(&v) => format!("{v:.3}"),
        v => format!("{v:.1e}"),
    }
}

/// One line per watched step; the ends, where there are many.
fn steps(verdict: &Verdict) -> String {
    const SHOWN: usize = 24;
    let mut text = format!(
        "  {:>6}  {:>9}  {:>8}  {}\n",
        "step", "halted by", "gap by", "interval     of late: since audit, gap by, interval"
    );
    let all = &verdict.by_step;
    for (i, step) in all.iter().enumerate() {
        if all.len() > SHOWN && i == SHOWN / 2 {
            let more = all.len() - SHOWN;
            text += &format!("  {:>6}  ({more} more steps: see --json)\n", "…");
        }
        if all.len() > SHOWN && (SHOWN / 2..all.len() - SHOWN / 2).contains(&i) {
            continue;
        }
        let interval = |(low, high)| format!("{}–{}", percent(low), percent(high));
        let gap = |gap: Option<f64>| gap.map_or_else(String::new, percent_column);
        text += &format!(
            "  {:>6}  {:>9}  {:>8}  {:<12} {:>20}  {:>6}  {}\n",
            step.t.map_or_else(|| "end".into(), |t| t.to_string()),
            number(step.halted),
            gap(step.gap),
            interval(step.interval),
            number(step.recent.since),
            gap(step.recent.gap),
            interval(step.recent.interval),
        );
    }
    text + "  Intervals are for the average gap from a start until now, and hold at every moment \
            at once.\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use haltwise::plan::Alpha;

    #[test]
    fn a_sum_of_stores_that_do_not_share_delta_is_called_out() {
        let watch = |servers| {
            let watch = Watch::new(Alpha::default(), Delta::default(), vec![1]);
            watch.shared_by(servers)
        };
        assert_eq!(unshared(1, &watch(1)), None);
        assert_eq!(unshared(3, &watch(3)), None);
        // A server of several may be asked alone.
        assert_eq!(unshared(1, &watch(3)), None);
        let said = unshared(3, &watch(1)).unwrap();
        assert!(
            said.contains("up to 4%") && said.contains("--servers 3"),
            "{said}"
        );
        let said = unshared(2, &watch(3)).unwrap();
        assert!(said.contains("all of them"), "{said}");
    }
}
