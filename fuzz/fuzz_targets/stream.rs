#![no_main]

use haltwise_stream::{Memory, Rule, State, Step};
use libfuzzer_sys::fuzz_target;

// Words are refused, or are a rule whose table they are, and that decides about any steps.
fuzz_target!(|bytes: &[u8]| {
    let words = bytes.chunks_exact(8);
    let words: Vec<u64> = words.map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
    if let Ok(rule) = Rule::from_words(&words) {
        assert!(rule.words().unwrap().eq(words.iter().copied()));
    }
    // Behind the name, whatever the sum: nothing may panic on numbers that nobody checked.
    let name = u64::from_le_bytes(*b"haltwise");
    let words: Vec<u64> = [name, 0].into_iter().chain(words).collect();
    let Ok(rule) = Rule::from_checked_words(&words) else {
        return;
    };
    decide(rule, bytes);
    // With its sum, it is refused for what it says, or is the rule that was written.
    let Ok(table) = rule.words() else {
        return;
    };
    let table: Vec<u64> = table.collect();
    if let Ok(rule) = Rule::from_words(&table) {
        assert!(rule.words().unwrap().eq(table.iter().copied()));
        decide(rule, bytes);
    }
});

fn decide(rule: Rule<'_>, bytes: &[u8]) {
    let room = rule.room().min(1 << 16);
    let (mut state, mut memory) = (State::new(), Memory::new(vec![0.0; room]));
    let classes = match room / 2 {
        0 => 3,
        classes => classes.min(64),
    };
    for at in 0..bytes.len().min(64) {
        let byte = |k: usize| f32::from(bytes[(at + k) % bytes.len()]);
        // Probabilities mostly, else anything.
        let sum: f32 = (0..classes).map(byte).sum();
        let scale = if bytes[at] % 8 == 0 || sum == 0.0 { 100.0 } else { sum };
        let probs: Vec<f32> = (0..classes).map(|k| byte(k) / scale).collect();
        let step = Step {
            prediction: Some(u32::from(bytes[at]) % (classes as u32 + 1)),
            score: (bytes[at] % 4 > 0).then(|| byte(0) / 250.0),
            probs: (bytes[at] % 5 > 0).then_some(&probs),
        };
        let _ = rule.observe(&mut state, &mut memory, &step);
        let _ = rule.observe_plain(&mut state, &step);
        if bytes[at] % 7 == 0 {
            rule.skip(&mut state);
        }
    }
}
