//! `haltwise read`: a language model's answers after each part of its documents.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use haltwise::Sequence;
use haltwise_io::{CLASSIFIER, Format, TraceWriter, WriteOptions};
use haltwise_llm::{Answer, Progress, Question, Reader, Reading};

use crate::progress::{Bar, journal_path, with_journal};
use crate::reader::{QuestionArgs, ReaderArgs};
use crate::show::{self, count, number, percent};

/// Ask a language model every question after every part of its document
///
/// The answers become traces for `calibrate` and `evaluate`. The command stores
/// answers in OUTPUT.journal as they come. After an interruption, run it again: it
/// continues and asks nothing twice.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise read QuALITY.v1.0.1.htmlstripped.dev --server http://localhost:8000 -o traces.parquet
  haltwise read questions.jsonl --documents papers --server http://localhost:8080 \\
      --chat-format chatml --split sentences --parts 20 -o traces.parquet

Questions: QuALITY's JSONL, L-Eval's, or one question per line:
  {\"document\": \"…\", \"question\": \"…\", \"options\": [\"…\", \"…\"], \"label\": 1}
with the label counted from 0, or the text of the right option; \"id\" is optional.

The traces, and the rules made from them, record the model, the template and all else that the
answers depend on. `ask` refuses a rule that was calibrated for another reader.")]
pub(crate) struct Args {
    /// The questions
    questions: PathBuf,

    /// Where to write the traces: .parquet, .arrow or .npz
    #[arg(short, long, value_name = "TRACES")]
    output: PathBuf,

    #[command(flatten)]
    question_args: QuestionArgs,

    #[command(flatten)]
    reader: ReaderArgs,

    /// Print one JSON object instead of words
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    check_output(&args.output)?;
    let questions = args.question_args.read(&args.questions)?;
    let labels = labels(&questions, &args.questions)?;
    let bar = Arc::new(Bar::new());
    let reader = args.reader.connect(None, bar.warner())?;
    if !reader.template.reads_document_first() {
        show::warn(
            "the template puts the question before the document: the server reads every \
             document anew for each question",
        );
    }
    let reading = Reading::new(&reader, &questions)?;
    let journal = journal_path(&args.output);
    let answers = with_journal(&bar, &journal, |progress| {
        reading.run(&journal, args.reader.server.concurrency, progress)
    })?;
    let right = write(&args.output, &reader, &questions, &labels, &answers)?;
    std::fs::remove_file(&journal).with_context(|| format!("{}", journal.display()))?;
    report(&args, &reading, &answers, right, bar.last())?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses a format without a place for what the traces are worthless without.
pub(crate) fn check_output(path: &Path) -> anyhow::Result<()> {
    if !Format::of(path)?.has_metadata() {
        bail!(
            "{}: this format has no place for the model and the template that the traces are \
             of; write .parquet, .arrow or .npz",
            show::file(path)
        );
    }
    Ok(())
}

fn labels(questions: &[Question], path: &Path) -> anyhow::Result<Vec<u32>> {
    let label = |q: &Question| match q.label {
        Some(label) => Ok(label as u32),
        None => bail!(
            "{}: the question {} has no label; a rule is calibrated on questions whose right \
             answer is known",
            show::file(path),
            q.id
        ),
    };
    questions.iter().map(label).collect()
}

/// Writes the traces, and returns how many full predictions are right.
fn write(
    output: &Path,
    reader: &Reader,
    questions: &[Question],
    labels: &[u32],
    answers: &[Vec<Answer>],
) -> anyhow::Result<usize> {
    // Questions may have unequally many options; those that one lacks have
    // probability 0.
    let classes = questions.iter().map(|q| q.options.len()).max().unwrap_or(0);
    let mut record = reader.record();
    record.insert(OPTIONS.into(), classes.to_string());
    let options = WriteOptions {
        metadata: vec![(CLASSIFIER.into(), serde_json::to_string(&record)?)],
        ..WriteOptions::default()
    };
    let mut writer = TraceWriter::create(output, options)?;
    let mut right = 0;
    for (i, answers) in answers.iter().enumerate() {
        let predictions: Vec<u32> = answers.iter().map(|a| a.choice() as u32).collect();
        let padded = |a: &Answer| padded(&a.probs, classes);
        let probs: Vec<f32> = answers.iter().flat_map(padded).collect();
        right += usize::from(predictions.last() == Some(&labels[i]));
        writer.write(Sequence {
            id: Some(&questions[i].id),
            label: Some(labels[i]),
            predictions: Some(&predictions),
            // The largest probability.
            scores: None,
            probs: Some((&probs, classes)),
            ..Sequence::default()
        })?;
    }
    writer.finish()?;
    Ok(right)
}

/// What a classifier's record calls the most options of a question.
pub(crate) const OPTIONS: &str = "options";

/// Probabilities with 0 for the options that a question lacks.
pub(crate) fn padded(probs: &[f32], options: usize) -> Vec<f32> {
    let lacking = options.saturating_sub(probs.len());
    let lacking = std::iter::repeat_n(0.0, lacking);
    probs.iter().copied().chain(lacking).collect()
}

fn report(
    args: &Args,
    reading: &Reading<'_>,
    answers: &[Vec<Answer>],
    right: usize,
    progress: Progress,
) -> anyhow::Result<()> {
    let all = answers.iter().flatten();
    let some = all.clone().filter(|a| !a.missing.is_empty()).count();
    let none = all.filter(|a| a.knows_nothing()).count();
    let accuracy = right as f64 / answers.len() as f64;
    let total = progress.total as u64;
    if none > 0 {
        show::warn(format_args!(
            "{} of {} had no letter of an option among the likeliest tokens: the model may need \
             --chat-format, --endpoint chat or another template; all options count as \
             equally likely there",
            count(none as u64, "answer", "answers"),
            number(total)
        ));
    }
    if args.json {
        return show::print_json(&serde_json::json!({
            "questions": answers.len(), "documents": reading.documents(),
            "t_max": reading.most_parts(), "answers": total,
            "answered_earlier": progress.earlier, "late_accuracy": accuracy,
            "tokens": progress.tokens.sent, "tokens_cached": progress.tokens.cached,
            "answers_missing_letters": some, "answers_without_letters": none,
        }));
    }
    let tokens = progress.tokens;
    let mut text = format!(
        "Asked {} about {} after each of up to {} parts; read to the end, {} are right.\n",
        count(answers.len() as u64, "question", "questions"),
        count(reading.documents() as u64, "document", "documents"),
        reading.most_parts(),
        percent(accuracy),
    );
    text += &format!(
        "{} sent, {} of them kept by the server from before: {} computed.\n",
        count(tokens.sent, "token", "tokens"),
        number(tokens.cached),
        number(tokens.sent.saturating_sub(tokens.cached)),
    );
    // Those without any letter were told of above.
    if some > none {
        text += &format!(
            "In {} of {} answers some letters, not all, were not among the likeliest tokens; \
             their options count as impossible there.\n",
            number((some - none) as u64),
            number(total)
        );
    }
    text += &format!("Written to {}.\n", show::file(&args.output));
    Ok(show::print(&text)?)
}
