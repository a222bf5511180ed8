//! Sets of traces from files that may be larger than memory: kept, one byte
//! for each score, or counted and let go.

use std::borrow::Cow;
use std::collections::BinaryHeap;
use std::path::PathBuf;

use haltwise::{
    Certifying, EvidenceError, Fingerprint, Fitting, Grid, Key, Outputs, ProposalEvidence,
    ScoreSource, Screened, Sequence, SetAside, SetRecord, Traces, TracesBuilder,
};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::evidence_file::EvidencePart;
use crate::traces::{Place, Snapshot, TraceRow, fold_traces};

/// A file that was read to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its path, as it was given.
    pub file: String,
    /// How many sequences it has.
    pub sequences: u64,
    /// Their fingerprint, with the scores as they stand in the file.
    pub fingerprint: Fingerprint,
}

/// What was read, whatever of it was kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The files.
    pub inputs: Vec<Input>,
    /// The steps of the longest sequence.
    pub t_max: usize,
    /// How the scores came about, as they stand in the files.
    pub source: ScoreSource,
}

impl Seen {
    /// All sequences of all files.
    pub fn set(&self) -> SetRecord {
        sum(&self.inputs)
    }
}

pub(crate) fn sum(inputs: &[Input]) -> SetRecord {
    SetRecord {
        sequences: inputs.iter().map(|input| input.sequences).sum(),
        fingerprint: inputs.iter().map(|input| input.fingerprint).sum(),
    }
}

/// What one thread has seen so far.
#[derive(Default)]
struct Tally {
    files: Vec<(u64, Fingerprint)>,
    t_max: usize,
    source: Option<ScoreSource>,
}

impl Tally {
    fn new(files: usize) -> Self {
        Self {
            files: vec![Default::default(); files],
            ..Self::default()
        }
    }

    /// Notes a row, whose fingerprint is known if its own scores were kept.
    fn note(&mut self, place: Place, row: &TraceRow<'_>, print: Option<Fingerprint>) {
        let print = print
            .unwrap_or_else(|| Fingerprint::of_sequence(&row.label, row.predictions, row.scores));
        let file = &mut self.files[place.file];
        *file = (file.0 + 1, file.1 + print);
        self.t_max = self.t_max.max(row.scores.len());
        self.source.get_or_insert_with(|| row.source());
    }

    fn add(&mut self, other: &Self) {
        for (file, other) in std::iter::zip(&mut self.files, &other.files) {
            *file = (file.0 + other.0, file.1 + other.1);
        }
        self.t_max = self.t_max.max(other.t_max);
        self.source = self.source.take().or_else(|| other.source.clone());
    }

    fn seen(self, files: &[PathBuf]) -> Seen {
        let input = |(path, (sequences, fingerprint)): (&PathBuf, _)| Input {
            file: path.display().to_string(),
            sequences,
            fingerprint,
        };
        Seen {
            inputs: std::iter::zip(files, self.files).map(input).collect(),
            t_max: self.t_max,
            source: self.source.unwrap_or_default(),
        }
    }
}

/// Adds a row, with scores of a given kind, to a set under way. The row's
/// fingerprint comes back if that is of its own scores.
fn push(
    set: &mut TracesBuilder,
    key: Key,
    row: &TraceRow<'_>,
    source: &ScoreSource,
) -> std::result::Result<Option<Fingerprint>, String> {
    let own = *source == row.source();
    let scores = match own {
        true => Cow::Borrowed(row.scores),
        false => Cow::Owned(source.scores(row.steps()).map_err(|e| e.to_string())?),
    };
    let print = set
        .push_with_key(key, &row.label, row.predictions, &scores)
        .map_err(|e| e.to_string())?;
    Ok(own.then_some(print))
}

/// Reads files into sets of traces.
#[derive(Debug, Clone, Copy)]
pub struct SetReader<'a> {
    /// The files; they are refused if they change meanwhile.
    pub snapshot: &'a Snapshot,
    /// The score that is wanted; `None` is the one that the files have.
    pub score: Option<&'a ScoreSource>,
    /// With a grid, scores are kept as one byte each.
    pub grid: Option<&'a Grid>,
}

