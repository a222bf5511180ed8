//! The one corridor from sequences to a rule:
//!
//! ```text
//! Plan ──fix──▶ Proposal ──count──▶ Evidence ──certify──▶ Rule
//! ```
//!
//! Every door goes through [`Plan::calibrate`], wherever its sequences come from; or
//! through its two halves, if the evidence is gathered elsewhere.

use std::collections::BTreeMap;

use crate::certify::evidence::Evidence;
use crate::certify::source::{Drawn, Parts, Room, Share, Source, Wanted};
use crate::data::agreement::Doubt;
use crate::data::identity::{Classifier, Others, SetAside, SetSummary, Sketch};
use crate::data::roles::{Fitting, Screening};
use crate::data::score::ScoreSource;
use crate::data::survey::Survey;
use crate::plan::{Method, Plan};
use crate::propose::error::CalibrateError;
use crate::propose::proposal::{Aside, Proposal, Role, check_terms, score_of};
use crate::rule::Rule;

/// The sets that a plan works on.
#[derive(Debug)]
pub struct Inputs<'s, S> {
    /// The certifying sequences, and those that are set aside from them.
    pub traces: &'s S,
    /// Other sequences to fit to.
    pub fit: Option<&'s S>,
    /// Other sequences to screen on.
    pub screen: Option<&'s S>,
    /// The classifier that produced all of them, if known.
    pub classifier: Option<Classifier>,
    /// The names of its classes, in the order of the probabilities, if they are given.
    pub class_names: Option<Vec<String>>,
}

impl<'s, S> Inputs<'s, S> {
    /// One set; parts of it are set aside as needed.
    pub fn one(traces: &'s S) -> Self {
        Self {
            traces,
            fit: None,
            screen: None,
            classifier: None,
            class_names: None,
        }
    }

    /// Fits to other sequences.
    pub fn fit(self, other: &'s S) -> Self {
        Self {
            fit: Some(other),
            ..self
        }
    }

    /// Screens on other sequences.
    pub fn screen(self, other: &'s S) -> Self {
        Self {
            screen: Some(other),
            ..self
        }
    }
}

/// A rule, and what you should know about how it was made.
#[derive(Debug)]
pub struct Calibrated {
    /// The rule.
    pub rule: Rule,
    /// Points to check.
    pub warnings: Vec<Warning>,
}

/// Something to check.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// This many certifying sequences are identical, step for step, to sequences that
    /// the candidates were made from. If they are the same, nothing is guaranteed.
    Alike(u64),
    /// The two sets have sequences of different lengths.
    Lengths {
        /// The purpose of the other set.
        role: &'static str,
        /// Its shortest and longest length.
        other: (usize, usize),
        /// The shortest and longest length that certify.
        certifying: (usize, usize),
    },
    /// Labels and predictions may number the classes in different ways.
    Labels(Doubt),
    /// Only this share of the sequences was screened on: the share that fits into memory.
    Sampled(f64),
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let steps = |(shortest, longest): &(usize, usize)| match shortest == longest {
            true => format!("{longest}"),
            false => format!("{shortest} to {longest}"),
        };
        match self {
            Self::Alike(n) => write!(
                f,
                "{n} certifying {are} identical, step for step, to sequences that the candidates \
                 were made from; if they are the same sequences, nothing is guaranteed: drop them \
                 from one of the two",
                are = if *n == 1 {
                    "sequence is"
                } else {
                    "sequences are"
                }
            ),
            Self::Lengths {
                role,
                other,
                certifying,
            } => write!(
                f,
                "the traces to {role} have {} steps, those to certify on {}{}",
                steps(other),
                steps(certifying),
                if other.1 < certifying.1 {
                    "; the rule will halt at no step that the former lack"
                } else {
                    ""
                }
            ),
            Self::Labels(doubt) => doubt.fmt(f),
            Self::Sampled(share) => write!(
                f,
                "screened on {:.1}% of the traces, which fits into memory",
                100.0 * share
            ),
        }
    }
}

