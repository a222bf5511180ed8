//! The weight of each unit. The draw that a weight decides is one per unit, so a unit has one
//! weight: with two, a part of it could be kept and the rest left out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::data::identity::Key;
use crate::data::sequence::Trace;
use crate::data::sequence_error::SequenceError;
use crate::data::terms::Terms;

/// The weights of the units of a set, kept or left out. Empty unless the promise is about
/// units and sequences have weights.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnitWeights(HashMap<Key, f64>);

impl UnitWeights {
    /// Refuses a sequence whose weight differs from those of the sequences of its unit that
    /// came before.
    pub(crate) fn check(&mut self, terms: &Terms, trace: &Trace<'_>) -> Result<(), SequenceError> {
        let about = trace.about();
        let (Some(_), Some(_), Some(unit), Some(weight)) =
            (&terms.unit, &terms.weight, about.unit, about.weight)
        else {
            return Ok(());
        };
        match self.0.entry(Key::new(Some(unit), 0)) {
            Entry::Vacant(new) => {
                new.insert(weight);
                Ok(())
            }
            Entry::Occupied(known) if *known.get() == weight => Ok(()),
            Entry::Occupied(known) => Err(SequenceError::uneven_unit(unit, *known.get(), weight)),
        }
    }

    /// Adds those of another part of the set. Returns whether no unit has two weights.
    #[must_use]
    pub(crate) fn add(&mut self, other: Self) -> bool {
        other
            .0
            .into_iter()
            .all(|(unit, weight)| *self.0.entry(unit).or_insert(weight) == weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::checker::Checker;
    use crate::data::sequence::{About, Sequence};
    use crate::data::terms::Weight;

    fn checked(weights: &mut UnitWeights, unit: &str, weight: f64) -> Result<(), SequenceError> {
        let terms = Terms {
            unit: Some("patient".into()),
            weight: Some(Weight {
                column: "mix".into(),
                bound: 9.0,
            }),
            ..Terms::default()
        };
        let sequence = Sequence {
            predictions: Some(&[1]),
            scores: Some(&[0.5]),
            about: About {
                unit: Some(unit),
                weight: Some(weight),
                ..About::default()
            },
            ..Sequence::default()
        };
        weights.check(&terms, &Checker::new().check(sequence)?)
    }

    #[test]
    fn a_unit_has_one_weight() {
        let mut weights = UnitWeights::default();
        for (unit, weight) in [("a", 1.0), ("b", 2.0), ("a", 1.0)] {
            assert_eq!(checked(&mut weights, unit, weight), Ok(()));
        }
        let refused = checked(&mut weights, "a", 2.0).unwrap_err().to_string();
        assert!(
            refused.contains("`a`") && refused.contains("1 and 2"),
            "{refused}"
        );
        let mut other = UnitWeights::default();
        checked(&mut other, "b", 2.0).unwrap();
        assert!(weights.clone().add(other.clone()));
        checked(&mut other, "a", 3.0).unwrap();
        assert!(!weights.add(other));
    }
}
