//! The proposal: everything that is fixed before certifying. From here on it is constant.
//! The certifying sequences may be anywhere, and may be too many for one machine.
//!
//! Every method makes a proposal. The paper's marginal is one family with all of δ (one
//! threshold, lower and lower). So is the paper's conditional (the backward walk).
//! `adaptive` has families of curves, of plain thresholds and the clock, at shares of δ.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::data::identity::{
    Classifier, Fingerprint, Key, Others, SetAside, SetSummary, Sketch, Sketched,
};
use crate::data::loss::Loss;
use crate::data::roles::{Fitting, Screening};
use crate::data::score::ScoreSource;
use crate::data::survey::Survey;
use crate::data::traces::Traces;
use crate::numbers::thresholds::Thresholds;
use crate::plan::{Method, Plan};
use crate::propose::error::CalibrateError;
use crate::propose::families::{Family, propose};
use crate::propose::fit::{Target, fit};
use crate::propose::screen::screen;
use crate::propose::views::profile;
use crate::rule::{Lengths, Rule, RuleRecord};
use crate::tables::candidates::{Candidates, FamilyKind, spend_delta};
use crate::tables::error::EvidenceError;
use crate::testing::betting::Profile;
use crate::testing::fixed_sequence::{Proof, Tally};

/// Everything that is fixed before certifying: the plan with its levels, the score, and the
/// families of candidates in the order of their tests.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "StoredProposal", into = "StoredProposal")]
pub struct Proposal {
    record: StoredProposal,
    /// The digest that identifies it, once requested.
    digest: OnceLock<Fingerprint>,
}

impl PartialEq for Proposal {
    fn eq(&self, other: &Self) -> bool {
        self.record == other.record
    }
}

impl Proposal {
    fn of(record: StoredProposal) -> Self {
        Self {
            record,
            digest: OnceLock::new(),
        }
    }
}

/// The stored form of a proposal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredProposal {
    plan: Plan,
    score: ScoreSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    classifier: Option<Classifier>,
    /// The names of the classes, in the order of the probabilities, if they were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class_names: Option<Vec<String>>,
    /// The sequences that were fitted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fitted_on: Option<SetSummary>,
    /// The sequences that were screened on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    screened_on: Option<SetSummary>,
    /// The whole set that evidence is to be gathered from, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    all: Option<SetSummary>,
    /// The part of that set that was set aside, and must not certify.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aside: Option<Aside>,
    /// A sample of the sequences that the proposal was made from, which must not certify:
    /// those of other sets or, if looks are planned, those set aside.
    #[serde(default, skip_serializing_if = "Others::is_empty")]
    others: Others,
    /// The groups that the promise covers separately, sorted; none if it is for all
    /// together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    /// How p-values will be computed.
    #[serde(default, skip_serializing_if = "Proof::is_binomial")]
    proof: Proof,
    /// The mean total cost up to each step; `None` if every step costs the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    costs: Option<Vec<f64>>,
    families: Vec<Family>,
}

/// The part of the certifying set that was set aside.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Aside {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fit: Option<SetAside>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) screen: Option<SetAside>,
    /// All of the set aside sequences.
    pub(crate) set: SetSummary,
}

/// The role of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Fit,
    Screen,
    Certify,
}

impl Role {
    /// Returns the role of a sequence in a set, parts of which were set aside.
    pub(crate) fn of(key: Key, fit: Option<SetAside>, screen: Option<SetAside>) -> Self {
        let has = |part: Option<SetAside>| part.is_some_and(|part| part.has(key));
        if has(fit) {
            Self::Fit
        } else if has(screen) {
            Self::Screen
        } else {
            Self::Certify
        }
    }
}

