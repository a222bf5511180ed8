//! Sets of traces from files that may be larger than memory: kept, one byte
//! for each score, or counted and let go.

use std::path::PathBuf;

use haltwise::{
    Certifying, Evidence, Fingerprint, Grid, Key, Proposal, ScoreSource, SetRecord, Traces,
    TracesBuilder,
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
    /// Their fingerprint.
    pub fingerprint: Fingerprint,
}

/// What was read, whatever of it was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The files.
    pub inputs: Vec<Input>,
    /// The steps of the longest sequence.
    pub t_max: usize,
    /// How the scores came about.
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

    fn note(&mut self, place: Place, row: &TraceRow<'_>, print: Fingerprint) {
        let file = &mut self.files[place.file];
        *file = (file.0 + 1, file.1 + print);
        self.t_max = self.t_max.max(row.scores.len());
        self.source.get_or_insert(row.source);
    }

    fn add(&mut self, other: &Self) {
        for (file, other) in std::iter::zip(&mut self.files, &other.files) {
            *file = (file.0 + other.0, file.1 + other.1);
        }
        self.t_max = self.t_max.max(other.t_max);
        self.source = self.source.or(other.source);
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

/// Reads files, on all cores where they allow it, into `parts` sets: each
/// sequence into the one its key is put in, or none. With a grid, scores are
/// kept as one byte each. Files that change meanwhile are refused.
pub fn read_sets(
    snapshot: &Snapshot,
    grid: Option<&Grid>,
    parts: usize,
    part_of: impl Fn(Key) -> Option<usize> + Sync,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Vec<Traces>, Seen)> {
    struct State {
        tally: Tally,
        sets: Vec<TracesBuilder>,
    }
    let files = snapshot.files();
    let builder = |source| match grid {
        Some(grid) => Traces::builder().source(source).binned(grid.clone()),
        None => Traces::builder().source(source),
    };
    let start = || State {
        tally: Tally::new(files.len()),
        sets: Vec::new(),
    };
    let visit = |state: &mut State, place: Place, row: &TraceRow<'_>| {
        if state.sets.is_empty() {
            state.sets = (0..parts).map(|_| builder(row.source)).collect();
        }
        let key = Key::new(row.id, place.position);
        let print = match part_of(key) {
            Some(part) => state.sets[part]
                .push_with_key(key, &row.label, row.predictions, row.scores)
                .map_err(|e| e.to_string())?,
            None => Fingerprint::of(&row.label, row.predictions, row.scores),
        };
        state.tally.note(place, row, print);
        Ok(())
    };
    let states = fold_traces(&files, progress, start, visit)?;
    snapshot.check_unchanged()?;
    let mut tally = Tally::new(files.len());
    for state in &states {
        tally.add(&state.tally);
    }
    let seen = tally.seen(&files);
    let mut sets: Vec<TracesBuilder> = (0..parts).map(|_| builder(seen.source)).collect();
    for state in states {
        for (set, part) in std::iter::zip(&mut sets, state.sets) {
            // All were started alike, and the reader lets no other score in.
            set.absorb(part).map_err(|e| Error::new(&files[0], e))?;
        }
    }
    Ok((sets.into_iter().map(TracesBuilder::finish).collect(), seen))
}

/// Counts, for every candidate, what it would do to the sequences of files,
/// block by block on all cores, and keeps nothing but the counts. Of a set that
/// was split, only the certifying part is counted. Files that change meanwhile
/// are refused.
pub fn gather_evidence(
    proposal: &Proposal,
    snapshot: &Snapshot,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<EvidencePart> {
    struct State {
        tally: Tally,
        block: TracesBuilder,
        evidence: Evidence,
    }
    let files = snapshot.files();
    let none = Evidence::none(proposal.candidates().clone(), proposal.source())
        .map_err(|e| Error::new(&files[0], e))?;
    let builder = || Traces::builder().source(proposal.source());
    let start = || State {
        tally: Tally::new(files.len()),
        block: builder(),
        evidence: none.clone(),
    };
    let visit = |state: &mut State, place: Place, row: &TraceRow<'_>| {
        if row.source != proposal.source() {
            return Err(format!(
                "the candidates judge a score that is {}, but this one is {}",
                proposal.source(),
                row.source
            ));
        }
        let key = Key::new(row.id, place.position);
        let certifies = proposal.split().is_none_or(|split| !split.screens(key));
        let print = match certifies {
            true => state
                .block
                .push_with_key(key, &row.label, row.predictions, row.scores)
                .map_err(|e| e.to_string())?,
            false => Fingerprint::of(&row.label, row.predictions, row.scores),
        };
        state.tally.note(place, row, print);
        match state.block.take_block() {
            None => Ok(()),
            Some(block) => state
                .evidence
                .count(&Certifying::new(block))
                .map_err(|e| e.to_string()),
        }
    };
    let states = fold_traces(&files, progress, start, visit)?;
    snapshot.check_unchanged()?;
    let mut tally = Tally::new(files.len());
    let mut evidence = none;
    for state in states {
        tally.add(&state.tally);
        let rest = Certifying::new(state.block.finish());
        let counted = evidence.count(&rest);
        let added = counted.and_then(|()| evidence.add(&state.evidence));
        added.map_err(|e| Error::new(&files[0], e))?;
    }
    EvidencePart::new(proposal.clone(), tally.seen(&files).inputs, evidence)
        .map_err(|e| Error::new(&files[0], e))
}