/// The proposal, and the parts in memory that are ready to be counted.
struct Fixed {
    proposal: Proposal,
    parts: Option<Parts>,
    warnings: Vec<Warning>,
}

impl Plan {
    /// Goes from sequences to a rule.
    pub fn calibrate<S: Source>(&self, given: Inputs<'_, S>) -> Result<Calibrated, S::Error> {
        let traces = given.traces;
        let Fixed {
            proposal,
            parts,
            mut warnings,
        } = self.fixed(given, true)?;
        if self.method() == Method::ScreenOnly {
            let survey = parts.map_or_else(Survey::default, |parts| parts.survey);
            let rule = proposal.screened_rule(&survey);
            return Ok(Calibrated { rule, warnings });
        }
        let usual = proposal.proof().is_binomial();
        let evidence = match parts {
            Some(parts) if usual => {
                let counted = proposal.count_parts_at_hand(parts);
                counted.map_err(|e| traces.refuse(e))?
            }
            _ => traces.count(&proposal)?,
        };
        if evidence.alike() > 0 {
            warnings.push(Warning::Alike(evidence.alike()));
        }
        let doubts = proposal.doubts(&evidence).into_iter();
        warnings.extend(doubts.map(Warning::Labels));
        let rule = proposal
            .certify(&evidence)
            .map_err(|e| traces.refuse(e.into()))?;
        Ok(Calibrated { rule, warnings })
    }

    /// The first half: fixes what will be certified on the sequences of `given.traces` that
    /// are not set aside.
    pub fn propose<S: Source>(
        &self,
        given: Inputs<'_, S>,
    ) -> Result<(Proposal, Vec<Warning>), S::Error> {
        if self.method() == Method::ScreenOnly {
            return Err(given.traces.refuse(CalibrateError::NoPromise));
        }
        let fixed = self.fixed(given, false)?;
        Ok((fixed.proposal, fixed.warnings))
    }

    /// Does the same if other sequences will certify. They have up to `t_max` steps, or as
    /// many as the longest of these; and there are this many of them, or as many as of
    /// these.
    pub fn propose_for_others<S: Source>(
        &self,
        given: Inputs<'_, S>,
        t_max: usize,
        certifying: Option<u64>,
    ) -> Result<(Proposal, Vec<Warning>), S::Error> {
        let source = given.traces;
        let refuse = |e: CalibrateError| source.refuse(e);
        if self.method() == Method::ScreenOnly {
            return Err(refuse(CalibrateError::NoPromise));
        }
        let plan = self.clone().for_others();
        if plan.fits() && plan.screens() {
            return Err(refuse(CalibrateError::TwoParts));
        }
        let mut warnings = Vec::new();
        let (mut survey, made_from, proposal);
        if plan.fits() {
            let drawn = source.fitting(Share {
                share: None,
                seed: 0,
                who: self.admission(),
            })?;
            survey = drawn.survey.clone();
            survey.longest = survey.longest.max(t_max);
            let n = certifying.unwrap_or(survey.set.sequences);
            survey = of_size(survey, n);
            groups_of(&drawn.fitting, self, &survey, false).map_err(refuse)?;
            made_from = sketched(Some(&drawn), None);
            let score = score_of(&plan, Some(&drawn.fitting), &survey).map_err(refuse)?;
            proposal = Proposal::new(&plan, score, Some(&drawn.fitting), None, &survey);
        } else {
            let score = plan.score().and_then(ScoreSource::plain);
            let screen = Some(SetAside::share(1.0, 0));
            let parts = source.parts(&Wanted {
                fit: None,
                screen,
                sample: sample(source.room(plan.grid())?, screen, &mut warnings),
                keep: false,
                score: score.as_ref(),
                grid: plan.grid(),
                others: &Others::default(),
                who: self.admission(),
            })?;
            survey = parts.survey.clone();
            survey.longest = survey.longest.max(t_max);
            made_from = sketched(None, Some(&parts));
            let groups: Vec<&Screening> = parts.screening.values().collect();
            let screening = Some(&groups[..]).filter(|_| plan.screens());
            let score = score.clone().unwrap_or_else(|| survey.plain_source());
            proposal = Proposal::new(&plan, score, None, screening, &survey);
        }
        let proposal = proposal.map_err(refuse)?;
        let (sketch, named) = made_from;
        let proposal = proposal
            .without_sequences(Others::new(sketch, named))
            .with_classifier(given.classifier)
            .with_class_names(given.class_names);
        Ok((proposal, warnings))
    }

