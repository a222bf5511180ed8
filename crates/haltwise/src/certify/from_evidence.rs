//! The end of the corridor: turns evidence into a rule, or says why there is none.

use crate::certify::evidence::Evidence;
use crate::data::agreement::{Doubt, LabelCheck};
use crate::data::identity::SetSummary;
use crate::data::loss::TOP;
use crate::data::score::ScoreSource;
use crate::numbers::counts::{Counts, add_counts};
use crate::numbers::thresholds::Thresholds;
use crate::propose::families::Family;
use crate::propose::proposal::Proposal;
use crate::propose::shares::GroupShares;
use crate::rule::{Expected, Looks, Rule, RuleRecord, TestedFamily};
use crate::tables::candidates::FamilyKind;
use crate::tables::error::EvidenceError;
use crate::tables::table::Table;
use crate::testing::fixed_sequence::{Judge, Promise, Proof, certify};

/// The rule that is used, among all that passed.
struct Chosen<'p> {
    /// The place of its test in the trail, counted from 1.
    place: usize,
    score: Option<&'p ScoreSource>,
    thresholds: Thresholds,
    expected: Expected,
    /// The groups for which it passed, if it was tested for each alone.
    halts_in: Option<Vec<String>>,
}

/// How p-values are computed for families that depend on the fitting traces, and for those
/// that are the same for all data.
struct Judges<'j> {
    learned: &'j Judge<'j>,
    unlearned: &'j Judge<'j>,
}

impl<'j> Judges<'j> {
    fn of(&self, kind: FamilyKind) -> &'j Judge<'j> {
        match kind.is_same_for_all_data() {
            true => self.unlearned,
            false => self.learned,
        }
    }
}

/// How many sequences these tables count.
fn sequences(tables: &[Vec<&Table>]) -> u64 {
    tables.iter().map(|tallies| tallies[0].sequences()).sum()
}

impl Proposal {
    /// Refuses evidence that cannot be added to other evidence and certified. Without ids,
    /// positions identify the sequences that were set aside. So all must be shown at once,
    /// as they were when the proposal was made.
    pub fn check_part(&self, evidence: &Evidence) -> Result<(), EvidenceError> {
        if evidence.proposal != self.digest() {
            return Err(EvidenceError::OtherProposal);
        }
        let tallies = self.tallies();
        let in_family = self.groups().len().max(1) * tallies.len();
        let fits = |(i, table): (usize, &Table)| {
            let family = &self.families()[i / in_family];
            table.is_for(&family.candidates, tallies[i % tallies.len()].tallied)
        };
        if evidence.tables.len() != self.families().len() * in_family
            || !evidence.tables.iter().enumerate().all(fits)
        {
            return Err(EvidenceError::Damaged("its counts are of other candidates"));
        }
        let shown = evidence.shown();
        if evidence.counted + evidence.left_out != shown {
            return Err(EvidenceError::Damaged(
                "it does not count what it was shown",
            ));
        }
        // Counting refuses them by name, but evidence may also come from a file.
        if self.needs_labels() && evidence.survey.unlabelled > 0 {
            return Err(EvidenceError::Unlabelled);
        }
        let plan = self.plan();
        if plan.label_check() == LabelCheck::Refuse
            && plan.terms().loss.needs_label()
            && let Some(doubt) = evidence.agreement.refusal()
        {
            return Err(EvidenceError::Labels(doubt));
        }
        let (counted, left_out) = (evidence.counted.sequences, evidence.left_out.sequences);
        for (family, tables) in self.tables(evidence) {
            let with_fitted = family.kind.is_same_for_all_data() && self.is_split();
            let most = if with_fitted {
                counted + left_out
            } else {
                counted
            };
            let sequences: u64 = tables.iter().map(|tallies| tallies[0].sequences()).sum();
            if !(counted..=most).contains(&sequences) {
                return Err(EvidenceError::Damaged(
                    "it does not count what it was shown",
                ));
            }
        }
        let made_from = |set: SetSummary| set == evidence.counted && set.sequences > 0;
        if self.made_from().any(made_from) {
            return Err(EvidenceError::Same);
        }
        if evidence.overlap.shared > self.others().by_chance() {
            return Err(EvidenceError::Shared(evidence.overlap.shared));
        }
        let twice = evidence.sketch.counted_twice();
        if twice > 0 {
            return Err(EvidenceError::Twice(twice));
        }
        if evidence.survey.nameless > 0 && self.is_split() && Some(shown) != self.all() {
            let remedy = "the sequences have no ids, so they are told apart by their positions: \
                          give them ids, or count all files in one call, in the same order";
            return Err(EvidenceError::Leak { remedy });
        }
        Ok(())
    }