/// Refuses terms that do not fit these sequences.
pub(crate) fn check_terms(plan: &Plan, certifying: &Survey) -> Result<(), CalibrateError> {
    let terms = plan.terms();
    if terms.loss.needs_label() && certifying.unlabelled > 0 {
        if certifying.unlabelled >= certifying.sequences() {
            return Err(CalibrateError::NoLabels);
        }
        if plan.method() != Method::Adaptive || terms.unit.is_some() {
            return Err(CalibrateError::FewLabels);
        }
    }
    let Some(by) = &terms.by else {
        return Ok(());
    };
    match certifying.groups.len() {
        0 | 1 => Err(CalibrateError::OneGroup { by: by.clone() }),
        2..=Survey::MOST_GROUPS => Ok(()),
        _ => Err(CalibrateError::ManyGroups { by: by.clone() }),
    }
}

/// The score that a plan judges, if it must be known before screening; the method
/// `adaptive` chooses its own.
pub(crate) fn score_of(
    plan: &Plan,
    fitting: Option<&Fitting>,
    own: &Survey,
) -> Result<ScoreSource, CalibrateError> {
    if plan.method() == Method::Adaptive {
        return Ok(own.plain_source());
    }
    let Some(word) = plan.score() else {
        return Ok(own.plain_source());
    };
    if let Some(plain) = word.plain() {
        return Ok(plain);
    }
    let fitting = fitting.ok_or(CalibrateError::Empty("fitting"))?;
    let target = Target::Loss(plan.terms().loss);
    let learned = fit(fitting, plan.alpha(), target, None)?.ok_or(CalibrateError::NoGap)?;
    Ok(ScoreSource::Gap(Box::new(learned.score)))
}

impl Plan {
    /// Fixes what will be certified without a set at hand, or for many parts of one: for
    /// sequences that look like these. Only their number and their lengths are used, which
    /// say nothing about gaps. Nothing is screened on.
    pub fn fix(
        &self,
        fitting: Option<&Fitting>,
        certifying: &Survey,
    ) -> Result<Proposal, CalibrateError> {
        let plan = &self.clone().for_others();
        let score = score_of(plan, fitting, certifying)?;
        let proposal = Proposal::new(plan, score, fitting, None, certifying)?;
        let Some(fitting) = fitting else {
            return Ok(proposal);
        };
        let mut sketch = Sketch::new(Sketch::OF_A_PROPOSAL);
        fitting.sketch(&mut sketch);
        Ok(proposal.without_sequences(Others::new(sketch, fitting.named())))
    }
}

impl Proposal {
    /// Fixes the families from the fitting and the screening sequences; the latter have the
    /// score that will be judged.
    pub(crate) fn new(
        plan: &Plan,
        score: ScoreSource,
        fitting: Option<&Fitting>,
        screening: Option<&[&Screening]>,
        certifying: &Survey,
    ) -> Result<Self, CalibrateError> {
        check_terms(plan, certifying)?;
        let screening: Option<Vec<&Traces>> =
            screening.map(|groups| groups.iter().map(|group| group.traces()).collect());
        let screening = screening.as_deref();
        let terms = plan.terms();
        let (alpha, delta, t_max) = (plan.alpha(), plan.level(), certifying.longest);
        let by_unit = terms.unit.is_some();
        // If nothing is known about losses, bets expect nothing.
        let mut proof = match terms.loss.is_binary() && !by_unit {
            true => Proof::Binomial,
            false => Proof::Bets(Profile::default()),
        };
        let mut costs = None;
        let fitted_on = fitting.map(Fitting::summary);
        let whole = |kind, candidates| {
            vec![Family {
                kind,
                share: 1.0,
                score: None,
                candidates,
            }]
        };
        let (score, families) = match plan.method() {
            Method::Marginal => {
                let candidates = Candidates::one_threshold(plan.grid().clone(), t_max);
                (score, whole(FamilyKind::OneThreshold, candidates))
            }
            Method::Conditional | Method::ScreenOnly => {
                let traces = screening
                    .filter(|groups| groups.iter().any(|traces| !traces.is_empty()))
                    .ok_or(CalibrateError::Empty("screening"))?;
                let by = plan.screen_by();
                if let (Proof::Bets(_), [traces]) = (&proof, traces) {
                    let profile = profile(traces, alpha, by_unit);
                    proof = match profile.is_binary() && !by_unit {
                        true => Proof::Binomial,
                        false => Proof::Bets(profile),
                    };
                }
                let eta = screen(traces, alpha, delta, plan.grid(), by).extended(t_max);
                let candidates = Candidates::backward(&eta, plan.at_never());
                (score, whole(FamilyKind::Backward, candidates))
            }
            Method::Adaptive => {
                let fitting = fitting
                    .filter(|fitting| !fitting.outputs().is_empty())
                    .ok_or(CalibrateError::Empty("fitting"))?;
                if certifying.sequences() == 0 {
                    return Err(CalibrateError::Empty("certifying"));
                }
                let proposed = propose(fitting, plan, certifying)?;
                (proof, costs) = (proposed.proof, proposed.costs);
                (proposed.score, proposed.families)
            }
        };
        Ok(Self::of(StoredProposal {
            plan: plan.clone(),
            score,
            classifier: None,
            class_names: None,
            fitted_on,
            screened_on: screening.map(|groups| groups.iter().map(|g| g.summary()).sum()),
            all: None,
            aside: None,
            others: Others::default(),
            groups: match &terms.by {
                Some(_) => certifying.groups.keys().cloned().collect(),
                None => Vec::new(),
            },
            proof,
            costs,
            families,
        }))
    }

