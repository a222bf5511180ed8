//! The one corridor from sequences to a rule:
//!
//! ```text
//! Plan ──fix──▶ Proposal ──count──▶ Evidence ──certify──▶ Rule
//! ```
//!
//! Every door goes through [`Plan::calibrate`], wherever its sequences come from; or
//! through its two halves, if the evidence is gathered elsewhere.

use std::collections::BTreeMap;

use crate::certify::drawn::{Drawn, Held, Share};
use crate::certify::evidence::Evidence;
use crate::certify::source::{Parts, Room, Source, Wanted};
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
    /// The sequences that will certify, if they are not in `traces`.
    pub to_certify: Option<ToCertify>,
    /// The classifier that produced all of them, if known.
    pub classifier: Option<Classifier>,
}

impl<'s, S> Inputs<'s, S> {
    /// One set; parts of it are set aside as needed.
    pub fn one(traces: &'s S) -> Self {
        Self {
            traces,
            fit: None,
            screen: None,
            to_certify: None,
            classifier: None,
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

    /// Fits to, or screens on, all sequences: others will certify.
    pub fn to_certify(self, others: ToCertify) -> Self {
        Self {
            to_certify: Some(others),
            ..self
        }
    }
}

/// Sequences that will certify, and are not at hand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToCertify {
    /// They have up to this many steps, or as many as the longest at hand.
    pub t_max: usize,
    /// About how many there will be; by default as many as are at hand.
    pub sequences: Option<u64>,
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
    /// The whole set, if it was held while it was fitted to.
    held: Option<Held>,
    warnings: Vec<Warning>,
}

impl Plan {
    /// Goes from sequences to a rule.
    pub fn calibrate<S: Source>(&self, given: Inputs<'_, S>) -> Result<Calibrated, S::Error> {
        let traces = given.traces;
        if given.to_certify.is_some() {
            return Err(traces.refuse(CalibrateError::Empty("certifying")));
        }
        let Fixed {
            proposal,
            parts,
            held,
            mut warnings,
        } = self.fix_for(&given, true)?;
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
            // An error is met again where it has a place.
            _ => match held.map(|held| held.count(&proposal)) {
                Some(Ok(evidence)) => evidence,
                _ => traces.count(&proposal)?,
            },
        };
        if evidence.alike() > 0 {
            warnings.push(Warning::Alike(evidence.alike()));
        }
        let rule = proposal
            .certify(&evidence)
            .map_err(|e| traces.refuse(e.into()))?;
        Ok(Calibrated { rule, warnings })
    }

    /// The first half: fixes what will be certified on the sequences of `given.traces` that
    /// are not set aside, or on others.
    pub fn propose<S: Source>(
        &self,
        given: Inputs<'_, S>,
    ) -> Result<(Proposal, Vec<Warning>), S::Error> {
        if self.method() == Method::ScreenOnly {
            return Err(given.traces.refuse(CalibrateError::NoPromise));
        }
        let fixed = match given.to_certify {
            None => self.fix_for(&given, false)?,
            Some(_) if self.fits() && self.screens() => {
                return Err(given.traces.refuse(CalibrateError::TwoParts));
            }
            Some(_) => self.clone().for_others().fix_for(&given, false)?,
        };
        Ok((fixed.proposal, fixed.warnings))
    }

