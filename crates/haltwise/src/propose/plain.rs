//! Rules that depend on no trace, so that every trace may certify them: thresholds of the
//! score that the traces came with, and the clock.

use haltwise_stream::{log_odds, probability};
use libm::log as ln;

use crate::numbers::thresholds::Thresholds;

/// The number of falling thresholds, and how far each falls, in log-odds, while the time
/// since the beginning grows e-fold.
const LOWER_LEVELS: u8 = 200;
const LOWER_FALLS: f64 = 0.15;

/// Up to this step the clock may strike at each; after it, at fewer and fewer.
const CLOCK_STEPS: usize = 384;

/// Thresholds of the plain score, the same for all data.
#[derive(Clone, Copy)]
pub(super) enum Plain {
    /// One curve that falls a little over time, lower and lower.
    Lower,
    /// A threshold that falls from the step on at which it opens; it opens at earlier and
    /// earlier steps.
    Walk {
        /// The step where it opens.
        from: f64,
        /// How far its log-odds fall while the time since the beginning grows e-fold.
        falls: f64,
        /// At this multiple of the step where it opens, every sequence halts.
        closes: Option<f64>,
    },
}

pub(super) const STEEP: Plain = Plain::falling(0.9, 1.0);

pub(super) const GENTLE: Plain = Plain::falling(0.87, 0.5);

/// For scores that are never far from even odds.
pub(super) const LOW: Plain = Plain::falling(0.6, 0.15);

/// The clock; before it strikes, sequences with a high score halt.
pub(super) const CLOSING: Plain = Plain::Walk {
    from: 0.8,
    falls: 0.0,
    closes: Some(1.3),
};

impl Plain {
    /// A walk that never closes.
    const fn falling(from: f64, falls: f64) -> Self {
        Self::Walk {
            from,
            falls,
            closes: None,
        }
    }

    /// The rules in the order of their tests. Their thresholds at a step do not depend on
    /// how long sequences may be.
    pub(super) fn rules(self, t_max: usize) -> Vec<Thresholds> {
        let (from, falls, closes) = match self {
            Self::Lower => return ever_lower(t_max),
            Self::Walk {
                from,
                falls,
                closes,
            } => (log_odds(from), falls, closes),
        };
        opening(
            t_max,
            |step| step + 1 + step / 32,
            |opens, t| {
                let times = (t + 1) as f64 / (opens + 1) as f64;
                match closes {
                    Some(closes) if times > closes => 0.0,
                    _ => fallen(from, falls, times),
                }
            },
        )
    }
}

/// A threshold whose log-odds were `from` and have fallen while time grew by this factor.
fn fallen(from: f64, falls: f64, times: f64) -> f32 {
    probability(from - falls * ln(times))
}

/// Rules under which every sequence halts at one step, from the last but one back.
pub(super) fn clock(t_max: usize) -> Vec<Thresholds> {
    let after = |step: usize| step + 1 + step.saturating_sub(CLOCK_STEPS) / 64;
    opening(t_max, after, |_, _| 0.0)
}

/// Rules that open at earlier and earlier steps, given the opening step and the threshold
/// at a step.
///
/// They do not depend on the data, although they begin at the longest sequence. A rule that
/// would open later halts no sequence early, so it has no gap and the least possible
/// p-value: it passes whenever any other would.
fn opening(
    t_max: usize,
    after: impl Fn(usize) -> usize,
    threshold: impl Fn(usize, usize) -> f32,
) -> Vec<Thresholds> {
    let steps = std::iter::successors(Some(0), |&step| Some(after(step)));
    let steps: Vec<usize> = steps.take_while(|step| step + 1 < t_max).collect();
    let rule = |opens: usize| {
        let at = |t: usize| match t < opens {
            true => f32::INFINITY,
            false => threshold(opens, t),
        };
        Thresholds::from_valid((0..t_max).map(at).collect())
    };
    steps.into_iter().rev().map(rule).collect()
}

/// Thresholds for all steps that fall a little over time, so that a sequence just below one
/// is halted later. They go from 1 down to 0 at the first step, and include these two for
/// all steps.
fn ever_lower(t_max: usize) -> Vec<Thresholds> {
    let rule = |level: u8| {
        let first = log_odds(f64::from(level) / f64::from(LOWER_LEVELS));
        let at = |t: usize| match level {
            0 => 0.0,
            LOWER_LEVELS => 1.0,
            _ => fallen(first, LOWER_FALLS, (t + 1) as f64),
        };
        Thresholds::from_valid((0..t_max).map(at).collect())
    };
    (0..=LOWER_LEVELS).rev().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_back_from_the_last_step_but_one() {
        let rules = clock(4);
        assert_eq!(rules.len(), 3);
        let never = f32::INFINITY;
        assert_eq!(rules[0].values(), [never, never, 0.0, 0.0]);
        assert_eq!(rules[2].values(), [0.0; 4]);
        assert!(clock(5000).len() < 2 * CLOCK_STEPS);
        // Longer sequences only add rules at the front.
        let (few, many) = (clock(900), clock(1000));
        let opens = |rule: &Thresholds| rule.opens().unwrap();
        let many: Vec<usize> = many.iter().map(opens).collect();
        assert!(many.ends_with(&few.iter().map(opens).collect::<Vec<_>>()));
        assert!(clock(1).is_empty());
    }

    #[test]
    fn a_walk_of_plain_thresholds_opens_ever_earlier_and_may_close() {
        let rules = CLOSING.rules(6);
        let opens = |rule: &Thresholds| rule.opens().unwrap();
        assert_eq!(rules.iter().map(opens).collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
        let never = f32::INFINITY;
        assert_eq!(rules[1].values(), [never, never, never, 0.8, 0.8, 0.0]);
        assert_eq!(rules[4].values(), [0.8, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let falling = STEEP.rules(6);
        assert_eq!(falling[3].values()[1], 0.9);
        assert!(
            (falling[3].values()[3] - 0.818).abs() < 1e-3,
            "9 to 1, then 9 to 2"
        );
    }

    #[test]
    fn what_is_the_same_for_all_data_does_not_depend_on_how_long_sequences_are() {
        for plain in [STEEP, GENTLE, LOW, CLOSING, Plain::Lower] {
            let (short, long) = (plain.rules(20), plain.rules(300));
            let long = &long[long.len() - short.len()..];
            for (short, long) in std::iter::zip(&short, long) {
                assert_eq!(short.values(), &long.values()[..20]);
            }
        }
    }
}
