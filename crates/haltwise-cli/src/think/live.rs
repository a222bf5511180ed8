//! Thoughts until the rule says that they suffice.

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use haltwise::thoughts::LiveThought;
use haltwise::{Reason, Rule};
use haltwise_io::read_rule;
use haltwise_llm::{Probing, Question, Thinker};
use serde::Serialize;

use super::Args;
use crate::answers::{RightAnswers, for_each_in_order};
use crate::asked::have_the_rules_shape;
use crate::promise;
use crate::show::{self, count, number};

/// One answer, as it is printed.
#[derive(Serialize)]
struct Answered<'a> {
    id: &'a str,
    /// None where the last probe gave none.
    answer: Option<String>,
    thought_tokens: u64,
    probe_tokens: u64,
    /// The steps that were thought.
    steps: usize,
    reason: Reason,
    /// Whether the rule's promise covers this thinker and prompt.
    promised: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    right: Option<bool>,
    thought: String,
}

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    let rule = read_rule(path)?;
    let questions = args.asked.read()?;
    let record = rule.classifier();
    let is_for_thoughts = record.map(Probing::read).transpose()?.flatten().is_some();
    if record.is_some() && !is_for_thoughts && !args.force {
        bail!(
            "{}: the rule is not for thoughts; calibrate one on traces of `haltwise think`",
            show::file(path)
        );
    }
    let thinker = args
        .thinker
        .connect(&questions, record, |text| show::warn(text))?;
    let mismatches = record.map(|record| thinker.mismatches(record));
    let promised = promise::check(path, &rule, mismatches, "think", args.force)?
        & have_the_rules_shape(path, &thinker.voter, &questions, record, args.force)?;
    let is_file = args.asked.file().is_some();
    let (mut totals, as_json) = (Totals::default(), is_file || args.json);
    let print = |answered: Answered<'_>| {
        totals.add(&answered);
        if as_json {
            show::print_json(&answered)
        } else {
            Ok(show::print(&describe(&answered))?)
        }
    };
    let workers = args.thinker.voter.0.server.concurrency;
    for_each_in_order(questions.len(), workers, print, |q, print| {
        print(answer(args, &rule, &thinker, &questions[q], promised)?)
    })?;
    if is_file {
        show::note(totals.describe());
    }
    Ok(ExitCode::SUCCESS)
}

/// Thinks until the rule says stop.
fn answer<'a>(
    args: &Args,
    rule: &Rule,
    thinker: &Thinker,
    question: &'a Question,
    promised: bool,
) -> anyhow::Result<Answered<'a>> {
    let mut live = LiveThought::new(rule);
    let (mut thought_tokens, mut probe_tokens) = (0, 0);
    let named =
        |e: haltwise_llm::Error| anyhow::Error::new(e).context(format!("question {}", question.id));
    let mut thought = thinker
        .begin(question, args.thinker.voter.0.seed, 0)
        .map_err(named)?;
    let reason = loop {
        thought_tokens += thought.go_on().map_err(named)?.0.tokens;
        if !live.can_halt() && !thought.is_over() {
            continue;
        }
        let probe = thought.probe(question).map_err(named)?;
        probe_tokens += probe.said.tokens;
        if thought.is_over() {
            break live.end(&probe.answer)?;
        }
        if let Some(reason) = live.probe(&probe.answer)? {
            break reason;
        }
    };
    let answer = live.answer().map(str::to_owned);
    let label = thinker.voter.label(question)?;
    Ok(Answered {
        id: &question.id,
        right: label.map(|label| Some(label) == answer),
        answer,
        thought_tokens,
        probe_tokens,
        steps: thought.steps(),
        reason,
        promised,
        thought: thought.text().to_owned(),
    })
}

fn describe(a: &Answered<'_>) -> String {
    let answer = match &a.answer {
        Some(answer) => show::styled(show::GOOD, answer),
        None => show::styled(show::CAREFUL, "no answer"),
    };
    format!(
        "{answer}\n{} of thought, {} of probes; {}.\n",
        count(a.thought_tokens, "token", "tokens"),
        number(a.probe_tokens),
        match a.reason {
            Reason::Threshold | Reason::LastStep => "the rule ended it",
            Reason::End => "it came to its end",
        }
    )
}

/// What a batch came to.
#[derive(Default)]
struct Totals {
    questions: u64,
    ended: u64,
    right: RightAnswers,
    thought_tokens: u64,
    probe_tokens: u64,
}

impl Totals {
    fn add(&mut self, answered: &Answered<'_>) {
        self.questions += 1;
        self.ended += u64::from(answered.reason != Reason::End);
        self.right.add(answered.right);
        self.thought_tokens += answered.thought_tokens;
        self.probe_tokens += answered.probe_tokens;
    }

    fn describe(&self) -> String {
        format!(
            "{} answered; the rule ended {} of the thoughts; {} of thought, {} of probes{}",
            count(self.questions, "question", "questions"),
            number(self.ended),
            count(self.thought_tokens, "token", "tokens"),
            number(self.probe_tokens),
            self.right.describe(),
        )
    }
}
