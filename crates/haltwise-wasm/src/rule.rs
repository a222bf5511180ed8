//! Rules and live streams.

use std::rc::Rc;

use haltwise_io::LiveRule;
use haltwise_stream as live;
use haltwise_stream::{Decision, GroupStanding, Memory, Reason, State, Step};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::traces::Traces;
use crate::{Result, error};

/// A rule, read from its file or from a file of `haltwise export --to json-min`.
#[wasm_bindgen]
#[derive(Debug, Clone)]
pub struct Rule(Rc<Kind>);

#[derive(Debug)]
enum Kind {
    /// A rule with the record of how it was made.
    Whole(Box<haltwise::Rule>),
    Live(LiveRule),
}

impl Kind {
    fn live(&self) -> live::Rule<'_> {
        match self {
            Self::Whole(rule) => rule.live(),
            Self::Live(rule) => rule.live(),
        }
    }

    fn standing(&self, group: Option<&str>) -> GroupStanding {
        match self {
            Self::Whole(rule) => rule.standing(group),
            Self::Live(rule) => rule.standing(group),
        }
    }
}

impl Rule {
    pub(crate) fn of(rule: haltwise::Rule) -> Self {
        Self(Rc::new(Kind::Whole(Box::new(rule))))
    }

    /// The rule with its record.
    pub(crate) fn whole(&self) -> Result<&haltwise::Rule> {
        match &*self.0 {
            Kind::Whole(rule) => Ok(rule),
            Kind::Live(_) => Err(error(
                "this needs the rule file itself: an exported rule has no record of how it was made",
            )),
        }
    }
}

#[wasm_bindgen]
impl Rule {
    /// Reads a rule file. Refuses one that is damaged or contradicts itself.
    pub fn load(bytes: &[u8]) -> Result<Self> {
        let whole = haltwise_io::parse_rule(bytes);
        let kind = match (whole, haltwise_io::parse_live_rule(bytes)) {
            (Ok(rule), _) => Kind::Whole(Box::new(rule)),
            (Err(_), Ok(rule)) => Kind::Live(rule),
            (Err(why), Err(_)) => return Err(error(why)),
        };
        Ok(Self(Rc::new(kind)))
    }

    /// The text of its file.
    pub fn text(&self) -> Result<String> {
        haltwise_io::rule_json(self.whole()?).map_err(error)
    }

    /// The thresholds; Infinity means never.
    pub fn thresholds(&self) -> Vec<f32> {
        self.0.live().thresholds().to_vec()
    }

    /// The promise, in words.
    pub fn promise(&self) -> Result<String> {
        Ok(haltwise_report::words::promise(self.whole()?))
    }

    /// Another handle to the same rule.
    pub fn again(&self) -> Self {
        self.clone()
    }

    /// Starts a stream, of a group if the rule is by group.
    pub fn stream(&self, group: Option<String>) -> Stream {
        Stream {
            memory: Memory::new(vec![0.0; self.0.live().room()]),
            rule: Rc::clone(&self.0),
            state: State::new().with_standing(self.0.standing(group.as_deref())),
        }
    }
}

/// One live stream.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Stream {
    rule: Rc<Kind>,
    state: State,
    memory: Memory<Vec<f32>>,
}

#[wasm_bindgen]
impl Stream {
    /// Shows the next step. Returns why to stop, or nothing while the stream goes on.
    pub fn observe(
        &mut self,
        probs: Option<Vec<f32>>,
        score: Option<f32>,
        prediction: Option<u32>,
    ) -> Result<Option<String>> {
        let step = Step {
            prediction,
            score,
            probs: probs.as_deref(),
        };
        let rule = self.rule.live();
        let decision = rule.observe(&mut self.state, &mut self.memory, &step);
        decision.map(reason).map_err(error)
    }

    /// Counts a step without a usable score.
    pub fn skip(&mut self) -> Option<String> {
        reason(self.rule.live().skip(&mut self.state))
    }

    /// Ends the stream. Returns why it halted.
    pub fn end(&mut self) -> String {
        self.state.end().to_string()
    }

    /// How many steps it has had so far, or until it halted.
    pub fn steps(&self) -> u32 {
        self.state.steps()
    }

    /// Why it halted; nothing while it runs.
    pub fn reason(&self) -> Option<String> {
        self.state.reason().map(|reason| reason.to_string())
    }
}

fn reason(decision: Decision) -> Option<String> {
    match decision {
        Decision::Continue => None,
        Decision::Halt(reason) => Some(Reason::to_string(&reason)),
    }
}

/// The effect of a rule on a sequence of traces, counted from 0, as JSON: where it stops
/// and why, and the prediction at each step.
#[wasm_bindgen]
pub fn replay(rule: &Rule, traces: &Traces, sequence: usize) -> Result<String> {
    if sequence >= traces.outputs.len() {
        return Err(error("there is no such sequence"));
    }
    let group = traces
        .outputs
        .trace(sequence)
        .about()
        .group
        .map(str::to_owned);
    let (live, mut stream) = (rule.0.live(), rule.stream(group));
    let mut predictions = Vec::new();
    for step in traces.outputs.steps(sequence) {
        predictions.push(step.prediction);
        let (state, memory) = (&mut stream.state, &mut stream.memory);
        live.observe(state, memory, &step).map_err(error)?;
    }
    let reason = stream.end();
    let steps = stream.steps();
    Ok(
        serde_json::json!({"steps": steps, "reason": reason, "predictions": predictions})
            .to_string(),
    )
}
