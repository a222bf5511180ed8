//! How far a run is, on standard error: a line that moves on a terminal,
//! one line per dataset anywhere.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use haltwise_paper::Event;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::show;

pub(super) struct Progress {
    /// The bar of the dataset at hand.
    bar: Mutex<ProgressBar>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            bar: Mutex::new(ProgressBar::hidden()),
        }
    }

    /// Shows what a run reports.
    pub(super) fn show(&self, event: Event<'_>) {
        let mut current = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Dataset(name) => {
                current.finish_and_clear();
                *current = new_bar(name);
            }
            Event::Stage(what, parts) => {
                current.set_length(parts as u64);
                current.set_position(0);
                current.set_message(what);
                set_style(&current, "{prefix}: {msg} [{bar:30}] {pos} of {len}");
            }
            Event::Advanced(parts) => current.inc(parts as u64),
            Event::Doing(what) => doing(&current, what),
            Event::Done(how) => {
                current.finish_and_clear();
                show::note(format_args!("{}: {how}", current.prefix()));
            }
            Event::Warning(text) => show::warn(text),
        }
    }
}

fn new_bar(dataset: &str) -> ProgressBar {
    let bar = ProgressBar::hidden().with_prefix(dataset.to_owned());
    // Its looks first: a bar shows itself as soon as it has a place.
    doing(&bar, "starting".into());
    if io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        bar.enable_steady_tick(Duration::from_millis(250));
    }
    bar
}

fn doing(bar: &ProgressBar, what: String) {
    bar.set_message(what);
    set_style(bar, "{prefix}: {msg} {spinner}");
}

fn set_style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let bar = self.bar.get_mut().unwrap_or_else(PoisonError::into_inner);
        bar.finish_and_clear();
    }
}