impl SetReader<'_> {
    /// Reads, on all cores where the files allow it, into `parts` sets: each
    /// sequence into the one that its key is put in, or none.
    pub fn read(
        &self,
        parts: usize,
        part_of: impl Fn(Key) -> Option<usize> + Sync,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Vec<Traces>, Seen)> {
        struct State {
            tally: Tally,
            source: ScoreSource,
            sets: Vec<TracesBuilder>,
        }
        let files = self.snapshot.files();
        let start = || State {
            tally: Tally::new(files.len()),
            source: ScoreSource::default(),
            sets: Vec::new(),
        };
        let visit = |state: &mut State, place: Place, row: &TraceRow<'_>| {
            if state.sets.is_empty() && parts > 0 {
                state.source = self.score.cloned().unwrap_or_else(|| row.source());
                state.sets = self.empty(parts, &state.source);
            }
            let key = Key::new(row.id, place.position);
            let print = match part_of(key).and_then(|part| state.sets.get_mut(part)) {
                Some(set) => push(set, key, row, &state.source)?,
                None => None,
            };
            state.tally.note(place, row, print);
            Ok(())
        };
        let states = fold_traces(&files, progress, start, visit)?;
        self.snapshot.check_unchanged()?;
        let mut tally = Tally::new(files.len());
        for state in &states {
            tally.add(&state.tally);
        }
        let seen = tally.seen(&files);
        let mut sets = self.empty(parts, self.score.unwrap_or(&seen.source));
        for state in states {
            for (set, part) in std::iter::zip(&mut sets, state.sets) {
                // All were started alike, and the reader lets no other score in.
                set.absorb(part).map_err(|e| Error::new(&files[0], e))?;
            }
        }
        Ok((sets.into_iter().map(TracesBuilder::finish).collect(), seen))
    }

    fn empty(&self, parts: usize, source: &ScoreSource) -> Vec<TracesBuilder> {
        let builder = |_| match self.grid {
            Some(grid) => Traces::builder()
                .source(source.clone())
                .binned(grid.clone()),
            None => Traces::builder().source(source.clone()),
        };
        (0..parts).map(builder).collect()
    }
}

/// A sequence that may be fitted to, ordered by its draw.
struct Drawn {
    draw: u64,
    key: Key,
    place: Place,
    label: u32,
    predictions: Vec<u32>,
    scores: Option<Vec<f32>>,
    probs: Option<Vec<f32>>,
}

impl Drawn {
    /// What it has: class probabilities per step, and whether scores.
    fn kind(&self) -> (usize, bool) {
        let probs = self.probs.as_ref().map_or(0, Vec::len);
        (probs / self.predictions.len(), self.scores.is_some())
    }
}

/// Refuses sequences of which some have more to fit to than others, and says
/// which was the first unlike those before it.
fn alike(drawn: &[Drawn], files: &[PathBuf], seen: &Seen) -> Result<()> {
    let first = drawn.iter().min_by_key(|drawn| drawn.place.position);
    let Some(first) = first else { return Ok(()) };
    let unlike = drawn.iter().filter(|drawn| drawn.kind() != first.kind());
    let Some(unlike) = unlike.min_by_key(|drawn| drawn.place.position) else {
        return Ok(());
    };
    let has = |drawn: &Drawn| match drawn.kind() {
        (0, _) => "scores alone".into(),
        (classes, true) => format!("scores and probabilities of {classes} classes"),
        (classes, false) => format!("probabilities of {classes} classes alone"),
    };
    let file = unlike.place.file;
    let before: u64 = seen.inputs[..file].iter().map(|i| i.sequences).sum();
    let problem = format!(
        "it has {}, where others ({}) have {}; give all sequences the same",
        has(unlike),
        files[first.place.file].display(),
        has(first)
    );
    let number = unlike.place.position - before + 1;
    Err(Error::new(&files[file], problem).at(format_args!("sequence {number}")))
}

impl Ord for Drawn {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.draw, self.key).cmp(&(other.draw, other.key))
    }
}

