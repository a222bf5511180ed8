//! How the test will be made, and the corresponding views of the fitting traces.

use haltwise_stream::StepError;

use super::budget::{Budget, Budgets, Kind};
use super::fit::right_share;
use super::shares::{GroupShares, few_labels};
use crate::data::loss::{Loss, Measure, TOP};
use crate::data::outputs::Outputs;
use crate::data::score::ScoreSource;
use crate::data::survey::Survey;
use crate::data::terms::Terms;
use crate::data::traces::{Block, Traces};
use crate::numbers::alpha_delta::Alpha;
use crate::plan::Plan;
use crate::tables::by_level::members;
use crate::testing::betting::Profile;
use crate::testing::fixed_sequence::{Promise, Proof, few_labels_shares};

/// From this many labelled traces on, they are also viewed alone.
const LABELLED: usize = 150;

/// A view of the fitting traces: which losses count, and which budgets apply in each group.
pub(super) struct View {
    pub(super) promise: Promise,
    pub(super) measure: Measure,
    pub(super) groups: Vec<Group>,
}

impl View {
    /// The mean loss that the test allows in every group once all have halted.
    pub(super) fn granted(&self) -> f64 {
        let of_group = |Group { levels, .. }: &Group| {
            let all = levels.certifying as f64;
            levels.budgets[0].gaps(all) / all
        };
        self.groups.iter().map(of_group).fold(1.0, f64::min)
    }
}

/// The sequences of a group, and what the test allows it.
pub(super) struct Group {
    pub(super) members: Vec<usize>,
    pub(super) levels: Budgets,
}

/// Returns how the test will be made, and the views of the fitting traces for it. If there
/// are several views, the most promising one is chosen.
pub(super) fn views(
    outputs: &Outputs,
    plan: &Plan,
    promise: Promise,
    certifying: &Survey,
    plain: &ScoreSource,
    aim: f64,
) -> Result<(Proof, Vec<View>), StepError> {
    let (terms, alpha, delta) = (plan.terms(), plan.alpha().get(), plan.level().get());
    let groups = members_of_groups(outputs, terms, certifying);
    let total: u64 = certifying.groups.values().sum();
    // How many sequences of each group will certify.
    let of_group = |name: &str| match certifying.groups.get(name) {
        Some(&n) => n as f64 * certifying.sequences() as f64 / total as f64,
        None => certifying.sequences() as f64,
    };
    let alone = GroupShares::of(plan, groups.len()).each.is_some();
    let view = |measure, only_labelled: bool, (share, kind): (f64, Kind<'_>)| {
        let mut groups: Vec<Group> = groups
            .iter()
            .map(|(name, all)| {
                let kept = |i: &&usize| !only_labelled || outputs.is_labelled(**i);
                let members: Vec<usize> = all.iter().filter(kept).copied().collect();
                let part = members.len() as f64 / all.len().max(1) as f64;
                let n = of_group(name) * if only_labelled { part } else { 1.0 };
                let n = match terms.unit.is_some() {
                    true => n * units(outputs, &members) as f64 / members.len().max(1) as f64,
                    false => n,
                };
                let levels = Budgets::new((n as usize).max(1), share * aim, kind);
                Group { members, levels }
            })
            .collect();
        // A group too small for any rule to pass must not hold back the curves: rules that
        // halt the other groups may pass. How many there are says nothing about losses.
        let may_pass = |group: &Group| {
            let n = group.levels.certifying;
            Budget::of(kind, n, (share * aim).min(0.5)).gaps(n as f64) >= 0.0
        };
        if alone && groups.iter().any(may_pass) {
            groups.retain(may_pass);
        }
        View {
            promise,
            measure,
            groups,
        }
    };
    let loss = terms.loss;
    if few_labels(plan, certifying) {
        let right = right_share(outputs);
        let labelled = 1.0 - certifying.unlabelled as f64 / certifying.sequences() as f64;
        let disagreements = Measure::of(Loss::Disagreement);
        let shares = few_labels_shares(labelled);
        let [of_free, of_both, of_alone] = shares;
        let free = view(disagreements, false, (of_free, Kind::Binomial(alpha)));
        let kind = Kind::FewLabels {
            right,
            labelled,
            alpha,
            level: delta * of_both / 2.0,
        };
        let mut views = vec![free, view(disagreements, false, (of_both, kind))];
        // A handful of labelled traces cannot tell curves apart.
        if outputs.labelled() >= LABELLED {
            let alone = (of_alone, Kind::Binomial(alpha));
            views.push(view(Measure::default(), true, alone));
        }
        let proof = Proof::FewLabels {
            right,
            labelled,
            shares,
        };
        return Ok((proof, views));
    }
    if loss.is_binary() && terms.unit.is_none() {
        // A disagreement may be a gap if fitting traces lack labels.
        let seen = match loss {
            Loss::Gap if !all_labelled(outputs) => Loss::Disagreement,
            loss => loss,
        };
        let only = view(Measure::of(seen), false, (1.0, Kind::Binomial(alpha)));
        return Ok((Proof::Binomial, vec![only]));
    }
    let exact = Measure {
        loss,
        binary: loss.is_binary(),
    };
    let traces = outputs.measured(plain, exact)?;
    let profile = profile(&traces, plan.alpha(), terms.unit.is_some());
    if profile.is_binary() && terms.unit.is_none() {
        let whole = Measure { loss, binary: true };
        let only = view(whole, false, (1.0, Kind::Binomial(alpha)));
        return Ok((Proof::Binomial, vec![only]));
    }
    let kind = Kind::Bets(&profile, alpha, delta);
    let only = view(exact, false, (1.0, kind));
    Ok((Proof::Bets(profile), vec![only]))
}

