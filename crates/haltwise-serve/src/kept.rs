//! What is kept of an audited stream: all that was said about it, to be a trace.

use haltwise::terms::Loss;
use serde::{Deserialize, Serialize};

use crate::line::Line;

/// The most steps that are kept of a stream; of a longer one only the first and
/// the last predictions matter, and it makes no trace.
const MOST_STEPS: usize = 100_000;

/// The steps of an audited stream.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The predicted classes, as JSON.
    predictions: Vec<Option<String>>,
    scores: Vec<Option<f32>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    probs: Vec<Vec<f32>>,
    /// What each step cost, where that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    costs: Vec<f32>,
    /// The group that the stream belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// How many there were when it halted; 0 while it runs.
    halted: usize,
    /// Whether steps are missing, or too many, so that it is no trace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    broken: bool,
}

/// What columns of trace files are called.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Names<'a> {
    pub(crate) group: Option<&'a str>,
    pub(crate) costs: Option<&'a str>,
}

impl Kept {
    /// No steps yet, of a stream in a group.
    pub(crate) fn new(group: Option<String>) -> Self {
        Self {
            group,
            ..Self::default()
        }
    }

    /// How many steps there are.
    pub(crate) fn len(&self) -> usize {
        self.predictions.len()
    }

    /// Takes the step of a line.
    pub(crate) fn push(&mut self, line: &Line<'_>) {
        let due = self.len() as u64 + 1;
        if line.t.is_some_and(|t| t != due) || self.len() >= MOST_STEPS {
            self.broken = true;
        }
        let probs = line.probs_said();
        let best = || probs.as_deref().and_then(most_probable);
        let prediction = line.prediction_said().or_else(best);
        if self.len() >= MOST_STEPS {
            // The last one is what the stream ends with.
            self.predictions.pop();
            self.predictions.push(prediction);
            return;
        }
        self.predictions.push(prediction);
        self.scores.push(line.score_said());
        if let Some(probs) = probs {
            self.probs.push(probs);
        }
    }

    /// Takes a step with its predicted class, as JSON, and what it cost.
    pub(crate) fn add(&mut self, prediction: String, score: f32, cost: f32) {
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
        if early == full {
            return Some(false);
        }
        match of {
            Loss::Disagreement => Some(true),
            _ => label.map(|label| full == label && early != label),
        }
    }

    /// The early and the full prediction, where both were said.
    pub(crate) fn predicted(&self) -> Option<(&str, &str)> {
        let early = self.predictions.get(self.halted.checked_sub(1)?)?;
        let full = self.predictions.last()?;
        Some((early.as_deref()?, full.as_deref()?))
    }

    /// The line of a trace file, if it makes one. Where the promise needs no label,
    /// there may be none.
    pub(crate) fn trace(&self, id: &str, label: Option<&str>, names: Names<'_>) -> Option<String> {
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

    fn kept(lines: &[&str]) -> Kept {
        let mut kept = Kept::default();
        for line in lines {
            kept.push(&Line::parse(line.as_bytes()).unwrap());
        }
        kept
    }

    #[test]
    fn a_stream_makes_a_line_of_a_trace_file() {
        let given = kept(&[
            r#"{"id": 1, "score": 0.5, "prediction": "a"}"#,
            r#"{"id": 1, "score": 0.9, "prediction": "\u0061", "t": 2}"#,
        ]);
        let expected = r#"{"id":1,"label":"a","predictions":["a","a"],"scores":[0.5,0.9]}"#;
        assert_eq!(
            given.trace("1", Some("\"a\""), Names::default()).as_deref(),
            Some(expected)
        );
        let probs = kept(&[
            r#"{"id": "x", "probs": [0.25, 0.75]}"#,
            r#"{"id": "x", "probs": [0.75, 0.25]}"#,
        ]);
        let expected =
            r#"{"id":"x","label":0,"predictions":[1,0],"probs":[[0.25,0.75],[0.75,0.25]]}"#;
        assert_eq!(
            probs.trace("\"x\"", Some("0"), Names::default()).as_deref(),
            Some(expected)
        );
    }

    #[test]
    fn groups_and_costs_have_the_names_of_columns() {
        let mut given = Kept::new(Some("north".into()));
        given.add("\"a\"".into(), 0.5, 30.0);
        let names = Names {
            group: Some("site"),
            costs: Some("tokens"),
        };
        let expected =
            r#"{"id":1,"site":"north","predictions":["a"],"scores":[0.5],"tokens":[30.0]}"#;
        assert_eq!(given.trace("1", None, names).as_deref(), Some(expected));
    }

    #[test]
    fn a_label_is_wanted_only_where_early_and_full_prediction_differ() {
        let step = |class: u32| format!("{{\"id\": 1, \"score\": 0.5, \"prediction\": {class}}}");
        let outcome = |early: u32, full: u32, label: Option<&str>| {
            let mut stream = kept(&[&step(early)]);
            stream.halt();
            stream.push(&Line::parse(step(full).as_bytes()).unwrap());
            stream.loss(label, Loss::Gap)
        };
        assert_eq!(outcome(1, 1, None), Some(false));
        assert_eq!(outcome(1, 2, None), None);
        assert_eq!(outcome(1, 2, Some("2")), Some(true));
        assert_eq!(outcome(1, 2, Some("1")), Some(false));
        assert_eq!(outcome(1, 2, Some("3")), Some(false));
        // Who halts at the end has lost nothing, even without a prediction.
        let mut silent = kept(&[r#"{"id": 1, "score": 0.5}"#]);
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
                kept(lines).trace("1", Some("1"), Names::default()),
                None,
                "{lines:?}"
            );
        }
    }
}
