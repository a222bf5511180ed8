//! Traces: what a classifier said about each sequence, laid out for the
//! calibration loops.
//!
//! Traces are kept in blocks of [`BLOCK`] sequences, and inside a block
//! step-major: all scores of step 1, then all of step 2. Every inner loop runs
//! over one contiguous row that fits the first-level cache, blocks are the unit
//! of parallel work, and a reader that does not know how many sequences will
//! come can append without ever copying what it already holds.
//!
//! Of a prediction only one bit survives, whether it was right: with the full
//! prediction's bit it gives the gap, and nothing here needs more.

use std::fmt;

use crate::lanes::{LANES, Lanes, mask};
use crate::score::ScoreSource;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

/// Sequences per block, at most. A row of 4096 scores is 16 KiB: half a
/// first-level cache.
const BLOCK: usize = 4096;

/// How many entries of a block may be padding for short sequences beside a
/// long one. A block that would hold more, and more than it holds steps, is
/// closed early, so that one huge sequence cannot blow up its neighbours.
const PADDING: usize = 1 << 20;

/// Why a sequence cannot become a trace.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A score is NaN or outside [0, 1].
    #[error("{}the score {value} is not a number in [0, 1]", at_step(.step))]
    Score {
        /// The step, counted from 1, where one is known.
        step: Option<usize>,
        /// What was found.
        value: f32,
    },
    /// A sequence has no step.
    #[error("the sequence has no steps")]
    NoSteps,
    /// A sequence has more steps than can be counted.
    #[error("the sequence has {0} steps; at most {max} are supported", max = MAX_STEPS)]
    TooLong(usize),
    /// The numbers of predictions and scores differ.
    #[error("{predictions} predictions but {scores} scores")]
    Lengths {
        /// How many predictions there are.
        predictions: usize,
        /// How many scores there are.
        scores: usize,
    },
    /// Class probabilities do not come in equal numbers at each step.
    #[error("{found} class probabilities cannot be shared evenly by {steps} steps")]
    Probs {
        /// How many there are.
        found: usize,
        /// How many steps the sequence has.
        steps: usize,
    },
    /// There is nothing to take a score from.
    #[error("there are neither scores nor class probabilities")]
    NoScores,
    /// Some sequences have scores or class probabilities that others lack.
    #[error(
        "scores, or class probabilities, or the number of classes differ from the sequences before"
    )]
    Unlike,
}

fn at_step(step: &Option<usize>) -> String {
    step.map(|t| format!("step {t}: ")).unwrap_or_default()
}

/// The longest sequence supported.
pub const MAX_STEPS: usize = (1 << 24) - 1;

/// A digest of a set of traces that does not depend on their order, and that
/// adds up: the sum of two sets' fingerprints is the fingerprint of both.
///
/// It guards against mix-ups, not against forgery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// The digest of one sequence by all its bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes))
    }

    /// The digest of one sequence of a set of traces; `bytes` is room to work in.
    fn of_sequence(scores: &[f32], correct: &[bool], bytes: &mut Vec<u8>) -> Self {
        bytes.clear();
        // +0.0 turns −0 into 0: equal scores hash alike.
        bytes.extend(scores.iter().flat_map(|score| (score + 0.0).to_le_bytes()));
        bytes.extend(correct.iter().map(|&c| u8::from(c)));
        Self::of(bytes)
    }
}

impl std::ops::Add for Fingerprint {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

impl std::iter::Sum for Fingerprint {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), std::ops::Add::add)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16)
            .map(Self)
            .map_err(|_| serde::de::Error::custom("a fingerprint is 32 hexadecimal digits"))
    }
}

/// Up to [`BLOCK`] sequences, step-major, each row filled up to whole words.
pub(crate) struct Block {
    /// The position of its first sequence among all.
    pub(crate) start: usize,
    /// How many sequences.
    pub(crate) len: usize,
    /// How many steps the longest of them has.
    pub(crate) steps: usize,
    /// `steps` rows of scores; 0 past a sequence's end.
    scores: Vec<Lanes<f32>>,
    /// `steps` rows of bits: was the prediction right?
    correct: Vec<u64>,
    /// One row of bits: was the full prediction right?
    pub(crate) full: Vec<u64>,
    /// The 0-based last step of each sequence; 0 behind the last sequence.
    pub(crate) last: Vec<Lanes<u32>>,
    /// Whether all sequences have `steps` steps.
    pub(crate) equal_lengths: bool,
    /// What each sequence is split by: a hash of its id or of its position.
    keys: Vec<u64>,
    fingerprint: Fingerprint,
}

