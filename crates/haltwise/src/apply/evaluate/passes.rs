//! Evaluates a set in one pass by several threads, and restores the order of the set.

use super::{CalibratedOn, EvaluateError, Evaluation, Evaluator};
use crate::data::agreement::{Agreement, Doubt};
use crate::data::identity::{Key, SetSummary};
use crate::data::sequence::Trace;
use crate::rule::Rule;

/// The results of a rule on a set.
#[derive(Debug)]
pub struct Evaluated {
    /// The evaluation of the set.
    pub evaluation: Evaluation,
    /// Points to check.
    pub warnings: Vec<EvaluateWarning>,
}

/// Something to check.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum EvaluateWarning {
    /// These are exactly the sequences that the rule was made from, or one of the parts that
    /// they were split into.
    Own,
    /// So many of them are known to be among those that the rule was made from; see
    /// [`Rule::remembers`].
    Remembered(u64),
    /// Labels and predictions may number the classes in different ways.
    Labels(Doubt),
    /// These groups were not there when the rule was certified, so it reads them to the end.
    NewGroups(Vec<String>),
    /// The rule halts in some groups only, and no sequence names its group.
    NoGroups(String),
    /// The sequences are shorter than the rule.
    Short {
        /// The steps of the longest.
        longest: usize,
        /// The steps of the rule.
        t_max: usize,
    },
}

impl std::fmt::Display for EvaluateWarning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own => {
                f.write_str("the rule was made from these very traces; the results flatter it")
            }
            Self::Remembered(n) => write!(
                f,
                "the rule was made from some of these traces ({n} of them are among the {} that it \
                 remembers); the results flatter it",
                Rule::REMEMBERED
            ),
            Self::Labels(doubt) => doubt.fmt(f),
            Self::NewGroups(groups) => write!(
                f,
                "the rule was not certified for {}: their sequences are read to the end; \
                 calibrate with them",
                groups.join(", ")
            ),
            Self::NoGroups(by) => write!(
                f,
                "the rule halts in some groups only, and these traces do not name theirs: all are \
                 read to the end; give the column {by:?}"
            ),
            Self::Short { longest, t_max } => write!(
                f,
                "none of these traces has more than {longest} {}, and the rule is for {t_max}: they \
                 say nothing about the later ones",
                if *longest == 1 { "step" } else { "steps" }
            ),
        }
    }
}

/// What one thread has seen of a set: stretches of consecutive sequences.
#[derive(Debug)]
pub struct Stretches<'r> {
    rule: &'r Rule,
    stretches: Vec<Stretch>,
    set: SetSummary,
    remembered: u64,
    longest: usize,
    agreement: Agreement,
}

/// Consecutive sequences.
#[derive(Debug)]
struct Stretch {
    start: u64,
    next: u64,
    evaluator: Evaluator,
}

impl<'r> Stretches<'r> {
    /// Starts with nothing seen.
    pub fn new(rule: &'r Rule) -> Self {
        Self {
            rule,
            stretches: Vec::new(),
            set: SetSummary::default(),
            remembered: 0,
            longest: 0,
            agreement: Agreement::default(),
        }
    }

    /// Applies the rule to the sequence at this position of the set, counted from 0.
    pub fn push(&mut self, position: u64, trace: &Trace<'_>) -> Result<(), EvaluateError> {
        if self
            .stretches
            .last()
            .is_none_or(|last| last.next != position)
        {
            self.stretches.push(Stretch {
                start: position,
                next: position,
                evaluator: Evaluator::for_rule(self.rule),
            });
        }
        let Some(stretch) = self.stretches.last_mut() else {
            return Ok(());
        };
        stretch.next += 1;
        self.longest = self.longest.max(trace.len());
        let key = Key::new(trace.id(), position);
        if let Some(print) = stretch.evaluator.push(key, trace)? {
            self.agreement.note(trace);
            self.set += SetSummary::one(print);
            self.remembered += u64::from(self.rule.remembers(print));
        }
        Ok(())
    }

    /// Evaluates all that was seen, in the order of the set, because ties are broken by
    /// order.
    pub fn finish(
        rule: &Rule,
        all: impl IntoIterator<Item = Self>,
    ) -> Result<Evaluated, EvaluateError> {
        let mut evaluator = Evaluator::for_rule(rule);
        let (mut set, mut remembered, mut longest) = (SetSummary::default(), 0, 0);
        let mut agreement = Agreement::default();
        let mut stretches = Vec::new();
        for seen in all {
            agreement.add(&seen.agreement);
            stretches.extend(seen.stretches);
            set += seen.set;
            remembered += seen.remembered;
            longest = longest.max(seen.longest);
        }
        stretches.sort_by_key(|stretch| stretch.start);
        for stretch in stretches {
            evaluator.append(stretch.evaluator)?;
        }
        let mut evaluation = evaluator.finish()?;
        let mut warnings = Vec::new();
        evaluation.calibrated_on = CalibratedOn::of(rule, set, remembered);
        warnings.extend(evaluation.calibrated_on.map(|share| match share {
            CalibratedOn::All => EvaluateWarning::Own,
            CalibratedOn::Some => EvaluateWarning::Remembered(remembered),
        }));
        if rule.terms().loss.needs_label() {
            let doubts = agreement.questions().into_iter();
            warnings.extend(doubts.map(EvaluateWarning::Labels));
        }
        let is_new =
            |group: &&String| !rule.halting_groups().is_empty() && !rule.groups().contains(group);
        let groups = evaluation.by_group.iter().map(|result| &result.group);
        let new: Vec<String> = groups.filter(is_new).cloned().collect();
        if !new.is_empty() {
            warnings.push(EvaluateWarning::NewGroups(new));
        }
        if evaluation.by_group.is_empty() && rule.halts_in().is_some() {
            let by = rule.terms().by.clone().unwrap_or_default();
            warnings.push(EvaluateWarning::NoGroups(by));
        }
        let t_max = rule.t_max();
        if longest < t_max {
            warnings.push(EvaluateWarning::Short { longest, t_max });
        }
        Ok(Evaluated {
            evaluation,
            warnings,
        })
    }
}
