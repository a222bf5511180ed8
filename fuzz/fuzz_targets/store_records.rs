//! Whatever the records in the log of a store, they are refused or bring back what the server knew.
#![no_main]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use haltwise::Rule;
use haltwise_log::Log;
use haltwise_serve::StoredMonitor;

const HEADER: &str = "{\"format\":\"haltwise-store-1\"}";

static RULE: LazyLock<(Rule, String)> = LazyLock::new(|| {
    let file = include_str!("../../crates/haltwise-io/tests/fixtures/rule-conditional.json");
    let rule = haltwise_io::parse_rule(file.as_bytes()).unwrap();
    let json = haltwise_io::rule_json(&rule).unwrap();
    (rule, json)
});

libfuzzer_sys::fuzz_target!(|text: &str| {
    let folder = tempfile::tempdir().unwrap();
    let (rule, json) = &*RULE;
    write(folder.path(), text);
    if let Ok(Some(stored)) = StoredMonitor::read(folder.path(), "rule", rule, json) {
        let again = StoredMonitor::read(folder.path(), "rule", rule, json).unwrap().unwrap();
        assert_eq!(again.labels_wanted, stored.labels_wanted);
    }
});

/// A store whose log has a record for each line.
fn write(folder: &Path, text: &str) {
    let path = folder.join("_log-00000001");
    let (mut log, _) = Log::open(&path, HEADER, &mut |_| Ok(())).unwrap();
    // A record has no line breaks and no mark between records, which the log refuses.
    if log.append(text.lines()).is_err() {
        fs::remove_file(&path).unwrap();
    }
}
