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
    // Whatever comes after the sum: nothing may panic on numbers that nobody checked.
    let Ok(rule) = Rule::from_checked_words(&words) else {
        return;
    };
    let room = rule.room().min(1 << 16);
    let (mut state, mut memory) = (State::new(), Memory::new(vec![0.0; room]));
    let numbers: Vec<f32> = bytes.iter().map(|&b| f32::from(b) / 255.0).collect();
    for at in 0..numbers.len().min(64) {
        let step = Step {
            prediction: Some(u32::from(bytes[at] % 16)),
            score: Some(numbers[at]),
            probs: Some(&numbers[at..]),
        };
        let _ = rule.observe(&mut state, &mut memory, &step);
        let _ = rule.observe_plain(&mut state, &step);
        rule.skip(&mut state);
    }
});