impl Block {
    /// How many words of 64 sequences.
    #[inline(always)]
    pub(crate) fn words(&self) -> usize {
        self.full.len()
    }

    /// The lanes of a word that hold a sequence.
    #[inline(always)]
    pub(crate) fn valid(&self, word: usize) -> u64 {
        match self.len - word * LANES {
            1..LANES => (1 << (self.len % LANES)) - 1,
            _ => !0,
        }
    }

    /// The scores of all sequences at step `t` (0-based).
    #[inline(always)]
    pub(crate) fn scores(&self, t: usize) -> &[Lanes<f32>] {
        &self.scores[t * self.words()..(t + 1) * self.words()]
    }

    /// For each sequence, whether its prediction at step `t` was right.
    #[inline(always)]
    pub(crate) fn correct(&self, t: usize) -> &[u64] {
        &self.correct[t * self.words()..(t + 1) * self.words()]
    }

    /// The sequences of a word whose last step is `t`.
    #[inline(always)]
    pub(crate) fn ends(&self, word: usize, t: usize) -> u64 {
        if self.equal_lengths {
            return if t + 1 == self.steps {
                self.valid(word)
            } else {
                0
            };
        }
        self.valid(word) & mask(|i| self.last[word][i] == t as u32)
    }

    /// The 0-based last step of sequence `i`.
    pub(crate) fn last(&self, i: usize) -> u32 {
        self.last[i / LANES][i % LANES]
    }

    fn sequence(&self, i: usize) -> (Vec<bool>, Vec<f32>) {
        let steps = 0..=self.last(i) as usize;
        (
            steps.clone().map(|t| bit(self.correct(t), i)).collect(),
            steps
                .map(|t| self.scores(t)[i / LANES][i % LANES])
                .collect(),
        )
    }
}

/// What a sequence is split by: a hash of its id, or of its position where it
/// has none.
pub(crate) fn key_of(id: Option<&str>, position: usize) -> u64 {
    match id {
        Some(id) => xxh3_64_with_seed(id.as_bytes(), 1),
        None => xxh3_64_with_seed(&(position as u64).to_le_bytes(), 2),
    }
}

/// Where a key falls in the draw of a seed.
pub(crate) fn split_hash(key: u64, seed: u64) -> u64 {
    xxh3_64_with_seed(&key.to_le_bytes(), seed)
}

/// Bit `i` of a row of bits.
pub(crate) fn bit(row: &[u64], i: usize) -> bool {
    row[i / LANES] >> (i % LANES) & 1 == 1
}

/// What a classifier said about a set of sequences: at every step a score and
/// whether the prediction was right.
///
/// Traces are not `Clone` on purpose. [`Screening`] and [`Certifying`] take
/// them by value, so that what screening saw cannot also certify by accident.
pub struct Traces {
    len: usize,
    t_max: usize,
    source: ScoreSource,
    pub(crate) blocks: Vec<Block>,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces")
            .field("len", &self.len)
            .field("t_max", &self.t_max)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl Traces {
    /// An empty set to which sequences are added one by one.
    pub fn builder() -> TracesBuilder {
        TracesBuilder::default()
    }

    /// How many sequences there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no sequence at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of steps of the longest sequence.
    pub fn t_max(&self) -> usize {
        self.t_max
    }

    /// How the scores came about.
    pub fn source(&self) -> &ScoreSource {
        &self.source
    }

    /// Refuses a number of steps that no sequence can have.
    pub(crate) fn check_length(steps: usize) -> Result<(), TraceError> {
        match steps {
            0 => Err(TraceError::NoSteps),
            1..=MAX_STEPS => Ok(()),
            _ => Err(TraceError::TooLong(steps)),
        }
    }

    /// Refuses what is no score.
    pub(crate) fn check_scores(scores: &[f32]) -> Result<(), TraceError> {
        match scores.iter().position(|s| !(0.0..=1.0).contains(s)) {
            None => Ok(()),
            Some(t) => Err(TraceError::Score {
                step: Some(t + 1),
                value: scores[t],
            }),
        }
    }

    /// The digest of everything that calibrating reads from these traces.
    pub fn fingerprint(&self) -> Fingerprint {
        self.blocks.iter().map(|b| b.fingerprint).sum()
    }

    /// The digest of each sequence, in input order.
    pub(crate) fn fingerprints(&self) -> Vec<Fingerprint> {
        let of_sequence = |i: usize| {
            let (correct, scores) = self.sequence(i).unwrap_or_default();
            Fingerprint::of_sequence(&scores, &correct, &mut Vec::new())
        };
        (0..self.len).into_par_iter().map(of_sequence).collect()
    }

    /// The number of steps of each sequence, in input order.
    pub fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        self.blocks
            .iter()
            .flat_map(|b| (0..b.len).map(|i| b.last(i) as usize + 1))
    }

