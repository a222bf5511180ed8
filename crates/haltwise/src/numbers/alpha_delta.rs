//! The two numbers a user chooses, checked once at the door.

use serde::{Deserialize, Serialize};

/// A number that must lie strictly between 0 and 1 but does not.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{name} must lie strictly between 0 and 1, but {value} was given")]
pub struct OutOfRange {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
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

impl Delta {
    /// An equal share of it for each of this many; all of it for none or one.
    pub(crate) fn over(self, parts: usize) -> Self {
        Self(self.0 / parts.max(1) as f64)
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

    #[test]
    fn only_the_open_interval_is_let_in() {
        assert_eq!(Alpha::try_from(0.05).unwrap().get(), 0.05);
        for bad in [0.0, 1.0, -0.1, 1.5, f64::NAN, f64::INFINITY] {
            let message = Delta::try_from(bad).unwrap_err().to_string();
            assert!(message.starts_with("delta must lie strictly between 0 and 1"));
        }
    }
}
