//! What `vote` and `think` share: questions in, and traces of their answers out.

use std::path::{Path, PathBuf};

use anyhow::bail;
use haltwise::Sequence;
use haltwise::traces::About;
use haltwise_io::{CLASSIFIER, Columns, Format, TraceWriter, WriteOptions};
use haltwise_llm::{PromptShape, Question, Record, Voter, read_requests};
use serde_json::Value;

use crate::read::OPTIONS;
use crate::reader::QuestionArgs;
use crate::show;

/// The column of the question that a sequence is about, where there are several about one.
pub(crate) const QUESTION: &str = "question";

/// The questions: a file of them, recorded requests, or one.
#[derive(clap::Args)]
pub(crate) struct AskedArgs {
    /// The questions
    #[arg(required_unless_present_any = ["question", "requests"], conflicts_with = "question")]
    questions: Option<PathBuf>,

    /// Ask recorded requests: one body of /v1/chat/completions per line
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["questions", "question", "template", "system", "documents",
                              "shuffle_options", "letters"],
        help_heading = "Questions"
    )]
    requests: Option<PathBuf>,

    /// A question to answer
    #[arg(long, value_name = "TEXT", requires = "rule")]
    question: Option<String>,

    #[command(flatten)]
    question_args: QuestionArgs,
}

impl AskedArgs {
    /// The file that the questions are in.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.questions.as_deref().or(self.requests.as_deref())
    }

    pub(crate) fn read(&self) -> anyhow::Result<Vec<Question>> {
        if let Some(path) = &self.requests {
            return Ok(read_requests(path)?);
        }
        if let Some(path) = &self.questions {
            return self.question_args.read_free(path);
        }
        let text = self.question.as_deref().unwrap_or_default().trim();
        if text.is_empty() {
            bail!("the question is empty");
        }
        Ok(vec![Question {
            // Its seeds are drawn from its words.
            id: text.to_owned(),
            document: "".into(),
            question: text.to_owned(),
            options: Vec::new(),
            label: None,
            answer: None,
            request: None,
        }])
    }
}

/// The right answers, where they are known.
pub(crate) fn labels(voter: &Voter, questions: &[Question]) -> anyhow::Result<Vec<Option<String>>> {
    let labels = questions.iter().map(|question| voter.label(question));
    Ok(labels.collect::<haltwise_llm::Result<_>>()?)
}

/// Refuses questions whose prompts have another shape than those that the rule was calibrated
/// on, unless forced. Returns whether none has.
pub(crate) fn have_the_rules_shape(
    path: &Path,
    voter: &Voter,
    questions: &[Question],
    record: Option<&Record>,
    force: bool,
) -> anyhow::Result<bool> {
    let Some(record) = record else {
        return Ok(false);
    };
    for question in questions {
        if let Some(reason) = voter.prompt_difference(question, record)? {
            let id = &question.id;
            let differs = format!(
                "{}: nothing is promised about the question {id}: {reason}",
                show::file(path)
            );
            if !force {
                bail!("{differs}\nCalibrate on prompts like that, or use the rule with --force");
            }
            show::warn(differs);
            return Ok(false);
        }
    }
    Ok(true)
}

/// Refuses a format without a place for the model that answers, or for costs.
pub(crate) fn check_format(path: &Path) -> anyhow::Result<()> {
    if !Format::of(path)?.has_costs() {
        bail!(
            "{}: this format has no place for the model that answers and for what a step costs; \
             write .parquet or .arrow",
            show::file(path)
        );
    }
    Ok(())
}

/// The answers to a question as a sequence.
pub(crate) struct AnswerTrace<'a> {
    pub(crate) id: String,
    /// The question, where several sequences are about one.
    pub(crate) question: Option<&'a str>,
    pub(crate) label: Option<u32>,
    pub(crate) predictions: &'a [u32],
    pub(crate) scores: &'a [f32],
    /// The tokens of each step.
    pub(crate) costs: Vec<f32>,
}

/// Writes traces with all that is known about the model and its prompts. `about` is what the
/// command itself has to say, under its name.
pub(crate) fn write_traces<'a>(
    output: &Path,
    mut record: Record,
    (shape, questions): (Option<&PromptShape>, &[Question]),
    about: (&str, &Value),
    traces: impl Iterator<Item = AnswerTrace<'a>>,
) -> anyhow::Result<()> {
    if let Some(shape) = shape {
        shape.write(&mut record);
    }
    let most = questions
        .iter()
        .map(|question| question.options.len())
        .max();
    if let Some(most) = most.filter(|&most| most > 0) {
        record.insert(OPTIONS.into(), most.to_string());
    }
    let mut traces = traces.peekable();
    let has_units = traces.peek().is_some_and(|first| first.question.is_some());
    let options = WriteOptions {
        metadata: vec![
            (CLASSIFIER.into(), serde_json::to_string(&record)?),
            (about.0.into(), about.1.to_string()),
        ],
        columns: Columns {
            costs: Some("cost".into()),
            unit: has_units.then(|| QUESTION.into()),
            ..Columns::default()
        },
        ..WriteOptions::default()
    };
    let mut writer = TraceWriter::create(output, options)?;
    for trace in traces {
        writer.write(Sequence {
            id: Some(&trace.id),
            label: trace.label,
            predictions: Some(trace.predictions),
            scores: Some(trace.scores),
            about: About {
                costs: Some(&trace.costs),
                unit: trace.question,
                ..About::default()
            },
            ..Sequence::default()
        })?;
    }
    Ok(writer.finish()?)
}
