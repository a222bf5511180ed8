//! Audits of a rule whose promise is about units.
//!
//! *What is promised.* By step t the loss of a unit is the mean over those of its
//! streams that halted by then, and every unit that has any counts once:
//!
//! > E[(mean loss of those halted by t − α)·1{any halted by t}] ≤ 0.
//!
//! The streams of a unit are tied to each other. A factor for each of them would
//! multiply one surprise by itself, and the product would be no supermartingale.
//!
//! *One factor per unit.* Each stream of a unit gets a draw, a hash of the unit and of the
//! stream's place in it. In each row a unit counts by one stream: among the streams that
//! halted by the row's step, the one with the least draw. Given the unit, each of these is
//! equally likely to be that stream, whatever order they came in. So the mean of its loss
//! is the mean above, and the factor 1 + λ(loss − α)·1{any halted by t} has a mean of 1 at
//! most given all units before, as in the parent module. The rest of that argument holds
//! with units in the place of streams.
//!
//! Simpler ways fail. The *first* stream of a unit may lose more than the others, and a
//! promise about the mean does not forbid that. Drawing *one* stream, and counting it if it
//! halted by t, gives units that halt few of their streams less weight than the promise
//! gives them. So does the mean of the factors of all streams. (`tests/monitor` shows
//! both.)
//!
//! *Open units and missing labels.* When its first stream begins, a unit enters every row
//! by the least factor, that of a halt without loss. It keeps that factor in a row until
//! the unit is closed and no stream that still runs can be the one that counts there. Later
//! knowledge only raises the factor. So the mixture is at no moment larger than that of the
//! outcomes that will be known in the end. The price is time: a unit says nothing before it
//! is closed.
//!
//! *Which units are audited* must not depend on what their streams do, so a unit is audited
//! whole or not at all. Drawing streams one by one would again give more weight to units
//! that halt many.

use std::collections::btree_map::Entry;

use serde::{Deserialize, Serialize};

use super::{Alarm, MOST_UNITS, Monitor, Row, Running};
use crate::data::identity::Key;

/// The most streams of a unit that are told apart among those that may count. A unit with
/// more stays unknown for ever, which never raises the e-value.
const MOST_STREAMS: usize = 256;

/// The hashed name of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnitKey(Key);

/// Seeds the draw of audits; differs from every seed of a split.
const AUDITS: u64 = 0x6175_6469_7473;

impl UnitKey {
    /// The key of a unit with this name.
    pub fn new(name: &str) -> Self {
        Self(Key::new(Some(name), 0))
    }

    /// Whether the unit is drawn if this share of all is audited, for a rule with this
    /// digest. The answer is the same for all of its streams, on every server. Another rule
    /// draws other units, so the units that certified a rule are not the ones that watch
    /// it.
    pub fn is_drawn(self, share: f64, rule: &str) -> bool {
        let draw = self.0.draw(Key::new(Some(rule), 0).draw(AUDITS));
        share >= 1.0 || (draw as f64) < share * 2f64.powi(64)
    }

    /// The draw of one of its streams, by its number.
    pub(super) fn draw_of(self, stream: u32) -> u64 {
        self.0.draw(AUDITS + 1 + u64::from(stream))
    }
}

/// The place of an audit: which stream of which unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) unit: UnitKey,
    /// Its number among the streams of the unit, in the order in which they began.
    pub(super) stream: u32,
}

/// A stream of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stream {
    number: u32,
    /// The row from which it counts, once it has halted.
    row: Option<u32>,
    /// Whether that lost anything, once it is known.
    loss: Option<bool>,
}

/// The state of a unit in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    /// It is open whether the unit counts at all, or by which stream.
    Open,
    /// None of its streams halted by then.
    None,
    /// It counts by the stream with this number.
    By(u32, Option<bool>),
}

impl Cell {
    /// The row that the unit adds.
    pub(super) fn row(self) -> Row {
        let (halted, loss) = match self {
            Self::Open => (1, None),
            Self::None => (0, Some(false)),
            Self::By(_, loss) => (1, loss),
        };
        Row {
            halted,
            losses: u64::from(loss == Some(true)),
            unknown: u64::from(loss.is_none()),
        }
    }
}

