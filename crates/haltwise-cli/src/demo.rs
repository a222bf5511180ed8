//! `haltwise demo`: the whole story on a built-in dataset.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::Context as _;
use haltwise::{Ask, Inputs, Method};
use haltwise_io::series::{self, SeriesSet, split};
use haltwise_io::{Files, write_rule};
use haltwise_lstm::{Device, Labelled, Model, TrainOptions, Trainer};
use haltwise_paper::classifier::{series_of, write_traces};
use haltwise_report::{Compared, Context, report_comparison};

use crate::plan::plan;
use crate::show::{self, GOOD, HEADING, count, percent, percent_column, styled};
use crate::train;

/// Show every step on a built-in dataset, up to a report
///
/// Trains a small LSTM on pen strokes (PenDigits: which digit is being
/// written?), scores strokes it has never seen, calibrates a rule by each of the
/// paper's two methods and by the adaptive one, and compares them on yet other
/// strokes. Needs no network and takes seconds. Leaves all files in a folder for you to look at.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder to write into
    #[arg(short, long, value_name = "FOLDER", default_value = "haltwise-demo")]
    output: PathBuf,

    /// The seed of the split and of the training
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Print the evaluations as one JSON object instead of words
    #[arg(long)]
    json: bool,
}

/// The shares of the paper: four fifths train, the rest screens, certifies and
/// tests in equal parts.
const PARTS: [(&str, f64); 4] = [
    ("training", 0.8),
    ("screening", 0.2 / 3.0),
    ("certifying", 0.2 / 3.0),
    ("test", 0.2 / 3.0),
];

/// A demonstration need not wait for the last tenth of a percent.
const MAX_EPOCHS: usize = 200;

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let folder = &args.output;
    let made = std::fs::create_dir_all(folder);
    made.with_context(|| format!("{}: cannot create it", show::file(folder)))?;
    let say = |text: String| match args.json {
        true => Ok(()),
        false => show::print(&text),
    };
    let set = series::builtin("PenDigits")?;
    let places = split(set.len(), &PARTS.map(|(_, share)| share), args.seed)?;
    say(introduction(&set, &places))?;

    let model = trained(&set.select(&places[0]), args.seed)?;
    model.save(folder.join("model.safetensors"))?;
    say(training(&model))?;

    let traces = |part: usize| folder.join(format!("{}.parquet", PARTS[part].0));
    for (part, places) in places.iter().enumerate().skip(1) {
        let part = &traces(part);
        let set = set.select(places);
        write_traces(&model, &set, places, part, true, Device::Cpu, |_| {})?;
    }
    let (screening, certifying) = (traces(1), traces(2));
    let rule = |ask: Ask, from: &[&PathBuf], screen: Option<&PathBuf>| {
        let (mut quiet, mut silent) = (|_, _| {}, |_, _| {});
        let traces = Files::new(from, u64::MAX, &mut quiet)?;
        let screen = match screen {
            Some(path) => Some(Files::new(&[path], u64::MAX, &mut silent)?),
            None => None,
        };
        let given = Inputs {
            screen: screen.as_ref(),
            ..Inputs::one(&traces)
        };
        anyhow::Ok(plan(ask).calibrate(given)?.rule)
    };
    let asked = |method| Ask {
        method: Some(method),
        ..Ask::default()
    };
    let both = [&screening, &certifying];
    let conditional = Ask {
        screen: true,
        ..asked(Method::Conditional)
    };
    let conditional = rule(conditional, &[&certifying], Some(&screening))?;
    let marginal = rule(asked(Method::Marginal), &both, None)?;
    let adaptive = Ask {
        seed: Some(args.seed),
        ..asked(Method::Adaptive)
    };
    let adaptive = rule(adaptive, &both, None)?;

    let mut results = Vec::new();
    for (name, rule) in [
        ("marginal", marginal),
        ("conditional", conditional),
        ("adaptive", adaptive),
    ] {
        write_rule(&folder.join(format!("{name}.json")), &rule)?;
        let evaluated = Files::new(&[traces(3)], u64::MAX, &mut |_, _| {})?.evaluate(&rule)?;
        results.push(Compared::new(name, rule, evaluated.evaluation));
    }
    write_report(&folder.join("report.html"), &results)?;
    say(table(&results))?;
    if args.json {
        let evaluations: BTreeMap<_, _> =
            results.iter().map(|r| (&r.name, &r.evaluation)).collect();
        show::print_json(&evaluations)?;
    }
    say(farewell(folder, start))?;
    Ok(ExitCode::SUCCESS)
}

