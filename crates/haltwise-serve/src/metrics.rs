//! What Prometheus reads. Counters count from the start of the process, so that none ever
//! falls; what the store knows for good is a gauge.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::connections::Connections;
use crate::exposition::{Exposition, Histogram, SECONDS};
use crate::log_record::Totals;
use crate::served_rule::ServedRule;
use crate::served_rules::ServedRules;
use crate::status::Status;

/// The counts of the process, whatever rules it serves.
#[derive(Debug)]
pub(crate) struct ProcessCounts {
    /// When the process began, in seconds since 1970.
    started: f64,
    /// By method and route, of which there are few.
    requests: Mutex<Vec<(String, Arc<Histogram>)>>,
    /// Where connections are counted.
    pub(crate) connections: OnceLock<Arc<Connections>>,
}

impl Default for ProcessCounts {
    fn default() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            started: started.map_or(0.0, |started| started.as_secs_f64()),
            requests: Mutex::default(),
            connections: OnceLock::new(),
        }
    }
}

impl ProcessCounts {
    /// A request to a route took so long to be answered.
    pub(crate) fn request(&self, route: &str, took: Duration) {
        let mut requests = self.requests();
        let known = requests.iter().find(|(known, _)| known == route);
        let histogram = known.map(|(_, histogram)| Arc::clone(histogram));
        let histogram = histogram.unwrap_or_else(|| {
            let histogram = Arc::new(Histogram::new(&SECONDS));
            requests.push((route.to_owned(), Arc::clone(&histogram)));
            histogram
        });
        drop(requests);
        histogram.observe(took);
    }

    fn requests(&self) -> std::sync::MutexGuard<'_, Vec<(String, Arc<Histogram>)>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The figures of a rule when metrics are read.
struct Numbers {
    totals: Totals,
    open: usize,
    halted: usize,
    waiting: usize,
    wanted: usize,
    audits_in_memory: usize,
    audit_bytes_in_memory: usize,
    log_bytes: u64,
    errors: u64,
    lost: u64,
    ready: bool,
    alarm: bool,
    status: Arc<Status>,
}

impl Numbers {
    fn of(served: &ServedRule) -> Self {
        let (status, counts) = (served.status(), served.counts());
        // These hold the state as well.
        let (log_bytes, ready) = (served.log_bytes(), served.ready().is_ok());
        served.with_state(|state| {
            let audits = state.unlabelled_audits();
            Self {
                totals: state.counted(),
                open: state.open(),
                halted: state.halted(),
                waiting: audits.len(),
                wanted: audits.wanted(),
                audits_in_memory: state.audits_in_memory(),
                audit_bytes_in_memory: state.audit_bytes_in_memory(),
                log_bytes,
                errors: counts.errors.load(Ordering::Relaxed),
                lost: counts.lost.load(Ordering::Relaxed),
                ready,
                alarm: state.alarm_at().is_some(),
                status,
            }
        })
    }