    /// Reads the sequences that have a role. With `keep` it also holds those that certify, if
    /// there is room.
    fn gather<S: Source>(
        &self,
        given: &Inputs<'_, S>,
        keep: bool,
        warnings: &mut Vec<Warning>,
    ) -> Result<Gathered, S::Error> {
        let traces = given.traces;
        let refuse = |e: CalibrateError| traces.refuse(e);
        // A source may hold what it reads from here on.
        let room = match given.to_certify {
            None => traces.room(self.grid())?,
            Some(_) => Room::All,
        };
        // If others certify, all of these have one role.
        let (fit_to, screen_on) = match given.to_certify {
            None => (given.fit, given.screen.filter(|_| self.screens())),
            Some(_) if self.fits() => (Some(traces), None),
            Some(_) => (None, Some(traces)),
        };
        let fit = match self.fits() {
            true => Some(fit_to.unwrap_or(traces).fitting(Share {
                share: self.split().fit_fraction.filter(|_| fit_to.is_none()),
                seed: match given.to_certify {
                    None => self.split().seed,
                    Some(_) => 0,
                },
                who: self.admission(),
                again: fit_to.is_none() && (keep || self.screens()),
            })?),
            false => None,
        };
        let mut gathered = Gathered {
            fit,
            fits_to_others: fit_to.is_some(),
            to_certify: given.to_certify,
            ..Gathered::default()
        };
        let fitting = gathered.fit.as_ref().map(|drawn| &drawn.fitting);
        // The score, if it must be known beforehand; `adaptive` chooses its own.
        gathered.score = match self.score() {
            Some(ScoreSource::Gap(())) if self.method() != Method::Adaptive => {
                Some(score_of(self, fitting, &Survey::default()).map_err(refuse)?)
            }
            word => word.and_then(ScoreSource::plain),
        };

        // The screening sequences: another set, or a part of this one.
        let none = Others::default();
        let all = Some(SetAside::share(1.0, 0));
        let wanted = Wanted {
            fit: None,
            screen: all,
            sample: None,
            keep: false,
            score: gathered.score.as_ref(),
            grid: self.grid(),
            others: &none,
            who: self.admission(),
        };
        if let Some(other) = screen_on {
            let sample = sample(other.room(self.grid())?, all, warnings);
            gathered.screened = Some(other.parts(&Wanted { sample, ..wanted })?);
        }
        let (sketch, named) = sketched(gathered.other_fit(), &gathered.screened);
        gathered.others = Others::new(sketch, named);
        if given.to_certify.is_some() {
            let surveys = [
                gathered.fit.as_ref().map(|drawn| &drawn.survey),
                gathered.screened.as_ref().map(|parts| &parts.survey),
            ];
            gathered.survey = surveys
                .into_iter()
                .flatten()
                .next()
                .cloned()
                .unwrap_or_default();
            return Ok(gathered);
        }

        // The rest of the set that certifies.
        if self.terms().unit.is_some() && !traces.counts_units(self.grid())? {
            return Err(refuse(CalibrateError::UnitsNeedMemory));
        }
        gathered.screen = match self.method().promise() {
            None => all,
            Some(_) => self.split().screens(),
        };
        gathered.keep = keep && room == Room::All && self.method() != Method::Adaptive;
        if gathered.keep || gathered.screen.is_some() {
            let wanted = Wanted {
                fit: gathered.own_fit().map(|drawn| drawn.aside),
                screen: gathered.screen,
                sample: sample(room, gathered.screen, warnings),
                keep: gathered.keep,
                others: &gathered.others,
                ..wanted
            };
            let held = gathered.own_fit().and_then(|drawn| drawn.held.as_ref());
            gathered.parts = Some(match held.map(|held| held.parts(&wanted)) {
                Some(Ok(parts)) => parts,
                _ => traces.parts(&wanted)?,
            });
        }
        gathered.survey = match (&gathered.parts, gathered.own_fit()) {
            (Some(parts), _) => parts.survey.clone(),
            (None, Some(drawn)) => drawn.survey.clone(),
            (None, None) => traces.survey(self.admission())?,
        };
        Ok(gathered)
    }