/// A unit about which something that counts is still unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Unit {
    pub(super) key: UnitKey,
    pub(super) group: u32,
    pub(super) block: u32,
    /// How many streams have begun.
    begun: u32,
    /// Those that may count in some row, by their draws.
    streams: Vec<Stream>,
    /// Whether no stream of it will begin any more.
    pub(super) closed: bool,
    /// Whether more streams could count than are told apart.
    crowded: bool,
}

impl Unit {
    pub(super) fn new(key: UnitKey, group: u32, block: u32) -> Self {
        Self {
            key,
            group,
            block,
            begun: 0,
            streams: Vec::new(),
            closed: false,
            crowded: false,
        }
    }

    /// Begins a stream. Returns `None` if no outcome of it could count.
    pub(super) fn begin(&mut self) -> Option<Place> {
        let number = self.begun;
        self.begun = self.begun.saturating_add(1);
        if self.closed || self.crowded {
            return None;
        }
        let draw = self.key.draw_of(number);
        let at = self
            .streams
            .partition_point(|s| self.key.draw_of(s.number) < draw);
        self.streams.insert(
            at,
            Stream {
                number,
                row: None,
                loss: None,
            },
        );
        self.prune();
        if self.streams.len() > MOST_STREAMS {
            self.crowded = true;
            self.streams = Vec::new();
        }
        let place = Place {
            unit: self.key,
            stream: number,
        };
        self.find(number).is_some().then_some(place)
    }

    /// Halts the stream with this number, which counts from a row on.
    pub(super) fn halt(&mut self, number: u32, row: u32) {
        if let Some(stream) = self.find(number) {
            stream.row = Some(row);
        }
        self.prune();
    }

    /// Records whether the stream with this number lost anything.
    pub(super) fn settle(&mut self, number: u32, loss: bool) {
        if let Some(stream) = self.find(number).filter(|stream| stream.row.is_some()) {
            stream.loss = Some(loss);
        }
    }

    fn find(&mut self, number: u32) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|s| s.number == number)
    }

    /// Forgets streams that cannot count, because one with a smaller draw counts from the
    /// same row on or from an earlier one.
    fn prune(&mut self) {
        let mut least = u32::MAX;
        self.streams.retain(|stream| {
            let counts = stream.row.unwrap_or(0) < least;
            least = least.min(stream.row.unwrap_or(u32::MAX));
            counts
        });
    }

    /// Returns what is known about the unit in a row.
    pub(super) fn cell(&self, row: usize) -> Cell {
        if self.closed {
            self.cell_if_closed(row)
        } else {
            Cell::Open
        }
    }

    /// Returns the same under the assumption that no other stream begins.
    fn cell_if_closed(&self, row: usize) -> Cell {
        if self.crowded {
            return Cell::Open;
        }
        for stream in &self.streams {
            match stream.row {
                None => return Cell::Open,
                Some(from) if from as usize <= row => {
                    return Cell::By(stream.number, stream.loss);
                }
                Some(_) => {}
            }
        }
        Cell::None
    }

    /// The rows in which a stream would count if no other stream began.
    pub(super) fn rows_of(&self, stream: u32, rows: usize) -> std::ops::Range<usize> {
        let counts =
            |&row: &usize| matches!(self.cell_if_closed(row), Cell::By(by, _) if by == stream);
        let first = (0..rows).find(counts).unwrap_or(rows);
        let end = (first..rows).find(|row| !counts(row)).unwrap_or(rows);
        first..end
    }
}

impl Monitor {
    /// How many units are not [closed](Self::close_units), and so say nothing yet. A
    /// [sum](Self::sum) does not know this.
    pub fn open_units(&self) -> usize {
        self.units.values().filter(|unit| !unit.closed).count()
    }

    /// Whether a unit has begun and is not [closed](Self::close_units). If so, audit all of
    /// its streams.
    pub fn has_open_unit(&self, unit: UnitKey) -> bool {
        let groups = 0..self.watch.groups as u32;
        let mut known = groups.filter_map(|group| self.units.get(&(group, unit)));
        known.any(|unit| !unit.closed)
    }