fn introduction(set: &SeriesSet, places: &[Vec<usize>]) -> String {
    let rest = places[1..].iter().map(Vec::len).sum::<usize>() as u64;
    format!(
        "{}: {} of {} points, {} digits.\n\
         {} train a classifier, {} others are for stopping it early.\n\n",
        styled(HEADING, "PenDigits"),
        count(set.len() as u64, "pen stroke", "pen strokes"),
        set.t_max(),
        set.classes().len(),
        show::number(places[0].len() as u64),
        show::number(rest),
    )
}

fn trained(set: &SeriesSet, seed: u64) -> anyhow::Result<Model> {
    let options = TrainOptions {
        max_epochs: MAX_EPOCHS,
        seed,
        ..TrainOptions::default()
    };
    let patience = options.patience;
    let data = Labelled::new(series_of(set)?, set.labels())?;
    let mut trainer = Trainer::new(data, None, set.classes().to_vec(), options)?;
    train::fit(&mut trainer, &AtomicBool::new(false), None, false, patience)
}

fn training(model: &Model) -> String {
    let Some(record) = model.training() else {
        return String::new();
    };
    format!(
        "Trained a two-head LSTM for {}: {} right on validation strokes, read to the end.\n\n",
        count(record.epochs as u64, "epoch", "epochs"),
        percent(record.validation_accuracy.unwrap_or(0.0)),
    )
}

fn table(results: &[Compared]) -> String {
    let mut text = format!(
        "{}\n  {:<14}{:>10}{:>10}{:>10}{:>12}{:>16}\n",
        styled(
            HEADING,
            "Stopping early, measured on strokes that neither training nor calibration saw"
        ),
        "rule",
        "steps read",
        "accuracy",
        "gap",
        "gap, first",
        "largest gap by",
    );
    text += &format!(
        "  {:<14}{:>10}{:>10}{:>10}{:>12}{:>16}\n",
        "", "", "", "", "20% halted", "any step"
    );
    for Compared {
        name,
        evaluation: e,
        ..
    } in results
    {
        let first = e.gap_earliest.get("0.2").copied().flatten().unwrap_or(0.0);
        let by_step = e.by_step.iter().filter_map(|s| s.gap_by);
        let largest = by_step.fold(0.0, f64::max);
        text += &format!(
            "  {name:<14}{:>10}{:>10}{:>10}{:>12}{:>16}\n",
            percent_column(e.t_avg),
            percent_column(e.accuracy.map_or(0.0, |a| a.early)),
            percent_column(e.gap),
            percent_column(first),
            percent_column(largest),
        );
    }
    if let Some(Compared {
        rule,
        evaluation: e,
        ..
    }) = results.first()
    {
        text += &format!(
            "  {:<14}{:>10}{:>10}\n\n",
            "read to the end",
            "100.0%",
            percent_column(e.accuracy.map_or(0.0, |a| a.late))
        );
        let alpha = percent(rule.alpha().get());
        text += &show::paragraph(&format!(
            "All promise a gap of at most {alpha}: the marginal rule on average only, the \
             conditional and the adaptive rule also among the strokes that halted by any step. The \
             first two are the paper's; the adaptive one learns when stopping costs nothing.",
        ));
        text.push('\n');
    }
    text
}

fn write_report(path: &Path, results: &[Compared]) -> anyhow::Result<()> {
    let context = Context::new(env!("CARGO_PKG_VERSION"))
        .title("Haltwise demo: PenDigits")
        .source("traces", "test.parquet");
    Ok(show::write_page(
        path,
        &report_comparison(results, &context),
    )?)
}

fn farewell(folder: &Path, start: Instant) -> String {
    let report = folder.join("report.html");
    let file = |name: &str| show::in_shell(&folder.join(name));
    format!(
        "{} {}\nAll in {}, in {:.0} s. Go on with:\n\
         \x20 haltwise inspect {rule}\n\
         \x20 haltwise evaluate {rule} {}\n\
         \x20 haltwise calibrate YOUR-TRACES.npz -o rule.json\n",
        styled(GOOD, "The report is"),
        report.display(),
        folder.display(),
        start.elapsed().as_secs_f64(),
        file("test.parquet"),
        rule = file("adaptive.json"),
    )
}