    /// The scores of one sequence, one per step; `None` past the last sequence.
    pub fn scores(&self, index: usize) -> Option<Vec<f32>> {
        self.sequence(index).map(|(_, scores)| scores)
    }

    /// Whether the predictions of one sequence were right, one per step;
    /// `None` past the last sequence.
    pub fn correct(&self, index: usize) -> Option<Vec<bool>> {
        self.sequence(index).map(|(correct, _)| correct)
    }

    fn sequence(&self, index: usize) -> Option<(Vec<bool>, Vec<f32>)> {
        self.locate(index).map(|(block, i)| block.sequence(i))
    }

    /// The block that holds a sequence, and its place there.
    fn locate(&self, index: usize) -> Option<(&Block, usize)> {
        let after = self.blocks.partition_point(|b| b.start <= index);
        let block = &self.blocks[after.checked_sub(1)?];
        let i = index - block.start;
        (i < block.len).then_some((block, i))
    }

    /// The sequences at these positions, in this order, repeats allowed;
    /// positions past the end are left out.
    pub fn select(&self, indices: impl IntoIterator<Item = usize>) -> Self {
        let mut builder = Self::builder().source(self.source.clone());
        for index in indices {
            if let Some((block, i)) = self.locate(index) {
                let (correct, scores) = block.sequence(i);
                builder.append(block.keys[i], &scores, |t| correct[t]);
            }
        }
        builder.finish()
    }

    /// As many sequences as asked for, drawn with replacement.
    pub fn resample(&self, n: usize, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let draws = if self.is_empty() { 0 } else { n };
        self.select((0..draws).map(|_| rng.random_range(0..self.len)))
    }

    /// Splits into a part that screens and a part that certifies.
    ///
    /// Each sequence goes to the screening part with probability
    /// `screen_fraction`, decided by a hash of the seed and its id (its
    /// position, where it has none). The draw looks at nothing the guarantee
    /// is about, so given the split both parts are i.i.d. samples; and
    /// where there are ids, it does not depend on how the data was ordered or
    /// cut into files.
    pub fn split(self, screen_fraction: f64, seed: u64) -> (Screening, Certifying) {
        // 2⁶⁴·fraction; the cast saturates, so a fraction of 1 screens all but
        // the one key in 2⁶⁴ that hashes to the maximum.
        let cut = (screen_fraction.clamp(0.0, 1.0) * 2f64.powi(64)) as u64;
        let keys = || self.blocks.iter().flat_map(|b| b.keys.iter());
        let screens: Vec<bool> = keys().map(|&key| split_hash(key, seed) < cut).collect();
        let part = |wanted: bool| self.select((0..self.len).filter(|&i| screens[i] == wanted));
        (Screening::new(part(true)), Certifying::new(part(false)))
    }

    /// Maps every block and adds up what comes back. Sums of integers, so the
    /// result is the same for any number of threads and any order.
    pub(crate) fn sum_blocks<A: Send>(
        &self,
        zero: impl Fn() -> A + Sync + Send,
        add_block: impl Fn(A, &Block) -> A + Sync + Send,
        add: impl Fn(A, A) -> A + Sync + Send,
    ) -> A {
        match &self.blocks[..] {
            // Waking the pool costs more than a small set.
            [only] => add_block(zero(), only),
            blocks => blocks.par_iter().fold(&zero, add_block).reduce(&zero, add),
        }
    }
}

/// Traces that may only be screened on: candidates come from here.
#[derive(Debug)]
pub struct Screening(Traces);

impl Screening {
    /// Sets these traces aside for screening.
    pub fn new(traces: Traces) -> Self {
        Self(traces)
    }

    /// The traces themselves.
    pub fn traces(&self) -> &Traces {
        &self.0
    }
}

/// Traces that may only certify: candidates were fixed without them.
#[derive(Debug)]
pub struct Certifying(Traces);

