//! Traces: what a classifier said about each sequence, laid out for the
//! calibration loops.
//!
//! Traces are kept in blocks of [`BLOCK`] sequences, and inside a block step-major: all
//! scores of step 1, then all of step 2. Every inner loop runs over one contiguous row that
//! fits the first-level cache. Blocks are the unit of parallel work. A reader that does not
//! know how many sequences will come can append without ever copying what it already holds.
//!
//! Only one bit of a prediction is kept: whether it was right. With the full prediction's
//! bit it gives the gap. Other losses are kept separately, as a bit or a byte.

use std::fmt;

use crate::data::checker::{check_lengths, check_scores};
use crate::data::identity::{Fingerprint, Key, SetSummary};
use crate::data::loss::{Losses, Measure, TOP};
use crate::data::score::ScoreSource;
use crate::data::score_rows::{Arrived, Row, Rows, Threshold, bits, fits_byte, levels};
use crate::data::sequence::Trace;
use crate::data::sequence_error::SequenceError;
use crate::numbers::grid::Grid;
use crate::numbers::simd::{SIMD_WIDTH, SimdArray, mask};
use haltwise_stream::StepError;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

/// Sequences per block, at most. A row of 4096 scores is 16 KiB: half a
/// first-level cache.
const BLOCK: usize = 4096;

/// The most entries of a block that may be padding for short sequences next to a long one.
/// A block that would hold more padding, and more padding than steps, is closed early, so
/// one huge sequence cannot inflate the others.
const PADDING: usize = 1 << 20;

/// Up to [`BLOCK`] sequences, step-major, each row filled up to whole words.
pub(crate) struct Block {
    /// The position of its first sequence in the whole set.
    pub(crate) start: usize,
    /// How many sequences.
    pub(crate) len: usize,
    /// How many steps the longest of them has.
    pub(crate) steps: usize,
    /// `steps` rows of scores; 0 past a sequence's end.
    scores: Rows,
    /// For exact scores, the highest of each word, in the same rows.
    highest: Vec<f32>,
    /// `steps` rows of bits: was the prediction right?
    correct: Vec<u64>,
    /// One row of bits: was the full prediction right?
    pub(crate) full: Vec<u64>,
    /// `steps` rows of losses.
    losses: Losses,
    /// The 0-based last step of each sequence; 0 past the last sequence.
    pub(crate) last: Vec<SimdArray<u32>>,
    /// Whether all sequences have `steps` steps.
    pub(crate) equal_lengths: bool,
    /// The key that each sequence is split by: a hash of its unit, its id or its position.
    pub(crate) keys: Vec<Key>,
    fingerprint: Fingerprint,
}

impl Block {
    /// The losses of 64 sequences at step `t`, one bit each; for levels, whether they are
    /// above 0.
    ///
    /// At a sequence's own last step the early prediction is the full one, so a
    /// gap is 0 there; past its end the bit means nothing.
    #[inline(always)]
    pub(crate) fn gaps(&self, t: usize, word: usize) -> u64 {
        match &self.losses {
            Losses::Gaps => self.full[word] & !self.correct(t)[word],
            Losses::Bits(rows) => rows[t * self.words() + word],
            Losses::Levels(rows) => mask(|i| rows[t * self.words() + word][i] > 0),
        }
    }

    /// Whether a sequence may have a loss at its end.
    pub(crate) fn costs_at_end(&self) -> bool {
        !matches!(self.losses, Losses::Gaps)
    }

    /// The counted loss of stopping sequence `i` at step `t`: 0 or 1, or its level if
    /// losses are kept as levels.
    #[inline(always)]
    pub(crate) fn loss(&self, t: usize, i: usize) -> u8 {
        match &self.losses {
            Losses::Levels(rows) => rows[t * self.words() + i / SIMD_WIDTH][i % SIMD_WIDTH],
            Losses::Gaps | Losses::Bits(_) => {
                (self.gaps(t, i / SIMD_WIDTH) >> (i % SIMD_WIDTH) & 1) as u8
            }
        }
    }

    /// The levels of 64 sequences at step `t`, if levels are kept.
    #[inline(always)]
    pub(crate) fn levels(&self, t: usize, word: usize) -> Option<&SimdArray<u8>> {
        match &self.losses {
            Losses::Levels(rows) => Some(&rows[t * self.words() + word]),
            Losses::Gaps | Losses::Bits(_) => None,
        }
    }

    /// How many words of 64 sequences.
    #[inline(always)]
    pub(crate) fn words(&self) -> usize {
        self.full.len()
    }

