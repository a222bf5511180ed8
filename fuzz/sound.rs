//! What must hold for any bytes: a reader refuses them, or every sequence it
//! hands on is sound.

use haltwise::traces::Trace;
use haltwise_io::{Columns, Format, visit_bytes};

pub fn check(format: Format, bytes: &[u8]) {
    let named = |name: &str| Some(name.to_owned());
    let all = Columns {
        group: named("site"),
        unit: named("unit"),
        weight: named("weight"),
        costs: named("cost"),
        losses: true,
        optional: true,
        ..Columns::default()
    };
    let by_label = Columns {
        group: named("label"),
        ..Columns::default()
    };
    let numbers = Columns {
        numbers: true,
        ..all.clone()
    };
    for columns in [Columns::default(), all, by_label, numbers] {
        let _ = visit_bytes("fuzz", format, bytes, &columns, &mut |row| {
            is_sound(row);
            Ok(())
        });
    }
}

fn is_sound(row: &Trace<'_>) {
    let steps = row.len();
    assert!(steps > 0);
    assert_eq!(steps, row.predictions().len());
    assert!(row.scores().iter().all(|s| (0.0..=1.0).contains(s)));
    if let Some(probs) = row.probs() {
        assert_eq!(probs.len(), steps * row.classes());
        assert!(probs.iter().all(|p| (0.0..=1.0).contains(p)));
        assert!(row.label().is_none_or(|l| (l as usize) < row.classes()));
    }
    if let Some(losses) = row.losses() {
        assert_eq!(losses.len(), steps);
        assert!(losses.iter().all(|l| (0.0..=1.0).contains(l)));
    }
    if let Some(numbers) = row.numbers() {
        assert_eq!(numbers.predictions.len(), steps);
        assert!(numbers.predictions.iter().all(|n| n.is_finite()));
    }
    let about = row.about();
    assert!(about.group != Some("") && about.unit != Some(""));
    assert!(about.weight.is_none_or(|w| w >= 0.0 && w.is_finite()));
    if let Some(costs) = about.costs {
        assert_eq!(costs.len(), steps);
        assert!(costs.iter().all(|c| *c >= 0.0 && c.is_finite()));
    }
}
