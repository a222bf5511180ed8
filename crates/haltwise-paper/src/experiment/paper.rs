//! The numbers that the paper reports, to set beside ours.

use haltwise::Method::{self, Conditional, Marginal};

/// Ringel et al., "Early Time Classification with Accumulated Accuracy Gap
/// Control" (ICML 2024): Table 1, and the same numbers for QuALITY, the
/// experiment of section 5.2 and Figure 2. For these the paper prints only t_avg
/// (0.483 and 0.831, in section 5.2). All others are in the table that the
/// authors publish with their code (<https://github.com/liranringel/etc>,
/// `figures/accuracy_gap.tex`, rows `quality`), whose further rows are Table 1.
///
/// α = 10%, δ = 1%, means over 100 splits; in the order of `COLUMNS`.
#[rustfmt::skip]
const PAPER: [(&str, Method, [f64; 6]); 12] = [
    ("Tiselac", Marginal, [0.816, 0.757, 0.081, 0.084, 0.093, 0.209]),
    ("Tiselac", Conditional, [0.816, 0.771, 0.064, 0.065, 0.085, 0.215]),
    ("ElectricDevices", Marginal, [0.873, 0.809, 0.117, 0.108, 0.079, 0.471]),
    ("ElectricDevices", Conditional, [0.873, 0.825, 0.030, 0.031, 0.075, 0.552]),
    ("PenDigits", Marginal, [0.989, 0.912, 0.086, 0.090, 0.080, 0.446]),
    ("PenDigits", Conditional, [0.989, 0.940, 0.049, 0.050, 0.051, 0.567]),
    ("Crop", Marginal, [0.673, 0.608, 0.171, 0.135, 0.086, 0.580]),
    ("Crop", Conditional, [0.673, 0.642, 0.057, 0.063, 0.079, 0.450]),
    ("WalkingSittingStanding", Marginal, [0.962, 0.884, 0.004, 0.054, 0.079, 0.125]),
    ("WalkingSittingStanding", Conditional, [0.962, 0.901, 0.033, 0.039, 0.067, 0.061]),
    ("QuALITY", Marginal, [0.523, 0.494, 0.124, 0.131, 0.084, 0.483]),
    ("QuALITY", Conditional, [0.523, 0.518, 0.046, 0.053, 0.045, 0.831]),
];

/// The paper's numbers for a dataset and a method, if it has them. Traces named
/// `QuALITY-four` are of QuALITY too.
pub(super) fn papers(dataset: &str, method: Method) -> Option<[f64; 6]> {
    let dataset = dataset.split('-').next()?;
    let mut rows = PAPER.into_iter();
    let row = rows.find(|(name, of, _)| (*name, *of) == (dataset, method));
    row.map(|(_, _, numbers)| numbers)
}
