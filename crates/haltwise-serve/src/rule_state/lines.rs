//! Lines of streams: what the rule decides on each, and what is refused.

use std::sync::Arc;

use haltwise::monitor::UnitKey;
use haltwise::stream::{Message, Outcome, Reason, Refusal};
use haltwise::{Rule, Step};
use rand::RngExt;

use super::{Effects, ReplacedRule, RuleState};
use crate::fault::{Fault, FaultKind};
use crate::line::Line;
use crate::log_record::Halt;

const SEE_LINES: &str = "see the fields of a line in /openapi.json";
const BEGIN_AGAIN: &str = "send the stream again from its first step, with \"t\": 1";

/// The answer to a stream that halts at step `t`. An audited one goes on.
pub(super) fn answer(id: &str, t: u64, reason: Reason, go_on: bool) -> String {
    let audit = if go_on { ",\"audit\":true" } else { "" };
    format!("{{\"id\":{id},\"t\":{t},\"reason\":\"{reason}\"{audit}}}\n")
}

impl RuleState {
    /// Takes a line.
    pub(crate) fn take(
        &mut self,
        now: u64,
        line: &Line<'_>,
        effects: &mut Effects,
    ) -> Result<(), Fault> {
        let taken = self.take_line(now, line, effects);
        self.totals.faults += u64::from(taken.is_err());
        taken
    }

    /// Takes a line that may come twice, so it must say which step it is. A line that came
    /// before is passed over. If its stream halted there, it is answered again.
    pub(crate) fn take_numbered(
        &mut self,
        now: u64,
        line: &Line<'_>,
        effects: &mut Effects,
    ) -> Result<(), Fault> {
        if !line.has_step() {
            return self.take(now, line, effects);
        }
        let Some(t) = line.t else {
            self.count_fault();
            let problem = format!("the line of stream {} has no \"t\"", line.id);
            let remedy = "number the steps from 1: a message may be delivered twice";
            return Err(Fault::new(FaultKind::Unusable, problem, remedy));
        };
        match self.steps(&line.id) {
            Some(steps) if t <= steps => {
                self.answers_again(line, effects);
                Ok(())
            }
            // Its stream may be over, and the line one that came before.
            None if t > 1 => {
                self.count_fault();
                let problem = format!("stream {} is not open", line.id);
                Err(Fault::new(FaultKind::BeginAgain, problem, BEGIN_AGAIN))
            }
            _ => self.take(now, line, effects),
        }
    }

    /// How many steps an open stream has had.
    fn steps(&self, id: &str) -> Option<u64> {
        if let Some(audit) = self.running.get(id) {
            return Some(audit.trace.len() as u64);
        }
        let stream = self.tables().find_map(|streams| streams.get(id));
        stream.map(|stream| u64::from(stream.steps()))
    }

    /// Answers again if a line repeats the step at which its stream halted: the first answer
    /// may have been lost.
    fn answers_again(&self, line: &Line<'_>, effects: &mut Effects) -> bool {
        let id = &*line.id;
        let stream = self.tables().find_map(|streams| streams.get(id));
        let halted = stream.and_then(|stream| Some((u64::from(stream.steps()), stream.reason()?)));
        let Some((t, reason)) = halted.filter(|&(t, _)| line.t == Some(t)) else {
            return false;
        };
        let comes_again = line.has_step() && !line.end;
        if comes_again {
            let go_on = self.running.contains_key(id) && reason == Reason::Threshold;
            effects.answers += &answer(id, t, reason, go_on);
        }
        comes_again
    }

    fn take_line(&mut self, now: u64, line: &Line<'_>, effects: &mut Effects) -> Result<(), Fault> {
        let id = &*line.id;
        let of = |replaced: &ReplacedRule| replaced.streams.get(id).is_some();
        let replaced = self.replaced.iter().position(of);
        if self.answers_again(line, effects) {
            return Ok(());
        }
        let is_known = replaced.is_some() || self.streams.get(id).is_some();
        let begins = !is_known && line.has_step();
        if begins && now < self.careful_until && line.t != Some(1) {
            let problem = format!("stream {id} is not known since the server started again");
            return Err(Fault::new(FaultKind::BeginAgain, problem, BEGIN_AGAIN));
        }
        let (mut group, mut unit) = (None, None);
        if begins {
            // An old stream of this id has vanished, or another has taken its place.
            self.lose_audit(id, effects);
            (group, unit) = (self.group(line)?, self.unit(line)?);
        }
        let is_audited = if is_known {
            self.running.contains_key(id)
        } else {
            // A stream that is read to its end has nothing to audit.
            line.has_step() && self.rule.may_halt(group.as_deref()) && self.draws(unit.as_deref())
        };
        let of = group.as_deref();
        let (rule, outcome, problem) = self.observe(line, of, replaced, effects)?;
        self.totals.observations += u64::from(line.has_step());
        self.totals.streams += u64::from(!is_known);
        if is_audited && !is_known {
            self.begin_audit(id, now, (group, unit), effects);
        }
        if is_audited && line.has_step() {
            self.add_to_trace(line, effects);
        }
        if let Outcome::Taken(taken) = &outcome
            && let Some(reason) = taken.halted
        {
            let halt = Halt {
                id: id.to_owned(),
                t: taken.steps,
                reason,
                audit: self.running.contains_key(id),
                early: reason == Reason::Threshold && !line.end,
                saved: 0,
                older: replaced.is_some(),
            };
            self.halt_stream(&rule, now, halt, effects);
        }
        self.finish_audit_if_over(&rule, now, line, effects);
        match problem {
            None => Ok(()),
            Some(problem) => Err(Fault::new(FaultKind::Unusable, problem, SEE_LINES)),
        }
    }

