//! Numbers for Prometheus: counters, histograms, and the text that shows them.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows while the process lives.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds several. A sum that has no room stays at the largest number there is.
    pub fn add(&self, more: u64) {
        let add = |sum: u64| Some(sum.saturating_add(more));
        let _before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The bounds of what a server does, in seconds.
pub(crate) const SECONDS: [f64; 14] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

/// How long things took, counted in buckets.
#[derive(Debug)]
pub struct Histogram {
    /// The longest time of each bucket in seconds, in ascending order.
    bounds: &'static [f64],
    /// One more than there are bounds: the last bucket has none.
    buckets: Box<[Counter]>,
    microseconds: Counter,
}

impl Histogram {
    /// An empty histogram. `bounds` are in seconds and ascend.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            buckets: (0..=bounds.len()).map(|_| Counter::default()).collect(),
            microseconds: Counter::default(),
        }
    }

    /// Counts something that took this long.
    pub fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let place = self.bounds.partition_point(|&bound| bound < seconds);
        self.buckets[place].increment();
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.microseconds.add(micros);
    }
}

/// Names and values that tell one sample of a family from the others.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// The text that Prometheus reads, in its format 0.0.4.
#[derive(Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// The media type of the text.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4";

    /// A text that begins with the version of this program.
    pub fn new() -> Self {
        let mut text = Self::default();
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        text.gauge("haltwise_build_info", "The version that runs.")
            .sample(&version, 1.0);
        text
    }

    /// Begins a family of numbers that only grow; its name ends with `_total`.
    pub fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    /// Begins a family of numbers that go up and down.
    pub fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    /// Begins a family of histograms; its name ends with `_seconds`.
    pub fn histogram(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "histogram", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        let text = &mut self.0;
        // Writing to a text cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text, name }
    }

    /// The whole text.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// A family of samples under one name.
#[derive(Debug)]
pub struct Family<'t> {
    text: &'t mut String,
    name: &'static str,
}

impl Family<'_> {
    /// Adds a counter or a gauge.
    pub fn sample(&mut self, labels: Labels<'_>, value: f64) {
        self.line("", labels, None, value);
    }

    /// Adds a histogram.
    pub fn buckets(&mut self, labels: Labels<'_>, histogram: &Histogram) {
        let mut count = 0_u64;
        let bounds = histogram.bounds.iter().map(f64::to_string);
        let bounds = bounds.chain(["+Inf".to_owned()]);
        for (bound, bucket) in bounds.zip(&histogram.buckets) {
            count = count.saturating_add(bucket.get());
            self.line("_bucket", labels, Some(&bound), count as f64);
        }
        let seconds = Duration::from_micros(histogram.microseconds.get()).as_secs_f64();
        self.line("_sum", labels, None, seconds);
        // The sum of the buckets that were shown, so that both always agree.
        self.line("_count", labels, None, count as f64);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<&str>, value: f64) {
        let text = &mut *self.text;
        text.push_str(self.name);
        text.push_str(suffix);
        let bound = bound.map(|bound| ("le", bound));
        let mut open = '{';
        for (label, value) in labels.iter().copied().chain(bound) {
            text.push(open);
            open = ',';
            let value = value.replace('\\', r"\\").replace('"', "\\\"");
            let _ = write!(text, "{label}=\"{}\"", value.replace('\n', r"\n"));
        }
        if open == ',' {
            text.push('}');
        }
        // Infinity is written "+Inf" here, and "inf" by Rust.
        let value = match value {
            f64::INFINITY => "+Inf".to_owned(),
            f64::NEG_INFINITY => "-Inf".to_owned(),
            value => value.to_string(),
        };
        let _ = writeln!(text, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_stays_at_the_largest_number_there_is() {
        let counter = Counter::default();
        counter.add(u64::MAX - 1);
        counter.increment();
        counter.increment();
        assert_eq!(counter.get(), u64::MAX);
    }

    #[test]
    fn the_text_is_as_prometheus_reads_it() {
        let histogram = Histogram::new(&[0.1, 1.0]);
        for millis in [100, 101, 1000, 2000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let mut text = Exposition::default();
        let mut total = text.counter("a_total", "Things.");
        total.sample(&[("rule", "a\"\\\n"), ("b", "c")], 3.0);
        total.sample(&[], f64::INFINITY);
        text.gauge("b", "Other things.").sample(&[], f64::NAN);
        text.histogram("c_seconds", "Times.")
            .buckets(&[("rule", "a")], &histogram);
        assert_eq!(
            text.into_text(),
            r#"# HELP a_total Things.
# TYPE a_total counter
a_total{rule="a\"\\\n",b="c"} 3
a_total +Inf
# HELP b Other things.
# TYPE b gauge
b NaN
# HELP c_seconds Times.
# TYPE c_seconds histogram
c_seconds_bucket{rule="a",le="0.1"} 1
c_seconds_bucket{rule="a",le="1"} 3
c_seconds_bucket{rule="a",le="+Inf"} 4
c_seconds_sum{rule="a"} 3.201
c_seconds_count{rule="a"} 4
"#
        );
        let text = Exposition::new().into_text();
        assert!(text.contains("haltwise_build_info{version=\""), "{text}");
    }
}
