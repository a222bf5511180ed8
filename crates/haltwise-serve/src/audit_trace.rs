//! An audited stream: all its observations, to become a trace.

use haltwise::terms::Loss;
use serde::{Deserialize, Serialize};

use crate::line::Line;

/// The most steps and bytes that are kept of a stream; of a longer one only the early
/// and the full prediction are, and it makes no trace.
const MOST_STEPS: usize = 100_000;
const MOST_BYTES: usize = 2 << 20;

/// About how many bytes a step takes beside its prediction and its probabilities, how many
/// these take beside their numbers, and a number: in memory or in the log, whichever is
/// more.
const STEP: usize = 40;
const PROBS: usize = 24;
const NUMBER: usize = 12;

/// The steps of an audited stream. Those of one that can be no trace are not kept, but
/// for the prediction where it halted and the last one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct AuditTrace {
    /// The predicted classes, as JSON.
    predictions: Vec<Option<String>>,
    /// How many steps there were that are not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    dropped: usize,
    scores: Vec<Option<f32>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    probs: Vec<Vec<f32>>,
    /// What each step cost, where that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    costs: Vec<f32>,
    /// The group that the stream belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// The unit that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unit: Option<String>,
    /// How many steps there were when it halted; 0 while it runs.
    halted: usize,
    /// Whether steps are missing, or too many, so that it is no trace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    broken: bool,
    /// About how many bytes of memory it takes.
    #[serde(skip)]
    bytes: usize,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// What columns of trace files are called.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Names<'a> {
    pub(crate) group: Option<&'a str>,
    pub(crate) unit: Option<&'a str>,
    pub(crate) costs: Option<&'a str>,
}

impl AuditTrace {
    /// No steps yet, of a stream in a group and of a unit.
    pub(crate) fn new(group: Option<String>, unit: Option<String>) -> Self {
        let trace = Self {
            group,
            unit,
            ..Self::default()
        };
        trace.weighed()
    }

    /// How many steps there are.
    pub(crate) fn len(&self) -> usize {
        self.predictions.len() + self.dropped
    }

    /// About how many bytes of memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// About how many bytes of that it would take less if it were thinned.
    pub(crate) fn whole_bytes(&self) -> usize {
        if self.broken { 0 } else { self.bytes }
    }

    /// Whether it is no trace, so that only the predictions that matter are kept.
    pub(crate) fn is_thin(&self) -> bool {
        self.broken
    }

    /// The same with its bytes counted, which are not stored.
    pub(crate) fn weighed(mut self) -> Self {
        self.weigh();
        self
    }

    fn weigh(&mut self) {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let probs = self.probs.iter().map(|p| PROBS + NUMBER * p.len());
        let steps = self.predictions.iter().map(|p| STEP + text(p));
        let about = text(&self.group) + text(&self.unit);
        self.bytes = about + steps.sum::<usize>() + probs.sum::<usize>();
    }

    /// Takes the step of a line.
    pub(crate) fn push(&mut self, line: &Line<'_>) {
        let due = self.len() as u64 + 1;
        if line.t.is_some_and(|t| t != due) || self.len() >= MOST_STEPS {
            self.thin();
        }
        let probs = line.probs_said();
        let best = || probs.as_deref().and_then(most_probable);
        let prediction = line.prediction_said().or_else(best);
        if self.broken {
            return self.replace_last(prediction);
        }
        self.bytes += STEP + prediction.as_ref().map_or(0, String::len);
        self.predictions.push(prediction);
        self.scores.push(line.score_said());
        if let Some(probs) = probs {
            self.bytes += PROBS + NUMBER * probs.len();
            self.probs.push(probs);
        }
        if self.bytes > MOST_BYTES {
            self.thin();
        }
    }

    /// Keeps only the prediction where it halted, and the last one. It is no trace then,
    /// and can still be settled by a label.
    pub(crate) fn thin(&mut self) {
        let steps = self.len();
        let early = self.early().cloned();
        let last = match self.halted < steps {
            true => self.predictions.pop(),
            false => None,
        };
        self.predictions = early.into_iter().chain(last).collect();
        self.dropped = steps - self.predictions.len();
        (self.scores, self.probs, self.costs) = Default::default();
        self.broken = true;
        self.weigh();
    }

