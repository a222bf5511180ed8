//! Evaluations as HTML and figures.

use std::io::Write;
use std::path::PathBuf;

use haltwise::evaluate::Evaluation;
use haltwise_io::write_whole;
use haltwise_report::{
    Compared, Context, evaluation_figures, report_comparison, report_evaluation,
};
use pyo3::prelude::*;

use crate::failure::{unwritten, value_error};
use crate::rule::Rule;

/// Writes the page about a rule and its evaluation, which comes as JSON, or about several with
/// their names, whole or not at all.
#[pyfunction]
pub(crate) fn write_report(
    path: PathBuf,
    evaluated: Vec<(String, Py<Rule>, String)>,
) -> PyResult<()> {
    let compared = evaluated.into_iter().map(|(name, rule, evaluation)| {
        let rule = rule.get().0.clone();
        Ok(Compared::new(name, rule, read(&evaluation)?))
    });
    let compared: Vec<Compared> = compared.collect::<PyResult<_>>()?;
    let context = Context::new(env!("CARGO_PKG_VERSION"));
    let page = match compared.as_slice() {
        [one] => report_evaluation(&one.rule, &one.evaluation, &context),
        several => report_comparison(several, &context),
    };
    write_whole(&path, |out| out.write_all(page.as_bytes())).map_err(unwritten)
}

/// The figures of an evaluation with their titles, as SVG.
#[pyfunction]
pub(crate) fn figures(rule: &Rule, evaluation: &str) -> PyResult<Vec<(String, String)>> {
    let figures = evaluation_figures(&rule.0, &read(evaluation)?);
    let drawn = figures.iter();
    let drawn = drawn.map(|(_, figure)| (figure.title().to_string(), figure.to_svg()));
    Ok(drawn.collect())
}

fn read(evaluation: &str) -> PyResult<Evaluation> {
    serde_json::from_str(evaluation).map_err(value_error)
}
