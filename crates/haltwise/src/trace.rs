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

use std::collections::HashSet;
use std::fmt;

use crate::grid::Grid;
use crate::lanes::{LANES, Lanes, mask};
use crate::score::ScoreSource;
use crate::scores::{Arrived, Row, Rows, Threshold, bits, fits_byte};
use crate::screened::SetAside;
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
    /// Two sets have scores of different kinds, or on different grids.
    #[error("sets whose scores came about or were binned in different ways cannot be joined")]
    OtherKind,
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
    /// The digest of the bytes of one sequence.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes))
    }

    /// The fingerprint of one sequence: its true label, and the prediction and
    /// score at each of its steps.
    pub fn of_sequence<L: PartialEq>(label: &L, predictions: &[L], scores: &[f32]) -> Self {
        let correct: Vec<u8> = predictions.iter().map(|p| u8::from(p == label)).collect();
        Self::of_bytes(scores, &correct, &mut Vec::new())
    }

    /// The same, from whether each prediction was right; `bytes` is used to
    /// work in.
    fn of_bytes(scores: &[f32], correct: &[u8], bytes: &mut Vec<u8>) -> Self {
        // In place, because appending four bytes at a time would be slow.
        bytes.resize(4 * scores.len(), 0);
        let (words, _) = bytes.as_chunks_mut::<4>();
        for (word, score) in std::iter::zip(words, scores) {
            // +0.0 turns −0 into 0: equal scores hash alike.
            *word = (score + 0.0).to_le_bytes();
        }
        bytes.extend_from_slice(correct);
        Self::of(bytes)
    }

    /// How many of some sequences are among others; 0 where so many of them are
    /// alike that it means nothing.
    pub(crate) fn common(some: Vec<Self>, others: Vec<Self>) -> usize {
        let distinct: HashSet<Self> = some.iter().copied().collect();
        if 10 * distinct.len() < 9 * some.len() {
            return 0;
        }
        let others: HashSet<Self> = others.into_iter().collect();
        some.iter().filter(|print| others.contains(print)).count()
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
    scores: Rows,
    /// `steps` rows of bits: was the prediction right?
    correct: Vec<u64>,
    /// One row of bits: was the full prediction right?
    pub(crate) full: Vec<u64>,
    /// The 0-based last step of each sequence; 0 behind the last sequence.
    pub(crate) last: Vec<Lanes<u32>>,
    /// Whether all sequences have `steps` steps.
    pub(crate) equal_lengths: bool,
    /// What each sequence is split by: a hash of its id or of its position.
    keys: Vec<Key>,
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
    pub(crate) fn scores(&self, t: usize) -> Row<'_> {
        self.scores.words(t * self.words()..(t + 1) * self.words())
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

    /// The score of sequence `i` at step `t`, on the grid it was binned on.
    fn score(&self, i: usize, t: usize, grid: Option<&Grid>) -> f32 {
        match self.scores(t) {
            Row::Exact(row) => row[i / LANES][i % LANES],
            Row::Binned(row) => {
                let bin = usize::from(row[i / LANES][i % LANES]);
                grid.map_or(0.0, |grid| grid.thresholds()[bin])
            }
        }
    }
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
    /// The grid that scores were binned on, if they were.
    grid: Option<Grid>,
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
        let sound = |s: &f32| (0.0..=1.0).contains(s);
        // No early exit, and counted in a number as wide as a score, so that it
        // runs as wide as the processor does.
        let unsound: u32 = scores.iter().map(|s| u32::from(!sound(s))).sum();
        if unsound == 0 {
            return Ok(());
        }
        let t = scores.iter().position(|s| !sound(s)).unwrap_or_default();
        Err(TraceError::Score {
            step: Some(t + 1),
            value: scores[t],
        })
    }

    /// The digest of everything that calibrating reads from these traces.
    pub fn fingerprint(&self) -> Fingerprint {
        self.blocks.iter().map(|b| b.fingerprint).sum()
    }

    /// The digest of each sequence, in input order.
    pub(crate) fn fingerprints(&self) -> Vec<Fingerprint> {
        let of_sequence = |i: usize| {
            let (scores, correct) = (self.scores(i), self.correct(i));
            let (scores, correct) = (scores.unwrap_or_default(), correct.unwrap_or_default());
            // Right is 1: as if that were the label.
            Fingerprint::of_sequence(&true, &correct, &scores)
        };
        (0..self.len).into_par_iter().map(of_sequence).collect()
    }

    /// The number of steps of each sequence, in input order.
    pub fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        self.blocks
            .iter()
            .flat_map(|b| (0..b.len).map(|i| b.last(i) as usize + 1))
    }

    /// The grid that scores were [binned](TracesBuilder::binned) on, if they were.
    pub fn grid(&self) -> Option<&Grid> {
        self.grid.as_ref()
    }

    /// The scores of one sequence, one per step; `None` past the last sequence.
    /// Of binned scores, the largest thresholds they reach.
    pub fn scores(&self, index: usize) -> Option<Vec<f32>> {
        let (block, i) = self.locate(index)?;
        let score = |t| block.score(i, t, self.grid());
        Some((0..=block.last(i) as usize).map(score).collect())
    }

    /// Whether the predictions of one sequence were right, one per step;
    /// `None` past the last sequence.
    pub fn correct(&self, index: usize) -> Option<Vec<bool>> {
        let (block, i) = self.locate(index)?;
        let right = |t| bit(block.correct(t), i);
        Some((0..=block.last(i) as usize).map(right).collect())
    }

    /// A threshold in the form these scores are compared with.
    pub(crate) fn threshold(&self, exact: f32) -> Threshold {
        Threshold::new(exact, self.grid())
    }

    /// Thresholds in that form.
    pub(crate) fn thresholds(&self, exact: &[f32]) -> Vec<Threshold> {
        exact.iter().map(|&v| self.threshold(v)).collect()
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
    ///
    /// The fingerprint is that of the scores as they are here: what is picked
    /// from binned traces has another than what is picked and then binned.
    pub fn select(&self, indices: impl IntoIterator<Item = usize>) -> Self {
        let mut builder = Self::builder().source(self.source.clone());
        if let Some(grid) = self.grid() {
            builder = builder.binned(grid.clone());
        }
        let (mut scores, mut correct) = (Vec::new(), Vec::new());
        for index in indices {
            if let Some((block, i)) = self.locate(index) {
                let steps = 0..=block.last(i) as usize;
                scores.clear();
                scores.extend(steps.clone().map(|t| block.score(i, t, self.grid())));
                correct.clear();
                correct.extend(steps.map(|t| bit(block.correct(t), i)));
                builder.append(block.keys[i], &scores, correct.iter().copied());
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
        let keys = || self.blocks.iter().flat_map(|b| b.keys.iter());
        let screens = SetAside::share(screen_fraction, seed);
        let screens: Vec<bool> = keys().map(|&key| screens.has(key)).collect();
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

/// What a sequence is split by: a hash of its id, or of its position where it
/// has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u64);

impl Key {
    /// The key of a sequence with this id, or else at this position, counted
    /// from 0 in all of its set.
    pub fn new(id: Option<&str>, position: u64) -> Self {
        Self(match id {
            Some(id) => xxh3_64_with_seed(id.as_bytes(), 1),
            None => xxh3_64_with_seed(&position.to_le_bytes(), 2),
        })
    }

    /// Where the sequence falls in the draw of a seed: anywhere, equally likely.
    pub fn draw(self, seed: u64) -> u64 {
        xxh3_64_with_seed(&self.0.to_le_bytes(), seed)
    }
}

/// Collects sequences into [`Traces`].
pub struct TracesBuilder {
    source: ScoreSource,
    grid: Option<Grid>,
    blocks: Vec<Block>,
    /// The sequences of the block under way, one after the other.
    scores: Arrived,
    correct: Vec<u8>,
    /// Where each of them starts, and where the last ends.
    starts: Vec<usize>,
    keys: Vec<Key>,
    steps: usize,
    fingerprint: Fingerprint,
    /// What the fingerprint of a sequence is taken from; kept to be reused.
    bytes: Vec<u8>,
}

impl Default for TracesBuilder {
    fn default() -> Self {
        Self {
            source: ScoreSource::default(),
            grid: None,
            blocks: Vec::new(),
            scores: Arrived::Exact(Vec::new()),
            correct: Vec::new(),
            starts: vec![0],
            keys: Vec::new(),
            steps: 0,
            fingerprint: Fingerprint::default(),
            bytes: Vec::new(),
        }
    }
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

    /// Keeps of each score, from here on, only which thresholds of the grid it
    /// reaches: one byte instead of four, and the same rules to the bit. Say so
    /// before the first sequence.
    ///
    /// Where a grid has more than 255 thresholds, scores are kept as they are.
    pub fn binned(mut self, grid: Grid) -> Self {
        if fits_byte(&grid) && self.is_empty() {
            self.grid = Some(grid);
            self.scores = Arrived::Binned(Vec::new());
        }
        self
    }

    /// How many sequences were added so far.
    pub fn len(&self) -> usize {
        self.start() + self.keys.len()
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
        let key = Key::new(id, self.len() as u64);
        self.push_with_key(key, label, predictions, scores)?;
        Ok(())
    }

    /// Adds one sequence whose key is known (where a set is built in parts, a
    /// sequence's position is not the one in its part), and returns its
    /// fingerprint.
    pub fn push_with_key<L: PartialEq>(
        &mut self,
        key: Key,
        label: &L,
        predictions: &[L],
        scores: &[f32],
    ) -> Result<Fingerprint, TraceError> {
        if predictions.len() != scores.len() {
            return Err(TraceError::Lengths {
                predictions: predictions.len(),
                scores: scores.len(),
            });
        }
        Traces::check_length(scores.len())?;
        Traces::check_scores(scores)?;
        Ok(self.append(key, scores, predictions.iter().map(|p| p == label)))
    }

    /// Adds a sequence that is known to be sound.
    pub(crate) fn append(
        &mut self,
        key: Key,
        scores: &[f32],
        correct: impl Iterator<Item = bool>,
    ) -> Fingerprint {
        let steps = self.steps.max(scores.len());
        let held = self.scores.len() + scores.len();
        let padding = steps * (self.keys.len() + 1) - held;
        if self.keys.len() == BLOCK || padding > held.max(PADDING) {
            self.close_block();
        }
        match (&mut self.scores, &self.grid) {
            (Arrived::Exact(all), _) => all.extend_from_slice(scores),
            (Arrived::Binned(all), Some(grid)) => grid.extend_bins(scores, all),
            (Arrived::Binned(_), None) => unreachable!("bins are of a grid"),
        }
        let before = self.correct.len();
        self.correct.extend(correct.map(u8::from));
        let print = Fingerprint::of_bytes(scores, &self.correct[before..], &mut self.bytes);
        self.fingerprint = self.fingerprint + print;
        self.starts.push(self.correct.len());
        self.keys.push(key);
        self.steps = self.steps.max(scores.len());
        print
    }

    /// Turns the sequences under way into a block.
    fn close_block(&mut self) {
        let len = self.keys.len();
        let steps = std::mem::take(&mut self.steps);
        let words = len.div_ceil(LANES);
        let mut block = Block {
            start: self.start(),
            len,
            steps,
            scores: self.scores.rows(&self.starts, steps),
            correct: bits(&self.correct, &self.starts, steps),
            full: vec![0; words],
            last: vec![[0; LANES]; words],
            equal_lengths: self.correct.len() == steps * len,
            keys: std::mem::take(&mut self.keys),
            fingerprint: std::mem::take(&mut self.fingerprint),
        };
        for (i, ends) in self.starts.windows(2).enumerate() {
            let (word, lane) = (i / LANES, i % LANES);
            block.full[word] |= u64::from(self.correct[ends[1] - 1]) << lane;
            block.last[word][lane] = (ends[1] - ends[0] - 1) as u32;
        }
        self.scores.clear();
        self.correct.clear();
        self.starts.truncate(1);
        self.blocks.push(block);
    }

    /// Takes out the sequences added so far once they fill a block, 4096 of
    /// them or fewer long ones: for consumers that count block by block and
    /// let go.
    pub fn take_block(&mut self) -> Option<Traces> {
        if self.blocks.is_empty() && self.keys.len() < BLOCK {
            return None;
        }
        let mut fresh = Self::default().source(self.source.clone());
        if let Some(grid) = &self.grid {
            fresh = fresh.binned(grid.clone());
        }
        Some(std::mem::replace(self, fresh).finish())
    }

    /// Adds the sequences of another set that was started alike, behind those
    /// that are here.
    pub fn absorb(&mut self, mut other: Self) -> Result<(), TraceError> {
        if (&self.source, &self.grid) != (&other.source, &other.grid) {
            return Err(TraceError::OtherKind);
        }
        for part in [&mut *self, &mut other] {
            if !part.keys.is_empty() {
                part.close_block();
            }
        }
        for mut block in other.blocks {
            block.start = self.start();
            self.blocks.push(block);
        }
        Ok(())
    }

    /// The traces that were added, in the order they were.
    pub fn finish(mut self) -> Traces {
        let len = self.len();
        if !self.keys.is_empty() {
            self.close_block();
        }
        Traces {
            len,
            t_max: self.blocks.iter().map(|b| b.steps).max().unwrap_or(0),
            source: self.source,
            grid: self.grid,
            blocks: self.blocks,
        }
    }
}
