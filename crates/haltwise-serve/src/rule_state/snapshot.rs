//! The state as records of a log, and back.

use std::sync::Arc;

use haltwise::Rule;
use haltwise::stream::Streams;

use super::renewal::share;
use super::{Effects, PART, ReplacedRule, RuleState};
use crate::log_record::{BorrowedRecord, LogRecord};

impl RuleState {
    /// Applies a record of the log. Returns whether it says that all was stored.
    pub(crate) fn replay(&mut self, record: &str) -> Result<bool, String> {
        let record: LogRecord = serde_json::from_str(record)
            .map_err(|e| format!("it is no record of this version: {e}"))?;
        // Its records are in the log already.
        let mut effects = Effects::default();
        match record {
            LogRecord::Begin {
                id,
                at,
                group,
                unit,
            } => self.apply_begin(&id, at, (group, unit), &mut effects),
            LogRecord::Halt(halt) => self.apply_halt(&halt, 0, &mut effects),
            LogRecord::Audited { id, kept: trace } => {
                self.apply_audited(&id, trace.weighed(), 0, &mut effects)
            }
            LogRecord::Lost { id } => drop(self.apply_lost(&id)),
            LogRecord::Label { id, label } => self.apply_label(&id, &label, 0, &mut effects),
            // The monitor has raised it already. Only its time is missing.
            LogRecord::Alarm { at } => {
                self.alarm_at = Some(at);
                self.latest = self.latest.max(at);
            }
            LogRecord::Rule {
                renewal,
                digest,
                rule,
            } => {
                let parsed = parse(&rule)?;
                self.apply_rule(renewal, digest, parsed, rule);
            }
            LogRecord::State {
                renewal,
                digests,
                alarmed,
                first_delta,
                rule,
                monitor,
                alarm_at,
                totals,
                halted_at,
                careful_until,
            } => {
                self.rule = Arc::new(parse(&rule)?);
                self.rule_json = rule;
                (self.renewal, self.digests, self.alarmed) = (renewal, digests, alarmed);
                // Older stores lack it. Their rule was accepted at its share.
                let at_its_share = self.rule.delta().get() / (2.0 * share(renewal));
                self.first_delta = first_delta.unwrap_or(at_its_share);
                self.watch();
                (self.monitor, self.alarm_at, self.totals) = (*monitor, alarm_at, totals);
                if halted_at.len() == self.halted_at.len() {
                    self.halted_at = halted_at;
                }
                self.careful_until = careful_until;
                self.latest = self.latest.max(alarm_at.unwrap_or(0));
            }
            LogRecord::Live {
                id,
                live: mut audit,
            } => {
                audit.trace = audit.trace.weighed();
                self.latest = self.latest.max(audit.began);
                self.put_running(&id, audit);
            }
            LogRecord::Waiting {
                id,
                waiting: mut unlabelled,
            } => {
                unlabelled.trace = unlabelled.trace.weighed();
                self.latest = self.latest.max(unlabelled.began);
                self.unlabelled.insert(&id, unlabelled);
            }
            LogRecord::Done { began, trace } => {
                self.latest = self.latest.max(began);
                self.push_unfiled(began, trace);
            }
            LogRecord::Older { renewal, rule } => {
                let mut streams = Streams::new(self.settings.limits);
                streams.set_clock(self.streams.clock());
                self.replaced.push(ReplacedRule {
                    renewal,
                    rule: Arc::new(parse(&rule)?),
                    rule_json: rule,
                    streams,
                });
            }
            LogRecord::Open { id, state, renewal } => {
                let mut replaced = self.replaced.iter_mut();
                let replaced = replaced.find(|replaced| Some(replaced.renewal) == renewal);
                let streams = replaced.map(|replaced| &mut replaced.streams);
                streams.unwrap_or(&mut self.streams).restore(&id, state);
            }
            LogRecord::Closed => return Ok(true),
        }
        Ok(false)
    }

    /// The records that restore this state. Open streams are among them if the store closes:
    /// a server that is killed forgets them.
    pub(crate) fn records(&mut self, closing: bool) -> Vec<String> {
        let mut records = self.begin_copy();
        while let Some(part) = self.copy_unlabelled() {
            records.extend(part);
        }
        if closing {
            records.extend(self.open_records());
        }
        records
    }

    /// The same without open streams and without the audits that wait for a label, which
    /// [`copy_unlabelled`](Self::copy_unlabelled) gives as they are now, whatever becomes of them.
    pub(crate) fn begin_copy(&mut self) -> Vec<String> {
        let mut effects = Effects::default();
        effects.record(&LogRecord::State {
            renewal: self.renewal,
            digests: self.digests.clone(),
            alarmed: self.alarmed.clone(),
            first_delta: Some(self.first_delta),
            rule: self.rule_json.clone(),
            monitor: Box::new(self.monitor.clone()),
            alarm_at: self.alarm_at,
            totals: self.totals,
            halted_at: self.halted_at.clone(),
            careful_until: self.careful_until,
        });
        for (id, audit) in &self.running {
            let record = serde_json::to_string(&BorrowedRecord::Live { id, live: audit });
            effects.records.extend(record);
        }
        for (began, trace) in &self.unfiled {
            effects.record(&LogRecord::Done {
                began: *began,
                trace: trace.clone(),
            });
        }
        self.unlabelled.begin_copy();
        effects.records
    }

    /// The next records of audits that wait for a label, few enough that no stream waits
    /// long. `None` once there are no more.
    pub(crate) fn copy_unlabelled(&mut self) -> Option<Vec<String>> {
        self.unlabelled.copy_part(PART)
    }

    /// The records of open streams, and the one that says that all was stored.
    fn open_records(&self) -> Vec<String> {
        let mut effects = Effects::default();
        let open = |streams: &Streams, renewal: Option<u32>, effects: &mut Effects| {
            for (id, state) in streams.iter() {
                effects.record(&LogRecord::Open {
                    id: id.to_owned(),
                    state: state.clone(),
                    renewal,
                });
            }
        };
        open(&self.streams, None, &mut effects);
        for replaced in &self.replaced {
            effects.record(&LogRecord::Older {
                renewal: replaced.renewal,
                rule: replaced.rule_json.clone(),
            });
            open(&replaced.streams, Some(replaced.renewal), &mut effects);
        }
        effects.record(&LogRecord::Closed);
        effects.records
    }
}

fn parse(json: &str) -> Result<Rule, String> {
    haltwise_io::parse_rule(json.as_bytes())
}
