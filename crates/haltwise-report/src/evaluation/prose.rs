//! The paragraphs of a report on an evaluation.

use haltwise::Rule;
use haltwise::evaluate::Evaluation;
use haltwise::terms::Loss;
use maud::{Markup, html};

use crate::chance::LEVEL;
use crate::format::{count_of, interval, level, percent, short};
use crate::words;

/// How to read the band.
pub(crate) fn band_note(evaluation: &Evaluation) -> Markup {
    html! {
        "The band is the exact 95% interval of the gap at its own step. Over "
        (count_of(evaluation.t_max as u64, "step", "steps"))
        ", some may miss the truth by chance; where few have halted it is wide, and may leave the \
         top of the panel. Whether gaps are \u{201c}more than chance explains\u{201d} is judged over \
         all steps together: of a rule that keeps its promise, that is said in at most "
        (level(LEVEL)) " of evaluations. Point at a figure, touch it, or focus it and use the arrow keys, to \
         read its values."
    }
}

/// What stopping early costs and saves.
pub(crate) fn cost(rule: &Rule, evaluation: &Evaluation) -> Markup {
    let loss = words::loss(rule);
    html! {
        @if let Some(accuracy) = evaluation.accuracy {
            @let lost = accuracy.late - accuracy.early;
            p {
                "Reading to the end, the classifier is right for " (percent(accuracy.late))
                " of the sequences; where the rule halts, for " (percent(accuracy.early))
                ": " (percent(lost.abs())) " " (if lost >= 0.0 { "lower" } else { "higher" }) "."
                @if evaluation.unlabelled > 0 {
                    " (" (count_of(evaluation.unlabelled as u64, "sequence has", "sequences have"))
                    " no label, and " (if evaluation.unlabelled == 1 { "does" } else { "do" })
                    " not count here.)"
                }
            }
            @if rule.terms().loss == Loss::Gap {
                p {
                    "The gap counts only what is lost: sequences that would have been right at the end "
                    "and are wrong where they halt, " (percent(evaluation.gap)) ". Some sequences gain: \
                    right where they halt, wrong at the end, "
                    (percent((evaluation.gap - lost).max(0.0))) "."
                }
            }
        }
        @if let Some(cost) = evaluation.cost {
            p {
                "Reading costs " (short(cost.mean)) " per sequence, of " (short(cost.full))
                " to the end: " (percent(cost.mean / cost.full)) "."
            }
        }
        p {
            "The rule reads " (percent(evaluation.steps_read)) " of all steps and saves the "
            "other " (percent(1.0 - evaluation.steps_read)) "."
        }
        ul {
            @for (share, gap) in &evaluation.gap_earliest {
                @let among = share.parse().map(level).unwrap_or_default();
                li {
                    "Among the " (among) " that halt first, the " (loss) " is "
                    @match gap {
                        Some(gap) => {
                            (percent(*gap))
                            @if let Some(&found) = evaluation.gap_earliest_interval.get(share) {
                                " (" (interval(found)) ")"
                            }
                        },
                        None => { "not known: too few sequences" },
                    }
                    "."
                }
            }
        }
    }
}

/// How the rule was made.
pub(crate) fn certified(rule: &Rule) -> Markup {
    let sequences = |n| count_of(n, "sequence", "sequences");
    html! {
        p {
            "Method: " b { (words::method(rule)) } ". Tolerated gap α = " (level(rule.alpha().get()))
            ", allowed to fail with probability δ = " (level(rule.delta().get())) ". "
            "Score: " (rule.source()) ". "
            @if let Some(set) = rule.fitted_on() { "Fitted on " (sequences(set.sequences)) ". " }
            @if let Some(set) = rule.screened_on() { "Screened on " (sequences(set.sequences)) ". " }
            @if let Some(set) = words::certified_on(rule) { "Certified on " (set) ". " }
            @if let Some(split) = rule.split() {
                "They were split from one set by seed " (split.seed) ": "
                @if let Some(share) = split.fit_fraction { (level(share)) " to fit, " }
                @if let Some(share) = split.screen_fraction { (level(share)) " of the rest to screen, " }
                "what was left to certify."
            }
        }
        @if rule.promise().is_some() {
            p {
                @if !rule.halts_early() { b { (words::expectation(rule)) } " " }
                (words::certification(rule))
            }
            p {
                "Candidate rules are tested in a fixed order. A test asks whether a gap above α \
                 could have given so few gaps among the sequences halted by a step; its p-value is \
                 the largest over the steps. "
                @match rule.families() {
                    [] => {
                        "Testing stops at the first p-value above δ, and the last rule that passed \
                         is the one used."
                    },
                    families => {
                        "There are " (families.len()) " families, each tested at its share of δ \
                         until its first failure; with the shares adding up to δ, all that passed \
                         keep the promise at once, and the one that halts earliest is used."
                    },
                }
            }
        }
    }
}

/// What the promise assumes, and when that fails.
pub(crate) fn assumption(rule: &Rule) -> Markup {
    let certified = rule.promise().is_some();
    html! {
        p {
            @if certified {
                "One thing: that the sequences the rule meets are drawn independently, from the \
                 same source as those that certified it. The classifier may be poor and its \
                 scores badly calibrated; the promise holds all the same."
            } @else {
                "This rule promises nothing. A certified rule would rest on one thing: that the \
                 sequences it meets are drawn independently, from the same source as those that \
                 certified it."
            }
        }
        @let more = words::assumptions(rule);
        @if certified && !more.is_empty() { p { (more.trim_start()) } }
        p { "It fails, and the promise with it, when" }
        ul {
            li { "the source changes after calibration: other users, another season, a new sensor;" }
            li { "the classifier or the way its score is computed changes;" }
            @if rule.terms().unit.is_none() {
                li { "sequences come in clusters that share their fate (one person, one document, \
                      one machine) and certifying saw only a few of them;" }
            }
            li { "the rule was chosen after looking at the traces that certified it, or is judged \
                  on them: they flatter it." }
        }
        @if certified {
            p {
                "δ is the chance, over the draw of the certifying sequences, that the rule breaks \
                 its promise for good. It is not a chance per sequence."
            }
        }
    }
}