    /// What to ask about the labels: whether they number the classes as the predictions do.
    pub fn doubts(&self, evidence: &Evidence) -> Vec<Doubt> {
        match self.plan().terms().loss.needs_label() {
            true => evidence.agreement.questions(),
            false => Vec::new(),
        }
    }

    /// Certifies the candidates on all the evidence for them, and returns the rule that
    /// halts earliest on the certifying sequences among all that pass.
    ///
    /// The sequences that were set aside did not certify, and this is proven: the
    /// fingerprint of those left out is that of those set aside. If looks were planned and
    /// more sequences came in, more is left out than was set aside, and the proof is of a
    /// sample: each of up to 4096 that were set aside was left out under its id. It cannot
    /// be proven that no certifying sequence is one of them under another id;
    /// [`Evidence::alike`] counts those that may be.
    pub fn certify(&self, evidence: &Evidence) -> Result<Rule, EvidenceError> {
        self.check_part(evidence)?;
        if evidence.counted.sequences == 0 {
            return Err(EvidenceError::None);
        }
        let (shown, looks) = (evidence.shown().sequences, self.plan().looks());
        if looks.first().is_some_and(|&first| shown < first) {
            let (found, first) = (shown, looks[0]);
            return Err(EvidenceError::BeforeLooks { found, first });
        }
        // Looks are for more sequences than there were at first.
        let topped_up = |all: &SetSummary| !looks.is_empty() && shown > all.sequences;
        let all = self.all().filter(|all| *all != evidence.shown());
        if let Some(all) = all.filter(|all| !topped_up(all)) {
            let (found, expected) = (shown, all.sequences);
            if found == expected {
                return Err(EvidenceError::Changed);
            }
            return Err(EvidenceError::Incomplete { found, expected });
        }
        let added = self.all().is_some_and(|all| topped_up(&all));
        let left = |set: SetSummary| match added {
            true => {
                set.sequences <= evidence.left_out.sequences
                    && self.others().are_left_out(evidence.recognised)
            }
            false => set == evidence.left_out,
        };
        if self.set_aside().is_some_and(|set| !left(set)) {
            let remedy = "give every sequence an id that stays the same, and count the same \
                          traces that were read when it was made";
            return Err(EvidenceError::Leak { remedy });
        }
        Ok(self.tested(evidence))
    }

    /// The rule that passes.
    fn tested(&self, evidence: &Evidence) -> Rule {
        let plan = self.plan();
        let mut record = self.rule_record(&evidence.survey);
        let mut best: Option<Chosen<'_>> = None;
        let Some(promise) = plan.promise() else {
            return Rule::from_record(record);
        };
        let most = evidence.shown().sequences;
        record.looks = Looks::of(plan.looks(), most);
        let delta = plan.level_at(record.looks.as_ref().map_or(0, |looks| looks.made));
        let unlearned = self.proof().unlearned();
        let [judge, judge_of_free] =
            [self.proof(), &unlearned].map(|proof| Judge::new(proof, plan.alpha(), delta, most));
        let judges = Judges {
            learned: &judge,
            unlearned: &judge_of_free,
        };
        let shares = GroupShares::of(plan, self.groups().len());
        for (family, tables) in self.tables(evidence) {
            let (share, judge) = (shares.all * family.share, judges.of(family.kind));
            let level = delta.get() * share;
            let tests = certify(&family.candidates, &tables, promise, judge, level);
            let mut passed = tests.iter().enumerate().filter(|(_, test)| test.rejected);
            let expected = |c: usize| (c, self.expected(&tables, c, |_| true));
            let chosen = if family.kind.is_nested() {
                passed.next_back().map(|(c, _)| expected(c))
            } else {
                // Among equals, the last: the boldest.
                let better = |a: (usize, Expected), b: (usize, Expected)| {
                    if b.1.is_no_worse(&a.1) { b } else { a }
                };
                passed.map(|(c, _)| expected(c)).reduce(better)
            };
            if let Some((c, expected)) = chosen
                && best
                    .as_ref()
                    // The last again: future sequences may stay just below a threshold, but
                    // not below the clock.
                    .is_none_or(|best| expected.is_no_worse(&best.expected))
                && let Some(thresholds) = family.candidates.rule(c)
            {
                best = Some(Chosen {
                    place: record.trail.len() + c + 1,
                    score: family.score.as_ref(),
                    thresholds,
                    expected,
                    halts_in: None,
                });
            }
            record.families.push(TestedFamily {
                kind: family.kind,
                share,
                sequences: sequences(&tables),
                tests: tests.len(),
                group: None,
            });
            record.trail.extend(tests);
        }
        if let Some(each) = shares.each
            && !best
                .as_ref()
                .is_some_and(|best| best.thresholds.halt_early())
        {
            let of_some = self.tested_by_group(evidence, promise, &judges, each, &mut record);
            best = of_some.or(best);
        }
        if let Some(chosen) = best {
            record.chosen = Some(chosen.place);
            if let Some(score) = chosen.score {
                record.score = score.clone();
            }
            record.thresholds = chosen.thresholds;
            record.expected = Some(chosen.expected);
            record.halts_in = chosen.halts_in;
        }
        let labelled = evidence
            .counted
            .sequences
            .saturating_sub(evidence.unlabelled);
        let right = evidence.full_right as f64 / labelled as f64;
        record.late_accuracy = (labelled > 0).then_some(right);
        record.certified_on = Some(evidence.counted);
        (record.sketch, record.sketch_by_chance) = evidence.sketch.clone().finish();
        record.seal = Some(record.digest());
        Rule::from_record(record)
    }