    /// Records the set that evidence is to be gathered from, and which part of it was set
    /// aside.
    pub(crate) fn of_all(mut self, all: SetSummary, aside: Option<Aside>) -> Self {
        (self.record.all, self.record.aside) = (Some(all), aside);
        Self::of(self.record)
    }

    /// Records a sample of sequences that must not certify.
    pub(crate) fn without_sequences(mut self, others: Others) -> Self {
        self.record.others = others;
        Self::of(self.record)
    }

    /// Records the classifier that produced the traces, if known.
    pub fn with_classifier(mut self, classifier: Option<Classifier>) -> Self {
        self.record.classifier = classifier;
        Self::of(self.record)
    }

    /// Records the names of the classes, in the order of the probabilities, if they are known.
    pub fn with_class_names(mut self, names: Option<Vec<String>>) -> Self {
        self.record.class_names = names;
        Self::of(self.record)
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.record.plan
    }

    /// The score that the candidates judge.
    pub fn score(&self) -> &ScoreSource {
        &self.record.score
    }

    /// The most steps that a sequence may have.
    pub fn t_max(&self) -> usize {
        self.candidates().map(Candidates::t_max).max().unwrap_or(0)
    }

    /// The number of candidates in all families.
    pub fn rules(&self) -> usize {
        self.candidates().map(Candidates::len).sum()
    }

    /// The thresholds of each candidate, in the order of the tests, family by
    /// family.
    pub fn thresholds(&self) -> impl Iterator<Item = Thresholds> {
        self.candidates()
            .flat_map(|candidates| (0..candidates.len()).filter_map(|c| candidates.rule(c)))
    }

    /// The sequences that the proposal was made from: fitted to, and screened on.
    pub fn made_from(&self) -> impl Iterator<Item = SetSummary> {
        self.record
            .fitted_on
            .into_iter()
            .chain(self.record.screened_on)
    }

    /// The whole set that evidence is to be gathered from, if known.
    pub fn all(&self) -> Option<SetSummary> {
        self.record.all
    }

    /// The part of that set that was set aside.
    pub(crate) fn set_aside(&self) -> Option<SetSummary> {
        self.record.aside.map(|aside| aside.set)
    }

    /// Whether a part of that set was set aside.
    pub fn is_split(&self) -> bool {
        self.record.aside.is_some()
    }

    pub(crate) fn families(&self) -> &[Family] {
        &self.record.families
    }

