//! No bytes make the UCR reader panic, and what it accepts is a sound set.
#![no_main]

use haltwise_io::series::{Format, Missing, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for missing in [Missing::Refuse, Missing::Fill] {
        if let Ok(set) = parse("fuzz.tsv", bytes, Format::Ucr, missing) {
            assert!(set.values().iter().all(|value| value.is_finite()));
            assert!(set.lengths().all(|steps| steps > 0));
            let values = set.lengths().sum::<usize>() * set.features();
            assert_eq!(values, set.values().len());
            let classes = set.classes().len();
            assert!(set.labels().iter().all(|&label| (label as usize) < classes));
        }
    }
});
