//! `haltwise vote`: a language model's answers to the same question, many times
//! over; or only as often as a rule asks for.

mod live;

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use haltwise::votes::VoteTrace;
use haltwise_io::{check_writable, write_whole};
use haltwise_llm::{Progress, Question, Sample, Sampling, Voter, Voting};
use serde_json::json;

use crate::asked::{AnswerTrace, AskedArgs, check_format, labels, write_traces};
use crate::progress::{Bar, journal_path, with_journal};
use crate::show::{self, count, number, percent};
use crate::voter::VoterArgs;

/// Ask a language model the same question many times, and take the answer it gives most often
///
/// With -o, every question gets all its votes, and they become traces for `calibrate` and
/// `evaluate`. The prediction after each vote is the answer that leads. The score is the
/// probability that it still leads when all votes are in. The command stores votes in
/// OUTPUT.journal as they come. After an interruption, run it again: it continues and asks
/// nothing twice.
///
/// With --rule, a question gets only as many votes as the rule asks for.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise vote questions.jsonl --server http://localhost:8000 --samples 13 -o traces.parquet
  haltwise calibrate traces.parquet -o rule.json
  haltwise vote --rule rule.json --server http://localhost:8000 --question 'What is 17 times 23?'
  haltwise vote --rule rule.json --server http://localhost:8000 new.jsonl > answers.jsonl

Questions: one per line, or the files of `read`. All but the question is optional:
  {\"id\": \"q1\", \"question\": \"What is 17 times 23?\", \"label\": \"391\"}
  {\"question\": \"…\", \"document\": \"…\", \"options\": [\"…\", \"…\"], \"label\": 1}
Without labels, calibrate with --loss disagreement, which certifies agreement with the
majority of all votes.

What clients of a proxy send, with system messages and conversations, is voted on with --requests.
Each line is the body of a request to /v1/chat/completions; an id and a label may be beside it:
  {\"messages\": [{\"role\": \"system\", \"content\": \"…\"}, {\"role\": \"user\", \"content\": \"…\"}]}

Answers are compared in one form: 1,000.0 is 1000. A vote without an answer counts as a vote, but
leads only where nobody answers.")]
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
    voter: VoterArgs,

    /// Votes per request; a server reads the question once for all of them
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Votes")]
    wave: NonZeroUsize,

    /// Where to write all completions, with answers, tokens and seeds: .jsonl
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "rule",
        help_heading = "Votes"
    )]
    completions: Option<PathBuf>,

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
    if let Some(completions) = &args.completions {
        check_writable(completions)?;
    }
    let questions = args.asked.read()?;
    let bar = Arc::new(Bar::new());
    let usual = Sampling::default();
    let voter = args.voter.connect(&questions, None, usual, bar.warner())?;
    let labels = labels(&voter, &questions)?;
    let shape = voter.prompt_shape(&questions)?;
    let voting = Voting {
        voter: &voter,
        questions: &questions,
        seed: args.voter.seed,
        wave: args.wave,
    };
    let journal = journal_path(output);
    let samples = with_journal(&bar, &journal, |progress| {
        voting.run(&journal, args.voter.server.concurrency, progress)
    })?;
    let mut ballots = Vec::new();
    for ((question, label), samples) in questions.iter().zip(labels).zip(samples) {
        ballots.push(Counted::new(&voter, question, label, samples)?);
    }
    let labelled = ballots.iter().filter(|b| b.label.is_some()).count();
    let about = json!({"seed": args.voter.seed, "wave": args.wave, "labelled": labelled});
    let traces = ballots.iter().map(Counted::trace);
    let prompts = (shape.as_ref(), &questions[..]);
    write_traces(output, voter.record(), prompts, ("votes", &about), traces)?;
    if let Some(path) = &args.completions {
        write_completions(path, &ballots)?;
    }
    std::fs::remove_file(&journal).with_context(|| format!("{}", journal.display()))?;
    report(args, output, &voter, &ballots, bar.last())?;
    Ok(ExitCode::SUCCESS)
}

/// A question whose votes were counted.
struct Counted<'a> {
    question: &'a Question,
    label: Option<String>,
    samples: Vec<Sample>,
    answers: Vec<String>,
    trace: VoteTrace,
}

