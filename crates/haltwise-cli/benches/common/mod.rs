//! What benchmarks of live streams share.

use std::path::Path;

use haltwise::simulate::{Atom, Process};
use haltwise::{Inputs, Method, Plan};

const STEPS: usize = 20;

/// A rule that halts late, and only at high scores, so that streams stay open.
pub(crate) fn write_rule(path: &Path) {
    let atom = |score, gap| Atom::new(score, 1.0, gap).expect("sound");
    let steps = vec![vec![atom(0.3, 0.6), atom(0.9, 0.02)]; STEPS];
    let process = Process::new("bench", steps);
    let traces = process.draw(4_000, 1);
    let found = Plan::of(Method::Conditional).calibrate(Inputs::one(&traces));
    haltwise_io::write_rule(path, &found.expect("sound").rule).expect("writable");
}