    /// Tests the candidates of each family for each group alone, at an equal share of δ, and
    /// returns the one that halts earliest if it halts the groups for which it passed.
    fn tested_by_group<'p>(
        &'p self,
        evidence: &'p Evidence,
        promise: Promise,
        judges: &Judges<'_>,
        each: f64,
        record: &mut RuleRecord,
    ) -> Option<Chosen<'p>> {
        let mut best: Option<Chosen<'_>> = None;
        for (family, tables) in self.tables(evidence) {
            let (share, judge) = (each * family.share, judges.of(family.kind));
            let level = judge.delta().get() * share;
            // How many candidates passed for each group, and where its tests begin.
            let mut groups = Vec::new();
            for (g, own) in tables.chunks(1).enumerate() {
                let mut tests = certify(&family.candidates, own, promise, judge, level);
                tests.iter_mut().for_each(|test| test.group = Some(g));
                let passed = tests.iter().filter(|test| test.rejected).count();
                groups.push((passed, record.trail.len()));
                record.families.push(TestedFamily {
                    kind: family.kind,
                    share,
                    sequences: sequences(own),
                    tests: tests.len(),
                    group: Some(g),
                });
                record.trail.extend(tests);
            }
            let most = groups.iter().map(|(passed, _)| *passed).max();
            for c in 0..most.unwrap_or(0) {
                let halts = |g: usize| c < groups[g].0;
                let expected = self.expected(&tables, c, halts);
                let first = groups.iter().find(|(passed, _)| c < *passed);
                if best
                    .as_ref()
                    .is_none_or(|best| expected.is_no_worse(&best.expected))
                    && let Some((_, start)) = first
                    && let Some(thresholds) = family.candidates.rule(c)
                {
                    let names = self.groups().iter().enumerate();
                    let names = names.filter(|(g, _)| halts(*g));
                    best = Some(Chosen {
                        place: start + c + 1,
                        score: family.score.as_ref(),
                        thresholds,
                        expected,
                        halts_in: Some(names.map(|(_, name)| name.clone()).collect()),
                    });
                }
            }
        }
        best.filter(|best| best.thresholds.halt_early())
    }

    /// The tables of each family, for each group, one per tally.
    fn tables<'e>(
        &'e self,
        evidence: &'e Evidence,
    ) -> impl Iterator<Item = (&'e Family, Vec<Vec<&'e Table>>)> {
        let tallies = self.tallies().len();
        let in_family = self.groups().len().max(1) * tallies;
        let families = self
            .families()
            .iter()
            .zip(evidence.tables.chunks(in_family));
        families.map(move |(family, tables)| {
            let groups = tables.chunks(tallies);
            (family, groups.map(|group| group.iter().collect()).collect())
        })
    }

    /// The effect of a candidate on the certifying sequences, if it halts these groups. The
    /// tables do not say where the others end, so they count as if they had all steps.
    fn expected(
        &self,
        tables: &[Vec<&Table>],
        c: usize,
        halts: impl Fn(usize) -> bool,
    ) -> Expected {
        let sum = |tally: usize| {
            let mut sum = Vec::new();
            for (g, tallies) in tables.iter().enumerate() {
                let row = tallies[tally].halted_at(c);
                sum.resize(row.len(), Counts::default());
                if halts(g) {
                    add_counts(&mut sum, row);
                } else if let Some(last) = sum.last_mut() {
                    last.halted += row.iter().map(|counts| counts.halted).sum::<u64>();
                }
            }
            sum
        };
        let mut expected = Expected::of(&sum(0), self.costs());
        match self.proof() {
            Proof::Bets(_) => expected.gap /= f64::from(TOP),
            Proof::FewLabels { .. } => expected.gap = Expected::of(&sum(1), None).gap,
            Proof::Binomial => {}
        }
        expected
    }
}
