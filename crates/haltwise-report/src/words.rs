//! A rule in plain words: its promise, what to expect of it, and how it was
//! certified. Terminals and reports show the same sentences, so these carry no
//! styling and name no option of any program.

use haltwise::corridor::Counts;
use haltwise::evaluate::CONFIDENCE;
use haltwise::plan::{Delta, Purpose, Word};
use haltwise::rule::{
    FamilyKind, Lengths, Promise, Proof, Test, TestedFamily, Thresholds, halted_needed,
};
use haltwise::stats::clopper_pearson;
use haltwise::terms::Loss;
use haltwise::{Method, Rule};

mod groups;

use crate::format::{confidence, count, count_of, level, p_value, percent, short};
pub use groups::groups_needed;
use groups::read_to_end;

/// The name of the loss, for titles and sentences.
pub fn loss(rule: &Rule) -> &'static str {
    match rule.terms().loss {
        Loss::Gap => "gap",
        Loss::Disagreement => "disagreement",
        Loss::Given | Loss::Absolute { .. } => "mean loss",
    }
}

/// Why a rule cannot be watched.
pub const NOT_WATCHED: &str = "the rule was only screened, or its loss is neither gaps nor \
                               disagreements, or its promise is by unit and by group";

/// Whether each sequence loses 0 or 1 and counts once.
pub(crate) fn counts_sequences(rule: &Rule) -> bool {
    let terms = rule.terms();
    terms.unit.is_none() && matches!(terms.loss, Loss::Gap | Loss::Disagreement)
}

/// A title for a rule's report.
pub(crate) fn title(rule: &Rule) -> String {
    let (alpha, loss) = (level(rule.alpha().get()), loss(rule));
    match rule.promise() {
        Some(Promise::Conditional) => {
            format!("Stopping early, {loss} at most {alpha} by every step")
        }
        Some(Promise::Marginal) => format!("Stopping early, {loss} at most {alpha} on average"),
        None => match rule.purpose() {
            Purpose::Use => "Stopping early by a rule that was only screened".into(),
            Purpose::Explore => "Stopping early by a rule that promises nothing".into(),
        },
    }
}

/// The method in one or two words.
pub(crate) fn method(rule: &Rule) -> &'static str {
    match rule.method().promise() {
        Some(_) => rule.method().word(),
        None => "screened only",
    }
}

/// A family of candidates in a few words.
pub fn family(kind: FamilyKind) -> &'static str {
    match kind {
        FamilyKind::OneThreshold => "one threshold for all steps",
        FamilyKind::Backward => "a threshold per step, from the last step back",
        FamilyKind::Curves => "threshold curves",
        FamilyKind::Plain => "thresholds of the traces' own score",
        FamilyKind::Clock => "all sequences at one step",
    }
}

/// The promise in one sentence or two.
pub fn promise(rule: &Rule) -> String {
    let sure = confidence(rule.delta().get());
    let Some(promise) = rule.promise() else {
        return match rule.purpose() {
            Purpose::Use => "Nothing: the rule was only screened, not certified.",
            Purpose::Explore => "Nothing: the rule was made to compare settings.",
        }
        .into();
    };
    let whom = match promise {
        Promise::Marginal => "all sequences, on average over halt times",
        Promise::Conditional => "the sequences halted by step t, for every step t",
    };
    let alpha = level(rule.alpha().get());
    let mut text = format!("With {sure} confidence, ");
    text += &match rule.terms().loss {
        Loss::Gap => {
            format!("stopping early loses a right answer for at most {alpha} of {whom}")
        }
        Loss::Disagreement => {
            format!("the early answer differs from the full one for at most {alpha} of {whom}")
        }
        Loss::Given => format!(
            "the mean loss of stopping early is at most {} over {whom}",
            rule.alpha().get()
        ),
        Loss::Absolute { scale } => format!(
            "stopping early is further from the truth than reading on by at most {} on average \
             over {whom} (errors of {scale} and more count as {scale})",
            rule.alpha().get() * scale
        ),
    };
    text += &for_whom(rule);
    text.push('.');
    if promise == Promise::Marginal {
        text += " (Sequences that halt first may lose more.)";
    }
    text
}

/// The groups, units and mixes that the promise covers.
fn for_whom(rule: &Rule) -> String {
    let terms = rule.terms();
    let mut text = String::new();
    if let Some(by) = &terms.by {
        text += &format!(", and for every {by} ({})", some(rule.groups()));
        if let Some(halts_in) = rule.halts_in() {
            let others = read_to_end(rule);
            text += &format!(
                "; it halts where {by} is {}, and reads {} to the end",
                some(halts_in),
                some(&others)
            );
        }
    }
    if let Some(unit) = &terms.unit {
        text += &format!(", each {unit} counted once");
    }
    if let Some(weight) = &terms.weight {
        text += &format!(", in the mix that {} declares", weight.column);
    }
    text
}