impl Certifying {
    /// Sets these traces aside for certifying. They must not have been used to
    /// train the classifier, to fit the score or to screen.
    pub fn new(traces: Traces) -> Self {
        Self(traces)
    }

    /// The traces themselves.
    pub fn traces(&self) -> &Traces {
        &self.0
    }
}

/// Collects sequences into [`Traces`].
#[derive(Default)]
pub struct TracesBuilder {
    source: ScoreSource,
    blocks: Vec<Block>,
    /// The sequences of the block under way, one after the other.
    scores: Vec<f32>,
    correct: Vec<bool>,
    last: Vec<u32>,
    keys: Vec<u64>,
    steps: usize,
    fingerprint: Fingerprint,
    /// What the fingerprint of a sequence is taken from; kept to be reused.
    bytes: Vec<u8>,
}

impl fmt::Debug for TracesBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracesBuilder")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl TracesBuilder {
    /// Says how the scores came about.
    pub fn source(mut self, source: ScoreSource) -> Self {
        self.source = source;
        self
    }

    /// How many sequences were added so far.
    pub fn len(&self) -> usize {
        self.start() + self.last.len()
    }

    /// The position of the first sequence of the block under way.
    fn start(&self) -> usize {
        self.blocks.last().map_or(0, |b| b.start + b.len)
    }

    /// Whether no sequence was added yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds one sequence: its id where it has one, its true label, and the
    /// prediction and score at each of its steps. On an error nothing is added.
    pub fn push<L: PartialEq>(
        &mut self,
        id: Option<&str>,
        label: &L,
        predictions: &[L],
        scores: &[f32],
    ) -> Result<(), TraceError> {
        if predictions.len() != scores.len() {
            return Err(TraceError::Lengths {
                predictions: predictions.len(),
                scores: scores.len(),
            });
        }
        Traces::check_length(scores.len())?;
        Traces::check_scores(scores)?;
        self.append(key_of(id, self.len()), scores, |t| predictions[t] == *label);
        Ok(())
    }

    /// Adds a sequence that is known to be sound.
    pub(crate) fn append(&mut self, key: u64, scores: &[f32], correct: impl Fn(usize) -> bool) {
        let steps = self.steps.max(scores.len());
        let held = self.scores.len() + scores.len();
        let padding = steps * (self.last.len() + 1) - held;
        if self.last.len() == BLOCK || padding > held.max(PADDING) {
            self.close_block();
        }
        self.scores.extend_from_slice(scores);
        self.correct.extend((0..scores.len()).map(correct));
        let correct = &self.correct[self.correct.len() - scores.len()..];
        let print = Fingerprint::of_sequence(scores, correct, &mut self.bytes);
        self.fingerprint = self.fingerprint + print;
        self.last.push((scores.len() - 1) as u32);
        self.keys.push(key);
        self.steps = self.steps.max(scores.len());
    }

    /// Turns the sequences under way into a block.
    fn close_block(&mut self) {
        let len = self.last.len();
        let words = len.div_ceil(LANES);
        let steps = std::mem::take(&mut self.steps);
        let mut block = Block {
            start: self.start(),
            len,
            steps,
            scores: vec![[0.0; LANES]; steps * words],
            correct: vec![0; steps * words],
            full: vec![0; words],
            last: vec![[0; LANES]; words],
            equal_lengths: self.scores.len() == steps * len,
            keys: std::mem::take(&mut self.keys),
            fingerprint: std::mem::take(&mut self.fingerprint),
        };
        let mut start = 0;
        for (i, last) in std::mem::take(&mut self.last).into_iter().enumerate() {
            let (word, lane) = (i / LANES, i % LANES);
            let end = start + last as usize + 1;
            let steps = std::iter::zip(&self.scores[start..end], &self.correct[start..end]);
            for (t, (&score, &correct)) in steps.enumerate() {
                block.scores[t * words + word][lane] = score;
                block.correct[t * words + word] |= u64::from(correct) << lane;
            }
            block.full[word] |= u64::from(self.correct[end - 1]) << lane;
            block.last[word][lane] = last;
            start = end;
        }
        self.scores.clear();
        self.correct.clear();
        self.blocks.push(block);
    }

    /// The traces that were added, in the order they were.
    pub fn finish(mut self) -> Traces {
        let len = self.len();
        if !self.last.is_empty() {
            self.close_block();
        }
        Traces {
            len,
            t_max: self.blocks.iter().map(|b| b.steps).max().unwrap_or(0),
            source: self.source,
            blocks: self.blocks,
        }
    }
}
