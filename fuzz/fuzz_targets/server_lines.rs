//! Whatever the bytes of a line, the server takes it for one about a stream, or refuses it in few words.
#![no_main]

use std::sync::LazyLock;

use haltwise::Rule;
use haltwise_serve::Line;

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let files: [&[u8]; 2] = [
        include_bytes!("../../crates/haltwise-io/tests/fixtures/rule-conditional.json"),
        include_bytes!("../../crates/haltwise-io/tests/fixtures/rule-adaptive.json"),
    ];
    files.map(|file| haltwise_io::parse_rule(file).unwrap()).into()
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let line = match Line::parse(bytes) {
        Ok(line) => line,
        Err(problem) => return assert!(problem.len() < 1000, "{problem}"),
    };
    let mut probs = Vec::new();
    for rule in &*RULES {
        if let Ok(step) = line.step(rule, &mut probs) {
            assert!(line.has_step(), "{step:?}");
        }
    }
});
