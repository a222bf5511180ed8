//! SIGHUP: rule files are read again.

use std::path::PathBuf;

use haltwise_serve::{Served, ServerLog};
use tokio::sync::mpsc;

/// Reads the files again at each SIGHUP, and hands on the rules in them. Without it, that signal
/// would end the process.
#[cfg(unix)]
pub(crate) fn on_hangup(
    files: Vec<PathBuf>,
    renewals: mpsc::Sender<Served>,
    log: ServerLog,
) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            for file in &files {
                let served = match crate::serve::served(file) {
                    Ok(served) => served,
                    Err(error) => {
                        log.warn(&format!("{error:#}; the rule that is in use stays"));
                        continue;
                    }
                };
                if renewals.send(served).await.is_err() {
                    return;
                }
            }
        }
    });
    Ok(())
}

/// There is no such signal here.
#[cfg(not(unix))]
pub(crate) fn on_hangup(
    _: Vec<PathBuf>,
    _: mpsc::Sender<Served>,
    _: ServerLog,
) -> std::io::Result<()> {
    Ok(())
}
