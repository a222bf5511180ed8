//! How far a dataset is, on standard error: a line that moves on a terminal,
//! one line when it is done anywhere.

use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::show;

pub(super) struct Progress {
    dataset: String,
    bar: ProgressBar,
}

impl Progress {
    pub(super) fn new(dataset: &str) -> Self {
        let bar = ProgressBar::hidden().with_prefix(dataset.to_owned());
        let progress = Self {
            dataset: dataset.to_owned(),
            bar,
        };
        // Its looks first: a bar shows itself as soon as it has a place.
        progress.say("starting");
        if io::stderr().is_terminal() {
            let target = ProgressDrawTarget::stderr_with_hz(8);
            progress.bar.set_draw_target(target);
            progress.bar.enable_steady_tick(Duration::from_millis(250));
        }
        progress
    }

    /// Starts a stage of a known number of parts.
    pub(super) fn stage(&self, what: impl Display, parts: usize) {
        self.bar.set_length(parts as u64);
        self.bar.set_position(0);
        self.bar.set_message(what.to_string());
        self.style("{prefix}: {msg} [{bar:30}] {pos} of {len}");
    }

    /// Says what is going on where its end is not known.
    pub(super) fn say(&self, what: impl Display) {
        self.bar.set_message(what.to_string());
        self.style("{prefix}: {msg} {spinner}");
    }

    /// Some parts of the stage are done.
    pub(super) fn advance(&self, parts: usize) {
        self.bar.inc(parts as u64);
    }

    /// The dataset is done; this line stays.
    pub(super) fn done(&self, how: impl Display) {
        self.bar.finish_and_clear();
        show::note(format_args!("{}: {how}", self.dataset));
    }

    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("=> "));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
