//! What a proxy counts, for Prometheus and for its last words.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use haltwise_serve::{Counter, Exposition, Family, Histogram};

use crate::outcome::{Kind, Outcome, UpstreamError};

/// From an answer of a model in the next room to the longest that clients wait.
const SECONDS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 180.0, 600.0,
];

/// What a proxy counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    outcomes: [Counter; Outcome::ALL.len()],
    upstream_errors: [Counter; UpstreamError::ALL.len()],
    first_byte: Times,
    whole: Times,
    running: Gauge,
    /// Requests to the server that wait for their turn, and those that it has.
    pub(crate) upstream_waiting: Gauge,
    pub(crate) upstream_running: Gauge,
    pub(crate) votes: Counter,
    pub(crate) votes_saved: Counter,
    pub(crate) tokens: Counter,
    pub(crate) tokens_saved: Counter,
    pub(crate) thought_tokens: Counter,
    pub(crate) probe_tokens: Counter,
    pub(crate) audits: Counter,
    pub(crate) audits_lost: Counter,
    pub(crate) audit_tokens: Counter,
}

/// How long requests took, by kind.
#[derive(Debug)]
struct Times([Histogram; Kind::ALL.len()]);

impl Times {
    fn new() -> Self {
        Self(Kind::ALL.map(|_| Histogram::new(&SECONDS)))
    }

    fn all(&self) -> impl Iterator<Item = (Kind, &Histogram)> {
        Kind::ALL.into_iter().zip(&self.0)
    }

    fn observe(&self, kind: Kind, time: Duration) {
        let mine = self.all().filter(|(other, _)| *other == kind);
        mine.for_each(|(_, histogram)| histogram.observe(time));
    }

    fn write(&self, mut family: Family<'_>) {
        for (kind, histogram) in self.all() {
            family.buckets(&[("kind", kind.name())], histogram);
        }
    }
}

/// What a proxy did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests that were voted on or thought about.
    pub requests: u64,
    /// Those that failed, whether they were for votes or not.
    pub failed: u64,
    /// Votes that were cast.
    pub votes: u64,
    /// Votes that there would have been without the rule.
    pub of: u64,
    /// Tokens generated.
    pub tokens: u64,
    /// About how many more there would have been.
    pub saved_tokens: u64,
    /// Those of thoughts.
    pub thought_tokens: u64,
    /// Those of the probes of thoughts.
    pub probe_tokens: u64,
    /// Requests that were read to their end, to see what stopping cost.
    pub audits: u64,
    /// Tokens that this took.
    pub audit_tokens: u64,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            outcomes: Default::default(),
            upstream_errors: Default::default(),
            first_byte: Times::new(),
            whole: Times::new(),
            running: Gauge::default(),
            upstream_waiting: Gauge::default(),
            upstream_running: Gauge::default(),
            votes: Counter::default(),
            votes_saved: Counter::default(),
            tokens: Counter::default(),
            tokens_saved: Counter::default(),
            thought_tokens: Counter::default(),
            probe_tokens: Counter::default(),
            audits: Counter::default(),
            audits_lost: Counter::default(),
            audit_tokens: Counter::default(),
        }
    }

    /// The server failed once.
    pub(crate) fn upstream_failed(&self, error: UpstreamError) {
        let all = UpstreamError::ALL.iter().zip(&self.upstream_errors);
        let counters = all.filter(|(kind, _)| **kind == error);
        counters.for_each(|(_, counter)| counter.increment());
    }

    pub(crate) fn totals(&self) -> Totals {
        let sum = |wanted: fn(Outcome) -> bool| {
            let all = Outcome::ALL.iter().zip(&self.outcomes);
            let counters = all.filter(|(outcome, _)| wanted(**outcome));
            counters.map(|(_, counter)| counter.get()).sum()
        };
        let votes = self.votes.get();
        Totals {
            requests: sum(|o| matches!(o, Outcome::Promised | Outcome::Unpromised(_))),
            failed: sum(|o| matches!(o, Outcome::Failed(_))),
            votes,
            of: votes.saturating_add(self.votes_saved.get()),
            tokens: self.tokens.get(),
            saved_tokens: self.tokens_saved.get(),
            thought_tokens: self.thought_tokens.get(),
            probe_tokens: self.probe_tokens.get(),
            audits: self.audits.get(),
            audit_tokens: self.audit_tokens.get(),
        }
    }

    /// Writes all numbers.
    pub(crate) fn write(&self, text: &mut Exposition, body_bytes: usize) {
        let mut requests = text.counter(
            "haltwise_proxy_requests_total",
            "Requests to /v1 that are over, by how they came out.",
        );
        for (outcome, counter) in Outcome::ALL.iter().zip(&self.outcomes) {
            let (outcome, reason) = outcome.labels();
            let labels = [("outcome", outcome), ("reason", reason)];
            requests.sample(&labels, counter.get() as f64);
        }
        let mut errors = text.counter(
            "haltwise_proxy_upstream_errors_total",
            "Requests to the model's server that failed, those that were tried again among them.",
        );
        for (kind, counter) in UpstreamError::ALL.iter().zip(&self.upstream_errors) {
            errors.sample(&[("kind", kind.name())], counter.get() as f64);
        }
        for (name, help, counter) in [
            (
                "haltwise_proxy_votes_total",
                "Votes of replies.",
                &self.votes,
            ),
            (
                "haltwise_proxy_votes_saved_total",
                "Votes that replies did without.",
                &self.votes_saved,
            ),
            (
                "haltwise_proxy_tokens_total",
                "Tokens generated for replies.",
                &self.tokens,
            ),
            (
                "haltwise_proxy_tokens_saved_total",
                "About how many tokens replies did without.",
                &self.tokens_saved,
            ),
            (
                "haltwise_proxy_thought_tokens_total",
                "Tokens of thoughts before replies.",
                &self.thought_tokens,
            ),
            (
                "haltwise_proxy_probe_tokens_total",
                "Tokens that probes of those thoughts generated.",
                &self.probe_tokens,
            ),
            (
                "haltwise_proxy_audits_total",
                "Audited requests that came to their ends.",
                &self.audits,
            ),
            (
                "haltwise_proxy_audits_lost_total",
                "Audited requests that did not come to their ends.",
                &self.audits_lost,
            ),
            (
                "haltwise_proxy_audit_tokens_total",
                "Tokens generated for audits after the reply.",
                &self.audit_tokens,
            ),
        ] {
            text.counter(name, help).sample(&[], counter.get() as f64);
        }
        for (name, help, number) in [
            (
                "haltwise_proxy_requests_running",
                "Requests to /v1 under way.",
                self.running.get(),
            ),
            (
                "haltwise_proxy_upstream_running",
                "Votes, steps and probes that the model's server is working on.",
                self.upstream_running.get(),
            ),
            (
                "haltwise_proxy_upstream_waiting",
                "Votes, steps and probes that wait because of --concurrency.",
                self.upstream_waiting.get(),
            ),
            (
                "haltwise_proxy_body_bytes",
                "Bytes of requests' bodies in memory.",
                body_bytes as u64,
            ),
        ] {
            text.gauge(name, help).sample(&[], number as f64);
        }
        self.first_byte.write(text.histogram(
            "haltwise_proxy_first_byte_seconds",
            "From the head of a request to the first byte of its answer.",
        ));
        self.whole.write(text.histogram(
            "haltwise_proxy_request_seconds",
            "From the head of a request to the last byte of its answer.",
        ));
    }
}