    /// The candidates of each family.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = &Candidates> {
        self.record.families.iter().map(|family| &family.candidates)
    }

    /// All scores that candidates judge, beginning with the one that most of them judge.
    pub(crate) fn sources(&self) -> Vec<&ScoreSource> {
        let other = self.families().iter().find_map(|f| f.score.as_ref());
        std::iter::once(self.score()).chain(other).collect()
    }

    /// Whether the fitting traces help to certify families that do not depend on them. They
    /// may if nothing about the tests, such as bets, was learned from them.
    pub(crate) fn fitted_help(&self) -> bool {
        let learned = matches!(self.proof(), Proof::Bets(_));
        let fixed = !learned && self.plan().terms().loss.is_binary();
        fixed
            && self
                .families()
                .iter()
                .any(|family| family.kind.is_same_for_all_data())
    }

    /// Whether a sequence without a label is refused in any role, as it was when the
    /// proposal was made. Without a label its gap is unknown. The exact binomial test and
    /// the bets would count it as no gap, and certify rules that lose far more than alpha.
    /// Only a proof for few labels tells the two apart.
    pub(crate) fn needs_labels(&self) -> bool {
        let of_all = match self.proof() {
            Proof::Binomial | Proof::Bets(_) => true,
            Proof::FewLabels { .. } => false,
        };
        of_all && self.plan().terms().loss.needs_label()
    }

    /// The groups that the promise covers separately, sorted; none if it is for all
    /// together.
    pub fn groups(&self) -> &[String] {
        &self.record.groups
    }

    /// How p-values will be computed.
    pub(crate) fn proof(&self) -> &Proof {
        &self.record.proof
    }

    /// The mean total cost up to each step.
    pub(crate) fn costs(&self) -> Option<&[f64]> {
        self.record.costs.as_deref()
    }

    /// The tallies of each group.
    pub(crate) fn tallies(&self) -> Vec<Tally> {
        let terms = self.plan().terms();
        self.proof().tallies(terms.loss, terms.unit.is_some())
    }

    /// The place of a group among all.
    pub(crate) fn place_of(&self, group: Option<&str>) -> Result<usize, EvidenceError> {
        let Some(group) = group else {
            return Ok(0);
        };
        let found = self
            .groups()
            .binary_search_by(|known| known.as_str().cmp(group));
        found.map_err(|_| EvidenceError::NewGroup(group.to_owned()))
    }

    /// The role of the sequence with this key.
    pub(crate) fn role(&self, key: Key) -> Role {
        self.record.aside.map_or(Role::Certify, |aside| {
            Role::of(key, aside.fit, aside.screen)
        })
    }

    /// A sample of the sequences it was made from, which must not certify.
    pub(crate) fn others(&self) -> &Others {
        &self.record.others
    }

    /// The digest that identifies the proposal.
    pub(crate) fn digest(&self) -> Fingerprint {
        *self.digest.get_or_init(|| {
            // Numbers, words and lists of them can always be serialised.
            Fingerprint::of(&serde_json::to_vec(&self.record).unwrap_or_default())
        })
    }

    /// The screened thresholds, uncertified. The rule promises nothing.
    pub(crate) fn screened_rule(&self, survey: &Survey) -> Rule {
        let mut record = self.rule_record(survey);
        let last = self.candidates().next();
        let revealed =
            last.and_then(|candidates| candidates.rule(candidates.len().checked_sub(1)?));
        if let Some(thresholds) = revealed {
            record.thresholds = thresholds;
        }
        record.promise = None;
        Rule::from_record(record)
    }

    /// A record without tests.
    pub(crate) fn rule_record(&self, survey: &Survey) -> RuleRecord {
        let plan = self.plan();
        let paper = plan.method() != Method::Adaptive;
        let lengths = if survey.equal_lengths() {
            Lengths::Equal
        } else {
            Lengths::Unequal
        };
        RuleRecord {
            method: plan.method(),
            promise: plan.promise(),
            purpose: plan.purpose(),
            terms: plan.terms().clone(),
            groups: self.groups().to_vec(),
            halts_in: None,
            proof: self.proof().clone(),
            alpha: plan.alpha(),
            delta: plan.delta(),
            looks: None,
            grid_step: paper.then(|| plan.grid().clone()),
            at_never: paper.then(|| plan.at_never()),
            screen_by: (plan.screen_by() != Default::default()).then(|| plan.screen_by()),
            score: self.score().clone(),
            t_max: self.t_max(),
            lengths: Some(lengths),
            classes: survey.classes(),
            thresholds: Thresholds::never(self.t_max()),
            expected: None,
            late_accuracy: None,
            fitted_on: self.record.fitted_on,
            screened_on: self.record.screened_on,
            certified_on: None,
            split: (self.is_split() || plan.terms().weight.is_some()).then(|| *plan.split()),
            classifier: self.record.classifier.clone(),
            class_names: self.record.class_names.clone(),
            families: Vec::new(),
            chosen: None,
            seal: None,
            sketch: Sketched::default(),
            sketch_by_chance: 0.0,
            trail: Vec::new(),
        }
    }
}

