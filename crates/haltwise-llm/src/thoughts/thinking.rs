//! Thinking: all thoughts about all questions.

use std::num::NonZeroUsize;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::thinker::Thinker;
use crate::error::Error;
use crate::journal::Journal;
use crate::questions::Question;
use crate::reply::Tokens;
use crate::run::{Progress, Run, digest, for_each, shown};
use crate::votes::Sample;

/// All thoughts about the questions of a file.
#[derive(Debug)]
pub struct Thinking<'a> {
    /// The model, its prompt, and its steps.
    pub thinker: &'a Thinker,
    /// The questions to think about.
    pub questions: &'a [Question],
    /// The thoughts about each.
    pub samples: NonZeroUsize,
    /// What the seeds of the steps are drawn from.
    pub seed: u64,
}

/// A step of a thought, and the probe behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThoughtStep {
    /// What was thought.
    pub thought: Sample,
    /// What the model said when it was asked for its answer.
    pub probe: Sample,
    /// Whether it is the last step.
    pub is_last: bool,
}

/// An entry of the journal.
#[derive(Serialize, Deserialize)]
struct Entry {
    /// The thought's place, from 0: those about one question follow each other.
    place: usize,
    /// The step's, from 0.
    number: usize,
    step: ThoughtStep,
    #[serde(flatten)]
    tokens: Tokens,
}

impl Thinking<'_> {
    /// Thinks all thoughts to their ends, and returns their steps. The thoughts about one question
    /// follow each other.
    ///
    /// A step with its probe goes to the journal before the next is asked for; those that are
    /// there already are not asked for.
    pub fn run(
        &self,
        journal: &Path,
        workers: NonZeroUsize,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> crate::Result<Vec<Vec<ThoughtStep>>> {
        // What a server cannot do is found out before there is a journal that others would meet.
        if let Some(first) = self.questions.first() {
            self.thinker.begin(first, self.seed, 0)?;
        }
        let (journal, entries) = Journal::open::<Entry>(journal, &self.key())?;
        let known = self.steps(entries);
        let total = known.len();
        let earlier = known.iter().filter(|steps| is_whole(steps)).count();
        let run = Run::resume(journal, earlier, total, progress);
        for_each(total, workers, |place| {
            self.thought(place, &known[place], &run)
        })?;
        let thoughts = self.steps(run.entries()?);
        if !thoughts.iter().all(|steps| is_whole(steps)) {
            return Err(Error::input("the journal lost steps; run it again"));
        }
        Ok(thoughts)
    }

    /// Thinks on where an earlier run ended.
    fn thought(&self, place: usize, known: &[ThoughtStep], run: &Run<'_>) -> crate::Result<()> {
        if is_whole(known) {
            return Ok(());
        }
        let question = &self.questions[place / self.samples];
        let named = |e: Error| e.at(format_args!("question {}", question.id));
        let number = place % self.samples;
        let begun = self.thinker.begin(question, self.seed, number);
        let mut thought = begun.map_err(named)?;
        // llama.cpp has forgotten how it came to a step, and would go on with other digits.
        if !self.thinker.voter.server.is_llama_cpp() {
            known.iter().for_each(|step| thought.add(&step.thought));
        }
        while !thought.is_over() {
            let number = thought.steps();
            let (thinks, mut tokens) = thought.go_on().map_err(named)?;
            let probe = thought.probe(question).map_err(named)?;
            tokens += probe.prompt;
            let entry = Entry {
                place,
                number,
                step: ThoughtStep {
                    thought: thinks,
                    probe: probe.said,
                    is_last: thought.is_over(),
                },
                tokens,
            };
            let generated = entry.step.thought.tokens + entry.step.probe.tokens;
            run.add(&entry, usize::from(thought.is_over()), tokens, generated)?;
        }
        Ok(())
    }

    /// The steps of each thought, up to the first missing one. A thought may have begun anew.
    fn steps(&self, entries: Vec<Entry>) -> Vec<Vec<ThoughtStep>> {
        let mut thoughts = vec![Vec::new(); self.questions.len() * self.samples.get()];
        for entry in entries {
            if let Some(steps) = thoughts.get_mut(entry.place)
                && entry.number <= steps.len()
            {
                steps.truncate(entry.number);
                steps.push(entry.step);
            }
        }
        thoughts
    }

    /// A digest of everything that steps depend on. How to read an answer is no part of that.
    fn key(&self) -> String {
        let mut record = self.thinker.record();
        record.remove("answer");
        let questions = shown(self.questions);
        let system = &self.thinker.voter.system;
        let all = json!([
            "thoughts",
            record,
            questions,
            self.seed,
            self.samples,
            system
        ]);
        digest(&all)
    }
}

fn is_whole(steps: &[ThoughtStep]) -> bool {
    steps.last().is_some_and(|step| step.is_last)
}
