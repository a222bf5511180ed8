//! The mixture of products of bets: its weights, its value, and how much one more loss
//! would add.

use super::{Block, Monitor, Pending, Row};

/// The bets, each by its weight and by how many times the odds of p are those of
/// α: at α = 10%, p is 16%, 21% and 31%.
///
/// These bets, and the two weights below, were chosen for early alarms at gaps of 15% to
/// 30% where 10% are tolerated (`tests/monitor` has the medians). Any choice is valid. A
/// bet wins most if the truth is near its p, and only a little less elsewhere.
pub(super) const BETS: [(f64, f64); 3] = [(0.25, 1.7), (0.5, 2.4), (0.25, 4.0)];

/// The weight of the products that start with the first stream: most rules that
/// fail in production have failed from the beginning.
const FIRST: f64 = 0.9;

/// The weight of later starts hardly falls for this many blocks, then as 1/b².
const LEVEL: f64 = 60.0;

/// Products start from all of the latest blocks, this many, and from every second, fourth,
/// eighth … of the older ones. So the work does not grow with the time that a rule is in
/// use. Leaving a product out only makes the mixture smaller.
const RECENT: usize = 64;

/// The mixture, and its largest product (the first of equals).
pub(super) struct Mixture {
    pub(super) e_value: f64,
    pub(super) block: usize,
    pub(super) group: usize,
    pub(super) row: usize,
}

impl Monitor {
    /// The evidence against the promise, an e-value: an alarm is raised when it
    /// reaches 1/δ.
    pub fn e_value(&self) -> f64 {
        self.mixture().e_value
    }

    pub(super) fn mixture(&self) -> Mixture {
        let rows = self.watch.rows();
        // Blocks that have not begun: their products are 1.
        let mut sum = weight_from(self.blocks.len());
        let mut largest = -1.0;
        let mut found = Mixture {
            e_value: 0.0,
            block: 0,
            group: 0,
            row: 0,
        };
        for (b, block) in self.starts() {
            for (r, (&row, &before)) in self.rows.iter().zip(&block.before).enumerate() {
                let products = self.products(row.since(before));
                let product = products.iter().sum::<f64>();
                sum += weight(b) * self.watch.weight(r) * product;
                // Weights express what was expected, not what was found.
                if product > largest {
                    largest = product;
                    (found.block, found.group, found.row) = (b, r / rows, r % rows);
                }
            }
        }
        // The largest double stands for anything larger.
        found.e_value = sum.min(f64::MAX);
        found
    }

    /// The blocks from which products start.
    fn starts(&self) -> impl Iterator<Item = (usize, &Block)> {
        let last = self.blocks.len().saturating_sub(1);
        self.blocks
            .iter()
            .enumerate()
            .filter(move |&(b, _)| is_start(b, last))
    }

    /// The product of each bet over streams, times its weight.
    fn products(&self, row: Row) -> [f64; BETS.len()] {
        let others = row.halted.saturating_sub(row.losses) as f64;
        let losses = row.losses as f64;
        std::array::from_fn(|i| {
            let (weight, _) = BETS[i];
            weight * libm::exp(losses * self.loss[i] + others * self.none[i])
        })
    }

    /// Returns how much the e-value would rise if each of these streams turned out to have
    /// lost something. A label is worth most for the streams with the largest rise.
    pub fn worth<'p>(&self, pending: impl IntoIterator<Item = &'p Pending>) -> Vec<f64> {
        let worth = self.worth_of_labels();
        pending.into_iter().map(|p| worth.of(p)).collect()
    }

    /// Returns the same for streams that are asked about one by one.
    pub fn worth_of_labels(&self) -> LabelWorth<'_> {
        // How much one more loss adds to the products that start with each block, then to
        // all that start by it, in each row and all later rows.
        let rows = self.watch.rows();
        let mut worth = vec![vec![0.0; self.rows.len()]; self.blocks.len()];
        for (b, block) in self.starts() {
            for (r, (&row, &before)) in self.rows.iter().zip(&block.before).enumerate() {
                let products = self.products(row.since(before));
                let more = products
                    .iter()
                    .zip(BETS)
                    .map(|(p, (_, ratio))| p * (ratio - 1.0));
                worth[b][r] = weight(b) * self.watch.weight(r) * more.sum::<f64>();
            }
        }
        for start in &mut worth {
            for r in (0..start.len()).rev().filter(|r| (r + 1) % rows > 0) {
                start[r] += start[r + 1];
            }
        }
        for b in 1..worth.len() {
            let (before, now) = worth.split_at_mut(b);
            let sums = now[0].iter_mut().zip(&before[b - 1]);
            sums.for_each(|(now, before)| *now += before);
        }
        LabelWorth {
            monitor: self,
            by_block: worth,
        }
    }
}

/// The worth of the label of any stream, as [`Monitor::worth`] defines it.
#[derive(Debug)]
pub struct LabelWorth<'m> {
    monitor: &'m Monitor,
    by_block: Vec<Vec<f64>>,
}

impl LabelWorth<'_> {
    /// Returns the worth of the label of a stream.
    pub fn of(&self, pending: &Pending) -> f64 {
        let Some(place) = pending.place else {
            return self.since_row(pending, pending.row as usize);
        };
        // The stream counts only until the row from which another stream counts.
        let unit = self.monitor.units.get(&(pending.group, place.unit));
        unit.map_or(0.0, |unit| {
            let rows = unit.rows_of(place.stream, self.monitor.watch.rows());
            self.since_row(pending, rows.start) - self.since_row(pending, rows.end)
        })
    }

    /// The worth of a loss that counts in a row and all later rows.
    fn since_row(&self, pending: &Pending, row: usize) -> f64 {
        let rows = self.monitor.watch.rows();
        if row >= rows {
            return 0.0;
        }
        let block = self.by_block.get(pending.block as usize);
        let found = block.and_then(|block| block.get(pending.group as usize * rows + row));
        found.copied().unwrap_or(0.0)
    }
}

/// The weight of the products that start with a block (from 0).
pub(super) fn weight(block: usize) -> f64 {
    match block {
        0 => FIRST,
        _ => weight_from(block) - weight_from(block + 1),
    }
}

/// The weight of all that start with a block (from 0) or later.
pub(super) fn weight_from(block: usize) -> f64 {
    match block {
        0 => 1.0,
        _ => (1.0 - FIRST) * LEVEL / ((block - 1) as f64 + LEVEL),
    }
}

/// Whether products start with a block while block `last` is current. A block that is left
/// out stays out.
pub(super) fn is_start(block: usize, last: usize) -> bool {
    match (last - block) / RECENT {
        0 => true,
        age => block.is_multiple_of(2 << age.ilog2()),
    }
}
