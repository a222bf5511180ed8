//! `haltwise inspect`: what is in a file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use haltwise::Rule;
use haltwise::rule::Test;
use haltwise::traces::{Classifier, Trace};
use haltwise_io::{
    Columns, RULE_IN_MODEL, read_model_texts, read_rule, read_traces_seeing, rule_json, trace_files,
};
use haltwise_paper::classifier::Model;
use haltwise_report::words;
use serde::Serialize;
use serde_json::{Value, json};

use crate::memory::MemoryLimit;
use crate::show::{self, HEADING, count, percent, styled};
use crate::train::accuracies;

/// Describe a rule, model or trace file
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file to look into
    file: PathBuf,

    #[command(flatten)]
    memory: MemoryLimit,

    /// Print one JSON object instead of words
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let path = &args.file;
    if path.is_dir() {
        bail!("{}: it is a folder; name a file in it", show::file(path));
    }
    let extension = path.extension().unwrap_or_default();
    let is = |name: &str| extension.eq_ignore_ascii_case(name);
    if is("safetensors") || is("pt") || is("pth") {
        show::print(&describe_model(path, args.json)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = match (is("json"), args.json) {
        (true, true) => rule_json(&read_rule(path)?)?,
        (true, false) => describe_rule(path, &read_rule(path)?),
        (false, json) => {
            let summary = Summary::of(path, args.memory.bytes())?;
            match json {
                true => serde_json::to_string(&summary)? + "\n",
                false => summary.describe(path),
            }
        }
    };
    show::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn describe_model(path: &Path, json: bool) -> anyhow::Result<String> {
    let model = Model::load(path)?;
    let rule = match read_model_texts(path) {
        Ok(Some(texts)) if texts.contains_key(RULE_IN_MODEL) => Some(read_rule(path)?),
        _ => None,
    };
    if json {
        let mut object = match &model {
            Model::Network(model) => network_json(model),
            Model::Prefix(model) => prefix_json(model),
        };
        if let Some(rule) = &rule {
            object["rule"] = serde_json::from_str(&rule_json(rule)?)?;
        }
        return Ok(object.to_string() + "\n");
    }
    let mut text = match &model {
        Model::Network(model) => describe_network(path, model),
        Model::Prefix(model) => describe_prefix(path, model),
    };
    if let Some(rule) = &rule {
        text += &format!("\n{}", describe_rule(path, rule));
    }
    Ok(text)
}

fn network_json(model: &haltwise_lstm::Model) -> Value {
    let shape = model.shape();
    json!({
        "shape": shape, "classes": model.classes(),
        "parameters": shape.parameters(), "training": model.training(),
    })
}

fn prefix_json(model: &haltwise_prefix::Model) -> Value {
    json!({
        "checkpoints": model.checkpoints(), "channels": model.channels(),
        "classes": model.classes(), "training": model.training(),
    })
}

fn model_heading(path: &Path) -> String {
    styled(HEADING, format!("{}: a model", show::file(path))) + "\n"
}

fn model_row(name: &str, value: impl std::fmt::Display) -> String {
    format!("  {name:<16}{value}\n")
}

fn describe_network(path: &Path, model: &haltwise_lstm::Model) -> String {
    let shape = model.shape();
    let layers = count(shape.layers as u64, "recurrent layer", "recurrent layers");
    let numbers = count(shape.features as u64, "number", "numbers");
    let heads = match shape.gap_head {
        true => "class, confidence, gap",
        false => "class, confidence",
    };
    let mut text = model_heading(path);
    let network = format!("{layers} of {}, reading {numbers} per step", shape.hidden);
    text += &model_row("network", network);
    text += &model_row("heads", heads);
    text += &model_row("classes", model.classes().join(", "));
    text += &model_row("parameters", show::number(shape.parameters() as u64));
    if let Some(record) = model.training() {
        let trained_on = count(record.trained_on as u64, "sequence", "sequences");
        let validated_on = show::number(record.validated_on as u64);
        let trained_on = format!("{trained_on} (and {validated_on} for validation)");
        text += &model_row("trained on", trained_on);
        let accuracy = percent(record.validation_accuracy.unwrap_or(0.0));
        let (best, epochs) = (record.best_epoch, record.epochs);
        text += &model_row(
            "best epoch",
            format!("{best} of {epochs}, accuracy {accuracy}"),
        );
    }
    text
}

fn describe_prefix(path: &Path, model: &haltwise_prefix::Model) -> String {
    let channels = count(model.channels() as u64, "number", "numbers");
    let checkpoints: Vec<String> = model
        .checkpoints()
        .iter()
        .map(ToString::to_string)
        .collect();
    let trained_on = model.training().trained_on as u64;
    let mut text = model_heading(path);
    let classifier = format!("prefix classifier, reading {channels} per time point");
    text += &model_row("classifier", classifier);
    text += &model_row("answers after", checkpoints.join(", "));
    text += &model_row("classes", model.classes().join(", "));
    text += &model_row("trained on", count(trained_on, "sequence", "sequences"));
    text + "\n" + &accuracies(model)
}

fn describe_rule(path: &Path, rule: &Rule) -> String {
    let heading = |text: String| styled(HEADING, text) + "\n";
    let mut text = heading(format!("{}: a rule", show::file(path)));
    text += &show::paragraph(&words::promise(rule));
    let set = |name: &str, set: Option<haltwise::traces::SetSummary>| match set {
        None => String::new(),
        Some(set) => {
            let sequences = count(set.sequences, "trace", "traces");
            format!(
                "  {name:<16}{sequences} (fingerprint {})\n",
                set.fingerprint
            )
        }
    };
    text += "\n";
    text += &set("fitted on", rule.fitted_on());
    text += &set("screened on", rule.screened_on());
    text += &set("certified on", rule.certified_on());
    let certifying = rule.certified_on().map_or(0, |set| set.sequences);
    if let Some(fitted) = words::tested_on(rule)
        .checked_sub(certifying)
        .filter(|&n| n > 0)
    {
        text += &format!(
            "  {:<16}and {} of the fitting ones\n",
            "",
            show::number(fitted)
        );
    }
    text += &format!("  {:<16}{}\n", "score", rule.source());
    text += &describe_classifier(rule.classifier());
    if let Some(expected) = rule.expected() {
        let (read, gap) = (percent(expected.t_avg), percent(expected.gap));
        let loss = words::loss(rule);
        let cost = expected.cost.map_or_else(String::new, |cost| {
            format!(", mean cost {}", haltwise_report::format::short(cost))
        });
        text += &format!(
            "  {:<16}reads {read} of t_max{cost}, {loss} {gap} (while certifying)\n",
            "expected"
        );
    }
    text += &format!("\n{}", heading("Halt when the score reaches".into()));
    text += &words::thresholds(rule.thresholds());
    if !rule.trail().is_empty() {
        text += &format!("\n{}", heading("Tests, in the order they were made".into()));
        text += &trail(rule);
    }
    text
}

/// Whose traces they are, a line for each thing that is known.
fn describe_classifier(classifier: Option<&Classifier>) -> String {
    let line =
        |(name, value): (&String, &String)| format!("  {name:<16}{}\n", value.escape_debug());
    classifier.into_iter().flatten().map(line).collect()
}

fn trail(rule: &Rule) -> String {
    let mut text = format!(
        "  {:>10}  {:>9}  {:>8}  {:>8}  {:>6}  {:>9}\n",
        "opens step", "threshold", "worst at", "halted", "gaps", "p-value"
    );
    let delta = rule.delta().get();
    let lines = |tests: &[Test]| -> String { tests.iter().map(|test| line(rule, test)).collect() };
    for (family, tests) in rule.tests_by_family() {
        let group = family.group.and_then(|group| rule.groups().get(group));
        let group = group.map_or_else(String::new, |group| format!(" for {group} alone"));
        text += &format!(
            "  {}{group}, at {} on {}\n{}",
            words::family(family.kind),
            show::level(delta * family.share),
            count(family.sequences, "trace", "traces"),
            lines(tests)
        );
    }
    text
}

/// One test of a rule's trail.
fn line(rule: &Rule, test: &Test) -> String {
    let threshold = test.threshold.map_or("never".into(), |v| v.to_string());
    let chosen = rule.chosen().is_some_and(|c| std::ptr::eq(c, test));
    let verdict = match (test.rejected, chosen) {
        (true, true) => "passed, and chosen",
        (true, false) => "passed",
        (false, _) => "failed: the walk ended",
    };
    let group = test.group.and_then(|group| rule.groups().get(group));
    let group = group.map_or_else(String::new, |group| format!(" (worst for {group})"));
    format!(
        "  {:>10}  {threshold:>9}  {:>8}  {:>8}  {:>6}  {:>9.2e}  {verdict}{group}\n",
        test.opens,
        test.step,
        show::number(test.halted),
        show::number(test.gaps),
        test.p_value,
    )
}

/// What a trace file holds.
#[derive(Serialize)]
struct Summary {
    sequences: usize,
    t_max: usize,
    steps: usize,
    shortest: usize,
    /// With class probabilities, how many there are per step; else how many
    /// classes are among the labels.
    classes: usize,
    probabilities: bool,
    score: haltwise::score::ScoreSource,
    /// How many sequences have a label; only those tell about accuracy.
    labelled: usize,
    late_accuracy: Option<f64>,
    first_step_accuracy: Option<f64>,
    fingerprint: haltwise::traces::Fingerprint,
    #[serde(skip_serializing_if = "Option::is_none")]
    classifier: Option<Classifier>,
}

impl Summary {
    fn of(path: &Path, memory: u64) -> anyhow::Result<Self> {
        let paths = [path.to_path_buf()];
        let (mut labels, mut labelled, mut per_step) = (BTreeSet::new(), 0, None);
        let mut see = |trace: &Trace<'_>| {
            labels.extend(trace.label());
            labelled += usize::from(trace.label().is_some());
            let probs = trace.classes();
            per_step = Some(probs.min(per_step.unwrap_or(probs)));
        };
        let traces = show::reading(|progress| {
            read_traces_seeing(
                &trace_files(&paths)?,
                &Columns::default(),
                memory,
                progress,
                &mut see,
            )
        })?;
        let per_step = per_step.unwrap_or(0);
        let (mut late, mut first) = (0_usize, 0_usize);
        for correct in (0..traces.len()).filter_map(|i| traces.correct(i)) {
            first += usize::from(correct[0]);
            late += usize::from(correct[correct.len() - 1]);
        }
        let share = |hits| (labelled > 0).then(|| hits as f64 / labelled as f64);
        Ok(Self {
            sequences: traces.len(),
            t_max: traces.t_max(),
            steps: traces.lengths().sum(),
            shortest: traces.lengths().min().unwrap_or(0),
            classes: match per_step {
                0 => labels.len(),
                classes => classes,
            },
            probabilities: per_step > 0,
            score: traces.source().clone(),
            labelled,
            late_accuracy: share(late),
            first_step_accuracy: share(first),
            fingerprint: traces.summary().fingerprint,
            classifier: show::classifier(&paths)?,
        })
    }

    fn describe(&self, path: &Path) -> String {
        let classes = self.classes as u64;
        let mut text = styled(HEADING, format!("{}: traces", show::file(path))) + "\n";
        let mut row = |name: &str, value: String| text += &format!("  {name:<16}{value}\n");
        row("sequences", show::number(self.sequences as u64));
        row(
            "steps",
            match self.shortest == self.t_max {
                true => format!("{} each", self.t_max),
                false => format!(
                    "{} to {}, {} in all",
                    self.shortest,
                    self.t_max,
                    show::number(self.steps as u64)
                ),
            },
        );
        row(
            "classes",
            match self.probabilities {
                true => format!("{}, with their probabilities", show::number(classes)),
                false => format!(
                    "{} among the labels, without probabilities",
                    show::number(classes)
                ),
            },
        );
        row("score", self.score.to_string());
        if self.labelled < self.sequences {
            let labelled = show::number(self.labelled as u64);
            row("labelled", format!("{labelled} of them"));
        }
        if let (Some(late), Some(first)) = (self.late_accuracy, self.first_step_accuracy) {
            let (late, first) = (percent(late), percent(first));
            row(
                "accuracy",
                format!("{late} at the end, {first} after the first step"),
            );
        }
        row("fingerprint", self.fingerprint.to_string());
        text + &describe_classifier(self.classifier.as_ref())
    }
}
