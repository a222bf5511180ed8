//! What time it is.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A clock that is set once and then only goes on, whatever is done to the clock of the
/// machine: no stream is closed because that was put right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// The time at which it was set, in milliseconds since 1970.
    set_to: u64,
    set: Instant,
}

impl Clock {
    /// A clock that goes on from the machine's time, or from a later one that is known to
    /// have been.
    pub(crate) fn set(latest: u64) -> Self {
        Self {
            set_to: machine_time().max(latest),
            set: Instant::now(),
        }
    }

    /// Now, in milliseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.set_to + self.set.elapsed().as_millis() as u64
    }
}

/// What the machine takes for now, in milliseconds since 1970.
fn machine_time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_fall_behind_what_was_written_down() {
        let later = machine_time() + 115 * 86_400_000;
        let clock = Clock::set(later);
        assert!((later..later + 60_000).contains(&clock.now()));
        let now = machine_time();
        assert!((now..now + 60_000).contains(&Clock::set(0).now()));
    }
}
