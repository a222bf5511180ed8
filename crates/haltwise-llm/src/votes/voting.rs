//! Voting: all votes on all questions.

use std::num::NonZeroUsize;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::sample::Sample;
use super::voter::Voter;
use crate::error::Error;
use crate::journal::Journal;
use crate::questions::Question;
use crate::reply::Tokens;
use crate::run::{Progress, Run, digest, for_each, shown};

/// All votes on the questions of a file.
#[derive(Debug)]
pub struct Voting<'a> {
    /// The voter: model, prompt and sampling.
    pub voter: &'a Voter,
    /// The questions to vote on.
    pub questions: &'a [Question],
    /// What the seeds of the votes are drawn from.
    pub seed: u64,
    /// How many votes a request asks for.
    pub wave: NonZeroUsize,
}

/// The votes that one request brought.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Wave {
    /// The question's place, from 0.
    question: usize,
    /// The first vote's, from 0.
    vote: usize,
    seed: u64,
    samples: Vec<Sample>,
    #[serde(flatten)]
    tokens: Tokens,
}

/// The seed of a vote on a question: another for each, the same in every run. All
/// servers take one of 31 bits.
pub fn seed_of(seed: u64, id: &str, vote: usize) -> u64 {
    xxh3_64_with_seed(format!("{vote}:{id}").as_bytes(), seed) >> 33
}

impl Voting<'_> {
    /// Asks for all votes, and returns what was said for each question, in the
    /// order of the votes.
    ///
    /// A worker takes a question and asks for its votes one wave after the
    /// other, so that a server that keeps prompts has it at hand. A wave goes to
    /// the journal as a whole, before the next is asked for; those that are there
    /// already are not asked for. So a run that was killed goes on with the very
    /// requests that it would have made.
    pub fn run(
        &self,
        journal: &Path,
        workers: NonZeroUsize,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> crate::Result<Vec<Vec<Sample>>> {
        let (journal, waves) = Journal::open::<Wave>(journal, &self.key())?;
        let cast: Vec<usize> = self.samples(waves).iter().map(Vec::len).collect();
        let earlier = cast.iter().sum();
        let total = self.questions.len() * self.voter.samples;
        let run = Run::resume(journal, earlier, total, progress);
        for_each(self.questions.len(), workers, |q| {
            self.question(q, cast[q], &run)
        })?;
        let samples = self.samples(run.entries()?);
        if samples.iter().any(|s| s.len() != self.voter.samples) {
            return Err(Error::input("the journal lost votes; run it again"));
        }
        Ok(samples)
    }

    /// Asks for the votes on a question that are not there yet.
    fn question(&self, q: usize, cast: usize, run: &Run<'_>) -> crate::Result<()> {
        let question = &self.questions[q];
        let (all, most) = (self.voter.samples, self.wave.get());
        let mut vote = cast;
        while vote < all {
            // Waves begin where they would without an interruption.
            let n = (most - vote % most).min(all - vote);
            let seed = seed_of(self.seed, &question.id, vote);
            let asked = self.voter.ask(question, seed, n);
            let (samples, tokens) = asked
                .map_err(|e| e.at(format_args!("question {}, vote {}", question.id, vote + 1)))?;
            let wave = Wave {
                question: q,
                vote,
                seed,
                samples,
                tokens,
            };
            let generated = wave.samples.iter().map(|s| s.tokens).sum();
            run.add(&wave, wave.samples.len(), tokens, generated)?;
            vote += wave.samples.len();
        }
        Ok(())
    }

    /// The samples of each question, up to the first missing wave.
    fn samples(&self, waves: Vec<Wave>) -> Vec<Vec<Sample>> {
        let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); self.questions.len()];
        for wave in waves {
            if let Some(cast) = samples.get_mut(wave.question)
                && cast.len() == wave.vote
            {
                let seed = wave.seed;
                cast.extend(wave.samples.into_iter().map(|s| Sample { seed, ..s }));
                cast.truncate(self.voter.samples);
            }
        }
        samples
    }

    /// A digest of everything that completions depend on. How to find the answer
    /// in a completion is no part of that.
    fn key(&self) -> String {
        let mut record = self.voter.record();
        record.remove("answer");
        let questions = shown(self.questions);
        let mut all = json!(["votes", record, questions, self.seed, self.wave]);
        if let (Some(all), Some(system)) = (all.as_array_mut(), &self.voter.system) {
            all.push(system.as_str().into());
        }
        digest(&all)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_vote_has_its_own_seed() {
        let seed = |id: &str, vote| seed_of(7, id, vote);
        let seeds: HashSet<u64> = (0..100)
            .flat_map(|vote| ["a", "b"].map(|id| seed(id, vote)))
            .collect();
        assert_eq!(seeds.len(), 200);
        assert!(seeds.iter().all(|&seed| seed < 1 << 31));
        assert_eq!(seed("a", 3), seed("a", 3));
        assert_ne!(seed_of(8, "a", 3), seed("a", 3));
    }
}
