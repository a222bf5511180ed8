//! Things that come in any order, shown in theirs.

use std::collections::{BTreeMap, BTreeSet};

/// Shows things in the order of their places, whichever is ready first. A place may
/// have several; those of the first that is not done are shown as they come.
pub(crate) struct InOrder<T, F> {
    show: F,
    current: usize,
    /// Things of later places, and which of those are done.
    waiting: BTreeMap<usize, Vec<T>>,
    done: BTreeSet<usize>,
}

impl<T, F: FnMut(T) -> anyhow::Result<()>> InOrder<T, F> {
    pub(crate) fn new(show: F) -> Self {
        Self {
            show,
            current: 0,
            waiting: BTreeMap::new(),
            done: BTreeSet::new(),
        }
    }

    pub(crate) fn take(&mut self, place: usize, thing: T) -> anyhow::Result<()> {
        if place == self.current {
            return (self.show)(thing);
        }
        self.waiting.entry(place).or_default().push(thing);
        Ok(())
    }

    /// A place is done: its successors come to be shown.
    pub(crate) fn end(&mut self, place: usize) -> anyhow::Result<()> {
        self.done.insert(place);
        while self.done.remove(&self.current) {
            self.current += 1;
            let waiting = self.waiting.remove(&self.current);
            waiting.into_iter().flatten().try_for_each(&mut self.show)?;
        }
        Ok(())
    }

    /// Shows what waited for a place that failed.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let mut waiting = self.waiting.into_values().flatten();
        waiting.try_for_each(self.show)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ready_first_waits_for_what_comes_before_it() {
        let mut shown = Vec::new();
        let mut order = InOrder::new(|thing| {
            shown.push(thing);
            Ok(())
        });
        order.take(1, "b").unwrap();
        order.end(1).unwrap();
        order.take(3, "d").unwrap();
        order.take(0, "a").unwrap();
        order.end(0).unwrap();
        order.take(2, "c").unwrap();
        order.finish().unwrap();
        // The third is not done, but will not come to an end any more.
        assert_eq!(shown, ["a", "b", "c", "d"]);
    }
}
