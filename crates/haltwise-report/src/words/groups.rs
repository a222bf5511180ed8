//! Which groups a rule reads to the end, and how many traces a group would need.

use haltwise::Rule;
use haltwise::corridor::Counts;
use haltwise::rule::{Test, TestedAlone, TestedFamily};

use super::{may_be_below, needed};
use crate::format::{count, count_of};

/// The groups that the promise holds for, and that the rule reads to the end.
pub(super) fn read_to_end(rule: &Rule) -> Vec<String> {
    let halts = |group: &&String| rule.may_halt(Some(group));
    rule.groups()
        .iter()
        .filter(|group| !halts(group))
        .cloned()
        .collect()
}

/// For a promise by group: how many traces each group would need. If the rule halts some
/// groups only, for each of the others to be let in; else for the last rule that failed. One
/// line per group.
pub fn groups_needed(rule: &Rule) -> Vec<String> {
    if let Some(alone) = rule.tested_alone() {
        return left_out(rule, &alone);
    }
    let families = rule
        .tests_by_family()
        .filter(|(family, _)| family.group.is_none());
    let tests = families.flat_map(|(_, tests)| tests);
    let failed = tests.filter(|test| !test.rejected);
    let mut lines = Vec::new();
    for test in failed {
        let Some(group) = test.group.and_then(|group| rule.groups().get(group)) else {
            continue;
        };
        let seen = Counts {
            halted: test.halted,
            gaps: test.gaps,
        };
        let line = match needed(rule, seen, rule.level().get()) {
            Some(needed) => format!(
                "{group}: {} had halted by step {}; about {} are needed",
                count(test.halted),
                test.step,
                count(needed)
            ),
            None => format!("{group}: {}", not_below(rule, seen, test.step)),
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Says that the losses of a group are not below alpha by a step, and whether more traces would
/// help.
fn not_below(rule: &Rule, seen: Counts, step: usize) -> String {
    format!(
        "{} losses among {} halted by step {step} are not below alpha; {}",
        count(seen.gaps),
        count(seen.halted),
        match may_be_below(rule, seen) {
            true => "these are too few to tell whether more traces would help",
            false => "more traces would not help",
        }
    )
}

/// A line for each group that the rule reads to the end: how many traces would let it in.
fn left_out(rule: &Rule, alone: &TestedAlone<'_>) -> Vec<String> {
    let delta = rule.level().get();
    let line = |(family, tests): &(&TestedFamily, &[Test])| {
        let group = rule.groups().get(family.group?)?;
        // The first test that failed stands in the way.
        let failed = tests
            .last()
            .filter(|_| tests.len() <= alone.candidate + 1)?;
        if failed.rejected {
            return None;
        }
        let seen = Counts {
            halted: failed.halted,
            gaps: failed.gaps,
        };
        let tested = count_of(family.sequences, "trace", "traces");
        let needed = needed(rule, seen, delta * family.share).map(|needed| {
            let of_halted = family.sequences as f64 / failed.halted.max(1) as f64;
            (needed as f64 * of_halted.max(1.0)).ceil() as u64
        });
        Some(match needed {
            Some(needed) if failed.halted > 0 => format!(
                "{group}: tested on {tested}; about {} would let it in",
                count(needed)
            ),
            Some(needed) => format!(
                "{group}: tested on {tested}, and none had halted by step {}; at least {} must",
                failed.step,
                count(needed)
            ),
            None => format!(
                "{group}: tested on {tested}; {}",
                not_below(rule, seen, failed.step)
            ),
        })
    };
    alone.families.iter().filter_map(line).collect()
}
