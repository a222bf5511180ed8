#![no_main]

use haltwise_io::{ExportTo, export_rule, parse_live_rule, parse_rule, rule_json};
use haltwise_stream::Rule;
use libfuzzer_sys::fuzz_target;

// Bytes are refused, or are a rule that reads back equal once it is written, also as the table that
// devices load, and without its record.
fuzz_target!(|bytes: &[u8]| {
    if let Ok(live) = parse_live_rule(bytes) {
        let words: Vec<u64> = live.live().words().unwrap().collect();
        assert_eq!(Rule::from_words(&words), Ok(live.live()));
    }
    if let Ok(rule) = parse_rule(bytes) {
        let text = rule_json(&rule).unwrap();
        assert_eq!(parse_rule(text.as_bytes()).as_ref(), Ok(&rule));
        let Ok(words) = rule.live().words() else {
            return;
        };
        let words: Vec<u64> = words.collect();
        assert_eq!(Rule::from_words(&words), Ok(rule.live()));
        let text = export_rule(&rule, ExportTo::JsonMin, "").unwrap();
        assert_eq!(parse_live_rule(text.as_bytes()).unwrap().live(), rule.live());
    }
});