    /// Takes a step of which only the prediction is kept. The one where it halted stays,
    /// the last one before this does not.
    fn replace_last(&mut self, prediction: Option<String>) {
        if self.len() > self.halted && self.predictions.pop().is_some() {
            self.dropped += 1;
        }
        self.predictions.push(prediction);
        self.weigh();
    }

    /// The prediction where it halted, the first of those kept where not all are.
    fn early(&self) -> Option<&Option<String>> {
        let at = self.halted.checked_sub(1)?;
        self.predictions.get(if self.dropped > 0 { 0 } else { at })
    }

    /// Takes a step with its predicted class, as JSON, and what it cost.
    pub(crate) fn add(&mut self, prediction: String, score: f32, cost: f32) {
        if self.broken || self.bytes > MOST_BYTES || self.len() >= MOST_STEPS {
            self.thin();
            return self.replace_last(Some(prediction));
        }
        self.bytes += STEP + prediction.len();
        self.predictions.push(Some(prediction));
        self.scores.push(Some(score));
        self.costs.push(cost);
    }

    /// The stream halts here.
    pub(crate) fn halt(&mut self) {
        self.halted = self.len();
    }

    /// Whether halting cost anything, as far as it can be told: nothing where the
    /// early and the full prediction agree, whatever the label; and where they do
    /// not, a rule about disagreements needs none.
    pub(crate) fn loss(&self, label: Option<&str>, of: Loss) -> Option<bool> {
        if self.halted == self.len() {
            return Some(false);
        }
        let (early, full) = self.predicted()?;
        of.of_answers(&early, &full, label.as_ref())
    }

    /// The early and the full prediction, where both were said.
    pub(crate) fn predicted(&self) -> Option<(&str, &str)> {
        let full = self.predictions.last()?;
        Some((self.early()?.as_deref()?, full.as_deref()?))
    }

    /// The line of a trace file, if it makes one. The label may be missing if the
    /// promise needs none.
    pub(crate) fn line(&self, id: &str, label: Option<&str>, names: Names<'_>) -> Option<String> {
        let predictions: Option<Vec<&str>> =
            self.predictions.iter().map(Option::as_deref).collect();
        let scores: Option<Vec<f32>> = self.scores.iter().copied().collect();
        let probs = (self.probs.len() == self.len()).then_some(&self.probs);
        if self.broken || scores.is_none() && probs.is_none() {
            return None;
        }
        let mut line = format!("{{\"id\":{id}");
        if let Some(label) = label {
            line += &format!(",\"label\":{label}");
        }
        if let (Some(name), Some(group)) = (names.group, &self.group) {
            line += &format!(",{}:{}", json(name)?, json(group)?);
        }
        if let (Some(name), Some(unit)) = (names.unit, &self.unit) {
            line += &format!(",{}:{}", json(name)?, json(unit)?);
        }
        line += &format!(",\"predictions\":[{}]", predictions?.join(","));
        if let Some(scores) = scores {
            line += &format!(",\"scores\":{}", json(&scores)?);
        }
        if let Some(probs) = probs {
            line += &format!(",\"probs\":{}", json(probs)?);
        }
        if let Some(name) = names.costs.filter(|_| self.costs.len() == self.len()) {
            line += &format!(",{}:{}", json(name)?, json(&self.costs)?);
        }
        line.push('}');
        Some(line)
    }
}

fn json<T: Serialize + ?Sized>(value: &T) -> Option<String> {
    serde_json::to_string(value).ok()
}

