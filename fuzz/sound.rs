//! What must hold for any bytes: a reader refuses them, or every sequence it
//! hands on is sound.

use haltwise_io::{Format, visit_bytes};

pub fn check(format: Format, bytes: &[u8]) {
    let _ = visit_bytes("fuzz", format, bytes, &mut |row| {
        assert!(!row.scores.is_empty());
        assert_eq!(row.scores.len(), row.predictions.len());
        assert!(row.scores.iter().all(|s| (0.0..=1.0).contains(s)));
        if let Some(probs) = row.probs {
            assert_eq!(probs.len() % row.scores.len(), 0);
            assert!(probs.iter().all(|p| (0.0..=1.0).contains(p)));
            let classes = probs.len() / row.scores.len();
            assert!((row.label as usize) < classes);
        }
        Ok(())
    });
}
