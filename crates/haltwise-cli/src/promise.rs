//! Whether a rule's promise covers the model that is asked.

use std::path::Path;

use anyhow::bail;
use haltwise::Rule;
use haltwise::plan::Purpose;
use haltwise::terms::LABEL;
use haltwise_llm::Mismatch;

use crate::show;

/// Refuses a rule that was calibrated for another model, or for one that it does
/// not tell of, unless it is forced. Returns whether its promise holds for this one.
pub(crate) fn check(
    path: &Path,
    rule: &Rule,
    mismatches: Option<Vec<Mismatch>>,
    verb: &str,
    force: bool,
) -> anyhow::Result<bool> {
    let file = show::file(path);
    let Some(mismatches) = mismatches else {
        let unknown = format!("{file}: the rule does not say which model it was calibrated for");
        if !force {
            bail!("{unknown}; calibrate it on traces of `haltwise {verb}`, or use it with --force");
        }
        show::warn(format_args!("{unknown}: nothing is promised"));
        return Ok(false);
    };
    let (voids, others): (Vec<_>, Vec<_>) = mismatches.into_iter().partition(|m| m.voids);
    if !others.is_empty() {
        show::warn(format_args!(
            "{file}: the rule was calibrated with another server, which may answer a little \
             differently{}",
            list(&others)
        ));
    }
    if rule.promise().is_none() {
        let made = match rule.purpose() {
            Purpose::Use => "screened, not certified",
            Purpose::Explore => "made to compare settings",
        };
        show::warn(format_args!(
            "{file}: the rule was {made}: nothing is promised"
        ));
    }
    let by = rule.terms().by.as_deref().filter(|&by| by != LABEL);
    if let Some(by) = by.filter(|_| rule.promise().is_some()) {
        let by_group = format!(
            "{file}: the rule's promise is by {by}, and `{verb}` cannot say the {by} of a question"
        );
        if !force {
            bail!("{by_group}; calibrate one without --by, or use this one with --force");
        }
        show::warn(format_args!("{by_group}: nothing is promised"));
    }
    if voids.is_empty() {
        return Ok(rule.promise().is_some() && by.is_none());
    }
    let differs = format!(
        "{file}: the rule was calibrated for another reader{}",
        list(&voids)
    );
    if !force {
        bail!("{differs}\nCalibrate one for this reader, or use it with --force");
    }
    show::warn(format_args!("{differs}\nNothing is promised"));
    Ok(false)
}

fn list(mismatches: &[Mismatch]) -> String {
    let value = |v: &Option<String>| v.as_ref().map_or("unknown".into(), |v| format!("{v:?}"));
    let line = |m: &Mismatch| {
        let (rule, here) = (value(&m.rule), value(&m.here));
        format!("\n  {}: {rule}, but here {here}", m.what)
    };
    mismatches.iter().map(line).collect()
}