/// A list of names, cut short if it is long.
fn some(names: &[String]) -> String {
    const SHOWN: usize = 8;
    match names.len() {
        0..=SHOWN => names.join(", "),
        n => format!("{} and {} others", names[..SHOWN].join(", "), n - SHOWN),
    }
}

/// The promise, and the sequences it covers.
pub fn guarantee(rule: &Rule) -> String {
    if let (Some(set), false) = (rule.certified_on(), rule.halts_early()) {
        return format!(
            "Nothing is lost, because every sequence is read to its end: no rule that stops early \
             could be certified on {}.",
            count_of(set.sequences, "trace", "traces")
        );
    }
    let mut text = promise(rule);
    if let Some(set) = rule.certified_on().filter(|_| rule.promise().is_some()) {
        let sequences = tested_on(rule);
        let not_used = match sequences > set.sequences {
            true => "to train the classifier",
            false => "to train the classifier, to fit or to screen",
        };
        // With units, those are the independent draws: `assumptions` says so.
        let drawn = match rule.terms().unit {
            None => "independent draws",
            Some(_) => "draws",
        };
        text += &format!(
            " It covers new sequences drawn like the {} that certified it ({drawn} from one \
             source, none of them used {not_used}), read by the same classifier. It says nothing \
             about a source that has changed.",
            count_of(sequences, "trace", "traces")
        );
        text += &assumptions(rule);
        text += &lengths(rule);
    }
    text
}

/// How many traces tested the rule that was chosen. A rule that depends on no trace is also tested
/// on the fitting traces.
pub fn tested_on(rule: &Rule) -> u64 {
    if let Some(alone) = rule.tested_alone() {
        let families = alone.families.iter();
        return families.map(|(family, _)| family.sequences).sum();
    }
    let certifying = rule.certified_on().map_or(0, |set| set.sequences);
    let chosen = rule.chosen_family();
    chosen.map_or(certifying, |family| family.sequences)
}

/// How many sequences certified the rule, and which; `None` if it was not certified.
pub fn certified_on(rule: &Rule) -> Option<String> {
    let certifying = rule.certified_on()?.sequences;
    let tested = tested_on(rule);
    let all = count_of(tested, "sequence", "sequences");
    Some(
        match tested.checked_sub(certifying).filter(|&fitted| fitted > 0) {
            None => all,
            Some(fitted) => format!(
                "{all}: {} set aside for it, and {} of the fitting ones, which may also test a rule that \
             was not fitted",
                count(certifying),
                count(fitted)
            ),
        },
    )
}

/// Which of the planned looks at the evidence made the rule.
fn looks(rule: &Rule) -> String {
    let Some(looks) = rule.looks() else {
        return String::new();
    };
    let planned: Vec<String> = looks.planned.iter().map(|&n| count(n)).collect();
    format!(
        " The rule comes from look {} of {}, planned after {} traces. The last look has 70% of \
         delta, and the earlier ones share the rest. The promise holds for any rule of any look.",
        looks.made,
        planned.len(),
        planned.join(", ")
    )
}

/// What else the promise assumes.
pub(crate) fn assumptions(rule: &Rule) -> String {
    let terms = rule.terms();
    let mut text = String::new();
    if matches!(rule.proof(), Proof::FewLabels { .. }) {
        text += " Some sequences had no label. The promise assumes that those with a label are a \
                 random part of all.";
    }
    if terms.loss == Loss::Disagreement {
        text += " It needs no labels. Stopping early loses a right answer only if the two answers \
                 differ, so it loses at most as many right answers.";
    }
    if let Some(unit) = &terms.unit {
        text += &format!(
            " Each {unit} is an independent draw. Its sequences may be alike in any way, and \
             its loss is the mean over its halted sequences."
        );
    }
    if let Some(weight) = &terms.weight {
        text += &format!(
            " It holds for the mix of sequences that {} declares, if that is right.",
            weight.column
        );
    }
    if matches!(terms.loss, Loss::Given) {
        text += " The promise begins at the first step at which the rule may halt.";
    }
    text += &looks(rule);
    text
}