    /// The lanes of a word that hold a sequence.
    #[inline(always)]
    pub(crate) fn valid(&self, word: usize) -> u64 {
        match self.len - word * SIMD_WIDTH {
            1..SIMD_WIDTH => (1 << (self.len % SIMD_WIDTH)) - 1,
            _ => !0,
        }
    }

    /// The scores of all sequences at step `t` (0-based).
    #[inline(always)]
    pub(crate) fn scores(&self, t: usize) -> Row<'_> {
        self.scores.words(t * self.words()..(t + 1) * self.words())
    }

    /// Whether any sequence of a word may reach a threshold at step `t`.
    #[inline(always)]
    pub(crate) fn may_reach(&self, t: usize, word: usize, threshold: Threshold) -> bool {
        let highest = self.highest.get(t * self.words() + word);
        highest.is_none_or(|&highest| highest >= threshold.exact)
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

    /// Shows the sequences one by one, with exact scores: the place, the scores, and 1 for
    /// each prediction that was right, else 0.
    pub(crate) fn show<E>(
        &self,
        mut visit: impl FnMut(usize, &[f32], &[u32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let most = self.len.min(SIMD_WIDTH);
        let mut scores = vec![0.0; most * self.steps];
        let mut right = vec![0; most * self.steps];
        for word in 0..self.words() {
            let lanes = (self.len - word * SIMD_WIDTH).min(SIMD_WIDTH);
            for t in 0..self.steps {
                let bits = self.correct(t)[word];
                let row = self.scores(t);
                for lane in 0..lanes {
                    let at = lane * self.steps + t;
                    right[at] = (bits >> lane & 1) as u32;
                    scores[at] = row.score(word, lane, None);
                }
            }
            for lane in 0..lanes {
                let i = word * SIMD_WIDTH + lane;
                let start = lane * self.steps;
                let steps = start..start + self.last(i) as usize + 1;
                visit(i, &scores[steps.clone()], &right[steps])?;
            }
        }
        Ok(())
    }

    /// The 0-based last step of sequence `i`.
    pub(crate) fn last(&self, i: usize) -> u32 {
        self.last[i / SIMD_WIDTH][i % SIMD_WIDTH]
    }

    /// The score of sequence `i` at step `t`, on the grid it was binned on.
    fn score(&self, i: usize, t: usize, grid: Option<&Grid>) -> f32 {
        self.scores(t).score(i / SIMD_WIDTH, i % SIMD_WIDTH, grid)
    }
}

/// Bit `i` of a row of bits.
pub(crate) fn bit(row: &[u64], i: usize) -> bool {
    row[i / SIMD_WIDTH] >> (i % SIMD_WIDTH) & 1 == 1
}

/// What a classifier said about a set of sequences: at every step a score and
/// whether the prediction was right.
///
/// Traces are not `Clone` on purpose: screening and certifying take them by value, so
/// sequences that screened cannot also certify by accident.
pub struct Traces {
    len: usize,
    t_max: usize,
    source: ScoreSource,
    /// The grid that scores were binned on, if they were.
    grid: Option<Grid>,
    /// How losses are kept.
    measure: Measure,
    /// How many sequences have a label.
    labelled: u64,
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
    /// Starts an empty set, to which sequences are added one by one.
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

    /// How the scores were computed.
    pub fn source(&self) -> &ScoreSource {
        &self.source
    }

    /// How losses are kept.
    pub(crate) fn measure(&self) -> Measure {
        self.measure
    }

    /// How many sequences have a label.
    pub(crate) fn labelled(&self) -> u64 {
        self.labelled
    }

    /// The number of sequences, and their fingerprint.
    pub fn summary(&self) -> SetSummary {
        SetSummary {
            sequences: self.len as u64,
            fingerprint: self.blocks.iter().map(|b| b.fingerprint).sum(),
        }
    }

    /// The fingerprint of each sequence, in input order, by its scores in this set.
    pub(crate) fn fingerprints(&self) -> Vec<Fingerprint> {
        let of_sequence = |i: usize| {
            let (scores, correct) = (self.scores(i), self.correct(i));
            let (scores, correct) = (scores.unwrap_or_default(), correct.unwrap_or_default());
            Fingerprint::of_sequence(&scores, correct.into_iter(), &mut Vec::new())
        };
        (0..self.len).into_par_iter().map(of_sequence).collect()
    }

    /// How many full predictions are right.
    pub(crate) fn full_right(&self) -> u64 {
        let bits = self.blocks.iter().flat_map(|block| &block.full);
        bits.map(|word| u64::from(word.count_ones())).sum()
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

    /// The scores of one sequence, one per step; `None` past the last sequence. Binned
    /// scores give the largest thresholds they reach.
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

    /// A threshold in the form that these scores are compared with.
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

    /// Picks the sequences at these positions, in this order, repeats allowed; positions
    /// past the end are skipped.
    ///
    /// Fingerprints are of the scores in this set: picking from binned traces gives another
    /// fingerprint than picking and then binning.
    pub fn select(&self, indices: impl IntoIterator<Item = usize>) -> Self {
        let mut builder = Self::builder()
            .source(self.source.clone())
            .measured(self.measure);
        if let Some(grid) = self.grid() {
            builder = builder.binned(grid.clone());
        }
        let (mut scores, mut correct, mut losses) = (Vec::new(), Vec::new(), Vec::new());
        for index in indices {
            if let Some((block, i)) = self.locate(index) {
                let steps = 0..=block.last(i) as usize;
                scores.clear();
                scores.extend(steps.clone().map(|t| block.score(i, t, self.grid())));
                correct.clear();
                correct.extend(steps.clone().map(|t| bit(block.correct(t), i)));
                losses.clear();
                if block.costs_at_end() {
                    let whole = if self.measure.binary { TOP } else { 1 };
                    losses.extend(steps.map(|t| block.loss(t, i) * whole));
                }
                builder.labelled += u64::from(self.labelled == self.len as u64);
                builder.append(
                    block.keys[i],
                    None,
                    &scores,
                    correct.iter().copied(),
                    &losses,
                );
            }
        }
        builder.finish()
    }

    /// Draws this many sequences with replacement.
    pub fn resample(&self, n: usize, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let draws = if self.is_empty() { 0 } else { n };
        self.select((0..draws).map(|_| rng.random_range(0..self.len)))
    }

    /// Maps every block and adds the results. Sums of integers are the same for any number
    /// of threads and any order.
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

/// Collects sequences into [`Traces`].
pub struct TracesBuilder {
    source: ScoreSource,
    grid: Option<Grid>,
    measure: Measure,
    labelled: u64,
    blocks: Vec<Block>,
    /// The scores of the current block's sequences, one after the other.
    scores: Arrived,
    correct: Vec<u8>,
    /// Their counted losses; empty if the loss is the gap.
    losses: Vec<u8>,
    /// A buffer for the levels of one sequence.
    levels: Vec<u8>,
    /// The start of each of them, and the end of the last.
    starts: Vec<usize>,
    keys: Vec<Key>,
    steps: usize,
    fingerprint: Fingerprint,
    /// A buffer for the bytes of a fingerprint.
    bytes: Vec<u8>,
}

impl Default for TracesBuilder {
    fn default() -> Self {
        Self {
            source: ScoreSource::default(),
            grid: None,
            measure: Measure::default(),
            labelled: 0,
            blocks: Vec::new(),
            scores: Arrived::Exact(Vec::new()),
            correct: Vec::new(),
            losses: Vec::new(),
            levels: Vec::new(),
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
    /// Sets how the scores were computed.
    pub fn source(mut self, source: ScoreSource) -> Self {
        self.source = source;
        self
    }

    /// Sets the loss, and how it is kept.
    pub(crate) fn measured(mut self, measure: Measure) -> Self {
        self.measure = measure;
        self
    }

    /// Keeps, from here on, only which thresholds of the grid each score reaches: one byte
    /// instead of four, and exactly the same rules. Call it before the first sequence.
    ///
    /// Scores are kept exact if a grid has more than 255 thresholds.
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

    /// The position of the first sequence of the current block.
    fn start(&self) -> usize {
        self.blocks.last().map_or(0, |b| b.start + b.len)
    }

    /// Whether no sequence was added yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds one sequence: its id if it has one, its true label, and the prediction and
    /// score at each of its steps. On an error nothing is added.
    pub fn push<L: PartialEq>(
        &mut self,
        id: Option<&str>,
        label: &L,
        predictions: &[L],
        scores: &[f32],
    ) -> Result<(), SequenceError> {
        check_lengths(predictions.len(), scores.len(), None)?;
        check_scores(scores)?;
        let key = Key::new(id, self.len() as u64);
        let right = predictions.iter().map(|p| p == label);
        self.labelled += 1;
        self.append(key, None, scores, right, &[]);
        Ok(())
    }

    /// Adds one sequence under its key, with the score of the set, and returns its
    /// fingerprint. (If a set is built in parts, the position in the part is not the
    /// sequence's position.)
    pub fn add(&mut self, key: Key, trace: &Trace<'_>) -> Result<Fingerprint, StepError> {
        let own = self.source == trace.source();
        let scores = match own {
            true => std::borrow::Cow::Borrowed(trace.scores()),
            false => self.source.scores(trace.steps())?.into(),
        };
        let plain = trace.label().is_some() && trace.numbers().is_none();
        let print = match own && plain && trace.losses().is_none() {
            true => None,
            false => Some(trace.fingerprint(&mut self.bytes)),
        };
        Ok(self.add_scored(key, print, &scores, trace))
    }

    /// Does the same with a score that was computed elsewhere.
    pub(crate) fn add_scored(
        &mut self,
        key: Key,
        print: Option<Fingerprint>,
        scores: &[f32],
        trace: &Trace<'_>,
    ) -> Fingerprint {
        let mut levels = std::mem::take(&mut self.levels);
        levels.clear();
        if self.measure != Measure::default() {
            self.measure.loss.levels(trace, &mut levels);
        }
        self.labelled += u64::from(trace.label().is_some());
        let print = self.append(key, print, scores, trace.right(), &levels);
        self.levels = levels;
        print
    }

    /// Adds a sequence that is known to be sound. Its fingerprint is of these scores,
    /// unless they differ from those it came with.
    pub(crate) fn append(
        &mut self,
        key: Key,
        print: Option<Fingerprint>,
        scores: &[f32],
        correct: impl Iterator<Item = bool>,
        levels: &[u8],
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
        let measure = self.measure;
        self.losses
            .extend(levels.iter().map(|&level| measure.counted(level)));
        let before = self.correct.len();
        self.correct.extend(correct.map(u8::from));
        let print = print.unwrap_or_else(|| {
            let right = self.correct[before..].iter().map(|&c| c == 1);
            Fingerprint::of_sequence(scores, right, &mut self.bytes)
        });
        self.fingerprint = self.fingerprint + print;
        self.starts.push(self.correct.len());
        self.keys.push(key);
        self.steps = self.steps.max(scores.len());
        print
    }

    /// Turns the current sequences into a block.
    fn close_block(&mut self) {
        let len = self.keys.len();
        let steps = std::mem::take(&mut self.steps);
        let words = len.div_ceil(SIMD_WIDTH);
        let scores = self.scores.rows(&self.starts, steps);
        let mut block = Block {
            start: self.start(),
            len,
            steps,
            highest: scores.highest(),
            scores,
            correct: bits(&self.correct, &self.starts, steps),
            full: vec![0; words],
            losses: match self.measure {
                _ if self.losses.is_empty() => Losses::Gaps,
                Measure { binary: true, .. } => {
                    Losses::Bits(bits(&self.losses, &self.starts, steps))
                }
                _ => Losses::Levels(levels(&self.losses, &self.starts, steps)),
            },
            last: vec![[0; SIMD_WIDTH]; words],
            equal_lengths: self.correct.len() == steps * len,
            keys: std::mem::take(&mut self.keys),
            fingerprint: std::mem::take(&mut self.fingerprint),
        };
        for (i, ends) in self.starts.windows(2).enumerate() {
            let (word, lane) = (i / SIMD_WIDTH, i % SIMD_WIDTH);
            block.full[word] |= u64::from(self.correct[ends[1] - 1]) << lane;
            block.last[word][lane] = (ends[1] - ends[0] - 1) as u32;
        }
        self.scores.clear();
        self.correct.clear();
        self.losses.clear();
        self.starts.truncate(1);
        self.blocks.push(block);
    }

    /// Takes out the sequences added so far once they fill a block (4096 of them, or fewer
    /// long ones), for consumers that count block by block.
    pub fn take_block(&mut self) -> Option<Traces> {
        if self.blocks.is_empty() && self.keys.len() < BLOCK {
            return None;
        }
        let fresh = self.like();
        Some(std::mem::replace(self, fresh).finish())
    }

    /// Starts an empty set of the same kind.
    pub(crate) fn like(&self) -> Self {
        let fresh = Self::default()
            .source(self.source.clone())
            .measured(self.measure);
        match &self.grid {
            Some(grid) => fresh.binned(grid.clone()),
            None => fresh,
        }
    }

    /// Appends the sequences of another set of the same kind.
    pub(crate) fn absorb(&mut self, mut other: Self) -> Result<(), SequenceError> {
        let kind = |set: &Self| (set.source.clone(), set.grid.clone(), set.measure);
        if kind(self) != kind(&other) {
            return Err(SequenceError::other_kind());
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
        self.labelled += other.labelled;
        Ok(())
    }

    /// Returns the added traces in their order.
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
            measure: self.measure,
            labelled: self.labelled,
            blocks: self.blocks,
        }
    }
}
