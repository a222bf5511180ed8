//! Whether labels and predictions number the classes alike.
//!
//! A classifier that is never right has no gap, so any rule passes its test. Labels that start at
//! 1 where predictions start at 0 make such a classifier of a good one. The test cannot see it;
//! the counts of this file can.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::data::sequence::Trace;
use crate::data::words::words;
use crate::numbers::counts::is_zero;

/// What to do if labels and predictions hardly ever agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelCheck {
    /// Refuse the traces.
    #[default]
    Refuse,
    /// Use them.
    Skip,
}

words! { LabelCheck, "label_check":
    Refuse = "refuse",
        "Refuse traces whose labels agree with the predictions less often than chance: they are \
         probably numbered in another way";
    Skip = "skip", "Use them: the classifier is that weak";
}

/// The classes that are counted. Later ones count as labels only: that leaves the checks on the
/// careful side.
const MOST_CLASSES: usize = 1024;

/// With fewer labelled sequences, chance explains everything.
const FEWEST: u64 = 20;

/// A class is rare if fewer sequences than this, or than one in a hundred, have it.
const RARE: u64 = 5;

/// How often each class is a label, how often it is a full prediction, and how often the two agree.
/// The counts of parts add up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agreement {
    #[serde(default, skip_serializing_if = "is_zero")]
    labelled: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    right: u64,
    /// The sequences with each class as their label, and as their full prediction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    numbers: Vec<[u64; 2]>,
    /// The same, if classes have names. Their numbers depend on the file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    names: BTreeMap<String, [u64; 2]>,
}

impl Agreement {
    pub(crate) fn is_empty(&self) -> bool {
        self.labelled == 0
    }

    /// Counts one more sequence, if it has a label and predicts classes.
    pub(crate) fn note(&mut self, trace: &Trace<'_>) {
        let (Some(label), Some(&predicted)) = (trace.label(), trace.predictions().last()) else {
            return;
        };
        if !trace.predicts() || trace.numbers().is_some() {
            return;
        }
        self.labelled += 1;
        self.right += u64::from(label == predicted);
        match trace.class_names {
            None => [label, predicted]
                .into_iter()
                .enumerate()
                .for_each(|(as_what, class)| self.note_number(class as usize, as_what)),
            Some(names) => names
                .into_iter()
                .enumerate()
                .for_each(|(as_what, name)| self.note_name(name, as_what, 1)),
        }
    }

    fn note_number(&mut self, class: usize, as_what: usize) {
        if class >= MOST_CLASSES {
            return;
        }
        if class >= self.numbers.len() {
            self.numbers.resize(class + 1, [0; 2]);
        }
        self.numbers[class][as_what] += 1;
    }

    fn note_name(&mut self, name: &str, as_what: usize, n: u64) {
        if let Some(found) = self.names.get_mut(name) {
            found[as_what] += n;
        } else if self.names.len() < MOST_CLASSES {
            self.names.entry(name.to_owned()).or_default()[as_what] += n;
        }
    }

    /// Adds the counts of another part.
    pub(crate) fn add(&mut self, other: &Self) {
        self.labelled += other.labelled;
        self.right += other.right;
        if self.numbers.len() < other.numbers.len() {
            self.numbers.resize(other.numbers.len(), [0; 2]);
        }
        for (mine, other) in std::iter::zip(&mut self.numbers, &other.numbers) {
            *mine = [mine[0] + other[0], mine[1] + other[1]];
        }
        for (name, &[labels, predictions]) in &other.names {
            self.note_name(name, 0, labels);
            self.note_name(name, 1, predictions);
        }
    }

    fn classes(&self) -> impl Iterator<Item = (String, [u64; 2])> {
        let numbers = self.numbers.iter().enumerate();
        let numbers = numbers.map(|(class, &counts)| (class.to_string(), counts));
        let names = self.names.iter();
        numbers.chain(names.map(|(name, &counts)| (format!("{name:?}"), counts)))
    }

