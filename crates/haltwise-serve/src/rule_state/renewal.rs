//! Rules that follow each other, and the delta that each may spend.

use std::sync::Arc;

use haltwise::Rule;
use haltwise::stream::Streams;

use super::{Effects, ReplacedRule, RuleState};
use crate::fault::{Fault, FaultKind};
use crate::log_record::LogRecord;

/// The digest that tells rule files apart.
pub(crate) fn digest(json: &str) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(json.as_bytes()))
}

/// The share of delta that the n-th rule may spend. All shares add up to 1.
pub(super) fn share(renewal: u32) -> f64 {
    let k = f64::from(renewal.max(1));
    1.0 / (k * (k + 1.0))
}

impl RuleState {
    /// Replaces the rule, for streams that begin from now on. Open streams go on with the rule
    /// that they began with. A rule that was in use before may come back, unless its alarm
    /// was raised.
    pub(crate) fn renew(
        &mut self,
        rule: Rule,
        json: String,
        effects: &mut Effects,
    ) -> Result<(), Fault> {
        let refused =
            |problem: String, remedy| Err(Fault::new(FaultKind::Unusable, problem, remedy));
        let next = self.next_delta();
        if rule.promise().is_none() {
            let problem = "the rule was screened, not certified: it promises nothing";
            return refused(problem.into(), "calibrate one with another method");
        }
        let new_digest = digest(&json);
        if new_digest == digest(&self.rule_json) {
            let problem = "the rule is in use already";
            return refused(problem.into(), "nothing is to be done");
        }
        if self.alarmed.contains(&new_digest) {
            let problem = "the rule was in use before, and its promise did not hold";
            let remedy = "calibrate one on audits since the alarm";
            return refused(problem.into(), remedy);
        }
        // The user copies a rounded number from the status.
        if !self.knows(&new_digest) && rule.delta().get() > next * (1.0 + 1e-9) {
            let problem = format!(
                "the rule was calibrated with delta {}, and this renewal may spend {next}",
                rule.delta().get()
            );
            let remedy = "calibrate with --delta as \"next_delta\" in status says";
            return refused(problem, remedy);
        }
        let (renewal, copy) = (self.renewal + 1, json.clone());
        effects.record(&LogRecord::Rule {
            renewal,
            digest: new_digest.clone(),
            rule: copy,
        });
        self.apply_rule(renewal, new_digest, rule, json);
        effects.events.push(format!("{{\"rule\":{renewal}}}"));
        Ok(())
    }

    /// Does the same live and when the log is read back.
    pub(super) fn apply_rule(&mut self, renewal: u32, digest: String, rule: Rule, json: String) {
        if self.monitor.as_ref().is_some_and(|m| m.alarm().is_some()) {
            self.alarmed.push(self::digest(&self.rule_json));
        }
        let mut fresh = Streams::new(self.settings.limits);
        fresh.set_clock(self.streams.clock());
        let replaced = ReplacedRule {
            renewal: self.renewal,
            rule: std::mem::replace(&mut self.rule, Arc::new(rule)),
            rule_json: std::mem::replace(&mut self.rule_json, json),
            streams: std::mem::replace(&mut self.streams, fresh),
        };
        if !replaced.streams.is_empty() {
            self.replaced.push(replaced);
        }
        self.digests.push(digest);
        self.renewal = renewal;
        // Audits of the old rule do not count for the new one. Their traces stay in the files.
        self.running.clear();
        self.weigh_running();
        self.unlabelled.drop_pending();
        self.watch();
    }

    /// Whether a rule was in use before, or is.
    pub(crate) fn knows(&self, digest: &str) -> bool {
        self.digests.iter().any(|known| known == digest)
    }

    /// Whether a rule was the first in use.
    pub(crate) fn is_first(&self, digest: &str) -> bool {
        self.digests.first().is_some_and(|first| first == digest)
    }

    /// The largest delta that the next rule may have. The shares of all rules
    /// that were ever in use, at twice the first one's delta, add up to that: so
    /// with that probability no promise of any of them was ever wrong. A rule that
    /// comes back was counted when it first came.
    pub(crate) fn next_delta(&self) -> f64 {
        2.0 * self.first_delta * share(self.renewal + 1)
    }
}
