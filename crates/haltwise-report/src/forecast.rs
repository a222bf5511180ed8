//! What more traces would buy, as a figure and in a sentence.

use haltwise::forecast::{Forecast, enough};

use crate::evaluation::{readout_at, row, single};
use crate::figure::Figure;
use crate::format::{count, level, percent};
use crate::palette::series;
use crate::panel::{Axis, Mark, Name, Panel};

/// One promise, and its forecast.
#[derive(Debug, Clone)]
pub struct PlanForecast {
    /// The promise in a few words.
    pub name: String,
    /// Size by size.
    pub sizes: Vec<Forecast>,
}

/// How early rules would halt, size by size, for each promise.
pub fn forecast_figure(forecasts: &[PlanForecast]) -> Figure {
    let sizes: Vec<u64> = forecasts
        .first()
        .map_or_else(Vec::new, |one| one.sizes.iter().map(|f| f.traces).collect());
    // Evenly apart, whatever the numbers.
    let at = |i: usize| (i + 1) as f64;
    let (mut marks, mut lines, mut names, mut rows) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (k, one) in forecasts.iter().enumerate() {
        let looks = series(k);
        let curve: Vec<(f64, f64)> = one
            .sizes
            .iter()
            .enumerate()
            .map(|(i, found)| (at(i), found.t_avg.mean))
            .collect();
        let band = one.sizes.iter().enumerate();
        let band = band.map(|(i, found)| (at(i), found.t_avg.low, found.t_avg.high));
        marks.push(Mark::Band(band.collect(), format!("band {looks}")));
        lines.push(Mark::Line(curve.clone(), format!("line {looks}")));
        lines.push(Mark::Dots(curve.clone(), format!("dot {looks}"), 3.0));
        rows.push(row(&one.name, &looks, &curve, |(_, y)| percent(y)));
        names.push(Name::new(&one.name, k, curve));
    }
    marks.extend(lines);
    let desc: Vec<String> = forecasts.iter().map(sentence).collect();
    single(Panel {
        title: "What more traces would buy".into(),
        desc: desc.join(" "),
        x: Axis {
            domain: (0.5, sizes.len() as f64 + 0.5),
            ticks: (0..sizes.len()).map(|i| (at(i), count(sizes[i]))).collect(),
            label: "traces to calibrate on".into(),
        },
        y: Axis::shares("mean halt step / t_max, with its 90% range", 1.0),
        marks,
        names,
        above: None,
        readout: readout_at(
            (0..sizes.len()).map(at),
            sizes.iter().map(|&n| format!("{} traces", count(n))),
            rows,
        ),
    })
}

/// The forecast in a sentence, about the size in the middle.
pub fn sentence(forecast: &PlanForecast) -> String {
    let sizes = &forecast.sizes;
    let Some(found) = sizes.get(sizes.len() / 2) else {
        return "There is no forecast.".into();
    };
    if found.certified < 0.5 {
        let last = sizes.iter().find(|found| found.certified >= 0.9);
        return match last {
            Some(later) => format!(
                "With {} traces, probably nothing can be certified. With {}, expect to read {}, {} \
                 to {}.",
                count(found.traces),
                count(later.traces),
                percent(later.t_avg.mean),
                percent(later.t_avg.low),
                percent(later.t_avg.high)
            ),
            None => format!(
                "With {} traces, probably nothing can be certified (something was in {} of the trials).",
                count(found.traces),
                level(found.certified)
            ),
        };
    }
    let beyond = match enough(sizes) {
        Some(size) => format!("; beyond {} little changes", count(size)),
        None => String::new(),
    };
    format!(
        "With {} traces expect to read {}, {} to {}{beyond}.",
        count(found.traces),
        percent(found.t_avg.mean),
        percent(found.t_avg.low),
        percent(found.t_avg.high)
    )
}
