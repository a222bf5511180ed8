//! Scales from values to places on the drawing, and where to put ticks.

/// A linear scale. A value outside the domain lands outside the range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    pub(crate) domain: (f64, f64),
    pub(crate) range: (f64, f64),
}

impl Scale {
    pub(crate) fn at(&self, value: f64) -> f64 {
        let (from, to) = self.domain;
        let width = if to == from { 1.0 } else { to - from };
        self.range.0 + (value - from) / width * (self.range.1 - self.range.0)
    }
}

/// About `count` round values from 0 or above up to `top`.
pub(crate) fn ticks(top: f64, count: usize) -> Vec<f64> {
    let step = round_step(top / count.max(1) as f64);
    // Multiples rather than sums, so that 0.3 is 0.3; the allowance lets a top
    // of exactly three steps have its third tick.
    let last = (top / step + 1e-9) as usize;
    (0..=last).map(|i| i as f64 * step).collect()
}

/// The smallest round top at or above a value, for `count` ticks or so.
pub(crate) fn round_top(value: f64, count: usize) -> f64 {
    let step = round_step(value / count.max(1) as f64);
    (value / step - 1e-9).ceil().max(1.0) * step
}

/// Whole steps to mark: the first, the last, and round ones between that do
/// not crowd the last.
pub(crate) fn step_ticks(t_max: usize) -> Vec<usize> {
    if t_max <= 8 {
        return (1..=t_max).collect();
    }
    let step = round_step(t_max as f64 / 5.0).max(1.0) as usize;
    let room = |&t: &usize| t > 1 + step / 3 && t + step * 2 / 5 < t_max;
    let between = (1..).map(|i| i * step).take_while(|&t| t < t_max);
    [1].into_iter()
        .chain(between.filter(room))
        .chain([t_max])
        .collect()
}

/// The round number (1, 2 or 5 times a power of ten) at or above a value.
fn round_step(value: f64) -> f64 {
    if !(value > 0.0 && value.is_finite()) {
        return 1.0;
    }
    let exponent = value.log10().floor() as i32;
    let found = (exponent..)
        .flat_map(|e| [1, 2, 5].map(|m| (m, e)))
        .map(|(m, e)| scaled(m, e))
        .find(|&step| step >= value * (1.0 - 1e-9));
    found.unwrap_or(1.0)
}

/// m·10ᵉ, divided where e is negative so that 5·10⁻² is 0.05 to the bit.
fn scaled(m: i32, e: i32) -> f64 {
    if e < 0 {
        f64::from(m) / 10_f64.powi(-e)
    } else {
        f64::from(m) * 10_f64.powi(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_start_at_zero() {
        assert_eq!(
            ticks(0.25, 5),
            [0.0, 0.05, 0.1, 0.15000000000000002, 0.2, 0.25]
        );
        assert_eq!(ticks(1.0, 5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks(0.0, 5), [0.0]);
    }

    #[test]
    fn tops_are_round_and_not_below() {
        assert_eq!(round_top(0.23, 5), 0.25);
        assert_eq!(round_top(0.25, 5), 0.25);
        assert_eq!(round_top(713.0, 4), 800.0);
        assert_eq!(round_top(0.0, 4), 1.0);
    }

    #[test]
    fn step_ticks_name_the_first_and_the_last() {
        assert_eq!(step_ticks(1), [1]);
        assert_eq!(step_ticks(8), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(step_ticks(46), [1, 10, 20, 30, 40, 46]);
        assert_eq!(step_ticks(206), [1, 50, 100, 150, 206]);
        assert_eq!(step_ticks(96), [1, 20, 40, 60, 80, 96]);
    }
}
