//! Compares the measured losses with the promise, in plain words.

use haltwise::Rule;
use haltwise::evaluate::{Evaluation, StepResult};
use haltwise::rule::Promise;

use crate::chance::{Losses, beyond_chance};
use crate::format::{count_of, interval, level, percent};
use crate::words;

/// The measured losses, and whether they keep the promise.
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
    let loss = words::loss(rule);
    let overall = format!(
        "Over all {} the {loss} is {} ({})",
        count_of(evaluation.n as u64, "sequence", "sequences"),
        percent(evaluation.gap),
        interval(evaluation.gap_interval)
    );
    let looks = Looks::new(rule, evaluation);
    let by_step = looks.standing();
    let halted = looks.telling(by_step).map_or(String::new(), |(look, gap)| {
        let step = look.step;
        let found = format!("{} ({})", percent(gap), interval(step.gap_by_interval));
        let t = step.t;
        let group = look.group.map_or_else(String::new, |group| {
            let by = rule.terms().by.as_deref().unwrap_or_default();
            format!(" where {by} is {group}")
        });
        match by_step {
            Standing::BeyondChance => {
                format!(" Among those halted by step {t}{group} it is {found}")
            }
            _ => format!(" It is highest among those halted by step {t}{group}: {found}"),
        }
    });
    match rule.promise() {
        Some(Promise::Marginal) => {
            let last = &evaluation.by_step[evaluation.by_step.len().saturating_sub(1)..];
            let standing = match evaluation.by_group.is_empty() {
                true => Looks::of(rule, last).standing(),
                false => Looks::at_end(rule, evaluation).standing(),
            };
            let others = match by_step {
                Standing::Within => String::new(),
                _ => format!("{halted}, but about those nothing is promised."),
            };
            Judgement {
                words: format!("{overall}, {}{others}", standing.words(alpha, 1)),
                standing: Some(standing),
            }
        }
        Some(Promise::Conditional) => Judgement {
            words: format!("{overall}.{halted}, {}", by_step.words(alpha, looks.len())),
            standing: Some(by_step),
        },
        None => Judgement {
            words: format!("{overall}.{halted}."),
            standing: None,
        },
    }
}

/// A step that the judgement looks at.
struct Look<'a> {
    group: Option<&'a str>,
    step: &'a StepResult,
}

/// All of them: the steps of the rule from where it opens, as the promise is. Sequences
/// that halted before came to their own ends, where there is no gap; losses that are
/// given need not be 0 there. Steps that only sequences longer than the rule have are left
/// out: how many there are depends on the sequences. If the rule never opens, the
/// last of its steps. If the promise is by group, the looks of every group.
struct Looks<'a> {
    looks: Vec<Look<'a>>,
    alpha: f64,
    losses: Losses,
}

