//! What a set of sequences looks like as a whole, as far as proposing rules may
//! know: nothing here says anything about gaps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::data::identity::{Fingerprint, SetSummary};
use crate::data::score::ScoreSource;
use crate::data::sequence::Trace;
use crate::numbers::counts::is_zero;

/// How many sequences there are, how long, and what came with them. Surveys of
/// parts add up to the survey of the whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survey {
    /// How many sequences, and their fingerprint.
    pub set: SetSummary,
    /// How many of them have no id.
    pub nameless: u64,
    /// The steps of the shortest sequence.
    pub shortest: usize,
    /// The steps of the longest sequence.
    pub longest: usize,
    /// The fewest class probabilities that a step has.
    pub fewest_classes: usize,
    /// The most.
    pub most_classes: usize,
    /// Whether scores were given; if not, the largest probability stands in.
    pub scores_given: bool,
    /// How many sequences have no label.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlabelled: u64,
    /// How many more there were that the weights left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub thinned: u64,
    /// How many sequences each group has, where the promise is by group: up to
    /// one group more than there may be.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, u64>,
}

impl Default for Survey {
    /// No sequences.
    fn default() -> Self {
        Self {
            set: SetSummary::default(),
            nameless: 0,
            shortest: usize::MAX,
            longest: 0,
            fewest_classes: usize::MAX,
            most_classes: 0,
            scores_given: false,
            unlabelled: 0,
            thinned: 0,
            groups: BTreeMap::new(),
        }
    }
}

impl Survey {
    /// The most groups that a promise may be made for.
    pub const MOST_GROUPS: usize = 1000;

    /// Notes one more sequence, of this fingerprint and group.
    pub fn note(&mut self, trace: &Trace<'_>, fingerprint: Fingerprint, group: Option<&str>) {
        self.unlabelled += u64::from(trace.label().is_none());
        if let Some(group) = group {
            self.note_group(group, 1);
        }
        self.set += SetSummary::one(fingerprint);
        self.nameless += u64::from(trace.id().is_none());
        self.shortest = self.shortest.min(trace.len());
        self.longest = self.longest.max(trace.len());
        self.fewest_classes = self.fewest_classes.min(trace.classes());
        self.most_classes = self.most_classes.max(trace.classes());
        self.scores_given |= trace.given_scores().is_some();
    }

    /// Adds what another part looks like.
    pub fn add(&mut self, other: &Self) {
        self.set += other.set;
        self.nameless += other.nameless;
        self.shortest = self.shortest.min(other.shortest);
        self.longest = self.longest.max(other.longest);
        self.fewest_classes = self.fewest_classes.min(other.fewest_classes);
        self.most_classes = self.most_classes.max(other.most_classes);
        self.scores_given |= other.scores_given;
        self.unlabelled += other.unlabelled;
        self.thinned += other.thinned;
        for (group, &n) in &other.groups {
            self.note_group(group, n);
        }
    }

    fn note_group(&mut self, group: &str, n: u64) {
        if let Some(found) = self.groups.get_mut(group) {
            *found += n;
        } else if self.groups.len() <= Self::MOST_GROUPS {
            self.groups.insert(group.to_owned(), n);
        }
    }

    /// How many sequences there are.
    pub fn sequences(&self) -> u64 {
        self.set.sequences
    }

    /// The score that is there without computing.
    pub fn plain_source(&self) -> ScoreSource {
        if self.scores_given {
            ScoreSource::Confidence
        } else {
            ScoreSource::MaxProbability
        }
    }

    /// How many class probabilities each step has, where all have as many.
    pub fn classes(&self) -> Option<usize> {
        let same = self.fewest_classes == self.most_classes;
        (same && self.most_classes > 0).then_some(self.most_classes)
    }

    /// Whether all sequences have as many steps.
    pub fn equal_lengths(&self) -> bool {
        self.shortest >= self.longest
    }
}
