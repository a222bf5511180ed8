//! The parts of the calibration data, told apart by type from the moment they
//! are separated: what fits, what screens and what certifies. A part cannot be
//! handed to another role, and what it holds cannot be taken out again.

use crate::data::identity::{Fingerprint, Key, SetAside, SetRecord, Sketch};
use crate::data::outputs::Outputs;
use crate::data::score::ScoreSource;
use crate::data::sequence_error::SequenceError;
use crate::data::survey::Survey;
use crate::data::terms::Admission;
use crate::data::traces::Traces;
use haltwise_stream::StepError;

/// Sequences that may only be fitted to: a score is learned and candidates are
/// proposed from here, and certifying never sees them.
///
/// ```compile_fail,E0277
/// # use haltwise::Outputs;
/// # use haltwise::traces::{Certifying, Fitting};
/// let fitting = Fitting::new(Outputs::new());
/// let certifying = Certifying::from(fitting); // what fits cannot certify
/// ```
///
/// ```compile_fail,E0382
/// # use haltwise::Outputs;
/// # use haltwise::traces::{Certifying, Fitting};
/// let outputs = Outputs::new();
/// let fitting = Fitting::new(outputs);
/// let certifying = Certifying::from(outputs); // nor can the set it was made of
/// ```
#[derive(Debug)]
pub struct Fitting(Outputs);

impl Fitting {
    /// The most sequences that are set aside for fitting: past that, a sequence
    /// is worth more to certifying.
    pub const MOST: usize = 10_000;

    /// Sets these sequences aside for fitting.
    ///
    /// They are put in an order of their own, so that the result does not
    /// depend on how they were ordered or cut into files.
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

    /// What is fitted to.
    pub(crate) fn outputs(&self) -> &Outputs {
        &self.0
    }

    /// Which sequences these are.
    pub(crate) fn record(&self) -> SetRecord {
        self.0.record()
    }

    /// Whether every sequence has an id.
    pub(crate) fn named(&self) -> bool {
        (0..self.0.len()).all(|i| self.0.identity(i).2)
    }

    /// A sample of them, to be found elsewhere.
    pub(crate) fn sketch(&self, into: &mut Sketch) {
        for i in 0..self.0.len() {
            let (key, print, named) = self.0.identity(i);
            into.push(key, print, named);
        }
    }
}

/// Sequences with a score, or all that was said about them.
#[derive(Debug)]
enum Set {
    Scored(Traces),
    Said(Outputs),
}

impl Set {
    fn with_traces<R>(
        &self,
        source: &ScoreSource,
        act: impl FnOnce(&Traces) -> R,
    ) -> Result<R, StepError> {
        match self {
            Self::Scored(traces) => Ok(act(traces)),
            Self::Said(outputs) => Ok(act(&outputs.traces(source)?)),
        }
    }

    fn survey(&self) -> Survey {
        match self {
            Self::Scored(traces) => Survey {
                set: traces.record(),
                nameless: traces.len() as u64,
                shortest: traces.shortest(),
                longest: traces.t_max(),
                scores_given: *traces.source() != ScoreSource::MaxProbability,
                unlabelled: traces.len() as u64 - traces.labelled(),
                ..Survey::default()
            },
            Self::Said(outputs) => {
                let mut survey = Survey::default();
                for i in 0..outputs.len() {
                    survey.note(&outputs.trace(i), outputs.fingerprint(i), None);
                }
                survey
            }
        }
    }
}

/// Sequences that may only be screened on: the thresholds of the paper's
/// conditional method come from here.
#[derive(Debug)]
pub struct Screening(Set);

/// Sequences that may only certify: candidates were fixed without them. They
/// must not have been used to train the classifier.
#[derive(Debug)]
pub struct Certifying(Set);

macro_rules! part {
    ($name:ident, $does:literal) => {
        impl From<Traces> for $name {
            fn from(traces: Traces) -> Self {
                Self(Set::Scored(traces))
            }
        }

        impl From<Outputs> for $name {
            fn from(outputs: Outputs) -> Self {
                Self(Set::Said(outputs))
            }
        }

        impl $name {
            #[doc = concat!("Sets these sequences aside to ", $does, ".")]
            pub fn new(set: impl Into<Self>) -> Self {
                set.into()
            }

            /// What the set looks like: how many sequences there are, how long.
            pub fn survey(&self) -> Survey {
                self.0.survey()
            }

            /// The traces with this score; of a set that has a score already,
            /// those.
            pub(crate) fn with_traces<R>(
                &self,
                source: &ScoreSource,
                act: impl FnOnce(&Traces) -> R,
            ) -> Result<R, StepError> {
                self.0.with_traces(source, act)
            }
        }
    };
}

part!(Screening, "screen");
part!(Certifying, "certify");

impl Certifying {
    /// What the set looks like to those who may come in.
    pub(crate) fn surveyed(&self, who: Admission<'_>) -> Result<Survey, SequenceError> {
        let Some(outputs) = self.outputs() else {
            return Ok(self.survey());
        };
        let mut survey = Survey::default();
        for i in 0..outputs.len() {
            let trace = outputs.trace(i);
            match who.admit(outputs.key(i), &trace)? {
                None => survey.thinned += 1,
                Some(_) => {
                    let group = who.terms.group(&trace);
                    survey.note(&trace, outputs.fingerprint(i), group.as_deref());
                }
            }
        }
        Ok(survey)
    }

    /// All that was said, where it was kept.
    pub(crate) fn outputs(&self) -> Option<&Outputs> {
        match &self.0 {
            Set::Scored(_) => None,
            Set::Said(outputs) => Some(outputs),
        }
    }

    /// Each sequence's key and fingerprint, and whether it has an id, where that
    /// was kept.
    pub(crate) fn identities(&self) -> impl Iterator<Item = (Key, Fingerprint, bool)> {
        self.outputs()
            .into_iter()
            .flat_map(|outputs| (0..outputs.len()).map(|i| outputs.identity(i)))
    }
}

impl Traces {
    /// Splits into a part that screens and a part that certifies.
    ///
    /// Each sequence goes to the screening part with probability
    /// `screen_fraction`, decided by a hash of the seed and its id (its
    /// position, where it has none). The draw looks at nothing the guarantee
    /// is about, so given the split both parts are i.i.d. samples; and
    /// where there are ids, it does not depend on how the data was ordered or
    /// cut into files.
    pub fn split(self, screen_fraction: f64, seed: u64) -> (Screening, Certifying) {
        let (screening, certifying) = self.cut(SetAside::share(screen_fraction, seed));
        (screening.into(), certifying.into())
    }
}