impl PartialOrd for Drawn {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Drawn {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Drawn {}

/// Reads files and sets a part aside for fitting, as [`Outputs::split`] does:
/// so large a share, but no more than [`Fitting::MOST`] sequences, those with
/// the smallest draws. Nothing else is kept.
pub fn read_fitting(
    snapshot: &Snapshot,
    fit_fraction: f64,
    seed: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Fitting, SetAside, Seen)> {
    let files = snapshot.files();
    let start = || (Tally::new(files.len()), BinaryHeap::<Drawn>::new());
    let visit =
        |(tally, drawn): &mut (Tally, BinaryHeap<Drawn>), place: Place, row: &TraceRow<'_>| {
            tally.note(place, row, None);
            let key = Key::new(row.id, place.position);
            let draw = key.draw(seed);
            let full = drawn.len() >= Fitting::MOST;
            if full
                && drawn
                    .peek()
                    .is_some_and(|last| (last.draw, last.key) < (draw, key))
            {
                return Ok(());
            }
            if full {
                drawn.pop();
            }
            drawn.push(Drawn {
                draw,
                key,
                place,
                label: row.label,
                predictions: row.predictions.to_vec(),
                scores: row.scores_given.then(|| row.scores.to_vec()),
                probs: row.probs.map(<[f32]>::to_vec),
            });
            Ok(())
        };
    let states = fold_traces(&files, progress, start, visit)?;
    snapshot.check_unchanged()?;
    let mut tally = Tally::new(files.len());
    let mut drawn = Vec::new();
    for (state, heap) in states {
        tally.add(&state);
        drawn.extend(heap);
    }
    let seen = tally.seen(&files);
    drawn.sort_unstable();
    let share = SetAside::share(fit_fraction, seed);
    let in_share = drawn.iter().filter(|drawn| drawn.draw < share.below);
    // However few there are, both parts get one.
    let most = (seen.set().sequences as usize).saturating_sub(1);
    let fits = in_share.count().clamp(1, Fitting::MOST).min(most);
    drawn.truncate(fits);
    alike(&drawn, &files, &seen)?;
    let below = drawn.last().map_or(0, |last| last.draw.saturating_add(1));
    let mut outputs = Outputs::new();
    for drawn in drawn {
        let sequence = Sequence {
            id: None,
            label: drawn.label,
            predictions: &drawn.predictions,
            scores: drawn.scores.as_deref(),
            probs: drawn.probs.as_deref(),
        };
        let pushed = outputs.push_with_key(drawn.key, sequence);
        pushed.map_err(|e| Error::new(&files[0], e))?;
    }
    Ok((Fitting::new(outputs), SetAside { seed, below }, seen))
}

/// Evidence under way: sequences are counted block by block and let go.
#[derive(Debug)]
pub struct Gathering {
    screened: Screened,
    certifying: TracesBuilder,
    set_aside: TracesBuilder,
    evidence: ProposalEvidence,
}

impl Gathering {
    /// No evidence yet for these candidates.
    pub fn new(screened: Screened) -> std::result::Result<Self, EvidenceError> {
        let builder = || Traces::builder().source(screened.source().clone());
        Ok(Self {
            certifying: builder(),
            set_aside: builder(),
            evidence: screened.no_evidence()?,
            screened,
        })
    }

    /// Counts one sequence, unless it was set aside. Its fingerprint comes back
    /// if the candidates judge its own scores.
    pub fn visit(
        &mut self,
        key: Key,
        row: &TraceRow<'_>,
    ) -> std::result::Result<Option<Fingerprint>, String> {
        let (found, t_max) = (row.scores.len(), self.screened.t_max());
        if found > t_max {
            return Err(EvidenceError::TooLong { found, t_max }.to_string());
        }
        let certifies = self.screened.certifies(key);
        let block = match certifies {
            true => &mut self.certifying,
            false => &mut self.set_aside,
        };
        let print = push(block, key, row, self.screened.source())?;
        if let Some(block) = block.take_block() {
            self.count(block, certifies).map_err(|e| e.to_string())?;
        }
        Ok(print)
    }

    fn count(&mut self, block: Traces, certifies: bool) -> std::result::Result<(), EvidenceError> {
        let Self {
            screened, evidence, ..
        } = self;
        match certifies {
            true => screened.count(evidence, &Certifying::new(block)),
            false => screened.count_set_aside(evidence, block),
        }
    }

    /// The evidence of all that was visited.
    pub fn finish(mut self) -> std::result::Result<ProposalEvidence, EvidenceError> {
        let (certifying, set_aside) = (
            std::mem::take(&mut self.certifying).finish(),
            std::mem::take(&mut self.set_aside).finish(),
        );
        self.count(certifying, true)?;
        self.count(set_aside, false)?;
        Ok(self.evidence)
    }
}

/// Counts, for every candidate, what it would do to the sequences of files,
/// block by block on all cores, and keeps nothing but the counts. What was set
/// aside of the files is left out. Files that change meanwhile are refused.
pub fn gather_evidence(
    screened: &Screened,
    snapshot: &Snapshot,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<EvidencePart> {
    let files = snapshot.files();
    let in_first = |e: EvidenceError| Error::new(&files[0], e);
    let mut evidence = screened.no_evidence().map_err(in_first)?;
    let start = || (Tally::new(files.len()), Gathering::new(screened.clone()));
    let visit = |(tally, gathering): &mut (Tally, std::result::Result<Gathering, _>),
                 place: Place,
                 row: &TraceRow<'_>| {
        let gathering = gathering
            .as_mut()
            .map_err(|e: &mut EvidenceError| e.to_string())?;
        let print = gathering.visit(Key::new(row.id, place.position), row)?;
        tally.note(place, row, print);
        Ok(())
    };
    let states = fold_traces(&files, progress, start, visit)?;
    snapshot.check_unchanged()?;
    let mut tally = Tally::new(files.len());
    for (seen, gathering) in states {
        tally.add(&seen);
        let counted = gathering.and_then(Gathering::finish);
        counted
            .and_then(|counted| evidence.add(&counted))
            .map_err(in_first)?;
    }
    let inputs = tally.seen(&files).inputs;
    EvidencePart::new(screened.clone(), inputs, evidence).map_err(|e| Error::new(&files[0], e))
}