    fn fixed<S: Source>(&self, given: Inputs<'_, S>, keep: bool) -> Result<Fixed, S::Error> {
        let traces = given.traces;
        let refuse = |e: CalibrateError| traces.refuse(e);
        let mut warnings = Vec::new();

        // The fitting sequences, and the score if it must be known beforehand; `adaptive`
        // chooses its own.
        let fit = self.drawn(&given)?;
        let (own_fit, other_fit) = match given.fit {
            None => (fit.as_ref(), None),
            Some(_) => (None, fit.as_ref()),
        };
        let fitting = fit.as_ref().map(|drawn| &drawn.fitting);
        let score = match self.score() {
            Some(ScoreSource::Gap(())) if self.method() != Method::Adaptive => {
                Some(score_of(self, fitting, &Survey::default()).map_err(refuse)?)
            }
            word => word.and_then(ScoreSource::plain),
        };

        // The screening sequences: another set, or a part of this one.
        let none = Others::default();
        let wanted = Wanted {
            fit: None,
            screen: Some(SetAside::share(1.0, 0)),
            sample: None,
            keep: false,
            score: score.as_ref(),
            grid: self.grid(),
            others: &none,
            who: self.admission(),
        };
        let screened = match given.screen.filter(|_| self.screens()) {
            Some(other) => {
                let sample = sample(other.room(self.grid())?, wanted.screen, &mut warnings);
                Some(other.parts(&Wanted { sample, ..wanted })?)
            }
            None => None,
        };
        let (sketch, named) = sketched(other_fit, &screened);
        let others = Others::new(sketch, named);
        let screen = match self.method().promise() {
            None => wanted.screen,
            Some(_) => self.split().screens(),
        };
        let room = traces.room(self.grid())?;
        if self.terms().unit.is_some() && !traces.counts_units(self.grid())? {
            return Err(refuse(CalibrateError::UnitsNeedMemory));
        }
        let keep = keep && room == Room::All && self.method() != Method::Adaptive;
        let wanted = Wanted {
            fit: own_fit.map(|drawn| drawn.aside),
            screen,
            sample: sample(room, screen, &mut warnings),
            keep,
            others: &others,
            ..wanted
        };
        let parts = match keep || screen.is_some() {
            true => Some(traces.parts(&wanted)?),
            false => None,
        };
        let survey = match (&parts, own_fit) {
            (Some(parts), _) => parts.survey.clone(),
            (None, Some(drawn)) => drawn.survey.clone(),
            (None, None) => traces.survey(self.admission())?,
        };
        for (role, other) in [
            ("fit to", other_fit.map(|drawn| &drawn.survey)),
            ("screen on", screened.as_ref().map(|parts| &parts.survey)),
        ] {
            if let Some(other) = other {
                compare(role, other, &survey, &mut warnings).map_err(refuse)?;
            }
        }

        // The proposal may know only how many certifying sequences there are and how long.
        let screening = screened
            .as_ref()
            .or(parts.as_ref().filter(|_| screen.is_some()));
        let set_aside = own_fit.map_or_else(SetSummary::default, |drawn| drawn.fitting.record())
            + match (&parts, screen) {
                (Some(parts), Some(_)) => parts.screens,
                _ => SetSummary::default(),
            };
        let certifying = survey.sequences().saturating_sub(set_aside.sequences);
        let certifying = of_size(survey.clone(), certifying);
        if self.split().splits() {
            let missing = if own_fit.is_some_and(|drawn| drawn.fitting.is_empty()) {
                Some("fitting")
            } else if screening.is_some_and(screens_on_none) {
                Some("screening")
            } else {
                let none = certifying.sequences() == 0 && self.method() != Method::ScreenOnly;
                none.then_some("certifying")
            };
            if let Some(missing) = missing {
                let n = survey.sequences();
                return Err(refuse(CalibrateError::TooFew { n, missing }));
            }
        }
        let judged = score.clone().unwrap_or_else(|| survey.plain_source());
        check_terms(self, &certifying).map_err(refuse)?;
        if let Some(fitting) = fitting.filter(|_| self.method() == Method::Adaptive) {
            let same_set = given.fit.is_none();
            groups_of(fitting, self, &certifying, same_set).map_err(refuse)?;
        }
        let screening: Option<Vec<&Screening>> = match screening {
            None => None,
            Some(parts) => {
                let screens = |group: &str| {
                    let set = parts.screening.get(group);
                    set.map_or(0, |set| set.traces().len())
                };
                let same_set = self.method() == Method::Conditional && given.screen.is_none();
                check_groups(self, &certifying, "screening", same_set, screens).map_err(refuse)?;
                Some(parts.screening.values().collect())
            }
        };
        let screening = screening.as_deref();
        let proposal =
            Proposal::new(self, judged, fitting, screening, &certifying).map_err(refuse)?;
        let aside = self.split().splits().then_some(Aside {
            fit: wanted.fit,
            screen,
            set: set_aside,
        });
        // If more sequences are to come, it is not known beforehand what else will be left
        // out, so a sample of what was set aside must do.
        let others = match aside.is_none() || self.looks().is_empty() {
            true => others,
            false => {
                let (sketch, named) = sketched(fit.as_ref(), screened.iter().chain(&parts));
                let own = given.fit.is_none() && given.screen.is_none();
                match own && named {
                    true => Others::set_aside(sketch),
                    false => Others::new(sketch, named),
                }
            }
        };
        Ok(Fixed {
            proposal: proposal
                .of_all(survey.set, aside)
                .without_sequences(others)
                .with_classifier(given.classifier)
                .with_class_names(given.class_names),
            parts: parts.filter(|_| keep || self.method() == Method::ScreenOnly),
            warnings,
        })
    }

