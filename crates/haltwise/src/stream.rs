//! Deciding live, one step at a time.

use crate::gap_score::Memory;
use crate::rule::Rule;
use crate::step::{Score, Step, StepError};

/// What to do after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Read on.
    Continue,
    /// Stop here and use the current prediction.
    Halt,
}

/// One sequence as it arrives, judged by a rule. It is a reference, two
/// counters and, where the score is learned, what that remembers; an
/// observation of a ready score costs nanoseconds.
///
/// Once halted it stays halted. The rule's last step always halts; a sequence
/// that ends before it is simply over, with nothing lost.
#[derive(Debug, Clone)]
pub struct Stream<'r> {
    rule: &'r Rule,
    thresholds: &'r [f32],
    steps: u32,
    halted: bool,
    memory: Memory,
}

impl<'r> Stream<'r> {
    /// A stream of which no step was seen yet.
    pub fn new(rule: &'r Rule) -> Self {
        Self::resume(rule, 0, Memory::default())
    }

    /// A stream of which so many steps were seen, none of which halted it, with
    /// the [`memory`](Self::into_memory) of them.
    pub fn resume(rule: &'r Rule, steps: u32, memory: Memory) -> Self {
        let thresholds = rule.thresholds().values();
        Self {
            rule,
            thresholds,
            steps,
            halted: steps as usize >= thresholds.len(),
            memory,
        }
    }

    /// What a learned score remembers of the steps so far: all that is needed,
    /// beside their number, to [`resume`](Self::resume) later.
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// Takes the score of the next step, computed as the rule's
    /// [`source`](Rule::source) says.
    #[inline]
    pub fn observe(&mut self, score: Score) -> Decision {
        self.step(|threshold| score.get() >= threshold)
    }

    /// Takes what the classifier said at the next step, and computes the score.
    /// A step that has none is refused and not counted: [`skip`](Self::skip) it.
    pub fn observe_step(&mut self, step: &Step<'_>) -> Result<Decision, StepError> {
        if self.halted {
            return Ok(Decision::Halt);
        }
        let t = self.steps as usize;
        let score = self.rule.source().score(step, t, &mut self.memory)?;
        Ok(self.observe(score))
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
