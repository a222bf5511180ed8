//! `haltwise ask`: a language model that stops reading when it knows.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use haltwise::{Decision, Reason, Rule, State, Step};
use haltwise_io::read_rule;
use haltwise_llm::{Mismatch, Question, Reader, Tokens, by_document};
use serde::Serialize;

use crate::answers::{RightAnswers, for_each_in_order};
use crate::promise;
use crate::read::{OPTIONS, padded};
use crate::reader::{QuestionArgs, RuleReaderArgs};
use crate::show::{self, count, number, percent};

/// Answer a question about a document, and stop reading when the rule says so
///
/// Reads part by part and asks the model after each. The rule recorded the model, the
/// template and all else; `ask` uses the same and refuses others.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise ask --rule rule.json --server http://localhost:8000 \\
      --document report.txt --question 'Who signed it?' --options Ann Bob Cem
  haltwise ask --rule rule.json --server http://localhost:8000 \\
      questions.jsonl --documents papers > answers.jsonl")]
pub(crate) struct Args {
    /// Questions to answer, a JSON object per line as for `read`; a label is not needed
    #[arg(required_unless_present = "document", conflicts_with_all = ["document", "question", "options"])]
    questions: Option<PathBuf>,

    /// The rule to stop by
    #[arg(long, value_name = "RULE")]
    rule: PathBuf,

    /// The document to read
    #[arg(long, value_name = "FILE", requires = "question", requires = "options")]
    document: Option<PathBuf>,

    /// What to ask about it
    #[arg(long, value_name = "TEXT", requires = "document")]
    question: Option<String>,

    /// The answers to choose from
    #[arg(long, value_name = "OPTION", num_args = 2..=26, requires = "document",
          allow_negative_numbers = true)]
    options: Vec<String>,

    #[command(flatten)]
    question_args: QuestionArgs,

    #[command(flatten)]
    reader: RuleReaderArgs,

    /// Use the rule although it is for another model or template: nothing is promised then
    #[arg(long)]
    force: bool,

    /// Print JSON instead of words (questions from a file are answered in JSON anyway)
    #[arg(long)]
    json: bool,
}

/// One answer, as it is printed.
#[derive(Serialize)]
struct Answered<'a> {
    id: &'a str,
    answer: &'a str,
    /// The option's place, from 0.
    option: usize,
    probs: Vec<f32>,
    /// The part after which it stopped, and how many there are.
    t: usize,
    parts: usize,
    reason: Reason,
    /// The share of the document that was read.
    read: f64,
    tokens: u64,
    tokens_cached: u64,
    /// About how many tokens more reading to the end would have sent.
    tokens_saved: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    right: Option<bool>,
    /// Whether the rule's promise covers this reader.
    promised: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let rule = read_rule(&args.rule)?;
    let questions = questions(&args)?;
    let reader_args = &args.reader.0;
    let reader = reader_args.connect(rule.classifier(), |text| show::warn(text))?;
    let mismatches = rule
        .classifier()
        .map(|record| Mismatch::between(record, &reader.record()));
    let promised = promise::check(&args.rule, &rule, mismatches, "read", args.force)?;
    let documents = by_document(&questions);
    let (mut totals, as_json) = (Totals::default(), args.questions.is_some() || args.json);
    let print = |answered: Answered<'_>| {
        totals.add(&answered);
        if as_json {
            show::print_json(&answered)
        } else {
            Ok(show::print(&describe(&answered, &reader))?)
        }
    };
    let workers = reader_args.server.concurrency;
    for_each_in_order(documents.len(), workers, print, |d, print| {
        let members: Vec<&Question> = documents[d].iter().map(|&q| &questions[q]).collect();
        let ends = reader.part_ends(&members[0].document)?;
        for question in members {
            check_fits(&rule, question, ends.len())?;
            print(answer(&rule, &reader, question, &ends, promised)?)?;
        }
        Ok(())
    })?;
    if args.questions.is_some() {
        show::note(totals.describe());
    }
    Ok(ExitCode::SUCCESS)
}

fn questions(args: &Args) -> anyhow::Result<Vec<Question>> {
    if let Some(path) = &args.questions {
        return args.question_args.read(path);
    }
    let (Some(path), Some(question)) = (&args.document, &args.question) else {
        bail!("give a file of questions, or --document, --question and --options");
    };
    let text = show::read_text(path)?;
    if text.trim().is_empty() {
        bail!("{}: the document is empty", show::file(path));
    }
    Ok(vec![Question {
        id: path.display().to_string(),
        document: text.trim().into(),
        question: question.trim().to_owned(),
        options: args.options.clone(),
        label: None,
        answer: None,
        request: None,
    }])
}

