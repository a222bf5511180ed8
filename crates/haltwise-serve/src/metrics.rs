//! What Prometheus reads.

use std::fmt::Write as _;

use crate::board::Board;

/// One number of each rule.
type Metric = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Numbers) -> f64,
);

struct Numbers {
    totals: crate::record::Totals,
    open: usize,
    waiting: usize,
    reading_on: bool,
    renewal: u32,
    audits: u64,
    unknown: u64,
    e_value: f64,
    alarm: bool,
    alarm_line: f64,
    ready: bool,
    gap: f64,
}

const METRICS: [Metric; 20] = [
    (
        "haltwise_observations_total",
        "counter",
        "Steps that came.",
        |n| n.totals.observations as f64,
    ),
    (
        "haltwise_streams_total",
        "counter",
        "Streams that began.",
        |n| n.totals.streams as f64,
    ),
    (
        "haltwise_halted_total",
        "counter",
        "Streams that halted before their end.",
        |n| n.totals.halted as f64,
    ),
    (
        "haltwise_ended_total",
        "counter",
        "Streams that came to their end.",
        |n| n.totals.ended as f64,
    ),
    (
        "haltwise_steps_saved_total",
        "counter",
        "Steps that were not read.",
        |n| n.totals.steps_saved as f64,
    ),
    (
        "haltwise_audited_total",
        "counter",
        "Streams that were audited to their end.",
        |n| n.totals.audited as f64,
    ),
    (
        "haltwise_labels_total",
        "counter",
        "Labels that came.",
        |n| n.totals.labels as f64,
    ),
    (
        "haltwise_faults_total",
        "counter",
        "Lines that could not be used.",
        |n| n.totals.faults as f64,
    ),
    (
        "haltwise_idle_total",
        "counter",
        "Streams closed because they said nothing.",
        |n| n.totals.idle as f64,
    ),
    ("haltwise_open_streams", "gauge", "Open streams.", |n| {
        n.open as f64
    }),
    (
        "haltwise_labels_waiting",
        "gauge",
        "Audited streams without a label.",
        |n| n.waiting as f64,
    ),
    (
        "haltwise_audits",
        "gauge",
        "Audits that the monitor counts.",
        |n| n.audits as f64,
    ),
    (
        "haltwise_audits_unknown",
        "gauge",
        "Audits whose outcome is not known.",
        |n| n.unknown as f64,
    ),
    (
        "haltwise_e_value",
        "gauge",
        "Evidence against the promise.",
        |n| n.e_value,
    ),
    (
        "haltwise_alarm_line",
        "gauge",
        "The e-value at which an alarm is raised.",
        |n| n.alarm_line,
    ),
    (
        "haltwise_alarm",
        "gauge",
        "Whether an alarm was raised.",
        |n| f64::from(u8::from(n.alarm)),
    ),
    (
        "haltwise_reading_on",
        "gauge",
        "Whether streams are read to their end.",
        |n| f64::from(u8::from(n.reading_on)),
    ),
    (
        "haltwise_renewal",
        "gauge",
        "Which rule is in use, from 1.",
        |n| f64::from(n.renewal),
    ),
    (
        "haltwise_ready",
        "gauge",
        "Whether the log can be written.",
        |n| f64::from(u8::from(n.ready)),
    ),
    (
        "haltwise_gap",
        "gauge",
        "The gap among the audits so far, by the last watched step.",
        |n| n.gap,
    ),
];

/// The text of all metrics.
pub(crate) fn text(boards: &[std::sync::Arc<Board>]) -> String {
    let numbers: Vec<(String, Numbers)> = boards
        .iter()
        .map(|board| {
            let ready = board.ready().is_ok();
            board.with_desk(|desk| {
                let monitor = desk.monitor();
                let verdict = monitor.map(haltwise::monitor::Monitor::verdict);
                let numbers = Numbers {
                    totals: desk.totals(),
                    open: desk.open(),
                    waiting: desk.waiting(),
                    reading_on: desk.reading_on(),
                    renewal: desk.renewal(),
                    audits: monitor.map_or(0, haltwise::monitor::Monitor::audits),
                    unknown: verdict.as_ref().map_or(0, |v| v.unknown),
                    e_value: verdict.as_ref().map_or(0.0, |v| v.e_value),
                    alarm: monitor.is_some_and(|m| m.alarm().is_some()),
                    alarm_line: monitor.map_or(0.0, |m| 1.0 / m.watch().delta().get()),
                    ready,
                    gap: verdict
                        .and_then(|v| v.by_step.last().and_then(|s| s.gap))
                        .unwrap_or(f64::NAN),
                };
                (board.name.clone(), numbers)
            })
        })
        .collect();
    let mut text = String::new();
    for (name, kind, help, value) in METRICS {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (rule, numbers) in &numbers {
            let value = value(numbers);
            let _ = writeln!(text, "{name}{{rule=\"{rule}\"}} {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::METRICS;

    /// The metrics that a file of `deploy` asks for.
    fn asked(text: &str) -> Vec<&str> {
        let word = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        text.split(word)
            .filter(|word| word.starts_with("haltwise_"))
            .collect()
    }

    #[test]
    fn dashboard_and_alerts_ask_for_metrics_that_there_are() {
        let files = [
            include_str!("../../../deploy/alerts.yml"),
            include_str!("../../../deploy/grafana-dashboard.json"),
        ];
        for file in files {
            let asked = asked(file);
            assert!(asked.len() > 5);
            for name in asked {
                assert!(METRICS.iter().any(|metric| metric.0 == name), "{name}");
            }
        }
        let dashboard: serde_json::Value = serde_json::from_str(files[1]).unwrap();
        assert!(dashboard["panels"].as_array().unwrap().len() >= 8);
    }
}