    /// Draws the sequences to fit to, if any are needed.
    fn drawn<S: Source>(&self, given: &Inputs<'_, S>) -> Result<Option<Drawn>, S::Error> {
        if !self.fits() {
            return Ok(None);
        }
        let seed = self.split().seed;
        let share = self.split().fit_fraction;
        let from = given.fit.unwrap_or(given.traces);
        let share = share.filter(|_| given.fit.is_none());
        let who = self.admission();
        from.fitting(Share { share, seed, who }).map(Some)
    }
}

fn screens_on_none(parts: &Parts) -> bool {
    parts.screening.values().all(|set| set.traces().is_empty())
}

/// Returns the same survey with this many sequences, if the number is known.
fn of_size(mut survey: Survey, n: u64) -> Survey {
    let all = survey.sequences();
    if survey.unlabelled > 0 && survey.unlabelled < all {
        let share = survey.unlabelled as f64 / all as f64;
        let most = n.saturating_sub(1).max(1);
        survey.unlabelled = ((share * n as f64).round() as u64).clamp(1, most);
    } else if survey.unlabelled > 0 {
        survey.unlabelled = n;
    }
    survey.set.sequences = n;
    survey
}

/// Refuses a group that has no fitting sequence; and, if other sequences of the same set
/// certify, a group that has only fitting sequences.
fn groups_of(
    fitting: &Fitting,
    plan: &Plan,
    all: &Survey,
    same_set: bool,
) -> Result<(), CalibrateError> {
    let outputs = fitting.outputs();
    let mut fit: BTreeMap<String, usize> = BTreeMap::new();
    for i in (0..outputs.len()).take_while(|_| !all.groups.is_empty()) {
        let trace = outputs.trace(i);
        let group = plan.terms().group(&trace).unwrap_or_default();
        *fit.entry(group.into_owned()).or_default() += 1;
    }
    let of_group = |group: &str| fit.get(group).copied().unwrap_or(0);
    check_groups(plan, all, "fitting", same_set, of_group)
}

