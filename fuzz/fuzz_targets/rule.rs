#![no_main]

use haltwise_io::{parse_rule, rule_json};
use libfuzzer_sys::fuzz_target;

// Bytes are refused, or are a rule that reads back equal once it is written.
fuzz_target!(|bytes: &[u8]| {
    if let Ok(rule) = parse_rule(bytes) {
        let text = rule_json(&rule).unwrap();
        assert_eq!(parse_rule(text.as_bytes()), Ok(rule));
    }
});
