//! The terms of a promise: what it is about, and which sequences it covers.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::data::identity::Key;
pub use crate::data::loss::Loss;
use crate::data::sequence::Trace;
use crate::data::sequence_error::SequenceError;

/// What a promise is about, and which sequences it covers. Part of the plan, of the
/// proposal and of the rule.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// The loss that is kept below α.
    #[serde(default, skip_serializing_if = "is_gap")]
    pub loss: Loss,
    /// The column for each of whose values the promise holds; `label` is the true class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The column that names units, which are drawn as one: a patient, for example.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The shift under which the promise holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
    /// What reading costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

fn is_gap(loss: &Loss) -> bool {
    *loss == Loss::default()
}

/// The true class, as a column to promise by.
pub const LABEL: &str = "label";

/// A declared shift: how much more often each sequence would occur where the rule will be
/// used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    /// The column of weights.
    pub column: String,
    /// The bound of the weights.
    pub bound: f64,
}

impl Weight {
    /// Whether the draw of a seed keeps a sequence, or a unit, of this weight.
    pub(crate) fn keeps(&self, weight: f64, seed: u64, key: Key) -> Result<bool, SequenceError> {
        if weight > self.bound {
            return Err(SequenceError::heavy(weight, self.bound));
        }
        let below = (weight / self.bound * 2f64.powi(64)) as u64;
        Ok(key.draw(seed ^ THINNING) < below || weight == self.bound)
    }
}

/// What reading a step costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cost {
    /// The same costs for every sequence; the last cost also holds for later steps.
    Steps(Vec<f64>),
    /// A column of costs, one per step.
    Column(String),
}

impl Cost {
    /// Reads an option: costs separated by commas, or else the name of a column.
    pub fn of(text: &str) -> Self {
        let numbers: Result<Vec<f64>, _> = text.split(',').map(|n| n.trim().parse()).collect();
        numbers.map_or_else(|_| Self::Column(text.to_owned()), Self::Steps)
    }

    /// The cost of each of this many steps; the last given cost also holds for later steps.
    pub(crate) fn of_steps(costs: &[f64], steps: usize) -> impl Iterator<Item = f64> {
        let last = costs.last().copied().unwrap_or(0.0);
        (0..steps).map(move |t| costs.get(t).copied().unwrap_or(last))
    }

    /// The total cost up to each step.
    pub(crate) fn spent(costs: impl Iterator<Item = f64>) -> Vec<f64> {
        let add = |spent: &mut f64, cost: f64| {
            *spent += cost;
            Some(*spent)
        };
        costs.scan(0.0, add).collect()
    }
}

/// Makes this draw differ from those that split.
const THINNING: u64 = 0x7468_696e_6e69_6e67;

impl Terms {
    /// Whether the terms are the usual ones: the gap of every sequence alike.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The column of costs, if there is one.
    pub fn cost_column(&self) -> Option<&str> {
        match &self.cost {
            Some(Cost::Column(column)) => Some(column),
            Some(Cost::Steps(_)) | None => None,
        }
    }

    /// Refuses a sequence that lacks a column that the terms need. Returns the key that
    /// decides on its role, or `None` if the weights leave it out.
    ///
    /// *Weights.* Let P be the law of the sequences and w ≤ B the declared density of the
    /// law Q that the rule will meet, up to a factor. A sequence that is kept with
    /// probability w/B, independently of all else, is drawn from Q (rejection sampling). So
    /// every theorem holds for Q on the kept sequences. The draw is a hash of seed and id,
    /// and is the same wherever it is made.
    ///
    /// *Units.* All sequences of a unit have one key, so they have one role.
    pub(crate) fn admit(
        &self,
        seed: u64,
        key: Key,
        trace: &Trace<'_>,
    ) -> Result<Option<Key>, SequenceError> {
        self.loss.check(trace)?;
        let about = trace.about();
        if let Some(by) = &self.by
            && about.group.is_none()
        {
            match by == LABEL {
                true if trace.label().is_some() => {}
                true => return Err(SequenceError::no_label()),
                false => return Err(SequenceError::no_column(by)),
            }
        }
        if let Some(column) = self.cost_column()
            && about.costs.is_none()
        {
            return Err(SequenceError::no_column(column));
        }
        let key = match &self.unit {
            None => key,
            Some(column) => match about.unit {
                Some(unit) => Key::new(Some(unit), 0),
                None => return Err(SequenceError::no_column(column)),
            },
        };
        let Some(of_use) = &self.weight else {
            return Ok(Some(key));
        };
        let Some(weight) = about.weight else {
            return Err(SequenceError::no_column(&of_use.column));
        };
        Ok(of_use.keeps(weight, seed, key)?.then_some(key))
    }

    /// Whether a rule may halt some groups only, and read the others to the end. A live stream
    /// must be able to name its group, so the groups are not the true classes. And the end must
    /// cost nothing, which is not so for given losses.
    pub(crate) fn may_read_on(&self) -> bool {
        let named = self.by.as_deref().is_some_and(|by| by != LABEL);
        named
            && match self.loss {
                Loss::Gap | Loss::Disagreement | Loss::Absolute { .. } => true,
                Loss::Given => false,
            }
    }

    /// The group of a sequence, if the promise is by group.
    pub(crate) fn group<'a>(&self, trace: &Trace<'a>) -> Option<Cow<'a, str>> {
        let by = self.by.as_ref()?;
        match trace.about().group {
            Some(group) => Some(group.into()),
            None if by == LABEL => trace.label().map(|label| label.to_string().into()),
            None => None,
        }
    }
}

/// Decides which sequences are admitted: by which terms, and with which draw of weights.
#[derive(Debug, Clone, Copy)]
pub struct Admission<'p> {
    pub(crate) terms: &'p Terms,
    pub(crate) seed: u64,
}

impl<'p> Admission<'p> {
    /// Admits by these terms, with the seed of the draw of weights.
    pub fn new(terms: &'p Terms, seed: u64) -> Self {
        Self { terms, seed }
    }

    /// The terms.
    pub fn terms(&self) -> &'p Terms {
        self.terms
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The key that decides on a sequence's role; `None` if the sequence is left out.
    pub(crate) fn admit(&self, key: Key, trace: &Trace<'_>) -> Result<Option<Key>, SequenceError> {
        self.terms.admit(self.seed, key, trace)
    }
}
