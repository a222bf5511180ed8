//! `haltwise think`: a reasoning model's thoughts, with its answer after each step; or only as much
//! thought as a rule asks for.

mod live;
mod thinker;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use haltwise::thoughts::ThoughtTrace;
use haltwise_io::{check_writable, write_whole};
use haltwise_llm::{Question, Thinker, Thinking, ThoughtStep};
use serde_json::json;

use crate::asked::{AnswerTrace, AskedArgs, check_format, labels, write_traces};
use crate::progress::{Bar, journal_path, with_journal};
use crate::show::{self, count, number, percent};
use thinker::ThinkerArgs;

/// Let a reasoning model think about questions, and ask for its answer as it thinks
///
/// After every few hundred tokens, a probe asks for the answer so far: it closes the thought,
/// begins the answer, and lets the model end it. The thought then goes on as if nobody had asked.
///
/// With -o, every thought goes to its end, and they become traces for `calibrate` and `evaluate`.
/// The prediction after each step is the answer of its probe. The score says how often probes gave
/// that answer. The command stores steps in OUTPUT.journal as they come. After an interruption,
/// run it again: it continues.
///
/// With --rule, a thought ends when the rule says so.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise think questions.jsonl --server http://localhost:8000 --every 256 -o traces.parquet
  haltwise calibrate traces.parquet --promise average --cost cost -o rule.json
  haltwise think --rule rule.json --server http://localhost:8000 --question 'What is 17 times 23?'
  haltwise think --rule rule.json --server http://localhost:8000 new.jsonl > answers.jsonl

Questions are those of `vote`, also --requests. Without labels, calibrate with --loss
disagreement, which certifies agreement with the answer after the whole thought. With several
thoughts about a question (--samples), calibrate with --unit question.

The server must take plain prompts (/v1/completions). It must also write out a chat as a prompt, as
llama.cpp, vLLM and SGLang do; for others, give --endpoint completions and --chat-format. Models
whose marks the server hides, such as gpt-oss with its channels, cannot be probed.")]
pub(crate) struct Args {
    #[command(flatten)]
    asked: AskedArgs,

    /// Where to write the traces: .parquet or .arrow
    #[arg(
        short,
        long,
        value_name = "TRACES",
        required_unless_present = "rule",
        conflicts_with = "rule"
    )]
    output: Option<PathBuf>,

    /// The rule to stop by
    #[arg(long, value_name = "RULE")]
    rule: Option<PathBuf>,

    #[command(flatten)]
    thinker: ThinkerArgs,

    /// Where to write all thoughts, with answers and tokens: .jsonl
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "rule",
        help_heading = "Thoughts"
    )]
    thoughts: Option<PathBuf>,

    /// Use the rule although it is for another model or template: nothing is promised then
    #[arg(long, requires = "rule")]
    force: bool,

    /// Print JSON instead of words
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match (&args.rule, &args.output, args.asked.file()) {
        (Some(rule), ..) => live::run(&args, rule),
        (None, Some(output), Some(questions)) => traces(&args, questions, output),
        _ => bail!("give questions and -o TRACES, or --rule RULE"),
    }
}

fn traces(args: &Args, path: &Path, output: &Path) -> anyhow::Result<ExitCode> {
    check_format(output)?;
    show::check_output(output, &[path])?;
    if let Some(thoughts) = &args.thoughts {
        check_writable(thoughts)?;
    }
    let questions = args.asked.read()?;
    let bar = Arc::new(Bar::new());
    let thinker = args.thinker.connect(&questions, None, bar.warner())?;
    let labels = labels(&thinker.voter, &questions)?;
    let shape = thinker.voter.prompt_shape(&questions)?;
    let samples = args.thinker.samples();
    let thinking = Thinking {
        thinker: &thinker,
        questions: &questions,
        samples,
        seed: args.thinker.voter.0.seed,
    };
    let journal = journal_path(output);
    let steps = with_journal(&bar, &journal, |progress| {
        let workers = args.thinker.voter.0.server.concurrency;
        thinking.run(&journal, workers, progress)
    })?;
    let mut thoughts = Vec::new();
    for (place, steps) in steps.into_iter().enumerate() {
        let (question, label) = (place / samples, labels[place / samples].as_deref());
        let asked = (&questions[question], label);
        let number = (samples.get() > 1).then(|| place % samples + 1);
        thoughts.push(WholeThought::new(&thinker, asked, number, steps)?);
    }
    let labelled = labels.iter().flatten().count();
    let about = json!({"seed": thinking.seed, "samples": samples, "labelled": labelled});
    write_traces(
        output,
        thinker.record(),
        (shape.as_ref(), &questions),
        ("thoughts", &about),
        thoughts.iter().map(WholeThought::trace),
    )?;
    if let Some(path) = &args.thoughts {
        write_thoughts(path, &thoughts)?;
    }
    std::fs::remove_file(&journal).with_context(|| format!("{}", journal.display()))?;
    report(args, output, &thoughts, bar.last().earlier)?;
    Ok(ExitCode::SUCCESS)
}

