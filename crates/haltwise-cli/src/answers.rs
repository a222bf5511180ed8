//! Answers of a language model: printed in the order of their questions, and counted where
//! the right one is known.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use haltwise_llm::for_each;

use crate::show::{number, percent};

/// Works at `n` places, a few at a time, and shows the results in the order of the places,
/// whichever is ready first. `work` passes each result of its place to its second argument.
pub(crate) fn for_each_in_order<T: Send>(
    n: usize,
    workers: NonZeroUsize,
    show: impl FnMut(T) -> anyhow::Result<()> + Send,
    work: impl Fn(usize, &dyn Fn(T) -> anyhow::Result<()>) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let results = Mutex::new(InOrder::new(show));
    let lock = || results.lock().unwrap_or_else(PoisonError::into_inner);
    let worked = for_each(n, workers, |place| {
        work(place, &|result| lock().take(place, result))?;
        lock().end(place)
    });
    let rest = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    rest.finish()?;
    worked
}

/// How many answers are right, among those whose right answer is known.
#[derive(Default)]
pub(crate) struct RightAnswers {
    known: u64,
    right: u64,
}

impl RightAnswers {
    pub(crate) fn add(&mut self, is_right: Option<bool>) {
        self.known += u64::from(is_right.is_some());
        self.right += u64::from(is_right == Some(true));
    }

    /// The end of a sentence; empty where no right answer is known.
    pub(crate) fn describe(&self) -> String {
        if self.known == 0 {
            return String::new();
        }
        let share = percent(self.right as f64 / self.known as f64);
        format!("; {share} of {} are right", number(self.known))
    }
}

/// Shows results in the order of their places. A place may have several; those of the first
/// place that is not done are shown as they come.
struct InOrder<T, F> {
    show: F,
    current: usize,
    /// Results of later places, and which of those are done.
    waiting: BTreeMap<usize, Vec<T>>,
    done: BTreeSet<usize>,
}

impl<T, F: FnMut(T) -> anyhow::Result<()>> InOrder<T, F> {
    fn new(show: F) -> Self {
        Self {
            show,
            current: 0,
            waiting: BTreeMap::new(),
            done: BTreeSet::new(),
        }
    }

    fn take(&mut self, place: usize, result: T) -> anyhow::Result<()> {
        if place == self.current {
            return (self.show)(result);
        }
        self.waiting.entry(place).or_default().push(result);
        Ok(())
    }

    /// A place is done: the results of its successors are shown.
    fn end(&mut self, place: usize) -> anyhow::Result<()> {
        self.done.insert(place);
        while self.done.remove(&self.current) {
            self.current += 1;
            let waiting = self.waiting.remove(&self.current);
            waiting.into_iter().flatten().try_for_each(&mut self.show)?;
        }
        Ok(())
    }

    /// Shows what waited for a place that failed.
    fn finish(self) -> anyhow::Result<()> {
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