    /// Refuses parts that do not go together, or that lack something.
    fn check_parts(
        &self,
        gathered: &Gathered,
        certifying: &Survey,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), CalibrateError> {
        let survey = &gathered.survey;
        for (role, other) in [
            ("fit to", gathered.other_fit().map(|drawn| &drawn.survey)),
            (
                "screen on",
                gathered.screened.as_ref().map(|parts| &parts.survey),
            ),
        ] {
            if let Some(other) = other.filter(|_| gathered.to_certify.is_none()) {
                compare(role, other, survey, warnings)?;
            }
        }
        let screening = gathered.screening(self);
        if self.split().splits() {
            let own_fit = gathered.own_fit();
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
                return Err(CalibrateError::TooFew { n, missing });
            }
        }
        check_terms(self, certifying)?;
        let fitting = gathered.fit.as_ref().map(|drawn| &drawn.fitting);
        if let Some(fitting) = fitting.filter(|_| self.method() == Method::Adaptive) {
            groups_of(fitting, self, certifying, !gathered.fits_to_others)?;
        }
        if let Some(parts) = screening {
            let screens = |group: &str| {
                let set = parts.screening.get(group);
                set.map_or(0, |set| set.traces().len())
            };
            let same_set = self.method() == Method::Conditional && gathered.screened.is_none();
            check_groups(self, certifying, "screening", same_set, screens)?;
        }
        Ok(())
    }

    /// Fixes the proposal.
    fn fix_from(
        &self,
        gathered: Gathered,
        warnings: &mut Vec<Warning>,
    ) -> Result<(Proposal, Option<Parts>), CalibrateError> {
        // The proposal may know only how many certifying sequences there are and how long.
        let certifying = gathered.certifying();
        self.check_parts(&gathered, &certifying, warnings)?;
        let plain = || gathered.survey.plain_source();
        let judged = gathered.score.clone().unwrap_or_else(plain);
        let fitting = gathered.fit.as_ref().map(|drawn| &drawn.fitting);
        let screening = gathered.screening(self);
        let screening: Option<Vec<&Screening>> =
            screening.map(|parts| parts.screening.values().collect());
        let mut proposal = Proposal::new(self, judged, fitting, screening.as_deref(), &certifying)?;
        let aside = self.split().splits().then(|| Aside {
            fit: gathered.own_fit().map(|drawn| drawn.aside),
            screen: gathered.screen,
            set: gathered.set_aside(),
        });
        // If more sequences are to come, it is not known beforehand what else will be left
        // out, so a sample of what was set aside must do.
        let others = if aside.is_none() || self.looks().is_empty() {
            gathered.others
        } else {
            let screened = gathered.screened.iter().chain(&gathered.parts);
            let (sketch, named) = sketched(gathered.fit.as_ref(), screened);
            let own = !gathered.fits_to_others && gathered.screened.is_none();
            match own && named {
                true => Others::set_aside(sketch),
                false => Others::new(sketch, named),
            }
        };
        if gathered.to_certify.is_none() {
            proposal = proposal.of_all(gathered.survey.set, aside);
        }
        let keep = gathered.keep || self.method() == Method::ScreenOnly;
        let parts = gathered.parts.filter(|_| keep);
        Ok((proposal.without_sequences(others), parts))
    }

    /// Makes a proposal, and holds the parts that can be counted in memory.
    fn fix_for<S: Source>(&self, given: &Inputs<'_, S>, keep: bool) -> Result<Fixed, S::Error> {
        let mut warnings = Vec::new();
        let mut gathered = self.gather(given, keep, &mut warnings)?;
        let held = gathered.fit.as_mut().and_then(|drawn| drawn.held.take());
        let fixed = self.fix_from(gathered, &mut warnings);
        let (proposal, parts) = fixed.map_err(|e| given.traces.refuse(e))?;
        Ok(Fixed {
            proposal: proposal.with_classifier(given.classifier.clone()),
            parts,
            held,
            warnings,
        })
    }
}

/// The sequences that were read, by their roles.
#[derive(Default)]
struct Gathered {
    /// The score, if it is known before candidates are proposed.
    score: Option<ScoreSource>,
    fit: Option<Drawn>,
    /// Whether the fitting sequences are another set than the one that certifies.
    fits_to_others: bool,
    /// Another set to screen on.
    screened: Option<Parts>,
    /// The parts of the set that certifies.
    parts: Option<Parts>,
    /// Which sequences of that set screen.
    screen: Option<SetAside>,
    /// Whether the certifying sequences are among the parts.
    keep: bool,
    /// A sample of the sequences of other sets, which must not certify.
    others: Others,
    /// The survey of the set that certifies or, if that is not at hand, of this one.
    survey: Survey,
    to_certify: Option<ToCertify>,
}

impl Gathered {
    fn own_fit(&self) -> Option<&Drawn> {
        self.fit.as_ref().filter(|_| !self.fits_to_others)
    }

    fn other_fit(&self) -> Option<&Drawn> {
        self.fit.as_ref().filter(|_| self.fits_to_others)
    }

    fn screening(&self, plan: &Plan) -> Option<&Parts> {
        let own = self.parts.as_ref().filter(|_| self.screen.is_some());
        self.screened.as_ref().or(own).filter(|_| plan.screens())
    }

    /// All sequences of the certifying set that do not certify.
    fn set_aside(&self) -> SetSummary {
        let fit = self.own_fit().map(|drawn| drawn.fitting.summary());
        let own = self.parts.as_ref().filter(|_| self.screen.is_some());
        fit.unwrap_or_default() + own.map_or_else(SetSummary::default, |parts| parts.screens)
    }

    /// The survey of the sequences that certify.
    fn certifying(&self) -> Survey {
        let mut survey = self.survey.clone();
        let here = survey
            .sequences()
            .saturating_sub(self.set_aside().sequences);
        let Some(others) = self.to_certify else {
            return of_size(survey, here);
        };
        survey.longest = survey.longest.max(others.t_max);
        of_size(survey, others.sequences.unwrap_or(here))
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
        evidence.sketch = parts.sample;
        evidence.left_out = parts.left_out;
        evidence.overlap = parts.overlap;
        for (group, certifying) in &parts.certifying {
            let traces = certifying.traces();
            let place = match self.groups().is_empty() {
                true => 0,
                false => self.place_of(Some(group))?,
            };
            evidence.counted += traces.summary();
            evidence.unlabelled += traces.len() as u64 - traces.labelled();
            self.count_tally(&mut evidence, Role::Certify, place, traces)?;
        }
        Ok(evidence)
    }
}