impl<'a> Counted<'a> {
    fn new(
        voter: &Voter,
        question: &'a Question,
        label: Option<String>,
        samples: Vec<Sample>,
    ) -> anyhow::Result<Self> {
        let answers = samples.iter().map(|sample| voter.answer(question, sample));
        let answers: Vec<String> = answers.collect::<haltwise_llm::Result<_>>()?;
        let trace = VoteTrace::new(answers.iter().map(String::as_str), label.as_deref())?;
        Ok(Self {
            question,
            label,
            samples,
            answers,
            trace,
        })
    }

    fn trace(&self) -> AnswerTrace<'_> {
        AnswerTrace {
            id: self.question.id.clone(),
            question: None,
            label: self.label.as_ref().map(|_| self.trace.label),
            predictions: &self.trace.predictions,
            scores: &self.trace.scores,
            costs: self.samples.iter().map(|s| s.tokens as f32).collect(),
        }
    }
}

fn write_completions(path: &Path, ballots: &[Counted<'_>]) -> anyhow::Result<()> {
    Ok(write_whole(path, |out| {
        for ballot in ballots {
            let of = |value: fn(&Sample) -> serde_json::Value| -> Vec<serde_json::Value> {
                ballot.samples.iter().map(value).collect()
            };
            let line = json!({
                "id": ballot.question.id, "label": ballot.label, "answers": ballot.answers,
                "tokens": of(|s| s.tokens.into()), "seeds": of(|s| s.seed.into()),
                "texts": of(|s| s.text.as_str().into()),
            });
            writeln!(out, "{line}")?;
        }
        Ok::<(), std::io::Error>(())
    })?)
}

fn report(
    args: &Args,
    output: &Path,
    voter: &Voter,
    ballots: &[Counted<'_>],
    progress: Progress,
) -> anyhow::Result<()> {
    let n = ballots.len() as f64;
    let right = |b: &&Counted<'_>| b.trace.predictions.last() == Some(&b.trace.label);
    let labelled = ballots.iter().all(|b| b.label.is_some());
    let accuracy = labelled.then(|| ballots.iter().filter(right).count() as f64 / n);
    let agreement = ballots
        .iter()
        .map(|b| b.trace.last.agreement())
        .sum::<f64>()
        / n;
    let answers = || ballots.iter().flat_map(|b| &b.answers);
    let (all, none) = (
        answers().count(),
        answers().filter(|a| a.is_empty()).count(),
    );
    let samples = || ballots.iter().flat_map(|b| &b.samples);
    let tokens: u64 = samples().map(|s| s.tokens).sum();
    let cut = samples().filter(|s| s.cut).count();
    if 2 * none > all {
        show::warn(format_args!(
            "{} of {} votes gave no answer{}; say with --answer where it is, and in the template \
             how to answer",
            number(none as u64),
            number(all as u64),
            match cut {
                0 => String::new(),
                cut => format!(
                    ", {} of them cut off (see --max-tokens)",
                    number(cut as u64)
                ),
            }
        ));
    }
    if args.json {
        return show::print_json(&json!({
            "questions": ballots.len(), "samples": voter.samples, "votes": all,
            "asked_earlier": progress.earlier, "late_accuracy": accuracy,
            "agreement": agreement, "tokens": tokens, "without_answer": none, "cut_off": cut,
        }));
    }
    let mut text = format!(
        "Asked {} {} times each; the majority has {} of the votes on average{}.\n",
        count(ballots.len() as u64, "question", "questions"),
        voter.samples,
        percent(agreement),
        accuracy.map_or(String::new(), |a| format!(", and {} are right", percent(a))),
    );
    text += &format!(
        "{} generated, {:.0} a vote; {} of {} votes gave no answer.\n",
        count(tokens, "token", "tokens"),
        tokens as f64 / all as f64,
        number(none as u64),
        number(all as u64),
    );
    if !labelled {
        text += "Not every question has a label. Without any, calibrate with --loss \
                 disagreement: rules then promise agreement with the majority of all votes.\n";
    }
    text += &format!("Written to {}.\n", show::file(output));
    Ok(show::print(&text)?)
}