    fn verdict<T: Default>(&self, look: impl FnOnce(&haltwise::monitor::Verdict) -> T) -> T {
        self.status.verdict.as_ref().map(look).unwrap_or_default()
    }
}

/// A number of each rule: its name, what it says, and where it comes from. One whose name ends
/// in `_total` is a counter.
type Metric = (&'static str, &'static str, fn(&Numbers) -> f64);

const METRICS: [Metric; 31] = [
    ("haltwise_observations_total", "Steps that came.", |n| {
        n.totals.observations as f64
    }),
    ("haltwise_streams_total", "Streams that began.", |n| {
        n.totals.streams as f64
    }),
    (
        "haltwise_halted_total",
        "Streams that halted before their end.",
        |n| n.totals.halted as f64,
    ),
    (
        "haltwise_ended_total",
        "Streams that came to their end.",
        |n| n.totals.ended as f64,
    ),
    (
        "haltwise_steps_saved_total",
        "Steps that were not read; audited streams save none.",
        |n| n.totals.steps_saved as f64,
    ),
    (
        "haltwise_audited_total",
        "Streams that were audited to their end.",
        |n| n.totals.audited as f64,
    ),
    ("haltwise_labels_total", "Labels that came.", |n| {
        n.totals.labels as f64
    }),
    (
        "haltwise_faults_total",
        "Lines that could not be used.",
        |n| n.totals.faults as f64,
    ),
    (
        "haltwise_idle_total",
        "Streams closed because they said nothing.",
        |n| n.totals.idle as f64,
    ),
    (
        "haltwise_thinned_total",
        "Audits that make no trace because all together take too much room.",
        |n| n.totals.thinned as f64,
    ),
    (
        "haltwise_store_errors_total",
        "Attempts to write the store that failed.",
        |n| n.errors as f64,
    ),
    (
        "haltwise_log_lost_records_total",
        "Records of the log that were lost by damage on the disk.",
        |n| n.lost as f64,
    ),
    (
        "haltwise_open_streams",
        "Open streams that have not halted.",
        |n| n.open as f64,
    ),
    (
        "haltwise_halted_streams",
        "Streams that have halted and not said that they are over.",
        |n| n.halted as f64,
    ),
    (
        "haltwise_labels_waiting",
        "Audited streams without a label.",
        |n| n.waiting as f64,
    ),
    (
        "haltwise_labels_wanted",
        "Audited streams whose label would tell something.",
        |n| n.wanted as f64,
    ),
    (
        "haltwise_kept_streams",
        "Audited streams of which steps or predictions are kept in memory.",
        |n| n.audits_in_memory as f64,
    ),
    (
        "haltwise_kept_bytes",
        "About how many bytes of them are kept.",
        |n| n.audit_bytes_in_memory as f64,
    ),
    ("haltwise_log_bytes", "Bytes of the log.", |n| {
        n.log_bytes as f64
    }),
    (
        "haltwise_audits",
        "Audits that the monitor counts for this rule.",
        |n| n.verdict(|v| v.audits) as f64,
    ),
    (
        "haltwise_audits_unknown",
        "Audits whose outcome is not known.",
        |n| n.verdict(|v| v.unknown) as f64,
    ),
    (
        "haltwise_audits_of_closed_units",
        "Audited streams that count for nothing: they began when their unit was over.",
        |n| n.verdict(|v| v.unwatched.of_closed_units) as f64,
    ),
    (
        "haltwise_audits_of_new_units",
        "Audited streams that count for nothing: no more units are told apart.",
        |n| n.verdict(|v| v.unwatched.of_new_units) as f64,
    ),
    (
        "haltwise_audits_uncovered",
        "Audited streams that count for nothing: no unit or group that the promise covers.",
        |n| n.verdict(|v| v.unwatched.without_unit + v.unwatched.without_group) as f64,
    ),
    ("haltwise_e_value", "Evidence against the promise.", |n| {
        n.verdict(|v| v.e_value)
    }),
    (
        "haltwise_alarm_line",
        "The e-value at which an alarm is raised.",
        |n| n.status.alarm_line.unwrap_or(0.0),
    ),
    ("haltwise_alarm", "Whether an alarm was raised.", |n| {
        f64::from(u8::from(n.alarm))
    }),
    (
        "haltwise_reading_on",
        "Whether streams are read to their end.",
        |n| f64::from(u8::from(n.status.reading_on)),
    ),
    ("haltwise_renewal", "Which rule is in use, from 1.", |n| {
        f64::from(n.status.renewal)
    }),
    ("haltwise_ready", "Whether the store can be written.", |n| {
        f64::from(u8::from(n.ready))
    }),
    (
        "haltwise_gap",
        "The gap among the audits so far, by the last watched step.",
        |n| {
            let gap = n.verdict(|v| v.by_step.last().and_then(|step| step.gap));
            gap.unwrap_or(f64::NAN)
        },
    ),
];

/// All metrics of rules and of the process.
pub(crate) fn exposition(rules: &ServedRules) -> Exposition {
    let mut text = Exposition::new();
    text.gauge(
        "process_start_time_seconds",
        "When the process began, since 1970.",
    )
    .sample(&[], rules.process.started);
    if let Some(connections) = rules.process.connections.get() {
        text.gauge("haltwise_open_connections", "Connections that are open.")
            .sample(&[], connections.open() as f64);
        text.counter(
            "haltwise_connections_refused_total",
            "Connections that were refused.",
        )
        .sample(&[], connections.refused() as f64);
    }
    let numbers: Vec<_> = rules.all.iter().map(|served| Numbers::of(served)).collect();
    for (name, help, value) in METRICS {
        let mut family = if name.ends_with("_total") {
            text.counter(name, help)
        } else {
            text.gauge(name, help)
        };
        for (served, numbers) in rules.all.iter().zip(&numbers) {
            family.sample(&[("rule", &served.name)], value(numbers));
        }
    }
    let mut commits = text.histogram(
        "haltwise_commit_duration_seconds",
        "How long commits to the disk took.",
    );
    for served in rules.all.iter() {
        commits.buckets(&[("rule", &served.name)], &served.counts().commits);
    }
    let mut requests = text.histogram(
        "haltwise_http_request_duration_seconds",
        "How long it took to begin the answer to a request.",
    );
    for (route, histogram) in rules.process.requests().iter() {
        requests.buckets(&[("route", route)], histogram);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let others = [
            "haltwise_build_info",
            "haltwise_commit_duration_seconds_bucket",
            "haltwise_http_request_duration_seconds_bucket",
        ];
        let known = |name: &str| {
            others.contains(&name) || METRICS.iter().any(|(metric, ..)| *metric == name)
        };
        for file in files {
            let asked = asked(file);
            assert!(asked.len() > 5);
            for name in asked {
                assert!(known(name), "{name}");
            }
        }
        let dashboard: serde_json::Value = serde_json::from_str(files[1]).unwrap();
        assert!(dashboard["panels"].as_array().unwrap().len() >= 8);
    }
}
