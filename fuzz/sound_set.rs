//! What must hold for any bytes: a reader of series refuses them, or the set
//! it makes is sound.

use haltwise_io::series::{Format, Missing, parse};

pub fn check(format: Format, bytes: &[u8]) {
    for missing in [Missing::Refuse, Missing::Fill] {
        if let Ok(set) = parse("fuzz", bytes, format, missing) {
            assert!(set.values().iter().all(|value| value.is_finite()));
            assert!(set.lengths().all(|steps| steps > 0));
            let values = set.lengths().sum::<usize>() * set.features();
            assert_eq!(values, set.values().len());
            let classes = set.classes().len();
            assert!(set.labels().iter().all(|&label| (label as usize) < classes));
        }
    }
}