impl<'a> Looks<'a> {
    fn new(rule: &Rule, evaluation: &'a Evaluation) -> Self {
        let opens = rule
            .thresholds()
            .values()
            .iter()
            .position(|v| v.is_finite());
        let from = |steps: &'a [StepResult]| {
            let steps = &steps[..steps.len().min(rule.t_max())];
            let last = steps.len().saturating_sub(1);
            &steps[opens.unwrap_or(last).min(last)..]
        };
        Self::each(rule, evaluation, from)
    }

    fn at_end(rule: &Rule, evaluation: &'a Evaluation) -> Self {
        Self::each(rule, evaluation, |steps| {
            &steps[steps.len().saturating_sub(1)..]
        })
    }

    fn each(
        rule: &Rule,
        evaluation: &'a Evaluation,
        from: impl Fn(&'a [StepResult]) -> &'a [StepResult],
    ) -> Self {
        if evaluation.by_group.is_empty() {
            return Self::of(rule, from(&evaluation.by_step));
        }
        let mut looks = Self::of(rule, &[]);
        for found in &evaluation.by_group {
            let group = Some(&found.group[..]);
            let steps = from(&found.by_step).iter();
            looks.looks.extend(steps.map(|step| Look { group, step }));
        }
        looks
    }

    fn of(rule: &Rule, steps: &'a [StepResult]) -> Self {
        let look = |step| Look { group: None, step };
        Self {
            looks: steps.iter().map(look).collect(),
            alpha: rule.alpha().get(),
            losses: if words::counts_sequences(rule) {
                Losses::ZeroOrOne
            } else {
                Losses::UpToOne
            },
        }
    }

    fn len(&self) -> usize {
        self.looks.len()
    }

    fn standing(&self) -> Standing {
        let p_values = self.looks.iter().map(|look| self.p_value(look.step));
        if beyond_chance(self.losses, p_values) {
            Standing::BeyondChance
        } else if self
            .looks
            .iter()
            .any(|look| look.step.gap_by.is_some_and(|gap| gap > self.alpha))
        {
            Standing::PerhapsByChance
        } else {
            Standing::Within
        }
    }

    fn p_value(&self, step: &StepResult) -> f64 {
        let sum = step.gap_by.unwrap_or(0.0) * step.halted_by as f64;
        self.losses.p_value(sum, step.halted_by, self.alpha)
    }

    /// The look that says most, and its gap: where gaps are more than chance
    /// explains, the one that chance explains least; else the highest.
    fn telling(&self, standing: Standing) -> Option<(&Look<'a>, f64)> {
        let told = |look: &Look<'_>| match standing {
            Standing::BeyondChance => -self.p_value(look.step),
            _ => look.step.gap_by.unwrap_or(0.0),
        };
        let looks = self.looks.iter();
        let looks = looks.filter_map(|look| Some((look, look.step.gap_by?)));
        looks.reduce(|a, b| if told(b.0) > told(a.0) { b } else { a })
    }
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
    /// At most as large, by every step that counts.
    Within,
    /// Larger by some step, but no more than chance explains.
    PerhapsByChance,
    /// Larger by more than chance explains, with all steps looked at together:
    /// of a rule that keeps its promise, this is said in at most 2.5% of
    /// evaluations.
    BeyondChance,
}

