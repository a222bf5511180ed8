//! The two numbers a user chooses, checked once at the door.

use serde::{Deserialize, Serialize};

/// A number that must lie strictly between 0 and 1 but does not.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{name} must lie strictly between 0 and 1, but {value} was given{}", remedy(.name, *.value))]
pub struct OutOfRange {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
}

/// What to write instead, if the number looks like a percentage.
fn remedy(name: &str, value: f64) -> String {
    match name {
        _ if !(value > 1.0 && value < 100.0) => String::new(),
        "delta" if value > 50.0 => format!(
            "; it is the probability of failure: write {} for {value}% confidence",
            rounded(1.0 - value / 100.0)
        ),
        _ => format!("; write {} for {value}%", rounded(value / 100.0)),
    }
}

/// Without the digits that a division adds.
fn rounded(share: f64) -> f64 {
    (share * 1e9).round() / 1e9
}

macro_rules! level {
    ($name:ident, $word:literal, $default:literal, $doc:literal) => {
        #[doc = $doc]
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            /// The number itself.
            pub fn get(self) -> f64 {
                self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self($default)
            }
        }

        impl TryFrom<f64> for $name {
            type Error = OutOfRange;

            fn try_from(value: f64) -> Result<Self, OutOfRange> {
                if value > 0.0 && value < 1.0 {
                    Ok(Self(value))
                } else {
                    Err(OutOfRange { name: $word, value })
                }
            }
        }

        impl From<$name> for f64 {
            fn from(level: $name) -> f64 {
                level.0
            }
        }
    };
}

/// The share of δ that the last of several looks has.
///
/// Any shares that are fixed beforehand are valid (union bound). The last look has most,
/// because its rule stays in use. The number is a choice, not tuned on data. The unit test
/// below has what it costs and brings.
const LAST_LOOK: f64 = 0.7;

impl Delta {
    /// Its part for one of several planned looks at evidence, counted from 1. Earlier looks
    /// have equal parts of what the last one leaves. Without looks, all of it.
    pub(crate) fn at_look(self, look: usize, planned: usize) -> Self {
        let share = match planned {
            0 | 1 => 1.0,
            _ if look >= planned => LAST_LOOK,
            _ => (1.0 - LAST_LOOK) / (planned - 1) as f64,
        };
        Self(self.0 * share)
    }
}

level!(
    Alpha,
    "alpha",
    0.1,
    "The tolerated gap; 0.1 unless said otherwise."
);
level!(
    Delta,
    "delta",
    0.01,
    "The probability with which a guarantee may fail; 0.01 unless said otherwise."
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::binomial::binomial_tail;

    #[test]
    fn only_the_open_interval_is_let_in() {
        assert_eq!(Alpha::try_from(0.05).unwrap().get(), 0.05);
        for bad in [0.0, 1.0, -0.1, 1.5, f64::NAN, f64::INFINITY] {
            let message = Delta::try_from(bad).unwrap_err().to_string();
            assert!(message.starts_with("delta must lie strictly between 0 and 1"));
        }
    }

    #[test]
    fn percentages_get_the_number_to_write() {
        let alpha = Alpha::try_from(10.0).unwrap_err().to_string();
        assert!(alpha.ends_with("but 10 was given; write 0.1 for 10%"));
        let delta = Delta::try_from(95.0).unwrap_err().to_string();
        assert!(delta.ends_with("write 0.05 for 95% confidence"), "{delta}");
        let delta = Delta::try_from(5.0).unwrap_err().to_string();
        assert!(delta.ends_with("write 0.05 for 5%"), "{delta}");
        let far = Alpha::try_from(1000.0).unwrap_err().to_string();
        assert!(far.ends_with("but 1000 was given"));
    }

    /// The mean loss at which a test of this many traces passes in 80 of 100 cases.
    fn certifiable(traces: u64, alpha: f64, level: f64) -> f64 {
        let passes = |losses: &u64| binomial_tail(*losses, traces, alpha) <= level;
        let most = (0..traces).take_while(passes).last().unwrap();
        let (mut low, mut high) = (0.0, alpha);
        for _ in 0..50 {
            let middle = 0.5 * (low + high);
            match binomial_tail(most, traces, middle) >= 0.8 {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }

    #[test]
    fn looks_spend_delta_and_the_last_one_certifies_most() {
        let (alpha, delta) = (Alpha::default().get(), Delta::default());
        let loss = |level: f64| (1e4 * certifiable(700, alpha, level)).round() / 1e4;
        assert_eq!(loss(delta.get()), 0.0658);
        for (planned, equal, earlier) in [
            (2, 0.0630, 0.0617),
            (4, 0.0617, 0.0590),
            (8, 0.0590, 0.0563),
        ] {
            let level = |look| delta.at_look(look, planned).get();
            let spent: f64 = (1..=planned).map(level).sum();
            assert!((spent - delta.get()).abs() < 1e-15, "{planned}: {spent}");
            assert_eq!(loss(level(planned)), 0.0644);
            assert_eq!(loss(level(1)), earlier);
            assert_eq!(loss(delta.get() / planned as f64), equal);
        }
        assert_eq!(delta.at_look(0, 0), delta);
        assert_eq!(delta.at_look(1, 1), delta);
    }
}