/// Refuses a group if a part has none of its sequences, or, in the same set, has all of
/// them.
fn check_groups(
    plan: &Plan,
    all: &Survey,
    role: &'static str,
    same_set: bool,
    in_part: impl Fn(&str) -> usize,
) -> Result<(), CalibrateError> {
    let lost = |group: &String, role| CalibrateError::LostGroup {
        by: plan.terms().by.clone().unwrap_or_default(),
        group: group.clone(),
        role,
    };
    for (group, &n) in &all.groups {
        match in_part(group) {
            0 => return Err(lost(group, role)),
            part if same_set && part as u64 >= n => return Err(lost(group, "certifying")),
            _ => {}
        }
    }
    Ok(())
}

/// Returns as many of the screening sequences as there is room for; `None` is all.
fn sample(room: Room, screen: Option<SetAside>, warnings: &mut Vec<Warning>) -> Option<SetAside> {
    let (Room::Share(share), Some(part)) = (room, screen) else {
        return None;
    };
    let fits = SetAside::share(share, part.seed);
    if fits.below >= part.below {
        return None;
    }
    warnings.push(Warning::Sampled(share));
    Some(fits)
}

/// Samples the sequences that candidates are made from, and says whether all of them have
/// ids.
fn sketched<'k>(
    fit: Option<&Drawn>,
    screened: impl IntoIterator<Item = &'k Parts>,
) -> (Sketch, bool) {
    let mut sketch = Sketch::new(Sketch::OF_A_PROPOSAL);
    let mut named = true;
    if let Some(drawn) = fit {
        drawn.fitting.sketch(&mut sketch);
        named &= drawn.survey.nameless == 0;
    }
    for parts in screened {
        sketch.add(&parts.sketch);
        named &= parts.survey.nameless == 0;
    }
    (sketch, named)
}

/// Refuses sets of different classifiers, as far as they can be told apart, and warns if
/// lengths differ.
fn compare(
    role: &'static str,
    other: &Survey,
    certifying: &Survey,
    warnings: &mut Vec<Warning>,
) -> Result<(), CalibrateError> {
    if other.classes() != certifying.classes() {
        let words = |survey: &Survey| match (survey.classes(), survey.most_classes) {
            (Some(classes), _) => classes.to_string(),
            (None, 0) => "no".into(),
            (None, _) => "varying numbers of".into(),
        };
        return Err(CalibrateError::Classes {
            role,
            found: words(other),
            expected: words(certifying),
        });
    }
    let lengths = |survey: &Survey| (survey.shortest, survey.longest);
    if other.longest != certifying.longest {
        warnings.push(Warning::Lengths {
            role,
            other: lengths(other),
            certifying: lengths(certifying),
        });
    }
    Ok(())
}

impl Proposal {
    /// Counts the parts that stayed in memory while the proposal was made.
    fn count_parts_at_hand(&self, parts: Parts) -> Result<Evidence, CalibrateError> {
        let mut evidence = Evidence::none(self)?;
        evidence.survey = parts.survey;
        evidence.agreement = parts.agreement;
        evidence.sketch = parts.sample;
        evidence.left_out = parts.left_out;
        evidence.overlap = parts.overlap;
        for (group, certifying) in &parts.certifying {
            let traces = certifying.traces();
            let place = match self.groups().is_empty() {
                true => 0,
                false => self.place_of(Some(group))?,
            };
            evidence.counted += traces.record();
            evidence.unlabelled += traces.len() as u64 - traces.labelled();
            self.count_tally(&mut evidence, Role::Certify, place, traces)?;
        }
        Ok(evidence)
    }
}