    /// Shows a line to its stream. Returns the stream's rule, what came of it, and what is
    /// wrong with a step that counts all the same.
    fn observe(
        &mut self,
        line: &Line<'_>,
        group: Option<&str>,
        replaced: Option<usize>,
        effects: &mut Effects,
    ) -> Result<(Arc<Rule>, Outcome, Option<String>), Fault> {
        let reading_on = self.reading_on();
        let (rule, streams) = match replaced {
            Some(i) => {
                let replaced = &mut self.replaced[i];
                (Arc::clone(&replaced.rule), &mut replaced.streams)
            }
            None => (Arc::clone(&self.rule), &mut self.streams),
        };
        let mut probs = Vec::new();
        let (step, mut problem) = if !line.has_step() {
            (None, None)
        } else if reading_on {
            // The rule does not see it, so it cannot halt.
            (Some(Step::default()), None)
        } else {
            match line.step(&rule, &mut probs) {
                Ok(step) => (Some(step), None),
                Err(problem) => (Some(Step::default()), Some(problem)),
            }
        };
        let message = Message {
            step,
            t: line.t,
            end: line.end,
            group,
        };
        let mut closed = None;
        let taken =
            streams.take_telling(&rule, &line.id, message, |id| closed = Some(id.to_owned()));
        let outcome = taken.map_err(|refusal| {
            let problem = line.refused(&refusal);
            match refusal {
                Refusal::NoRoom { .. } => Fault::new(FaultKind::Full, problem, "try again later"),
                _ => Fault::new(FaultKind::Unusable, problem, SEE_LINES),
            }
        })?;
        if let Outcome::Taken(taken) = &outcome {
            if let Some(missing) = taken.missing {
                problem = Some(missing.to_string());
            }
            if let (Some(error), None, false) = (&taken.unusable, &problem, reading_on) {
                problem = Some(line.words(error.clone()));
            }
        }
        // That stream gave way to this one: its next lines are refused.
        if let Some(closed) = closed {
            self.lose_audit(&closed, effects);
        }
        Ok((rule, outcome, problem))
    }

    /// Whether a stream that begins is audited. All streams of a unit are, or none: also if the
    /// share of audits has become smaller since the unit began.
    pub(super) fn draws(&mut self, unit: Option<&str>) -> bool {
        match unit {
            Some(unit) => {
                let (unit, monitor) = (UnitKey::new(unit), self.monitor.as_ref());
                let rule = self.digests.last().map_or("", String::as_str);
                monitor.is_some_and(|monitor| monitor.has_open_unit(unit))
                    || unit.is_drawn(self.settings.audit, rule)
            }
            None => self.rng.random_bool(self.settings.audit),
        }
    }

    /// The unit of a stream that begins with a line, where the promise is about units.
    fn unit(&self, line: &Line<'_>) -> Result<Option<String>, Fault> {
        if self.rule.terms().unit.is_none() {
            return Ok(None);
        }
        let said = line.unit_said().map(|unit| Some(unit.into_owned()));
        said.ok_or_else(|| {
            let problem = format!("stream {} begins without a \"unit\"", line.id);
            let remedy = "give \"unit\" with the first step: the rule promises something about \
                          units, and streams of one are judged together";
            Fault::new(FaultKind::Unusable, problem, remedy)
        })
    }

    /// The group of a stream that begins with a line, where the promise is by group.
    fn group(&self, line: &Line<'_>) -> Result<Option<String>, Fault> {
        if self.rule.halting_groups().is_empty() {
            return Ok(None);
        }
        let groups = self.rule.groups();
        let said = line.group_said();
        let known = said
            .as_deref()
            .filter(|said| groups.iter().any(|g| g == said));
        known.map(|group| Some(group.to_owned())).ok_or_else(|| {
            let problem = match said {
                None => format!("stream {} begins without a \"group\"", line.id),
                Some(said) => format!("the rule promises nothing to the group {said:?}"),
            };
            let remedy = "give \"group\" with the first step: one of \"groups\" in the rule file. \
                          Read streams of any other group to their end";
            Fault::new(FaultKind::Unusable, problem, remedy)
        })
    }
}
