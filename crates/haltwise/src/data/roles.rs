//! The parts of the calibration data: what fits, what screens and what certifies. Their
//! types differ from the moment they are separated. A part cannot be handed to another
//! role, and its content cannot be taken out again.

use crate::data::identity::{SetSummary, Sketch};
use crate::data::outputs::Outputs;
use crate::data::traces::Traces;

/// Sequences that may only be fitted to: a score is learned and candidates are
/// proposed from here, and certifying never sees them.
///
/// ```compile_fail,E0382
/// # use haltwise::{Inputs, Outputs, Plan};
/// # use haltwise::traces::Fitting;
/// let outputs = Outputs::new();
/// let fitting = Fitting::new(outputs);
/// let found = Plan::default().calibrate(Inputs::one(&outputs)); // what fits cannot certify
/// ```
///
/// ```compile_fail,E0277
/// # use haltwise::{Inputs, Outputs, Plan};
/// # use haltwise::traces::Fitting;
/// let fitting = Fitting::new(Outputs::new());
/// let found = Plan::default().calibrate(Inputs::one(&fitting)); // nor be taken out again
/// ```
#[derive(Debug)]
pub struct Fitting(Outputs);

impl Fitting {
    /// The most sequences that are set aside for fitting: past that, a sequence is worth
    /// more for certifying.
    pub const MOST: usize = 10_000;

    /// Sets these sequences aside for fitting.
    ///
    /// They are put in an order of their own, so the result does not depend on how they
    /// were ordered or cut into files.
    pub fn new(outputs: Outputs) -> Self {
        let mut order: Vec<usize> = (0..outputs.len()).collect();
        order.sort_by_key(|&i| (outputs.key(i), outputs.fingerprint(i)));
        Self(outputs.select(order))
    }

    /// How many sequences there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sequences to fit to.
    pub(crate) fn outputs(&self) -> &Outputs {
        &self.0
    }

    /// Which sequences these are.
    pub(crate) fn summary(&self) -> SetSummary {
        self.0.summary()
    }

    /// Whether every sequence has an id.
    pub(crate) fn named(&self) -> bool {
        (0..self.0.len()).all(|i| self.0.identity(i).2)
    }

    /// Adds them to a sketch, to find them elsewhere.
    pub(crate) fn sketch(&self, into: &mut Sketch) {
        for i in 0..self.0.len() {
            let (key, print, named) = self.0.identity(i);
            into.push(key, print, named);
        }
    }
}

/// Sequences that may only be screened on: the thresholds of the paper's
/// conditional method come from here.
#[derive(Debug)]
pub(crate) struct Screening(Traces);

impl Screening {
    /// Sets these sequences aside to screen.
    pub(crate) fn new(traces: Traces) -> Self {
        Self(traces)
    }

    /// The traces to screen on.
    pub(crate) fn traces(&self) -> &Traces {
        &self.0
    }
}

/// Sequences that may only certify: candidates were fixed without them, and they must not
/// have been used to train the classifier.
#[derive(Debug)]
pub(crate) struct Certifying(Traces);

impl Certifying {
    /// Keeps these sequences to certify.
    pub(crate) fn new(traces: Traces) -> Self {
        Self(traces)
    }

    /// The traces to count.
    pub(crate) fn traces(&self) -> &Traces {
        &self.0
    }
}