/// The class with the largest probability, the first of equals.
fn most_probable(probs: &[f32]) -> Option<String> {
    let mut best: Option<(usize, f32)> = None;
    for (class, &p) in probs.iter().enumerate() {
        if best.is_none_or(|(_, most)| p > most) {
            best = Some((class, p));
        }
    }
    best.map(|(class, _)| class.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(lines: &[&str]) -> AuditTrace {
        let mut trace = AuditTrace::default();
        for line in lines {
            trace.push(&Line::parse(line.as_bytes()).unwrap());
        }
        trace
    }

    #[test]
    fn a_stream_makes_a_line_of_a_trace_file() {
        let given = trace(&[
            r#"{"id": 1, "score": 0.5, "prediction": "a"}"#,
            r#"{"id": 1, "score": 0.9, "prediction": "\u0061", "t": 2}"#,
        ]);
        let expected = r#"{"id":1,"label":"a","predictions":["a","a"],"scores":[0.5,0.9]}"#;
        assert_eq!(
            given.line("1", Some("\"a\""), Names::default()).as_deref(),
            Some(expected)
        );
        let probs = trace(&[
            r#"{"id": "x", "probs": [0.25, 0.75]}"#,
            r#"{"id": "x", "probs": [0.75, 0.25]}"#,
        ]);
        let expected =
            r#"{"id":"x","label":0,"predictions":[1,0],"probs":[[0.25,0.75],[0.75,0.25]]}"#;
        assert_eq!(
            probs.line("\"x\"", Some("0"), Names::default()).as_deref(),
            Some(expected)
        );
    }

    #[test]
    fn groups_units_and_costs_have_the_names_of_columns() {
        let mut given = AuditTrace::new(Some("north".into()), Some("a".into()));
        given.add("\"a\"".into(), 0.5, 30.0);
        let names = Names {
            group: Some("site"),
            unit: Some("machine"),
            costs: Some("tokens"),
        };
        let expected = r#"{"id":1,"site":"north","machine":"a","predictions":["a"],"scores":[0.5],"tokens":[30.0]}"#;
        assert_eq!(given.line("1", None, names).as_deref(), Some(expected));
    }

    #[test]
    fn a_label_is_wanted_only_where_early_and_full_prediction_differ() {
        let step = |class: u32| format!("{{\"id\": 1, \"score\": 0.5, \"prediction\": {class}}}");
        let outcome = |early: u32, full: u32, label: Option<&str>| {
            let mut stream = trace(&[&step(early)]);
            stream.halt();
            stream.push(&Line::parse(step(full).as_bytes()).unwrap());
            stream.loss(label, Loss::Gap)
        };
        assert_eq!(outcome(1, 1, None), Some(false));
        assert_eq!(outcome(1, 2, None), None);
        assert_eq!(outcome(1, 2, Some("2")), Some(true));
        assert_eq!(outcome(1, 2, Some("1")), Some(false));
        assert_eq!(outcome(1, 2, Some("3")), Some(false));
        // A stream that halts at its end has lost nothing, even without a prediction.
        let mut silent = trace(&[r#"{"id": 1, "score": 0.5}"#]);
        silent.halt();
        assert_eq!(silent.loss(None, Loss::Gap), Some(false));
        silent.push(&Line::parse(step(1).as_bytes()).unwrap());
        assert_eq!(
            silent.loss(Some("1"), Loss::Gap),
            None,
            "the early one was not said"
        );
    }

    #[test]
    fn of_a_stream_that_is_too_long_the_predictions_that_matter_are_kept() {
        let step = |class: u32| format!("{{\"id\": 1, \"probs\": [1], \"prediction\": {class}}}");
        for thin_after in 1..6 {
            for halt_after in 1..6 {
                let mut stream = AuditTrace::default();
                for i in 1..6 {
                    stream.push(&Line::parse(step(i).as_bytes()).unwrap());
                    if i == halt_after {
                        stream.halt();
                    }
                    if i == thin_after {
                        stream.thin();
                    }
                    assert_eq!(stream.len(), i as usize);
                }
                let early = halt_after.to_string();
                assert_eq!(stream.predicted(), Some((&*early, "5")));
                assert!(stream.predictions.len() <= 2 + 5 - thin_after as usize);
                assert_eq!(stream.line("1", Some("1"), Names::default()), None);
            }
        }
        // Steps of half a megabyte each.
        let wide = format!("{{\"id\": 1, \"probs\": [{}1]}}", "0,".repeat(1 << 17));
        let mut stream = AuditTrace::default();
        for _ in 0..100 {
            stream.push(&Line::parse(wide.as_bytes()).unwrap());
            assert!(stream.bytes() <= MOST_BYTES);
        }
        assert_eq!(stream.len(), 100);
    }

    #[test]
    fn what_is_not_complete_makes_none() {
        for lines in [
            &[r#"{"id": 1, "score": 0.5}"#][..],
            &[r#"{"id": 1, "score": 0.5, "prediction": 1, "t": 2}"#],
            &[r#"{"id": 1, "score": null, "prediction": 1}"#],
            &[
                r#"{"id": 1, "score": 0.5, "prediction": 1}"#,
                r#"{"id": 1, "probs": [0.5, 0.5]}"#,
            ],
        ] {
            assert_eq!(
                trace(lines).line("1", Some("1"), Names::default()),
                None,
                "{lines:?}"
            );
        }
    }
}