    /// Begins an audited stream of a unit: like [`begin`](Self::begin), if the promise is
    /// about units. Report all streams of an audited unit. The unit says nothing until it
    /// is [closed](Self::close_units). If the promise is not about units, the stream counts
    /// by itself.
    ///
    /// Returns `None` if no outcome of the stream could count any more. A stream of a
    /// closed unit, or of a new unit beyond [`MOST_UNITS`], is [unwatched](super::Unwatched).
    pub fn begin_of_unit(&mut self, key: u64, group: usize, unit: UnitKey) -> Option<Running> {
        if !self.watch.by_unit {
            return self.begin(key, group);
        }
        let group = self.watched_group(group)?;
        let known = (group, unit);
        let told_apart = self.units.len() + self.spent.len();
        let (block, place) = match self.units.get_mut(&known) {
            Some(unit) if !unit.closed => (unit.block, unit.begin()?),
            Some(_) => {
                self.unwatched.of_closed_units += 1;
                return None;
            }
            None if self.spent.contains(&known) => {
                self.unwatched.of_closed_units += 1;
                return None;
            }
            None if told_apart >= MOST_UNITS => {
                self.unwatched.of_new_units += 1;
                return None;
            }
            None => {
                let Running { block, .. } = self.enter(key, group);
                let mut new = Unit::new(unit, group, block);
                let place = new.begin()?;
                self.units.insert(known, new);
                (block, place)
            }
        };
        Some(Running {
            block,
            group,
            place: Some(place),
        })
    }

    /// Closes a unit: none of its streams begins any more. When to close it must not depend
    /// on losses. Returns the alarm if this raises one.
    pub fn close_unit(&mut self, group: usize, unit: UnitKey) -> Option<Alarm> {
        let rises = self.change_unit((group as u32, unit), |unit| unit.closed = true);
        if rises { self.check() } else { None }
    }

    /// Closes all units whose first stream began before the block with this key. When to
    /// close them must not depend on losses, or the streams that a unit has by then are not
    /// a fair sample. Returns the alarm if this raises one.
    pub fn close_units(&mut self, before: u64) -> Option<Alarm> {
        let blocks = self.blocks.partition_point(|block| block.key < before) as u32;
        let due = |unit: &&Unit| unit.block < blocks && !unit.closed;
        let due = self.units.values().filter(due);
        let due: Vec<_> = due.map(|unit| (unit.group, unit.key)).collect();
        let rises = due.into_iter().fold(false, |rises, known| {
            self.change_unit(known, |unit| unit.closed = true) | rises
        });
        if rises { self.check() } else { None }
    }

    /// Changes what is known about a unit, and the counts with it. Returns whether the
    /// e-value may have risen.
    pub(super) fn change_unit(
        &mut self,
        known: (u32, UnitKey),
        change: impl FnOnce(&mut Unit),
    ) -> bool {
        let Entry::Occupied(mut found) = self.units.entry(known) else {
            return false;
        };
        let (rows, unit) = (self.watch.rows(), found.get_mut());
        let before: Option<Vec<Cell>> = unit
            .closed
            .then(|| (0..rows).map(|r| unit.cell(r)).collect());
        change(unit);
        if !unit.closed {
            // It counts by the least factor, whatever is known about it.
            return false;
        }
        let before = before.unwrap_or_else(|| vec![Cell::Open; rows]);
        let after: Vec<Cell> = (0..rows).map(|r| unit.cell(r)).collect();
        let (block, group) = (unit.block, unit.group);
        if after.iter().all(|cell| cell.row().unknown == 0) {
            found.remove();
            self.spent.insert(known);
            self.unknown = self.unknown.saturating_sub(1);
        }
        let mut rises = false;
        for (r, (was, now)) in std::iter::zip(before, after).enumerate() {
            let (was, now) = (was.row(), now.row());
            if was != now {
                rises |= now.halted < was.halted || now.losses > was.losses;
                self.update(block, group, r..r + 1, |row| {
                    *row = row.plus(now).since(was);
                });
            }
        }
        rises
    }
}