/// The lengths of sequences that the promise covers.
fn lengths(rule: &Rule) -> String {
    let t_max = count_of(rule.t_max() as u64, "step", "steps");
    match rule.lengths() {
        Some(Lengths::Unequal) => format!(
            " Sequences may have any length. Past {t_max}, the longest it has seen, the rule \
             never halts."
        ),
        Some(Lengths::Equal) => {
            format!(" It covers sequences of {t_max}, the only length it has seen.")
        }
        None => String::new(),
    }
}

/// What the rule saves and costs on the certifying traces.
pub fn expectation(rule: &Rule) -> String {
    let Some(set) = rule.certified_on() else {
        return "Certify the thresholds before you rely on them.".into();
    };
    let tested = tested_on(rule);
    // The accuracy is that of the traces that nothing was fitted to.
    let of_those = match tested > set.sequences {
        true => format!(
            " of the {} that were set aside to certify",
            count(set.sequences)
        ),
        false => String::new(),
    };
    let accuracy = rule.late_accuracy().map_or_else(String::new, |accuracy| {
        format!(
            " With every sequence read to its end, the classifier is right for {}{of_those}.",
            percent(accuracy)
        )
    });
    let Some(expected) = rule.expected().filter(|_| rule.halts_early()) else {
        return format!("No saving: every sequence is read to its end.{accuracy}");
    };
    let t_max = rule.t_max();
    let costs = match rule.terms().loss {
        Loss::Gap => format!(
            "loses a right answer for {} of the sequences",
            percent(expected.gap)
        ),
        Loss::Disagreement => format!(
            "gives a different answer from the full one for {} of the sequences",
            percent(expected.gap)
        ),
        Loss::Given | Loss::Absolute { .. } => format!("loses {:.3} on average", expected.gap),
    };
    let spends = expected.cost.map_or_else(String::new, |cost| {
        format!(", at a mean cost of {}", short(cost))
    });
    let those = match tested > set.sequences {
        true => format!("the {} certifying traces", count(tested)),
        false => "the certifying traces".into(),
    };
    format!(
        "On {those} it reads {:.1} of {t_max} steps on average ({}){spends}, and \
         {costs}.{accuracy}",
        expected.t_avg * t_max as f64,
        percent(expected.t_avg),
    )
}

/// Names the score, and the fields that a live stream must send.
pub fn needed_live(rule: &Rule) -> String {
    let source = rule.source();
    let learned = source.learned();
    let sends = match learned.map(|learned| (learned.uses_score(), learned.classes())) {
        None if source.is_of_probs() => "each step's \"probs\"",
        None => "each step's \"score\"",
        Some((true, 0)) => "each step's \"score\" and \"prediction\"",
        Some((true, _)) => "each step's \"score\" and \"probs\"",
        Some((false, _)) => "each step's \"probs\"",
    };
    format!("The score is {source}; a live stream must send {sends}.")
}

/// Thresholds, one line per run of equal ones. Leaves out lines if there are many.
pub fn thresholds(thresholds: &Thresholds) -> String {
    const SHOWN: usize = 24;
    let values = thresholds.values();
    let mut lines = Vec::new();
    let mut start = 0;
    for t in 1..=values.len() {
        if t < values.len() && values[t] == values[start] {
            continue;
        }
        let steps = match t - start {
            1 => format!("step {t}"),
            _ => format!("steps {}–{t}", start + 1),
        };
        let threshold = match values[start] {
            f32::INFINITY => "never".into(),
            value => format!("{value}"),
        };
        lines.push(format!("  {steps:<16}{threshold}\n"));
        start = t;
    }
    if lines.len() <= SHOWN {
        return lines.concat();
    }
    // Curves are steep early and flat late: show the first ones, then fewer.
    let apart = lines.len().div_ceil(SHOWN / 2);
    let chosen = (0..lines.len()).filter(|&i| i < 4 || i % apart == 0 || i + 1 == lines.len());
    let text: String = chosen.map(|i| &lines[i][..]).collect();
    text + "  (some of the steps; the rule file has all of them)\n"
}

/// Why no more was certified, and what would help. `None` if no test failed.
pub fn shortfall(rule: &Rule) -> Option<String> {
    rule.promise()?;
    if rule.halts_in().is_some() {
        let needed = groups_needed(rule).join("; ");
        let others = "Groups that are read to the end, and what would let them in";
        return Some(format!("{} {others}: {needed}.", certification(rule)));
    }
    let passed = rule.trail().last().is_some_and(|test| test.rejected);
    (!passed).then(|| certification(rule))
}

