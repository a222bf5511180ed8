//! The sequences themselves, in one flat block of memory.

use crate::error::{Error, Result};
use crate::problem::quoted;

/// Which half of a published dataset a sequence comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The half published for training.
    Train,
    /// The half published for testing.
    Test,
}

/// A set of labelled sequences.
///
/// Every value is finite: values that a file marks as missing are refused or filled while
/// reading (see [`Missing`](super::Missing)). Every sequence has at least one step, and
/// every label is an index into the class names.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesSet {
    pub(super) name: String,
    pub(super) features: usize,
    pub(super) classes: Vec<String>,
    /// The start of each sequence, counted in steps; one more for the end.
    pub(super) starts: Vec<usize>,
    pub(super) values: Vec<f32>,
    pub(super) labels: Vec<u32>,
    pub(super) origins: Vec<Option<Origin>>,
}

impl SeriesSet {
    /// The dataset's name: that of its file, without `_TRAIN` or `_TEST`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many sequences there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none, as in an empty selection; no reader returns an empty set.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// How many numbers each step has (channels, dimensions).
    pub fn features(&self) -> usize {
        self.features
    }

    /// The names of the classes; a label is a position in this list.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The label of every sequence.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// One sequence: its steps one after the other, `features` values each.
    ///
    /// # Panics
    /// Panics if there is no sequence `i`, as indexing a slice does.
    pub fn sequence(&self, i: usize) -> &[f32] {
        &self.values[self.starts[i] * self.features..self.starts[i + 1] * self.features]
    }

    /// How many steps sequence `i` has.
    ///
    /// # Panics
    /// Panics if there is no sequence `i`, as indexing a slice does.
    pub fn steps(&self, i: usize) -> usize {
        self.starts[i + 1] - self.starts[i]
    }

    /// All sequences, one after the other.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The step at which each sequence starts among all [`values`](Self::values), and where the
    /// last one ends.
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// The number of steps of the longest sequence; 0 for an empty set.
    pub fn t_max(&self) -> usize {
        self.lengths().max().unwrap_or(0)
    }

    /// Whether all sequences have the same number of steps.
    pub fn equal_length(&self) -> bool {
        let t_max = self.t_max();
        self.lengths().all(|steps| steps == t_max)
    }

    /// The number of steps of every sequence.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.starts.windows(2).map(|pair| pair[1] - pair[0])
    }

    /// Which half of the dataset each sequence comes from, if known.
    pub fn origins(&self) -> &[Option<Origin>] {
        &self.origins
    }

    /// Selects the sequences at these positions, in this order. All class names stay, so
    /// labels mean the same in every selection.
    ///
    /// # Panics
    /// Panics if there is no such sequence, as indexing a slice does.
    pub fn select(&self, positions: &[usize]) -> Self {
        let mut chosen = Self {
            name: self.name.clone(),
            features: self.features,
            classes: self.classes.clone(),
            starts: Vec::with_capacity(positions.len() + 1),
            values: Vec::with_capacity(
                positions.iter().map(|&i| self.steps(i)).sum::<usize>() * self.features,
            ),
            labels: positions.iter().map(|&i| self.labels[i]).collect(),
            origins: positions.iter().map(|&i| self.origins[i]).collect(),
        };
        chosen.starts.push(0);
        let mut end = 0;
        for &i in positions {
            end += self.steps(i);
            chosen.starts.push(end);
            chosen.values.extend_from_slice(self.sequence(i));
        }
        chosen
    }

    /// Refuses a set from which no early-stopping classifier can be learnt:
    /// one with a single class, or with a single step.
    pub fn check_learnable(&self) -> Result<()> {
        let Some(&first) = self.labels.first() else {
            return Err(Error::new(
                &self.name,
                "there are no sequences to learn from",
            ));
        };
        if self.labels.iter().all(|&label| label == first) {
            let class = &self.classes[first as usize];
            let problem = format!(
                "every sequence is of class {}; add sequences of at least one other class",
                quoted(class)
            );
            return Err(Error::new(&self.name, problem));
        }
        if self.t_max() < 2 {
            let problem = "every sequence has a single step, so there is nothing to stop before; \
                           give sequences of two steps or more";
            return Err(Error::new(&self.name, problem));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Missing, parse};
    use super::*;

    fn ucr(text: &str) -> SeriesSet {
        parse(
            "a/Toy_TRAIN.tsv",
            text.as_bytes(),
            Format::Ucr,
            Missing::Refuse,
        )
        .unwrap()
    }

    #[test]
    fn a_set_knows_its_lengths_and_where_its_sequences_come_from() {
        let set = ucr("a\t1\t2\t3\nb\t4\tNaN\tNaN\n");
        assert_eq!((set.name(), set.len(), set.features()), ("Toy", 2, 1));
        assert_eq!(set.lengths().collect::<Vec<_>>(), [3, 1]);
        assert_eq!((set.t_max(), set.equal_length()), (3, false));
        assert_eq!(set.origins(), [Some(Origin::Train); 2]);
    }

    #[test]
    fn a_selection_keeps_order_labels_and_every_class_name() {
        let set = ucr("a\t1\t2\nb\t3\tNaN\nc\t5\t6\n");
        let chosen = set.select(&[2, 1]);
        assert_eq!(chosen.labels(), [2, 1]);
        assert_eq!(chosen.sequence(0), [5.0, 6.0]);
        assert_eq!(chosen.sequence(1), [3.0]);
        assert_eq!(chosen.classes(), set.classes());
        assert_eq!(set.select(&[0, 1, 2]), set);
        assert!(set.select(&[]).is_empty());
    }

    #[test]
    fn one_class_or_one_step_cannot_be_learnt_from() {
        let refusal = |text| ucr(text).check_learnable().unwrap_err().to_string();
        assert!(refusal("x\t1\t2\nx\t3\t4\n").contains("every sequence is of class \"x\""));
        assert!(refusal("x\t1\ny\t3\n").contains("single step"));
        assert!(ucr("x\t1\t2\ny\t3\tNaN\n").check_learnable().is_ok());
    }
}
