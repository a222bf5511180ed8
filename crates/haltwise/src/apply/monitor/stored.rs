//! The stored form of a monitor.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::units::{Unit, UnitKey};
use super::{Alarm, Block, Monitor, Row, Unwatched, Watch};

/// The stored form of a monitor.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    watch: Watch,
    audits: u64,
    unknown: u64,
    rows: Vec<Row>,
    blocks: Vec<Block>,
    alarm: Option<Alarm>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    units: Vec<Unit>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    spent: BTreeSet<(u32, UnitKey)>,
    #[serde(default)]
    unwatched: Unwatched,
}

impl From<Monitor> for Stored {
    fn from(monitor: Monitor) -> Self {
        let Monitor {
            watch,
            audits,
            unknown,
            rows,
            blocks,
            alarm,
            units,
            spent,
            unwatched,
            ..
        } = monitor;
        Self {
            watch,
            audits,
            unknown,
            rows,
            blocks,
            alarm,
            units: units.into_values().collect(),
            spent,
            unwatched,
        }
    }
}

/// Why a stored monitor cannot be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the counts of the monitor contradict each other")]
pub struct StoredError;

impl TryFrom<Stored> for Monitor {
    type Error = StoredError;

    fn try_from(stored: Stored) -> Result<Self, StoredError> {
        let mut monitor = Self::new(stored.watch);
        let sound = |rows: &[Row]| {
            rows.len() == monitor.rows.len()
                && rows
                    .iter()
                    .all(|row| row.losses + row.unknown <= row.halted)
        };
        let rising = stored
            .blocks
            .windows(2)
            .all(|w| w[0].key < w[1].key && w[0].audits <= w[1].audits);
        let before = |block: &Block| {
            sound(&block.before)
                && block.audits <= stored.audits
                && std::iter::zip(&block.before, &stored.rows).all(|(a, b)| a.within(*b))
        };
        let placed = |unit: &Unit| {
            (unit.group as usize) < monitor.watch.groups
                && (unit.block as usize) < stored.blocks.len()
        };
        if !sound(&stored.rows)
            || !rising
            || !stored.blocks.iter().all(before)
            || !stored.units.iter().all(placed)
        {
            return Err(StoredError);
        }
        monitor.audits = stored.audits;
        monitor.unknown = stored.unknown;
        monitor.rows = stored.rows;
        monitor.blocks = stored.blocks;
        monitor.alarm = stored.alarm;
        let keyed = stored
            .units
            .into_iter()
            .map(|unit| ((unit.group, unit.key), unit));
        monitor.units = keyed.collect();
        monitor.spent = stored.spent;
        monitor.unwatched = stored.unwatched;
        Ok(monitor)
    }
}
