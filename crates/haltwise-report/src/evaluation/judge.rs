//! What was measured against what is promised, in plain words.

use haltwise::{Evaluation, Promise, Rule, StepResult};

use crate::format::{count_of, interval, level, percent};

/// What was measured, and how it stands to what is promised.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// Some sentences.
    pub words: String,
    /// How the gap that the promise is about stands to the tolerated one; `None`
    /// where nothing is promised.
    pub standing: Option<Standing>,
}

/// Compares what was measured with what is promised.
pub fn judge(rule: &Rule, evaluation: &Evaluation) -> Judgement {
    let alpha = rule.alpha().get();
    let overall = format!(
        "Over all {} the gap is {} ({})",
        count_of(evaluation.n as u64, "sequence", "sequences"),
        percent(evaluation.gap),
        interval(evaluation.gap_interval)
    );
    let telling = telling_step(evaluation, alpha);
    let (gap, range) = telling.map_or((0.0, (0.0, 1.0)), |s| {
        (s.gap_by.unwrap_or(0.0), s.gap_by_interval)
    });
    let by_step = Standing::of(gap, range, alpha);
    let halted = telling.map_or(String::new(), |s| {
        let found = format!("{} ({})", percent(gap), interval(range));
        match by_step {
            Standing::BeyondChance => format!(" Among those halted by step {} it is {found}", s.t),
            _ => format!(" It is highest among those halted by step {}: {found}", s.t),
        }
    });
    match rule.promise() {
        Some(Promise::Marginal) => {
            let standing = Standing::of(evaluation.gap, evaluation.gap_interval, alpha);
            let others = if by_step == Standing::Within {
                ""
            } else {
                &halted
            };
            let others = match others {
                "" => String::new(),
                others => format!("{others}, but about those nothing is promised."),
            };
            Judgement {
                words: format!("{overall}, {}{others}", standing.words(alpha)),
                standing: Some(standing),
            }
        }
        Some(Promise::Conditional) => Judgement {
            words: format!("{overall}.{halted}, {}", by_step.words(alpha)),
            standing: Some(by_step),
        },
        None => Judgement {
            words: format!("{overall}.{halted}."),
            standing: None,
        },
    }
}

/// The step that says most: of those whose interval lies above α, the one
/// where it lies highest; if there is none, the one with the highest gap.
fn telling_step(evaluation: &Evaluation, alpha: f64) -> Option<StepResult> {
    let steps = evaluation.by_step.iter().filter(|s| s.gap_by.is_some());
    let first_highest = |value: fn(&StepResult) -> f64| {
        let higher = |a, b| if value(b) > value(a) { b } else { a };
        steps.clone().reduce(higher).copied()
    };
    first_highest(|s| s.gap_by_interval.0)
        .filter(|s| s.gap_by_interval.0 > alpha)
        .or_else(|| first_highest(|s| s.gap_by.unwrap_or(0.0)))
}

/// The step by which the gap is highest, and that gap.
pub(crate) fn worst_step(evaluation: &Evaluation) -> (usize, f64) {
    let steps = evaluation.by_step.iter();
    let gaps = steps.filter_map(|s| Some((s.t, s.gap_by?)));
    gaps.reduce(|a, b| if b.1 > a.1 { b } else { a })
        .unwrap_or((evaluation.t_max, evaluation.gap))
}

/// How a measured gap stands to the tolerated one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// At most as large.
    Within,
    /// Larger, but its interval reaches below.
    PerhapsByChance,
    /// Larger with all of its interval.
    BeyondChance,
}

impl Standing {
    fn of(gap: f64, (low, _): (f64, f64), alpha: f64) -> Self {
        if low > alpha {
            Self::BeyondChance
        } else if gap > alpha {
            Self::PerhapsByChance
        } else {
            Self::Within
        }
    }

    /// The end of a sentence about a gap.
    fn words(self, alpha: f64) -> String {
        let tolerated = level(alpha);
        match self {
            Self::Within => format!("within the tolerated {tolerated}."),
            Self::PerhapsByChance => format!(
                "above the tolerated {tolerated}; but its interval reaches below, so chance may \
                 explain it."
            ),
            Self::BeyondChance => format!(
                "above the tolerated {tolerated} with all of its interval: more than chance \
                 explains. Are these sequences drawn as those that certified the rule were?"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use haltwise::simulate::{Atom, Process};
    use haltwise::{Certifying, Method, Plan, evaluate};

    use super::*;

    /// The first step is rash with a few, the others are safe.
    fn process(rash: f64, safe: f64) -> Process {
        let step = |high: f64, gap: f64| {
            let low = Atom::new(0.1, 1.0 - high, 0.6).unwrap();
            vec![Atom::new(0.9, high, gap).unwrap(), low]
        };
        let steps = vec![
            step(0.05, rash),
            step(0.5, safe),
            step(0.9, safe),
            step(0.5, 0.0),
        ];
        Process::new("rash", steps)
    }

    fn marginal(process: &Process) -> Rule {
        let certifying = Certifying::new(process.draw(3000, 1));
        Plan::of(Method::Marginal).rule((), &certifying).unwrap()
    }

    fn judged(rule: &Rule, process: &Process) -> Judgement {
        judge(
            rule,
            &evaluate(rule.thresholds(), &process.draw(3000, 2)).unwrap(),
        )
    }

    #[test]
    fn a_marginal_rule_is_judged_on_average_only() {
        let process = process(0.5, 0.02);
        let found = judged(&marginal(&process), &process);
        assert_eq!(found.standing, Some(Standing::Within));
        assert!(
            found
                .words
                .contains(", within the tolerated 10%. Among those halted by step 1")
        );
        assert!(
            found
                .words
                .ends_with("but about those nothing is promised.")
        );
    }

    #[test]
    fn sequences_drawn_otherwise_are_noticed() {
        let rule = marginal(&process(0.02, 0.02));
        let found = judged(&rule, &process(0.5, 0.3));
        assert_eq!(found.standing, Some(Standing::BeyondChance));
        assert!(found.words.contains("more than chance explains"));
    }

    #[test]
    fn the_border_is_named_for_what_it_is() {
        assert_eq!(Standing::of(0.1, (0.05, 0.2), 0.1), Standing::Within);
        assert_eq!(
            Standing::of(0.12, (0.1, 0.2), 0.1),
            Standing::PerhapsByChance
        );
        assert_eq!(Standing::of(0.15, (0.11, 0.2), 0.1), Standing::BeyondChance);
    }
}
