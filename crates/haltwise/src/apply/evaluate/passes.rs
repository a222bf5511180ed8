//! Evaluates a set in one pass by several threads, and restores the order of the set.

use super::{EvaluateError, Evaluation, Evaluator};
use crate::data::identity::{Key, SetSummary};
use crate::data::sequence::Trace;
use crate::rule::Rule;

/// The results of a rule on a set.
#[derive(Debug)]
pub struct Evaluated {
    /// The evaluation of the set.
    pub evaluation: Evaluation,
    /// Whether these are exactly the sequences that the rule was made from, or one of the
    /// parts that they were split into.
    pub own: bool,
    /// How many of them are known to be among those that the rule was made from; see
    /// [`Rule::remembers`].
    pub remembered: u64,
    /// The number of steps of the longest sequence.
    pub longest: usize,
}

/// What one thread has seen of a set: stretches of consecutive sequences.
#[derive(Debug)]
pub struct Stretches<'r> {
    rule: &'r Rule,
    stretches: Vec<Stretch>,
    set: SetSummary,
    remembered: u64,
    longest: usize,
}

/// Consecutive sequences.
#[derive(Debug)]
struct Stretch {
    start: u64,
    next: u64,
    evaluator: Evaluator,
}

impl<'r> Stretches<'r> {
    /// Starts with nothing seen.
    pub fn new(rule: &'r Rule) -> Self {
        Self {
            rule,
            stretches: Vec::new(),
            set: SetSummary::default(),
            remembered: 0,
            longest: 0,
        }
    }

    /// Applies the rule to the sequence at this position of the set, counted from 0.
    pub fn push(&mut self, position: u64, trace: &Trace<'_>) -> Result<(), EvaluateError> {
        if self
            .stretches
            .last()
            .is_none_or(|last| last.next != position)
        {
            self.stretches.push(Stretch {
                start: position,
                next: position,
                evaluator: Evaluator::for_rule(self.rule),
            });
        }
        let Some(stretch) = self.stretches.last_mut() else {
            return Ok(());
        };
        stretch.next += 1;
        self.longest = self.longest.max(trace.len());
        let key = Key::new(trace.id(), position);
        if let Some(print) = stretch.evaluator.push(key, trace)? {
            self.set += SetSummary::one(print);
            self.remembered += u64::from(self.rule.remembers(print));
        }
        Ok(())
    }

    /// Evaluates all that was seen, in the order of the set, because ties are broken by
    /// order.
    pub fn finish(
        rule: &Rule,
        all: impl IntoIterator<Item = Self>,
    ) -> Result<Evaluated, EvaluateError> {
        let mut evaluator = Evaluator::for_rule(rule);
        let (mut set, mut remembered, mut longest) = (SetSummary::default(), 0, 0);
        let mut stretches = Vec::new();
        for seen in all {
            stretches.extend(seen.stretches);
            set += seen.set;
            remembered += seen.remembered;
            longest = longest.max(seen.longest);
        }
        stretches.sort_by_key(|stretch| stretch.start);
        for stretch in stretches {
            evaluator.append(stretch.evaluator)?;
        }
        Ok(Evaluated {
            evaluation: evaluator.finish()?,
            own: rule.made_from(set),
            remembered,
            longest,
        })
    }
}
