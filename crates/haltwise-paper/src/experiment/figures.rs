//! The figures of an experiment.

use haltwise::Method;

use super::sweep::{sweep_by_dataset, sweep_figure, sweep_methods};
use super::violations::is_above;
use super::{DatasetResults, Experiment, MethodResults, SplitResult, mean_and_error};
use haltwise_report::Figure;
use haltwise_report::draw::{
    Axis, Mark, Name, Panel, Readout, ReadoutRow, alpha_name, dashed, readout, row, series, single,
};
use haltwise_report::format::{count_of, level, percent};

/// The share of all values on the curves that the gap axis must show, counting
/// only those with at least this many sequences behind them: one sequence with a
/// gap among two halted would stretch the axis to 50% and flatten the rest.
const SHOWN: f64 = 0.99;
const ENOUGH: u64 = 10;

/// The paper's Figures 1 and A.1 for one dataset: for each method the gap
/// among the sequences halted by each step, one thin curve per split; and the
/// share halted, with its 95% band.
pub fn splits_figure(dataset: &DatasetResults, alpha: f64) -> Figure {
    let methods: Vec<(usize, &MethodResults)> = dataset.methods.iter().enumerate().collect();
    let mut panels = gap_panels(dataset, &methods, alpha);
    panels.push(halting_panel(dataset));
    Figure {
        title: format!("{}: gap and halting, split by split", dataset.name),
        panels,
        columns: 2,
    }
}

/// Screening alone against screening and certifying, in one panel; `None`
/// where the experiment lacks one of them.
pub fn ablation_figure(dataset: &DatasetResults, alpha: f64) -> Option<Figure> {
    let find = |method: Method| {
        let mut methods = dataset.methods.iter().enumerate();
        methods.find(|(_, m)| m.method == method)
    };
    let both = [find(Method::ScreenOnly)?, find(Method::Conditional)?];
    let panels = gap_panels(dataset, &both, alpha);
    let mut panel = panels.into_iter().reduce(overlaid)?;
    panel.title = "Gap without and with certifying".into();
    for (i, method) in both {
        let medians = by_step(method, dataset.t_max(), alpha);
        let curve = medians.iter().map(|s| (s.t as f64, s.median)).collect();
        panel.names.push(Name::new(&method.name, i, curve));
    }
    panel.readout = ablation_readout(&both, dataset.t_max(), alpha);
    Some(Figure {
        title: format!("{}: screening alone, and with certifying", dataset.name),
        ..single(panel)
    })
}

/// One panel with the marks of two that have the same axes, the second on top.
fn overlaid(mut below: Panel, above: Panel) -> Panel {
    below.marks.retain(|mark| !matches!(mark, Mark::Level(..)));
    below.marks.extend(above.marks);
    // Each panel counts the curves that leave it; together they say so once.
    below.x.label = "step t (curves may rise above the panel)".into();
    below.desc = format!("{} {}", below.desc, above.desc);
    below
}

fn ablation_readout(both: &[(usize, &MethodResults)], t_max: usize, alpha: f64) -> Readout {
    let rows = both.iter().map(|&(i, method)| {
        let found = by_step(method, t_max, alpha);
        let at = |t: usize| found.iter().find(|s| s.t == t);
        let of = method.splits.len();
        let above = |s: &AtStep| format!("{} of {of} splits above α", s.above);
        ReadoutRow {
            label: method.name.clone(),
            series: Some(series(i)),
            values: (1..=t_max)
                .map(|t| at(t).map_or("none halted".into(), above))
                .collect(),
            y: (1..=t_max).map(|t| at(t).map(|s| s.median)).collect(),
        }
    });
    readout(1..=t_max, rows.collect())
}

/// All figures of an experiment, each with a name fit for a file.
pub fn experiment_figures(experiment: &Experiment) -> Vec<(String, Figure)> {
    let mut figures = Vec::new();
    for dataset in &experiment.datasets {
        let stem = file_stem(&dataset.name);
        let splits = splits_figure(dataset, experiment.alpha);
        figures.push((format!("{stem}-splits"), splits));
        let ablation = ablation_figure(dataset, experiment.alpha);
        figures.extend(ablation.map(|f| (format!("{stem}-ablation"), f)));
        figures.extend(sweep_figure(dataset).map(|f| (format!("{stem}-alpha"), f)));
    }
    for method in sweep_methods(experiment) {
        let figure = sweep_by_dataset(experiment, &method);
        figures.extend(figure.map(|f| (format!("alpha-{}", file_stem(&method)), f)));
    }
    figures
}

/// A name with nothing in it that a file system or an address would mind.
pub(crate) fn file_stem(name: &str) -> String {
    let keep = |c: char| if c.is_alphanumeric() { c } else { '-' };
    name.chars().map(keep).collect::<String>().to_lowercase()
}

fn curve(split: &SplitResult) -> Vec<(f64, f64)> {
    let steps = split.by_step.iter().enumerate();
    steps
        .filter_map(|(t, by)| Some(((t + 1) as f64, by.gap()?)))
        .collect()
}

/// One panel per method, all with the same axes.
fn gap_panels(
    dataset: &DatasetResults,
    methods: &[(usize, &MethodResults)],
    alpha: f64,
) -> Vec<Panel> {
    let splits = methods.iter().flat_map(|(_, m)| &m.splits);
    let steps = splits.flat_map(|s| &s.by_step);
    let mut values: Vec<f64> = steps
        .filter(|by| by.halted >= ENOUGH)
        .filter_map(|by| by.gap())
        .collect();
    values.sort_by(f64::total_cmp);
    let shown = values.get((values.len() as f64 * SHOWN) as usize);
    let top = (shown.copied().unwrap_or(0.0) * 1.05).max(2.5 * alpha);
    let y = Axis::shares("share with a gap; one curve per split, bold: median", top);
    let panel = |&(i, method): &(usize, &MethodResults)| {
        gap_panel(i, method, dataset.t_max(), y.clone(), alpha)
    };
    methods.iter().map(panel).collect()
}