    /// Whether all sequences have the same label. Then nothing tells how the classes are numbered.
    fn has_one_label(&self) -> bool {
        self.classes()
            .any(|(_, [labels, _])| labels == self.labelled)
    }

    /// Why the labels are not believed, if they are not: the predictions agree with them never, or
    /// three standard errors less often than if the two had nothing to do with each other.
    pub(crate) fn refusal(&self) -> Option<Doubt> {
        let n = self.labelled as f64;
        if self.labelled < FEWEST || self.has_one_label() {
            return None;
        }
        let right = self.right as f64 / n;
        let both = |(_, [labels, predictions]): (_, [u64; 2])| {
            labels as f64 / n * (predictions as f64 / n)
        };
        let chance: f64 = self.classes().map(both).sum();
        let error = (chance * (1.0 - chance) / n).sqrt();
        let refused = self.right == 0 || right < chance - 3.0 * error;
        refused.then_some(Doubt::BelowChance {
            n: self.labelled,
            right,
            chance,
        })
    }

    /// What to ask about the labels.
    pub(crate) fn questions(&self) -> Vec<Doubt> {
        let n = self.labelled as f64;
        if self.labelled < FEWEST {
            return Vec::new();
        }
        if let Some(doubt) = self.refusal() {
            return vec![doubt];
        }
        let mut doubts = Vec::new();
        let most = |a: (String, u64), b: (String, u64)| if b.1 > a.1 { b } else { a };
        let labels = self.classes().map(|(class, [labels, _])| (class, labels));
        if let Some((class, most)) = labels.reduce(most)
            && !self.has_one_label()
            && most > self.right
        {
            doubts.push(Doubt::BelowCommonest {
                n: self.labelled,
                right: self.right as f64 / n,
                class,
                share: most as f64 / n,
            });
        }
        let least = RARE.max(self.labelled / 100);
        let never =
            |(_, [labels, predictions]): &(_, [u64; 2])| *predictions == 0 && *labels >= least;
        let never: Vec<(String, u64)> = self
            .classes()
            .filter(never)
            .map(|(class, [labels, _])| (class, labels))
            .collect();
        if !never.is_empty() {
            let labels = never.iter().map(|(_, labels)| labels).sum::<u64>();
            doubts.push(Doubt::NeverPredicted {
                classes: never.into_iter().map(|(class, _)| class).collect(),
                share: labels as f64 / n,
            });
        }
        doubts
    }
}

