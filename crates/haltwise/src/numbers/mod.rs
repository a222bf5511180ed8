//! Checked numbers, and functions of counts alone.

pub(crate) mod alpha_delta;
pub(crate) mod binomial;
pub(crate) mod counts;
pub(crate) mod grid;
pub(crate) mod simd;
pub(crate) mod thresholds;