/// How the rule was certified. If little or nothing was: why, and what would help.
pub fn certification(rule: &Rule) -> String {
    if rule.certified_on().is_none() {
        return "No test was made.".into();
    }
    let sequences = rule.certified_on().map_or(0, |set| set.sequences);
    // Tests for all groups at once, or those for each alone if only these passed.
    let alone = rule.halts_in().is_some();
    let tests = rule.tests_by_family();
    let tests = tests.filter(|(family, _)| family.group.is_some() == alone);
    let tests = tests.flat_map(|(_, tests)| tests);
    let passed = tests.filter(|test| test.rejected).count() as u64;
    let most = rule.families().iter().map(|family| family.sequences).max();
    let on = match most.filter(|&most| most > sequences) {
        Some(most) => format!("{} to {} traces", count(sequences), count(most)),
        None => count_of(sequences, "trace", "traces"),
    };
    let passed_on = count_of(passed, "rule passed its test", "rules passed their tests");
    let mut text = match alone {
        false => format!("{passed_on} on {on}."),
        true => format!(
            "No rule that stops early passed for all groups on {on}. Tested for each group alone, \
             {}.",
            count_of(passed, "test passed", "tests passed")
        ),
    };
    if rule.method() == Method::Adaptive {
        return text + &of_families(rule, passed, sequences);
    }
    match rule.trail().last() {
        Some(failed) if !failed.rejected => {
            let why = failure(rule, failed, rule.level().get(), sequences);
            text += &format!(" The next one failed: {why}");
        }
        Some(_) => text += " None failed.",
        None => text += " There was no rule to test: screening proposed no threshold.",
    }
    text
}

/// How the rule was chosen among several families, or why no rule passed.
fn of_families(rule: &Rule, passed: u64, sequences: u64) -> String {
    let delta = rule.level().get();
    let (of_all, of_each): (Vec<&TestedFamily>, Vec<&TestedFamily>) = rule
        .families()
        .iter()
        .partition(|family| family.group.is_none());
    let kinds = of_all.chunk_by(|a, b| a.kind == b.kind);
    let shares = kinds.map(|families| {
        let share: f64 = families.iter().map(|family| family.share).sum();
        format!("{} at {}", family(families[0].kind), level(delta * share))
    });
    let shares: Vec<String> = shares.collect();
    let mut text = format!(
        " The rules were tested in {}, each with its share of delta: {}.",
        count_of(of_all.len() as u64, "family", "families"),
        shares.join(", ")
    );
    if !of_each.is_empty() {
        let share: f64 = of_each.iter().map(|family| family.share).sum();
        text += &format!(
            " Tests for each group alone share {}.",
            level(delta * share)
        );
    }
    if passed > 0 {
        match failed_curve(rule) {
            None => text += " The rule that halts earliest was chosen among those that passed.",
            Some((family, failed)) => {
                let why = failure(rule, failed, delta * family.share, sequences);
                text += &format!(
                    " No curve passed. The rule that halts earliest was chosen among the others. The \
                     first curve failed: {why}"
                );
            }
        }
        return text;
    }
    // The family with the largest share; the first of equals.
    let tested = rule
        .tests_by_family()
        .filter(|(family, _)| family.group.is_none());
    let tested = tested.filter_map(first_test);
    let most = tested.reduce(|a, b| if b.0.share > a.0.share { b } else { a });
    let Some((most, failed)) = most else {
        return text + " There was no rule to test.";
    };
    let share = delta * most.share;
    let least = needed(rule, Counts::default(), share).unwrap_or(0);
    if most.sequences >= least {
        let why = failure(rule, failed, share, most.sequences);
        text += &format!(" The first rule of the family with the largest share failed: {why}");
    }
    text + &format!(
        " To pass, any rule needs at least {} without a gap.",
        count_of(least, "halted sequence", "halted sequences")
    )
}

fn first_test<'a>(
    (family, tests): (&'a TestedFamily, &'a [Test]),
) -> Option<(&'a TestedFamily, &'a Test)> {
    Some((family, tests.first()?))
}

/// The first test of a threshold curve, if curves were tested and none passed.
fn failed_curve(rule: &Rule) -> Option<(&TestedFamily, &Test)> {
    let alone = rule.halts_in().is_some();
    let curves = || {
        rule.tests_by_family().filter(|(family, _)| {
            family.kind == FamilyKind::Curves && family.group.is_some() == alone
        })
    };
    let passed = |(_, tests): (_, &[Test])| tests.iter().any(|test| test.rejected);
    if curves().any(passed) {
        return None;
    }
    curves().find_map(first_test)
}