/// How many options the questions had that the rule was calibrated on.
fn most_options(rule: &Rule) -> Option<usize> {
    rule.classifier()?.get(OPTIONS)?.parse().ok()
}

/// Refuses a question unlike all that the rule was calibrated on.
fn check_fits(rule: &Rule, question: &Question, parts: usize) -> anyhow::Result<()> {
    if parts > rule.t_max() && !rule.reads_on() {
        bail!(
            "question {}: its document has {parts} parts, but the rule is for {} at the most; \
             calibrate on documents as long as this",
            question.id,
            rule.t_max()
        );
    }
    let options = question.options.len();
    if let Some(most) = most_options(rule).filter(|&most| options > most) {
        bail!(
            "question {}: it has {options} options, but the rule is for {most} at the most",
            question.id
        );
    }
    Ok(())
}

/// Reads until the rule says stop.
fn answer<'a>(
    rule: &Rule,
    reader: &Reader,
    question: &'a Question,
    ends: &[usize],
    promised: bool,
) -> anyhow::Result<Answered<'a>> {
    let document = &question.document;
    let options = most_options(rule).unwrap_or(question.options.len());
    let mut state = State::new();
    let (mut tokens, mut bytes) = (Tokens::default(), 0);
    for (part, &end) in ends.iter().enumerate() {
        let asked = reader.ask(&document[..end], question)?;
        tokens += asked.tokens;
        bytes += asked.bytes;
        let step = Step {
            prediction: Some(asked.answer.choice() as u32),
            score: None,
            probs: Some(&padded(&asked.answer.probs, options)),
        };
        let reason = match rule.observe(&mut state, &step)? {
            _ if part + 1 == ends.len() => Reason::End,
            Decision::Halt(reason) => reason,
            Decision::Continue => continue,
        };
        let rest = ends[part + 1..].iter();
        let unsent: usize = rest
            .map(|&end| reader.prompt_bytes(&document[..end], question))
            .sum::<haltwise_llm::Result<_>>()?;
        let option = asked.answer.choice();
        return Ok(Answered {
            id: &question.id,
            answer: &question.options[option],
            option,
            probs: asked.answer.probs,
            t: part + 1,
            parts: ends.len(),
            reason,
            read: end as f64 / document.len() as f64,
            tokens: tokens.sent,
            tokens_cached: tokens.cached,
            tokens_saved: (tokens.sent as f64 * unsent as f64 / bytes as f64).round() as u64,
            right: question.label.map(|label| label == option),
            promised,
        });
    }
    bail!("question {}: its document has no parts", question.id)
}

fn describe(a: &Answered<'_>, reader: &Reader) -> String {
    let letter = reader.letters.first(a.probs.len()).map(|l| l[a.option]);
    let letter = letter.map_or(String::new(), |letter| format!("{letter}. "));
    let mut text = format!(
        "{} (probability {})\n",
        show::styled(show::GOOD, format!("{letter}{}", a.answer)),
        percent(f64::from(a.probs[a.option])),
    );
    text += &format!(
        "Read {} of {} parts, {} of the document{}.\n",
        a.t,
        a.parts,
        percent(a.read),
        if a.reason == Reason::End {
            ": to its end"
        } else {
            ""
        },
    );
    text += &format!(
        "{} sent, {} of them kept by the server from before; about {} saved.\n",
        count(a.tokens, "token", "tokens"),
        number(a.tokens_cached),
        number(a.tokens_saved),
    );
    text
}

/// What a batch came to.
#[derive(Default)]
struct Totals {
    questions: u64,
    right: RightAnswers,
    read: f64,
    tokens: Tokens,
    saved: u64,
}

impl Totals {
    fn add(&mut self, answered: &Answered<'_>) {
        self.questions += 1;
        self.right.add(answered.right);
        self.read += answered.t as f64 / answered.parts as f64;
        self.tokens += Tokens {
            sent: answered.tokens,
            cached: answered.tokens_cached,
        };
        self.saved += answered.tokens_saved;
    }

    fn describe(&self) -> String {
        format!(
            "{} answered, after {} of the parts on average; {} sent ({} from the server's \
             cache), about {} saved{}",
            count(self.questions, "question", "questions"),
            percent(self.read / self.questions.max(1) as f64),
            count(self.tokens.sent, "token", "tokens"),
            number(self.tokens.cached),
            number(self.saved),
            self.right.describe(),
        )
    }
}
