//! Makes rules from traces, and evaluates them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use haltwise::corridor::{CalibrateError, Fold};
use haltwise::evaluate::{Evaluation, Evaluator};
use haltwise::plan::{OPTIONS, PlanError, Section, Value, camel_case};
use haltwise::traces::{Key, SetSummary, Trace};
use haltwise::{Ask, Inputs, Outputs, Plan};
use haltwise_report::{Compared, Context, report_evaluation};
use js_sys::Function;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::rule::Rule;
use crate::traces::Traces;
use crate::{Result, error};

/// Makes a plan from options: a JSON object with the names of the core's list, in camel
/// case.
pub(crate) fn plan(options: &str) -> Result<Plan> {
    let options: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(options).map_err(|e| error(format_args!("the options: {e}")))?;
    let mut ask = Ask::default();
    for (name, value) in options {
        let refused = |e: PlanError| error(format_args!("the options: {}", e.spelt(camel_case)));
        let mut known = OPTIONS.iter().filter(|o| o.section != Section::Evidence);
        let known = known.find(|option| camel_case(option.name) == name);
        let known = known.ok_or_else(|| refused(PlanError::Unknown { option: name }))?;
        if let Some(value) = worth(value) {
            ask.set(known.name, value).map_err(refused)?;
        }
    }
    Plan::new(ask).map_err(|e| error(e.spelt(camel_case)))
}

/// Converts a JSON value for any option; `null` asks for the default.
fn worth(value: serde_json::Value) -> Option<Value> {
    Some(match value {
        serde_json::Value::Null => return None,
        serde_json::Value::String(text) => Value::Text(text),
        serde_json::Value::Array(values) => {
            Value::List(values.into_iter().filter_map(worth).collect())
        }
        serde_json::Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(count), _) => Value::Count(count),
            (None, number) => Value::Number(number.unwrap_or(f64::NAN)),
        },
        // No option takes such a value; it is shown as given.
        other => Value::Text(other.to_string()),
    })
}

thread_local! {
    /// The function that is told how far a pass over the traces has come.
    static LISTENER: RefCell<Option<Function>> = const { RefCell::new(None) };
}

/// Sets the function that is told how many sequences of how many a pass has seen.
#[wasm_bindgen]
pub fn on_progress(listener: Option<Function>) {
    LISTENER.set(listener);
}

fn tell(done: f64, total: f64) {
    LISTENER.with_borrow(|listener| {
        if let Some(listener) = listener {
            // An exception in the listener is ignored.
            let _ = listener.call2(&JsValue::NULL, &done.into(), &total.into());
        }
    });
}

/// Traces that report how far a pass over them has come.
struct WithProgress<'a>(&'a Outputs);

impl Fold for WithProgress<'_> {
    type Error = CalibrateError;

    fn refuse(&self, error: CalibrateError) -> CalibrateError {
        error
    }

    fn fold<S: Send>(
        &self,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, Key, &Trace<'_>) -> std::result::Result<(), CalibrateError> + Sync,
    ) -> std::result::Result<Vec<S>, CalibrateError> {
        let total = self.0.len();
        let every = (total / 20).max(1);
        let states = self.0.fold(
            || (start(), 0),
            |(state, seen), key, trace| {
                *seen += 1;
                if *seen % every == 0 {
                    tell(*seen as f64, total as f64);
                }
                visit(state, key, trace)
            },
        )?;
        Ok(states.into_iter().map(|(state, _)| state).collect())
    }
}

/// A rule, and what you should know about how it was made.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Calibrated {
    rule: Rule,
    warnings: Vec<String>,
}

#[wasm_bindgen]
impl Calibrated {
    /// The rule.
    pub fn rule(&self) -> Rule {
        self.rule.clone()
    }

    /// Points to check.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

/// Finds and certifies a rule. `options` is JSON.
#[wasm_bindgen]
pub fn calibrate(traces: &Traces, options: &str) -> Result<Calibrated> {
    let plan = plan(options)?;
    let found = plan.calibrate(Inputs {
        classifier: traces.classifier.clone(),
        ..Inputs::one(&WithProgress(&traces.outputs))
    });
    let found = found.map_err(error)?;
    Ok(Calibrated {
        rule: Rule::of(found.rule),
        warnings: found.warnings.iter().map(ToString::to_string).collect(),
    })
}

/// A rule's effect on traces, and whether they flatter it.
fn evaluated(rule: &haltwise::Rule, traces: &Traces) -> Result<(Evaluation, bool)> {
    let start = || (Evaluator::for_rule(rule), SetSummary::default(), 0, None);
    let states = traces.outputs.fold(start, |state, key, trace| {
        let (evaluator, set, remembered, failed) = state;
        if failed.is_some() {
            return Ok(());
        }
        match evaluator.push(key, trace) {
            Ok(Some(print)) => {
                *set += SetSummary::one(print);
                *remembered += u64::from(rule.remembers(print));
            }
            Ok(None) => {}
            Err(error) => *failed = Some(error),
        }
        Ok(())
    });
    let mut all = Evaluator::for_rule(rule);
    let (mut set, mut remembered) = (SetSummary::default(), 0);
    for (evaluator, seen, known, failed) in states.map_err(error)? {
        if let Some(failed) = failed {
            let score = rule.source();
            return Err(error(format_args!(
                "the rule judges a score that is {score}: {failed}"
            )));
        }
        all.append(evaluator).map_err(error)?;
        set += seen;
        remembered += known;
    }
    let evaluation = all.finish().map_err(error)?;
    Ok((evaluation, rule.made_from(set) || remembered > 0))
}

/// Evaluates a rule on traces and returns JSON. `flattered` says whether the rule was made
/// from some of them.
#[wasm_bindgen]
pub fn evaluate(rule: &Rule, traces: &Traces) -> Result<String> {
    let (evaluation, flattered) = evaluated(rule.whole()?, traces)?;
    let mut json = serde_json::to_value(evaluation).map_err(error)?;
    if let Some(fields) = json.as_object_mut() {
        fields.insert("flattered".into(), flattered.into());
    }
    Ok(json.to_string())
}

/// Returns the report on a rule as HTML. `names` are those of the traces and of the rule.
#[wasm_bindgen]
pub fn report(rule: &Rule, traces: &Traces, names: Vec<String>) -> Result<String> {
    let rule = rule.whole()?;
    let (evaluation, _) = evaluated(rule, traces)?;
    Ok(report_evaluation(rule, &evaluation, &context(&names)))
}

fn context(names: &[String]) -> Context {
    let context = Context::new(env!("CARGO_PKG_VERSION"));
    let named = std::iter::zip(["traces", "rule"], names);
    named.fold(context, |context, (what, name)| context.source(what, name))
}

/// Returns what the playground shows about rules: the chosen one, counted from 0, and a
/// comparison of all. It is a part of a page, as HTML.
#[wasm_bindgen]
pub fn results(
    rules: Vec<Rule>,
    names: Vec<String>,
    chosen: usize,
    traces: &Traces,
) -> Result<String> {
    let (mut compared, mut flattered) = (Vec::new(), false);
    for (rule, name) in std::iter::zip(rules, names) {
        let rule = rule.whole()?;
        let (evaluation, own) = evaluated(rule, traces)?;
        flattered |= own;
        compared.push(Compared::new(name, rule.clone(), evaluation));
    }
    Ok(haltwise_report::playground_results(
        &compared, chosen, flattered,
    ))
}
