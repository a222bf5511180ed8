//! How far a run of a language model is, and what its journal keeps for the next run.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haltwise_llm::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::show::{self, number, percent};

/// The journal beside an output. It is removed when the output is written.
pub(crate) fn journal_path(output: &Path) -> PathBuf {
    let mut name = OsString::from(output);
    name.push(".journal");
    name.into()
}

/// Runs with a journal. If the run fails or Ctrl-C ends it, tells the user which answers the next
/// run has already.
pub(crate) fn with_journal<T>(
    bar: &Arc<Bar>,
    journal: &Path,
    run: impl FnOnce(&(dyn Fn(Progress) + Sync)) -> haltwise_llm::Result<T>,
) -> anyhow::Result<T> {
    tell_on_ctrl_c(bar, journal)?;
    let ran = run(&|progress| bar.show(progress));
    bar.bar.finish_and_clear();
    match (ran, saved(bar, journal)) {
        (Err(error), Some(saved)) => Err(anyhow::Error::new(error).context(saved)),
        (ran, _) => Ok(ran?),
    }
}

/// What the next run can use, if anything. An unusable journal leaves the count at 0.
fn saved(bar: &Bar, journal: &Path) -> Option<String> {
    let progress = bar.last();
    (progress.answered > 0).then(|| {
        format!(
            "{} of {} answers are kept in {}; run the same command again to go on",
            number(progress.answered as u64),
            number(progress.total as u64),
            show::file(journal)
        )
    })
}

/// Makes Ctrl-C say what is saved and end the program at once: every answer is in
/// the journal before the next is asked for.
fn tell_on_ctrl_c(bar: &Arc<Bar>, journal: &Path) -> anyhow::Result<()> {
    let (bar, journal) = (Arc::clone(bar), journal.to_path_buf());
    ctrlc::set_handler(move || {
        bar.bar.finish_and_clear();
        match saved(&bar, &journal) {
            Some(saved) => show::note(format_args!("Interrupted: {saved}")),
            None => show::note("Interrupted: nothing was answered yet"),
        }
        std::process::exit(show::INTERRUPTED.into());
    })?;
    Ok(())
}

/// How far the run is, on standard error: a line that moves on a terminal,
/// a line every half minute elsewhere.
pub(crate) struct Bar {
    bar: ProgressBar,
    state: Mutex<(Progress, Instant, Instant)>,
}

const QUIET: Duration = Duration::from_secs(30);

impl Bar {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::hidden();
        if io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(4));
        }
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}]") {
            bar.set_style(style.progress_chars("=> "));
        }
        let now = Instant::now();
        Self {
            bar,
            state: Mutex::new((Progress::default(), now, now)),
        }
    }

    /// Warns without breaking the line that moves.
    pub(crate) fn warner(&self) -> impl Fn(&str) + Send + Sync + 'static {
        let bar = self.bar.clone();
        move |text| bar.suspend(|| show::warn(text))
    }

    pub(crate) fn last(&self) -> Progress {
        self.state.lock().map(|state| state.0).unwrap_or_default()
    }

    fn show(&self, progress: Progress) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        if progress.answered == progress.earlier {
            state.1 = Instant::now();
        }
        state.0 = progress;
        let words = words(progress, state.1.elapsed());
        if !io::stderr().is_terminal() && state.2.elapsed() >= QUIET {
            state.2 = Instant::now();
            show::note(&words);
        }
        self.bar.set_length(progress.total as u64);
        self.bar.set_position(progress.answered as u64);
        self.bar.set_message(words);
    }
}

fn words(progress: Progress, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    let mut text = format!(
        "{} of {} answers",
        number(progress.answered as u64),
        number(progress.total as u64)
    );
    let here = progress.answered - progress.earlier;
    if here > 0 && seconds > 0.0 {
        let left = seconds / here as f64 * (progress.total - progress.answered) as f64;
        let left = indicatif::HumanDuration(Duration::from_secs_f64(left.ceil()));
        let rate = |tokens: u64| number((tokens as f64 / seconds) as u64);
        text += &match progress.generated {
            0 => format!(
                ", {} tokens/s ({} from the cache), {left} left",
                rate(progress.tokens.sent),
                percent(progress.tokens.cached as f64 / progress.tokens.sent.max(1) as f64),
            ),
            generated => format!(", {} tokens/s generated, {left} left", rate(generated)),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use haltwise_llm::Tokens;

    #[test]
    fn progress_tells_the_speed_and_the_time_left_of_this_run() {
        let progress = Progress {
            answered: 60,
            total: 100,
            earlier: 40,
            tokens: Tokens {
                sent: 20_000,
                cached: 15_000,
            },
            generated: 0,
        };
        let ten = Duration::from_secs(10);
        assert_eq!(
            words(progress, ten),
            "60 of 100 answers, 2,000 tokens/s (75% from the cache), 20 seconds left"
        );
        let votes = Progress {
            generated: 700,
            ..progress
        };
        assert_eq!(
            words(votes, ten),
            "60 of 100 answers, 70 tokens/s generated, 20 seconds left"
        );
    }
}