fn gap_panel(i: usize, method: &MethodResults, t_max: usize, y: Axis, alpha: f64) -> Panel {
    let curves: Vec<Vec<(f64, f64)>> = method.splits.iter().map(curve).collect();
    let top = y.domain.1;
    let leaving = curves.iter().filter(|c| c.iter().any(|p| p.1 > top));
    let leaving = leaving.count();
    let by_step = by_step(method, t_max, alpha);
    let medians = by_step
        .iter()
        .map(|s| (s.t as f64, s.median))
        .collect::<Vec<_>>();
    let thin = curves.into_iter();
    let mut marks: Vec<Mark> = thin
        .map(|curve| Mark::Line(curve, format!("thin {}", series(i))))
        .collect();
    marks.push(Mark::Line(medians.clone(), format!("line {}", series(i))));
    marks.push(Mark::Level(alpha, alpha_name(alpha)));
    let mut x = Axis::steps(t_max);
    if leaving > 0 {
        let curves = count_of(leaving as u64, "curve rises", "curves rise");
        x.label = format!("step t ({curves} above the panel)");
    }
    Panel {
        title: format!("Gap among halted by step t: {}", method.name),
        desc: gap_desc(method, &by_step, alpha),
        x,
        y,
        marks,
        names: Vec::new(),
        above: None,
        readout: gap_readout(i, &medians, &by_step, method.splits.len()),
    }
}

/// What the splits did by one step.
struct AtStep {
    t: usize,
    median: f64,
    highest: f64,
    above: usize,
}

fn by_step(method: &MethodResults, t_max: usize, alpha: f64) -> Vec<AtStep> {
    let at = |t: usize| {
        let here = method.splits.iter().filter_map(|s| s.by_step.get(t));
        let mut gaps: Vec<f64> = here.clone().filter_map(|by| by.gap()).collect();
        gaps.sort_by(f64::total_cmp);
        Some(AtStep {
            t: t + 1,
            median: median(&gaps)?,
            highest: *gaps.last()?,
            above: here.filter(|&&by| is_above(by, alpha)).count(),
        })
    };
    (0..t_max).filter_map(at).collect()
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some((sorted[middle - 1] + upper) / 2.0)
}

fn gap_desc(method: &MethodResults, by_step: &[AtStep], alpha: f64) -> String {
    let most = by_step.iter().max_by_key(|s| s.above);
    let most = most.map_or_else(
        || "No sequence halted.".into(),
        |s| {
            format!(
                "At worst, by step {}, {} of {} splits are above the tolerated {}.",
                s.t,
                s.above,
                method.splits.len(),
                level(alpha)
            )
        },
    );
    format!("{}: {most}", method.name)
}

fn gap_readout(i: usize, medians: &[(f64, f64)], by_step: &[AtStep], splits: usize) -> Readout {
    let column = |label: &str, values: Vec<String>| ReadoutRow {
        label: label.into(),
        series: None,
        values,
        y: Vec::new(),
    };
    let above = by_step.iter().map(|s| format!("{} of {splits}", s.above));
    let rows = vec![
        row("median gap", &series(i), medians, |(_, y)| percent(y)),
        column(
            "highest",
            by_step.iter().map(|s| percent(s.highest)).collect(),
        ),
        column("splits above α", above.collect()),
    ];
    readout(by_step.iter().map(|s| s.t), rows)
}

fn halting_panel(dataset: &DatasetResults) -> Panel {
    let t_max = dataset.t_max();
    let (mut marks, mut lines, mut names, mut rows) = (vec![], vec![], vec![], vec![]);
    for (i, method) in dataset.methods.iter().enumerate() {
        let at: Vec<(f64, f64, f64)> = (0..t_max).filter_map(|t| halted(method, t)).collect();
        let band = at
            .iter()
            .map(|&(x, mean, half)| (x, mean - half, mean + half));
        let curve: Vec<(f64, f64)> = at.iter().map(|&(x, mean, _)| (x, mean)).collect();
        marks.push(Mark::Band(band.collect(), format!("band {}", series(i))));
        lines.push(Mark::Line(curve.clone(), dashed(i)));
        rows.push(row(&method.name, &series(i), &curve, |(_, y)| percent(y)));
        names.push(Name::new(&method.name, i, curve));
    }
    marks.extend(lines);
    Panel {
        title: "Sequences halted by step t".into(),
        desc: format!(
            "Share halted by each step on {}, method by method.",
            dataset.name
        ),
        x: Axis::steps(t_max),
        y: Axis::shares("share of all sequences; mean over splits, 95% band", 1.0),
        marks,
        names,
        above: None,
        readout: readout(1..=t_max, rows),
    }
}

/// The mean share halted by a step, and half of its 95% band.
fn halted(method: &MethodResults, t: usize) -> Option<(f64, f64, f64)> {
    let here = method.splits.iter().filter_map(|s| {
        let halted = s.by_step.get(t)?.halted;
        Some(halted as f64 / s.n.max(1) as f64)
    });
    let (mean, error) = mean_and_error(here)?;
    Some(((t + 1) as f64, mean, 1.96 * error))
}