/// How many sequences must halt for a test at this level to pass, if the share
/// of gaps stays as seen.
fn needed(rule: &Rule, seen: Counts, level: f64) -> Option<u64> {
    let delta = Delta::try_from(level).unwrap_or(rule.delta());
    halted_needed(seen, rule.alpha(), delta)
}

/// Whether the true share of gaps may be below the tolerated one although that of these is not.
fn may_be_below(rule: &Rule, seen: Counts) -> bool {
    let (low, _) = clopper_pearson(seen.gaps, seen.halted, CONFIDENCE);
    low < rule.alpha().get()
}

/// Why a test failed, and what would help.
fn failure(rule: &Rule, test: &Test, at: f64, sequences: u64) -> String {
    let seen = Counts {
        halted: test.halted,
        gaps: test.gaps,
    };
    let tried = match test.threshold {
        Some(threshold) => format!("halting from step {} on at {threshold}", test.opens),
        None => format!("never halting at step {}", test.opens),
    };
    let halted = match rule.terms().unit {
        None => count_of(test.halted, "halted sequence", "halted sequences"),
        Some(_) => count_of(test.halted, "unit that halted", "units that halted"),
    };
    let lost = match (test.sums, rule.terms().loss) {
        (Some(sums), _) => format!("a loss of {:.1}", sums[0] as f64 / 255.0),
        (None, Loss::Gap) if test.labelled.is_none() => count_of(test.gaps, "gap", "gaps"),
        (None, Loss::Gap | Loss::Disagreement) => {
            count_of(test.gaps, "disagreement", "disagreements")
        }
        // Losses that were 0 or 1 in all that fitted.
        (None, Loss::Given | Loss::Absolute { .. }) => count_of(test.gaps, "loss", "losses"),
    };
    let group = test.group.and_then(|group| rule.groups().get(group));
    let group = group.map_or_else(String::new, |group| {
        let by = rule.terms().by.as_deref().unwrap_or_default();
        format!(" where {by} is {group}")
    });
    let found = format!(
        "{tried} gives {lost} among {halted} by step {}{group} (p-value {}, above {}).",
        test.step,
        p_value(test.p_value),
        p_value(at),
    );
    match needed(rule, seen, at) {
        Some(needed) if seen.halted == 0 => format!(
            "{found} Nothing had halted by then, so there is no evidence. At least {} must halt, \
             without a gap.",
            count(needed)
        ),
        None if may_be_below(rule, seen) => format!(
            "{found} That is {}, not below {}, but {} too few to tell the true share. Certify on more \
             traces.",
            percent(seen.gap().unwrap_or(0.0)),
            level(rule.alpha().get()),
            count_of(seen.halted, "is", "are"),
        ),
        None => format!(
            "{found} That is {}, not below {}. More traces would not help. A better score or a \
             larger alpha would, with certifying traces that you have not looked at yet.",
            percent(seen.gap().unwrap_or(0.0)),
            level(rule.alpha().get())
        ),
        Some(needed) => {
            // Traces grow in proportion to the halted sequences.
            let factor = needed as f64 / test.halted as f64;
            let traces = (sequences as f64 * factor).ceil() as u64;
            // Rules that are the same for all data are certified on all traces.
            let set_aside = rule.certified_on().map(|set| set.sequences) == Some(sequences);
            let split = rule.split().filter(|_| set_aside);
            let split = split.map_or(String::new(), |split| {
                let total = (traces as f64 / split.certifying_share()).ceil() as u64;
                format!(" ({} before the split)", count(total))
            });
            format!(
                "{found} At that rate, {} must halt by then, so certifying needs about {}{split}. \
                 A larger alpha or delta also helps, with certifying traces that you have not \
                 looked at yet.",
                count(needed),
                count_of(traces, "trace", "traces"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_thresholds_share_a_line() {
        let rule = Thresholds::new(vec![f32::INFINITY, f32::INFINITY, 0.57, 0.0]).unwrap();
        let text = "  steps 1–2       never\n  step 3          0.57\n  step 4          0\n";
        assert_eq!(thresholds(&rule), text);
    }

    #[test]
    fn of_many_thresholds_some_are_shown() {
        let steps: Vec<f32> = (0..200).map(|t| 1.0 - t as f32 / 400.0).collect();
        let text = thresholds(&Thresholds::new(steps).unwrap());
        assert!(text.lines().count() <= 24, "{text}");
        assert!(text.starts_with("  step 1          1\n"));
        assert!(text.contains("  step 200 "));
        assert!(text.ends_with("the rule file has all of them)\n"));
    }
}
