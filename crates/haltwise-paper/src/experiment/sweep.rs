//! The figures of an experiment that follow the tolerated gap.

use super::{DatasetResults, Experiment, SweepPoint};
use haltwise_report::Figure;
use haltwise_report::draw::{Axis, Mark, Name, Panel, Readout, ReadoutRow, dashed, series, single};
use haltwise_report::format::level;

/// How t_avg depends on α on one dataset; `None` where that was not measured.
pub fn sweep_figure(dataset: &DatasetResults) -> Option<Figure> {
    let curves = dataset.sweep.iter();
    let curves: Vec<_> = curves.map(|c| (&c.method[..], &c.points[..])).collect();
    let mut figure = sweep(dataset.name.clone(), "Mean halt time against α", &curves)?;
    let bound = dataset
        .oracle
        .map(|t| Mark::Level(t, "oracle bound".into()));
    for panel in &mut figure.panels {
        panel.marks.extend(bound.clone());
    }
    Some(figure)
}

/// The same for one method over all datasets.
pub(crate) fn sweep_by_dataset(experiment: &Experiment, method: &str) -> Option<Figure> {
    let curve = |dataset: &'_ DatasetResults| -> Option<usize> {
        dataset.sweep.iter().position(|c| c.method == method)
    };
    let curves = experiment.datasets.iter().filter_map(|d| {
        let found = &d.sweep[curve(d)?];
        Some((&d.name[..], &found.points[..]))
    });
    let title = format!("Mean halt time against α: {method}");
    sweep("All datasets".into(), &title, &curves.collect::<Vec<_>>())
}

/// The methods that any dataset has a sweep of, in order of appearance.
pub(crate) fn sweep_methods(experiment: &Experiment) -> Vec<String> {
    let mut methods: Vec<String> = Vec::new();
    for curve in experiment.datasets.iter().flat_map(|d| &d.sweep) {
        if !methods.contains(&curve.method) {
            methods.push(curve.method.clone());
        }
    }
    methods
}

/// `None` where there is nothing to draw.
fn sweep(heading: String, title: &str, curves: &[(&str, &[SweepPoint])]) -> Option<Figure> {
    let alphas = curves.iter().flat_map(|(_, points)| points.iter());
    let widest = alphas.map(|p| p.alpha).fold(0.0, f64::max);
    if widest == 0.0 {
        return None;
    }
    let (mut marks, mut names, mut rows) = (vec![], vec![], vec![]);
    for (i, (name, points)) in curves.iter().enumerate() {
        let curve: Vec<(f64, f64)> = points.iter().map(|p| (p.alpha, p.t_avg)).collect();
        let whiskers = points.iter().map(|p| {
            let half = p.standard_error;
            (p.alpha, p.t_avg - half, p.t_avg + half)
        });
        marks.push(Mark::Whiskers(
            whiskers.collect(),
            format!("whisker {}", series(i)),
        ));
        marks.push(Mark::Line(curve.clone(), dashed(i)));
        rows.push(sweep_row(name, i, points));
        names.push(Name::new(name, i, curve));
    }
    let panel = Panel {
        title: title.into(),
        desc: "The mean of halt step / t_max against the tolerated gap α.".into(),
        x: Axis::shares("tolerated gap α", widest),
        y: Axis::shares("t_avg, share of all steps; whiskers: standard error", 1.0),
        marks,
        names,
        above: None,
        readout: sweep_readout(curves, rows),
    };
    Some(Figure {
        title: heading,
        ..single(panel)
    })
}

/// Curves need not share their values of α; only where they do can one guide
/// read all of them.
fn sweep_readout(curves: &[(&str, &[SweepPoint])], rows: Vec<ReadoutRow>) -> Readout {
    let alphas = |points: &[SweepPoint]| points.iter().map(|p| p.alpha).collect::<Vec<_>>();
    let x = curves.first().map(|c| alphas(c.1)).unwrap_or_default();
    if curves.iter().any(|c| alphas(c.1) != x) {
        return Readout::default();
    }
    Readout {
        heads: x.iter().map(|&a| format!("α = {}", level(a))).collect(),
        x,
        rows,
    }
}

fn sweep_row(name: &str, i: usize, points: &[SweepPoint]) -> ReadoutRow {
    ReadoutRow {
        label: name.into(),
        series: Some(series(i)),
        values: points
            .iter()
            .map(|p| format!("{:.3} ± {:.3}", p.t_avg, p.standard_error))
            .collect(),
        y: points.iter().map(|p| Some(p.t_avg)).collect(),
    }
}