/// Fitting traces may lack labels that the certifying ones have.
pub(super) fn all_labelled(outputs: &Outputs) -> bool {
    outputs.labelled() == outputs.len()
}

/// The sequences of each group; without groups, one group without a name.
fn members_of_groups(
    outputs: &Outputs,
    terms: &Terms,
    certifying: &Survey,
) -> Vec<(String, Vec<usize>)> {
    if terms.by.is_none() {
        return vec![(String::new(), (0..outputs.len()).collect())];
    }
    let names = certifying.groups.keys().cloned();
    let mut groups: Vec<(String, Vec<usize>)> = names.map(|name| (name, Vec::new())).collect();
    for i in 0..outputs.len() {
        let trace = outputs.trace(i);
        let name = terms.group(&trace).unwrap_or_default();
        if let Ok(g) = groups.binary_search_by(|group| group.0.as_str().cmp(&name)) {
            groups[g].1.push(i);
        }
    }
    groups
}

/// The number of units of these sequences.
fn units(outputs: &Outputs, members: &[usize]) -> usize {
    let mut keys: Vec<_> = members.iter().map(|&i| outputs.key(i)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.len()
}

/// The losses that bets are to expect: about those where a rule will be tested, with a mean
/// of about three fifths of α. They are taken from the first step where all sequences could
/// stop at that price. If there is none, they are taken from the cheapest step, with as
/// many additional losses of 0 as make the price right.
pub(crate) fn profile(traces: &Traces, alpha: Alpha, by_unit: bool) -> Profile {
    let whole = (u64::from(TOP) / traces.measure().unit()) as u8;
    let units = by_unit.then(|| members(traces));
    let at = |t: usize| -> Vec<u8> {
        let of_block = |block: &Block| -> Vec<u8> {
            let loss = |i: usize| block.loss(t.min(block.last(i) as usize), i) * whole;
            (0..block.len).map(loss).collect()
        };
        let losses: Vec<u8> = traces.blocks.iter().flat_map(of_block).collect();
        let Some(units) = &units else {
            return losses;
        };
        let mean = |unit: &Vec<usize>| {
            let sum: u64 = unit.iter().map(|&i| u64::from(losses[i])).sum();
            sum.div_ceil(unit.len() as u64) as u8
        };
        units.iter().map(mean).collect()
    };
    let aim = 0.6 * alpha.get() * f64::from(TOP);
    let mean = |losses: &[u8]| {
        losses.iter().map(|&l| f64::from(l)).sum::<f64>() / losses.len().max(1) as f64
    };
    let mut cheapest: Option<(f64, Vec<u8>)> = None;
    for losses in (0..traces.t_max()).map(at) {
        let mean = mean(&losses);
        if mean > 0.0 && cheapest.as_ref().is_none_or(|cheapest| mean < cheapest.0) {
            cheapest = Some((mean, losses));
        }
        if mean <= aim {
            break;
        }
    }
    let Some((mean, mut losses)) = cheapest else {
        return Profile::default();
    };
    let zeros = (mean / aim - 1.0).max(0.0) * losses.len() as f64;
    losses.extend(std::iter::repeat_n(0, zeros as usize));
    Profile::of(losses)
}
