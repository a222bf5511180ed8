//! Whatever the text, questions are read or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(questions) = haltwise_llm::parse_questions(text, None) {
        for question in questions {
            assert!((2..=26).contains(&question.options.len()));
            assert!(
                question
                    .label
                    .is_none_or(|label| label < question.options.len())
            );
        }
    }
});