/// A thought that went to its end.
struct WholeThought<'a> {
    question: &'a Question,
    label: Option<&'a str>,
    /// Its number, from 1, where there are several about the question.
    number: Option<usize>,
    steps: Vec<ThoughtStep>,
    answers: Vec<String>,
    trace: ThoughtTrace,
}

impl<'a> WholeThought<'a> {
    fn new(
        thinker: &Thinker,
        (question, label): (&'a Question, Option<&'a str>),
        number: Option<usize>,
        steps: Vec<ThoughtStep>,
    ) -> anyhow::Result<Self> {
        let answers = steps
            .iter()
            .map(|step| thinker.answer(question, &step.probe));
        let answers: Vec<String> = answers.collect::<haltwise_llm::Result<_>>()?;
        let trace = ThoughtTrace::new(answers.iter().map(String::as_str), label);
        Ok(Self {
            question,
            label,
            number,
            steps,
            answers,
            trace: trace.with_context(|| format!("question {}", question.id))?,
        })
    }

    fn id(&self) -> String {
        let id = &self.question.id;
        self.number
            .map_or(id.clone(), |number| format!("{id}/{number}"))
    }

    fn trace(&self) -> AnswerTrace<'_> {
        let cost = |step: &ThoughtStep| (step.thought.tokens + step.probe.tokens) as f32;
        AnswerTrace {
            id: self.id(),
            question: self.number.map(|_| self.question.id.as_str()),
            label: self.label.map(|_| self.trace.label),
            predictions: &self.trace.predictions,
            scores: &self.trace.scores,
            costs: self.steps.iter().map(cost).collect(),
        }
    }

    /// Whether its limit ended it.
    fn is_cut(&self) -> bool {
        self.steps.last().is_some_and(|step| step.thought.cut)
    }
}

fn write_thoughts(path: &Path, thoughts: &[WholeThought<'_>]) -> anyhow::Result<()> {
    Ok(write_whole(path, |out| {
        for thought in thoughts {
            let tokens = |of: fn(&ThoughtStep) -> u64| -> Vec<u64> {
                thought.steps.iter().map(of).collect()
            };
            let line = json!({
                "id": thought.id(), "label": thought.label, "answers": thought.answers,
                "tokens": tokens(|s| s.thought.tokens), "probe_tokens": tokens(|s| s.probe.tokens),
                "probes": thought.steps.iter().map(|s| &s.probe.text).collect::<Vec<_>>(),
                "thought": thought.steps.iter().map(|s| s.thought.text.as_str()).collect::<String>(),
            });
            writeln!(out, "{line}")?;
        }
        Ok::<(), std::io::Error>(())
    })?)
}

fn report(
    args: &Args,
    output: &Path,
    thoughts: &[WholeThought<'_>],
    earlier: usize,
) -> anyhow::Result<()> {
    let right = |t: &&WholeThought<'_>| t.trace.predictions.last() == Some(&t.trace.label);
    let labelled = thoughts.iter().all(|t| t.label.is_some());
    let accuracy =
        labelled.then(|| thoughts.iter().filter(right).count() as f64 / thoughts.len() as f64);
    let steps = || thoughts.iter().flat_map(|t| &t.steps);
    let probes = steps().count();
    let empty = thoughts
        .iter()
        .flat_map(|t| &t.answers)
        .filter(|a| a.is_empty())
        .count();
    let thought_tokens: u64 = steps().map(|step| step.thought.tokens).sum();
    let probe_tokens: u64 = steps().map(|step| step.probe.tokens).sum();
    let cut = thoughts.iter().filter(|t| t.is_cut()).count();
    if 2 * empty > probes {
        show::warn(format_args!(
            "{} of {} probes gave no answer; say with --answer and --begin how an answer begins, and \
             with --think-close what ends a thought",
            number(empty as u64),
            number(probes as u64),
        ));
    }
    if args.json {
        return show::print_json(&json!({
            "thoughts": thoughts.len(), "probes": probes, "asked_earlier": earlier,
            "late_accuracy": accuracy, "thought_tokens": thought_tokens,
            "probe_tokens": probe_tokens, "without_answer": empty, "cut_off": cut,
        }));
    }
    let mut text = format!(
        "{} to the end: {:.0} tokens each on average{}.\n",
        count(thoughts.len() as u64, "thought", "thoughts"),
        thought_tokens as f64 / thoughts.len() as f64,
        accuracy.map_or(String::new(), |a| format!(", and {} are right", percent(a))),
    );
    if cut > 0 {
        text += &format!(
            "{} closed at their limit (see --max-tokens).\n",
            number(cut as u64)
        );
    }
    text += &format!(
        "{} took {} more, {} of the thoughts'; {} gave no answer.\n",
        count(probes as u64, "probe", "probes"),
        count(probe_tokens, "token", "tokens"),
        percent(probe_tokens as f64 / thought_tokens.max(1) as f64),
        number(empty as u64),
    );
    if !labelled {
        text += "Not every question has a label. Without any, calibrate with --loss disagreement: \
                 rules then promise agreement with the answer after the whole thought.\n";
    }
    text += &format!("Written to {}.\n", show::file(output));
    Ok(show::print(&text)?)
}
