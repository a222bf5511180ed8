//! The sum of what several servers have seen.

use std::collections::BTreeSet;

use super::{Block, Monitor, Row, SumError};

impl Monitor {
    /// Returns the monitor of all that several monitors have seen, by one calendar of
    /// blocks.
    ///
    /// Streams that are running or pending elsewhere stay unknown. The order of streams
    /// within a block is not known, so an alarm can only be found at the ends of blocks.
    pub fn sum(monitors: &[Self]) -> Result<Self, SumError> {
        let Some(first) = monitors.first() else {
            return Err(SumError::OtherWatch);
        };
        if monitors.iter().any(|m| m.watch != first.watch) {
            return Err(SumError::OtherWatch);
        }
        let units = || monitors.iter().flat_map(|m| m.units.keys().chain(&m.spent));
        if units().collect::<BTreeSet<_>>().len() < units().count() {
            return Err(SumError::SharedUnit);
        }
        if let [only] = monitors {
            return Ok(only.clone());
        }
        let mut keys: Vec<u64> = monitors
            .iter()
            .flat_map(|m| m.blocks.iter().map(|b| b.key))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let mut all = Self::new(first.watch.clone());
        for (i, &key) in keys.iter().enumerate() {
            all.blocks.push(Block {
                key,
                audits: all.audits,
                before: all.rows.clone(),
            });
            let next = keys.get(i + 1).copied();
            let until = monitors.iter().map(|m| m.until(next));
            let (audits, rows) = until.fold((0, None::<Vec<Row>>), |(n, sum), (m, rows)| {
                let sum = match sum {
                    None => rows.to_vec(),
                    Some(sum) => sum.iter().zip(rows).map(|(a, &b)| a.plus(b)).collect(),
                };
                (n + m, Some(sum))
            });
            all.audits = audits;
            all.rows = rows.unwrap_or_default();
            all.check();
        }
        all.unknown = monitors.iter().map(|m| m.unknown).sum();
        for monitor in monitors {
            all.unwatched = all.unwatched.plus(monitor.unwatched);
        }
        Ok(all)
    }

    /// The counts before the block with this key, or a later one, began.
    fn until(&self, key: Option<u64>) -> (u64, &[Row]) {
        let next = key.map_or(self.blocks.len(), |key| {
            self.blocks.partition_point(|block| block.key < key)
        });
        match self.blocks.get(next) {
            Some(block) => (block.audits, &block.before),
            None => (self.audits, &self.rows),
        }
    }
}