/// Why a stored proposal cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the candidates contradict their record: {0}")]
pub struct ProposalError(&'static str);

impl TryFrom<StoredProposal> for Proposal {
    type Error = ProposalError;

    fn try_from(record: StoredProposal) -> Result<Self, ProposalError> {
        let proposal = Self::of(record);
        match proposal.contradiction() {
            Some(what) => Err(ProposalError(what)),
            None => Ok(proposal),
        }
    }
}

impl From<Proposal> for StoredProposal {
    fn from(proposal: Proposal) -> Self {
        proposal.record
    }
}

impl Proposal {
    fn contradiction(&self) -> Option<&'static str> {
        let record = &self.record;
        let t_max = self.t_max();
        if self.candidates().any(|c| c.t_max() != t_max) || t_max == 0 {
            return Some("they are not for the same number of steps, at least one");
        }
        let shares = record.families.iter().map(|family| family.share);
        if !spend_delta(shares) {
            return Some("the shares of delta are more than all of it");
        }
        let kinds: Vec<FamilyKind> = record.families.iter().map(|f| f.kind).collect();
        let method = record.plan.method();
        let of_method = match method.family() {
            Some(own) => kinds == [own],
            None => method.promise().is_some() && !kinds.iter().any(|kind| kind.is_nested()),
        };
        if !of_method {
            return Some("the families are not those of the method");
        }
        let mut others = record.families.iter().filter_map(|f| f.score.as_ref());
        if let Some(first) = others.next()
            && others.any(|score| score != first)
        {
            return Some("the families judge more than two scores");
        }
        let paper = record.plan.method() != Method::Adaptive;
        if paper && !self.candidates().all(|c| c.on(record.plan.grid())) {
            return Some("a threshold is not on the grid");
        }
        if record.groups.is_empty() != record.plan.terms().by.is_none()
            || !record.groups.is_sorted()
        {
            return Some("the groups are not those of the plan");
        }
        let (loss, by_unit) = (record.plan.terms().loss, record.plan.terms().unit.is_some());
        let proven = match &record.proof {
            Proof::Binomial => !by_unit,
            Proof::Bets(_) => by_unit || !loss.is_binary(),
            Proof::FewLabels { .. } => loss == Loss::Gap && !by_unit && !paper,
        };
        if !proven || !record.proof.is_sound() {
            return Some("the test is not one for the plan's loss");
        }
        let rising = |costs: &Vec<f64>| costs.len() == t_max && costs.is_sorted();
        if !record.costs.as_ref().is_none_or(rising) {
            return Some("the costs do not rise from step to step");
        }
        if record.aside.is_some() != record.plan.split().splits() {
            return Some("a split, but not what was set aside, or the reverse");
        }
        let set_aside = record.aside.map_or(0, |aside| aside.set.sequences);
        if record.all.is_some_and(|all| all.sequences < set_aside) {
            return Some("more traces were set aside than there were");
        }
        None
    }
}
