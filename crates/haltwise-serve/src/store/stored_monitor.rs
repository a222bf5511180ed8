//! What the store of a server knows, read while the server may be writing it.

use std::path::Path;

use haltwise::Rule;
use haltwise::monitor::Monitor;
use haltwise_log::{Cause, Log};

use super::HEADER;
use super::files::{log_path, logs};
use crate::error::Error;
use crate::rule_state::{RuleState, Settings, digest};
use crate::status::status;

/// What the store of a server knows, while that may be writing it.
#[derive(Debug)]
pub struct StoredMonitor {
    /// The monitor of the rule that is in use there.
    pub monitor: Monitor,
    /// The ids most worth a label.
    pub labels_wanted: Vec<serde_json::Value>,
    /// The loss by damage at the end of its log, in words.
    pub damage: Option<String>,
}

impl StoredMonitor {
    /// Reads the store in a folder, or in its folder of this name. `None` if there
    /// is none; one of another rule than that of this file is refused.
    pub fn read(folder: &Path, name: &str, rule: &Rule, json: &str) -> Result<Option<Self>, Error> {
        let inner = folder.join(name);
        let Some(folder) = [folder, &inner].into_iter().find(|f| is_store(f)) else {
            return Ok(None);
        };
        let (state, damage) = read(folder, rule)?;
        if digest(state.rule_json()) != digest(json) {
            return Err(Error::file(
                folder,
                "another rule is in use there; name the one that the server has now, or ask the \
                 server for it",
            ));
        }
        let labels_wanted = status(|| &state).labels_wanted;
        let monitor = state.monitor().cloned().ok_or_else(|| {
            Error::file(
                folder,
                "the rule there promises nothing, so nothing is watched",
            )
        })?;
        Ok(Some(Self {
            monitor,
            labels_wanted,
            damage,
        }))
    }
}

/// The state of a store, as far as its log tells, and what is damaged in that.
fn read(folder: &Path, rule: &Rule) -> Result<(RuleState, Option<String>), Error> {
    // What a log begins with has the settings that matter.
    let settings = Settings::default();
    // A log that is rotated away meanwhile is followed by another.
    for _ in 0..10 {
        let Some(&number) = logs(folder)?.last() else {
            return Err(Error::file(folder, "there is no store in it"));
        };
        let mut state = RuleState::new(rule.clone(), String::new(), settings, 0);
        let path = log_path(folder, number);
        match Log::inspect(&path, &mut |record| state.replay(record).map(drop)) {
            Ok((header, opened)) if header == HEADER => {
                let damage = opened.dropped.filter(|d| d.cause == Cause::Damaged);
                return Ok((state, damage.map(|d| format!("{}: {d}", path.display()))));
            }
            Ok(_) => return Err(Error::file(&path, "it is no log of a store")),
            Err(_) if !path.exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::file(folder, "its log is rotated all the time"))
}

/// Whether a folder is a store.
fn is_store(folder: &Path) -> bool {
    folder.is_dir() && logs(folder).is_ok_and(|logs| !logs.is_empty())
}