/// A doubt whether labels and predictions number the classes alike.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Doubt {
    /// They agree less often than by chance.
    BelowChance {
        /// How many sequences have a label.
        n: u64,
        /// The share of full predictions that are right.
        right: f64,
        /// The share that would be right by chance.
        chance: f64,
    },
    /// They agree less often than if the commonest label were always predicted.
    BelowCommonest {
        /// How many sequences have a label.
        n: u64,
        /// The share of full predictions that are right.
        right: f64,
        /// The commonest label.
        class: String,
        /// Its share.
        share: f64,
    },
    /// Some labels are never predicted.
    NeverPredicted {
        /// The labels.
        classes: Vec<String>,
        /// The share of sequences that have one of them.
        share: f64,
    },
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| format!("{:.1}%", 100.0 * share);
        match self {
            Self::BelowChance { n, right, chance } => write!(
                f,
                "at the last step the predictions agree with {} of the {n} labels, and chance alone \
                 gives {}. The labels and the predictions probably number the classes in different \
                 ways. Number both from 0, in the order of the probabilities if there are any",
                percent(*right),
                percent(*chance),
            ),
            Self::BelowCommonest {
                n,
                right,
                class,
                share,
            } => write!(
                f,
                "at the last step the predictions agree with {} of the {n} labels, and class {class} \
                 alone has {}. Do labels and predictions number the classes alike?",
                percent(*right),
                percent(*share),
            ),
            Self::NeverPredicted { classes, share } => {
                const SHOWN: usize = 8;
                let shown = classes[..classes.len().min(SHOWN)].join(", ");
                let more = match classes.len().saturating_sub(SHOWN) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                write!(
                    f,
                    "{} of the sequences have the label {shown}{more}, and at the last step nothing is \
                     ever predicted to be that. Do labels and predictions number the classes alike?",
                    percent(*share),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::checker::Checker;
    use crate::data::sequence::Sequence;

    fn seen(pairs: impl IntoIterator<Item = (u32, u32)>) -> Agreement {
        let mut agreement = Agreement::default();
        for (label, predicted) in pairs {
            let sequence = Sequence {
                label: Some(label),
                predictions: Some(&[0, predicted]),
                scores: Some(&[0.5, 0.9]),
                ..Sequence::default()
            };
            agreement.note(&Checker::new().check(sequence).unwrap());
        }
        agreement
    }

    /// A classifier of four classes that is right for three in four.
    fn good() -> impl Iterator<Item = (u32, u32)> {
        let predicted = |i: u32| {
            if i % 16 < 12 {
                i % 4
            } else {
                (i + 1 + i / 16 % 3) % 4
            }
        };
        (0..240).map(move |i| (i % 4, predicted(i)))
    }

    #[test]
    fn labels_that_are_off_by_one_are_refused() {
        assert_eq!(seen(good()).questions(), []);
        let off = seen(good().map(|(label, predicted)| (label + 1, predicted)));
        let said = off.refusal().unwrap().to_string();
        assert!(said.contains("agree with 6.2% of the 240 labels"), "{said}");
        assert!(said.contains("chance alone gives 18.8%"), "{said}");
    }

    #[test]
    fn sequences_of_one_class_tell_nothing_about_the_numbers() {
        let wrong = seen((0..200).map(|i| (1, i % 2 * 2)));
        assert_eq!(wrong.refusal(), None);
        let two = seen((0..200).map(|i| (1 + 3 * u32::from(i == 0), i % 2 * 2)));
        assert!(two.refusal().is_some());
    }

    #[test]
    fn a_weak_classifier_is_asked_about_and_not_refused() {
        // Nine in ten are of class 0, and the classifier finds most of class 1.
        let weak = (0..200).map(|i| match i % 10 {
            0 => (1, 1),
            1..=3 => (0, 1),
            _ => (0, 0),
        });
        let weak = seen(weak);
        assert_eq!(weak.refusal(), None);
        let asked: Vec<String> = weak.questions().iter().map(ToString::to_string).collect();
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert!(
            asked[0].contains("agree with 70.0% of the 200 labels, and class 0 alone has 90.0%")
        );
    }

    #[test]
    fn a_label_that_nothing_is_predicted_to_be_is_asked_about() {
        let some = seen((0..200).map(|i| match i % 10 {
            0 => (7, 1),
            other => (other % 2, other % 2),
        }));
        let asked = some.questions()[0].to_string();
        assert!(
            asked.starts_with("10.0% of the sequences have the label 7,"),
            "{asked}"
        );
        // A rare one is not.
        let rare = seen((0..200).map(|i| if i == 0 { (7, 1) } else { (i % 2, i % 2) }));
        assert_eq!(rare.questions(), []);
    }

    #[test]
    fn parts_add_up() {
        let whole = seen(good());
        let mut sum = seen(good().take(70));
        sum.add(&seen(good().skip(70)));
        assert_eq!(sum, whole);
        let stored = serde_json::to_string(&whole).unwrap();
        assert_eq!(serde_json::from_str::<Agreement>(&stored).unwrap(), whole);
    }

    #[test]
    fn few_labels_tell_nothing() {
        assert_eq!(seen((0..19).map(|i| (1 + i % 2, 0))).questions(), []);
        assert!(seen((0..20).map(|i| (1 + i % 2, 0))).refusal().is_some());
    }
}