/// A number of things that are there now.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    /// One more, until the guard is dropped.
    pub(crate) fn enter(&self) -> Entered<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Entered(self)
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One of the things that are there now.
#[derive(Debug)]
pub(crate) struct Entered<'g>(&'g Gauge);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A request under way. It is counted when it is dropped, which is when its answer has been sent,
/// or the client has gone.
pub(crate) struct Running {
    metrics: Arc<Metrics>,
    begun: Instant,
    outcome: OnceLock<Outcome>,
    /// Whether the first byte of its answer was sent.
    has_begun: AtomicBool,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Running").field(&self.outcome).finish()
    }
}

impl Running {
    pub(crate) fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.running.0.fetch_add(1, Ordering::Relaxed);
        Self {
            metrics: Arc::clone(metrics),
            begun: Instant::now(),
            outcome: OnceLock::new(),
            has_begun: AtomicBool::new(false),
        }
    }

    /// How it came out. The first to say so is right: what comes later tells the client of it.
    pub(crate) fn came_out(&self, outcome: Outcome) {
        let _ = self.outcome.set(outcome);
    }

    /// Whether the first byte of the answer was sent.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// How long it has taken so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The first byte of the answer is sent.
    pub(crate) fn answers(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
        // Only streams that wait for votes begin before it is known how they come out.
        let kind = self.outcome.get().map_or(Kind::Voted, |o| o.kind());
        self.metrics.first_byte.observe(kind, self.elapsed());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let metrics = &self.metrics;
        metrics.running.leave();
        let outcome = self.outcome.get().copied().unwrap_or(Outcome::Abandoned);
        metrics.whole.observe(outcome.kind(), self.elapsed());
        if let Some(place) = outcome.place() {
            metrics.outcomes[place].increment();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_ask_for_metrics_that_there_are() {
        let mut text = Exposition::default();
        Metrics::new().write(&mut text, 0);
        let text = text.into_text();
        let alerts = include_str!("../../../deploy/proxy-alerts.yml");
        let is_mark = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let asked: Vec<&str> = alerts
            .split(is_mark)
            .filter(|word| word.starts_with("haltwise_"))
            .collect();
        assert!(asked.len() >= 8, "{asked:?}");
        for name in asked {
            let sample = text.lines().any(|line| {
                let rest = line.strip_prefix(name);
                rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            });
            assert!(sample, "{name}");
        }
    }

    #[test]
    fn a_request_is_counted_once_when_it_is_over() {
        let metrics = Arc::new(Metrics::new());
        let running = Running::new(&metrics);
        assert_eq!(metrics.running.get(), 1);
        running.came_out(Outcome::Promised);
        running.came_out(Outcome::Abandoned);
        assert_eq!(metrics.totals().requests, 0);
        drop(running);
        assert_eq!((metrics.running.get(), metrics.totals().requests), (0, 1));
        drop(Running::new(&metrics));
        assert_eq!(metrics.totals().requests, 1);
    }
}
