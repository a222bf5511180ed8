//! Stopping when asked: by Ctrl-C, or by SIGTERM, which schedulers and
//! containers send before they kill.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::show;

/// Whether to stop, and who said so.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    /// Whether there is work under way that can be ended well.
    begun: AtomicBool,
    /// Whether somebody asked for the end.
    requested: AtomicBool,
    /// The exit code for who said so.
    code: AtomicU8,
}

impl Stop {
    /// Listens for SIGTERM. Other threads that are to leave it alone must start
    /// after this, so call it first.
    pub(crate) fn listen() -> anyhow::Result<Arc<Self>> {
        let stop = Arc::new(Self::default());
        #[cfg(unix)]
        on_sigterm(Arc::clone(&stop))?;
        Ok(stop)
    }

    /// Begins the work: from now on the first signal, Ctrl-C among them, asks
    /// for its end, and only the second ends the program at once.
    pub(crate) fn begin(self: &Arc<Self>) -> anyhow::Result<()> {
        self.begun.store(true, Ordering::Relaxed);
        let stop = Arc::clone(self);
        ctrlc::set_handler(move || stop.tell(show::INTERRUPTED, "Ctrl-C"))?;
        Ok(())
    }

    fn tell(&self, code: u8, how: &str) {
        self.code.store(code, Ordering::Relaxed);
        if !self.begun.load(Ordering::Relaxed) || self.requested.swap(true, Ordering::Relaxed) {
            std::process::exit(code.into());
        }
        show::note(format_args!(
            "stopping at the next good moment; {how} again quits at once"
        ));
    }

    /// The flag to look at now and then.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.requested
    }

    /// The exit code of a stopped program, as in shells.
    pub(crate) fn code(&self) -> u8 {
        self.code.load(Ordering::Relaxed)
    }
}

/// Waits for SIGTERM in a thread of its own; all that start later do not see it.
#[cfg(unix)]
fn on_sigterm(stop: Arc<Stop>) -> anyhow::Result<()> {
    use nix::sys::signal::{SigSet, Signal};
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    std::thread::Builder::new().spawn(move || {
        while signals.wait().is_ok() {
            stop.tell(show::TERMINATED, "SIGTERM");
        }
    })?;
    Ok(())
}