impl Standing {
    /// The end of a sentence about a gap, for which this many steps were looked at.
    fn words(self, alpha: f64, looks: usize) -> String {
        let tolerated = level(alpha);
        match (self, looks > 1) {
            (Self::Within, _) => format!("within the tolerated {tolerated}."),
            (Self::PerhapsByChance, false) => {
                format!("above the tolerated {tolerated}, but chance may explain it.")
            }
            (Self::PerhapsByChance, true) => format!(
                "above the tolerated {tolerated}, but with {looks} steps looked at chance may \
                 explain it."
            ),
            (Self::BeyondChance, many) => {
                let all = if many {
                    format!(", with all {looks} steps looked at")
                } else {
                    String::new()
                };
                format!(
                    "above the tolerated {tolerated}: more than chance explains{all}. Are these \
                     sequences drawn as those that certified the rule were?"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use haltwise::evaluate::CONFIDENCE;
    use haltwise::simulate::{Atom, Process};
    use haltwise::stats::clopper_pearson;
    use haltwise::{Ask, Inputs, Method, Plan, evaluate};

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
        let certifying = process.draw(3000, 1);
        let found = Plan::of(Method::Marginal).calibrate(Inputs::one(&certifying));
        found.unwrap().rule
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

    fn step(t: usize, gaps: u64, halted_by: u64) -> StepResult {
        StepResult {
            t,
            halted: 0,
            halted_by,
            gap_by: (halted_by > 0).then(|| gaps as f64 / halted_by as f64),
            gap_by_interval: clopper_pearson(gaps, halted_by, CONFIDENCE),
        }
    }

    fn of(steps: &[StepResult]) -> Standing {
        Looks::of(&conditional(), steps).standing()
    }

    #[test]
    fn the_border_is_named_for_what_it_is() {
        let among = |gaps| of(&[step(1, gaps, 200)]);
        assert_eq!(among(20), Standing::Within);
        assert_eq!(among(29), Standing::PerhapsByChance);
        assert_eq!(among(30), Standing::BeyondChance);
    }

    #[test]
    fn an_interval_above_alpha_at_one_of_many_steps_may_be_chance() {
        let mut steps: Vec<_> = (1..20).map(|t| step(t, 2, 90 + t as u64)).collect();
        assert_eq!(of(&steps), Standing::Within);
        steps.push(step(20, 30, 200));
        assert!(steps[19].gap_by_interval.0 > 0.1);
        let standing = of(&steps);
        assert_eq!(standing, Standing::PerhapsByChance);
        let words = standing.words(0.1, 20);
        assert!(words.contains("with 20 steps looked at chance may explain it"));
        steps[19] = step(20, 40, 200);
        assert_eq!(of(&steps), Standing::BeyondChance);
    }

    const STEPS: usize = 40;

    /// One in 32 halts at each step, with gaps as given.
    fn steady(gap: impl Fn(usize) -> f64) -> Process {
        let step = |t| {
            let high = Atom::new(0.9, 1.0, gap(t)).unwrap();
            vec![high, Atom::new(0.1, 31.0, 0.9).unwrap()]
        };
        Process::new("steady", (0..STEPS).map(step).collect())
    }

    /// A rule that opens at the first step and promises a gap of 10% by each.
    fn conditional() -> Rule {
        let traces = steady(|_| 0.0).draw(4000, 1);
        let plan = Plan::new(Ask {
            method: Some(Method::Conditional),
            seed: Some(1),
            ..Ask::default()
        });
        let rule = plan.unwrap().calibrate(Inputs::one(&traces)).unwrap().rule;
        assert!(rule.thresholds().values()[0].is_finite());
        rule
    }

    /// In how many of this many evaluations the rule is accused, by the judgement
    /// and by the old one: a step whose interval lies above α.
    fn accused(rule: &Rule, process: &Process, evaluations: u64, n: usize) -> (u64, u64) {
        let (mut now, mut once) = (0, 0);
        for seed in 0..evaluations {
            let found = evaluate(rule.thresholds(), &process.draw(n, seed)).unwrap();
            let standing = judge(rule, &found).standing;
            let above = |s: &StepResult| s.gap_by.is_some() && s.gap_by_interval.0 > 0.1;
            now += u64::from(standing == Some(Standing::BeyondChance));
            once += u64::from(found.by_step.iter().any(above));
        }
        (now, once)
    }

    /// The exact interval of a rate, at 99.8%.
    fn rate(count: u64, of: u64) -> (f64, f64) {
        clopper_pearson(count, of, 0.998)
    }

    #[test]
    fn a_rule_that_keeps_its_promise_is_seldom_accused() {
        let rule = conditional();
        // Exactly at α by every step but the last, where no gap can be; and at α
        // by the twentieth only, by gaps that come late.
        let late = |t| if t < 10 { 0.0 } else { 0.1 };
        let late_gaps = steady(late).true_gaps(rule.thresholds());
        let lift = 0.1 / late_gaps[19].unwrap();
        for process in [
            steady(|_| 0.1),
            steady(|t| lift.min(9.0) * late(t) * f64::from(t < 20)),
        ] {
            let truth = process.true_gaps(rule.thresholds());
            let highest = truth.iter().flatten().copied().fold(0.0, f64::max);
            assert!((highest - 0.1).abs() < 1e-9, "{highest}");
            let evaluations = 2000;
            let (now, once) = accused(&rule, &process, evaluations, 400);
            println!("{now} accused now, {once} once, of {evaluations}");
            assert!(rate(now, evaluations).1 <= 0.025, "{now}");
            if truth[0] == Some(0.1) {
                // The test can tell: one interval at a time, it is no small matter.
                assert!(rate(once, evaluations).0 > 0.05, "{once}");
            }
        }
    }

    /// How many looks there are must not depend on the sequences.
    #[test]
    fn steps_that_only_longer_sequences_have_are_not_looked_at() {
        let rule = conditional();
        let found = evaluate(rule.thresholds(), &steady(|_| 0.1).draw(100, 1)).unwrap();
        let mut longer = found.clone();
        longer.by_step.extend([step(STEPS + 1, 90, 100)]);
        let looks = |found| Looks::new(&rule, found).len();
        assert_eq!((looks(&found), looks(&longer)), (STEPS, STEPS));
    }

    #[test]
    fn a_rule_that_breaks_its_promise_is_still_accused() {
        let rule = conditional();
        // By all steps, and by the first few only.
        for process in [steady(|_| 0.16), steady(|t| if t < 5 { 0.3 } else { 0.02 })] {
            let (now, once) = accused(&rule, &process, 200, 1000);
            println!("{now} accused now, {once} once, of 200");
            assert!(rate(now, 200).0 > 0.9, "{now}");
        }
    }
}
