//! The optional columns of traces.

use haltwise::terms::{LABEL, Loss, Terms};

use crate::problem::{Checked, Problem, listed};

/// The columns to read or write in addition to those that every trace has. By default there
/// are none, and other columns are ignored.
///
/// ```
/// use haltwise_io::Columns;
///
/// let columns = Columns {
///     group: Some("hospital".into()),
///     ..Columns::default()
/// };
/// # assert!(!columns.optional);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Columns {
    /// The column of groups; `label` is the true class, by its name if classes have names.
    pub group: Option<String>,
    /// The column of units.
    pub unit: Option<String>,
    /// The column of weights.
    pub weight: Option<String>,
    /// The column of costs: one per step.
    pub costs: Option<String>,
    /// Whether to read losses: `losses`, or `loss` if a row is a step. They are written if
    /// sequences have them.
    pub losses: bool,
    /// Whether predictions and labels are numbers, not classes. They are written if
    /// sequences have them.
    pub numbers: bool,
    /// Whether files may lack the columns. Then sequences lack the values.
    pub optional: bool,
}

/// The names in a file of the columns that every trace has.
pub(super) struct Names {
    /// Its word for a column.
    what: &'static str,
    label: &'static str,
    predictions: &'static str,
    losses: &'static str,
}

pub(super) const ARRAYS: Names = Names {
    what: "array",
    label: "labels",
    predictions: "predictions",
    losses: "losses",
};
pub(super) const FIELDS: Names = Names {
    what: "field",
    label: LABEL,
    ..ARRAYS
};
pub(super) const PER_SEQUENCE: Names = Names {
    what: "column",
    ..FIELDS
};
pub(super) const PER_STEP: Names = Names {
    what: "column",
    label: LABEL,
    predictions: "prediction",
    losses: "loss",
};

/// Names that have a meaning of their own in some format.
const TAKEN: [&str; 15] = [
    "id",
    "ids",
    "t",
    "label",
    "labels",
    "lengths",
    "loss",
    "losses",
    "metadata",
    "missing",
    "prediction",
    "predictions",
    "probs",
    "score",
    "scores",
];

impl Columns {
    /// The columns that a promise needs.
    pub fn of(terms: &Terms) -> Self {
        Self {
            group: terms.by.clone(),
            unit: terms.unit.clone(),
            weight: terms.weight.as_ref().map(|weight| weight.column.clone()),
            costs: terms.cost_column().map(str::to_owned),
            losses: terms.loss == Loss::Given,
            numbers: matches!(terms.loss, Loss::Absolute { .. }),
            optional: false,
        }
    }

    /// Makes the columns optional.
    pub fn where_there(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }

    /// Whether groups are the true classes.
    pub(super) fn by_label(&self) -> bool {
        self.group.as_deref() == Some(LABEL)
    }

    /// The column of groups, if it is not the label itself.
    pub(super) fn group_column(&self) -> Option<&str> {
        self.group.as_deref().filter(|_| !self.by_label())
    }

    /// The columns that were named.
    fn named(&self) -> impl Iterator<Item = &str> {
        let more = [&self.unit, &self.weight, &self.costs];
        let more = more.into_iter().filter_map(|name| name.as_deref());
        self.group_column().into_iter().chain(more)
    }

    /// Refuses a file that lacks one of them.
    pub(super) fn check<'f>(
        &self,
        names: &Names,
        found: impl Iterator<Item = &'f str> + Clone,
    ) -> Checked {
        let losses = self.losses.then_some(names.losses);
        if self.group_column() == Some(ARRAYS.label) {
            return Err(Problem::format(format_args!(
                "{0:?} are the true labels; for a promise to each true class, name the column {LABEL:?}",
                ARRAYS.label
            )));
        }
        let asked = self.named().chain(losses).filter(|_| !self.optional);
        let numbers = [names.label, names.predictions].into_iter();
        for name in asked.chain(numbers.filter(|_| self.numbers)) {
            if !found.clone().any(|f| f == name) {
                return Err(Problem::format(format_args!(
                    "there is no {} {name:?}; found are {}",
                    names.what,
                    listed(found)
                )));
            }
        }
        Ok(())
    }

    /// Refuses names that cannot be written.
    pub(super) fn check_writable(&self) -> Result<(), String> {
        let named: Vec<&str> = self.named().collect();
        if let Some(taken) = named.iter().find(|name| TAKEN.contains(name)) {
            return Err(format!(
                "the column name {taken:?} has a meaning of its own; take another"
            ));
        }
        let others = [self.weight.as_deref(), self.costs.as_deref()];
        for other in others.into_iter().flatten() {
            if named.iter().filter(|name| **name == other).count() > 1 {
                return Err(format!(
                    "two columns are called {other:?}; rename one of them"
                ));
            }
        }
        Ok(())
    }
}
