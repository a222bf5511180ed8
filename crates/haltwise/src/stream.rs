//! Deciding live, one score at a time.

use crate::rule::Rule;
use crate::trace::Score;

/// What to do after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Read on.
    Continue,
    /// Stop here and use the current prediction.
    Halt,
}

/// One sequence as it arrives, judged by a rule. It is a reference and two
/// counters: nothing is allocated, and an observation costs nanoseconds.
///
/// Once halted it stays halted. The rule's last step always halts; a sequence
/// that ends before it is simply over, with nothing lost.
#[derive(Debug, Clone, Copy)]
pub struct Stream<'r> {
    thresholds: &'r [f32],
    steps: u32,
    halted: bool,
}

impl<'r> Stream<'r> {
    /// A stream of which no step was seen yet.
    pub fn new(rule: &'r Rule) -> Self {
        Self::resume(rule, 0)
    }

    /// A stream of which so many steps were seen, none of which halted it.
    pub fn resume(rule: &'r Rule, steps: u32) -> Self {
        let thresholds = rule.thresholds().values();
        Self {
            thresholds,
            steps,
            halted: steps as usize >= thresholds.len(),
        }
    }

    /// Takes the score of the next step.
    #[inline]
    pub fn observe(&mut self, score: Score) -> Decision {
        self.step(|threshold| score.get() >= threshold)
    }

    /// Counts a step whose score is missing: it cannot halt the stream, unless
    /// it is the last.
    pub fn skip(&mut self) -> Decision {
        self.step(|_| false)
    }

    #[inline]
    fn step(&mut self, reaches: impl Fn(f32) -> bool) -> Decision {
        if !self.halted {
            let t = self.steps as usize;
            self.steps += 1;
            self.halted = reaches(self.thresholds[t]) || t + 1 == self.thresholds.len();
        }
        match self.halted {
            true => Decision::Halt,
            false => Decision::Continue,
        }
    }

    /// How many steps were seen until it halted, or so far.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Whether it has halted.
    pub fn halted(&self) -> bool {
        self.halted
    }
}
