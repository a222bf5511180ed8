//! Votes until the rule says that they suffice.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use haltwise::votes::Ballot;
use haltwise::{Reason, Rule};
use haltwise_io::read_rule;
use haltwise_llm::{Question, Sampling, Voter, seed_of};
use serde::Serialize;

use super::Args;
use crate::answers::{RightAnswers, for_each_in_order};
use crate::asked::have_the_rules_shape;
use crate::promise;
use crate::show::{self, count, number, percent};

/// One answer, as it is printed.
#[derive(Serialize)]
struct Answered<'a> {
    id: &'a str,
    /// None where no vote gave one.
    answer: Option<String>,
    votes: u32,
    /// How many there would be without the rule.
    of: usize,
    /// The share of the votes that gave the answer.
    agreement: f64,
    reason: Reason,
    /// Tokens generated, those of votes that came after the last one needed among
    /// them.
    tokens: u64,
    /// About how many tokens more all votes would have taken.
    tokens_saved: u64,
    /// The first completion that gave the answer.
    completion: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    right: Option<bool>,
    /// Whether the rule's promise covers this voter.
    promised: bool,
}

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    let rule = read_rule(path)?;
    let questions = args.asked.read()?;
    let record = rule.classifier();
    if record.is_some_and(|record| !record.contains_key("samples")) && !args.force {
        bail!(
            "{}: the rule is not for votes; calibrate one on traces of `haltwise vote`",
            show::file(path)
        );
    }
    let voter = args
        .voter
        .connect(&questions, record, Sampling::default(), |text| {
            show::warn(text)
        })?;
    let mismatches = record.map(|record| voter.mismatches(record));
    let promised = promise::check(path, &rule, mismatches, "vote", args.force)?
        & have_the_rules_shape(path, &voter, &questions, record, args.force)?;
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
    let workers = args.voter.server.concurrency;
    for_each_in_order(questions.len(), workers, print, |q, print| {
        print(answer(args, &rule, &voter, &questions[q], promised)?)
    })?;
    if is_file {
        show::note(totals.describe());
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks until the rule says stop.
fn answer<'a>(
    args: &Args,
    rule: &Rule,
    voter: &Voter,
    question: &'a Question,
    promised: bool,
) -> anyhow::Result<Answered<'a>> {
    let mut ballot = Ballot::new(rule)?;
    let mut samples = Vec::new();
    let reason = loop {
        let left = ballot.of() - samples.len();
        let n = ballot.wanted().max(args.wave.get()).min(left);
        let seed = seed_of(args.voter.seed, &question.id, samples.len());
        let (wave, _) = voter
            .ask(question, seed, n)
            .with_context(|| format!("question {}", question.id))?;
        let mut stop = None;
        for sample in &wave {
            stop = ballot.vote(&voter.answer(question, sample)?)?;
        }
        samples.extend(wave);
        if let Some(reason) = stop {
            break reason;
        }
    };
    let standing = ballot.standing();
    let tokens: u64 = samples.iter().map(|sample| sample.tokens).sum();
    let per_vote = tokens as f64 / samples.len() as f64;
    let answer = ballot.leader().map(str::to_owned);
    let label = voter.label(question)?;
    Ok(Answered {
        id: &question.id,
        right: label.map(|label| Some(label) == answer),
        answer,
        votes: standing.cast,
        of: ballot.of(),
        agreement: standing.agreement(),
        reason,
        tokens,
        tokens_saved: (per_vote * (ballot.of() - samples.len()) as f64).round() as u64,
        completion: samples.swap_remove(ballot.chosen()).text,
        promised,
    })
}

fn describe(a: &Answered<'_>) -> String {
    let answer = match &a.answer {
        Some(answer) => show::styled(show::GOOD, answer),
        None => show::styled(show::CAREFUL, "no answer"),
    };
    format!(
        "{answer}\n{} of {} votes, {} of them for it; {} generated, about {} saved.\n",
        a.votes,
        a.of,
        percent(a.agreement),
        count(a.tokens, "token", "tokens"),
        number(a.tokens_saved),
    )
}

/// What a batch came to.
#[derive(Default)]
struct Totals {
    questions: u64,
    votes: u64,
    of: usize,
    right: RightAnswers,
    tokens: u64,
    saved: u64,
}

impl Totals {
    fn add(&mut self, answered: &Answered<'_>) {
        self.questions += 1;
        self.votes += u64::from(answered.votes);
        self.of = answered.of;
        self.right.add(answered.right);
        self.tokens += answered.tokens;
        self.saved += answered.tokens_saved;
    }

    fn describe(&self) -> String {
        format!(
            "{} answered by {:.1} of {} votes on average; {} generated, about {} saved{}",
            count(self.questions, "question", "questions"),
            self.votes as f64 / self.questions.max(1) as f64,
            self.of,
            count(self.tokens, "token", "tokens"),
            number(self.saved),
            self.right.describe(),
        )
    }
}
