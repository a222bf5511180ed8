//! SIGHUP: rule files are read again.

use std::path::PathBuf;

use haltwise_serve::{RuleToServe, ServerLog};
use tokio::sync::mpsc;

/// The file of a rule, and its content when it was last read.
#[cfg_attr(not(unix), expect(dead_code, reason = "nothing asks for it again"))]
pub(crate) struct RuleFile {
    pub(crate) path: PathBuf,
    pub(crate) json: String,
}

/// Reads the files again at each SIGHUP, and hands on the rules of the files that have changed
/// since. A rule that came in over HTTP stays while its file is unchanged. Without this handler,
/// the signal would end the process.
#[cfg(unix)]
pub(crate) fn on_hangup(
    mut files: Vec<RuleFile>,
    renewals: mpsc::Sender<RuleToServe>,
    log: ServerLog,
) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            for file in &mut files {
                let served = match crate::serve::served(&file.path) {
                    Ok(served) => served,
                    Err(error) => {
                        log.warn(&format!("{error:#}; the rule that is in use stays"));
                        continue;
                    }
                };
                if served.json == file.json {
                    let path = file.path.display();
                    log.info(&format!(
                        "{path} has not changed since it was read; the rule that is in use stays; \
                         to swap this one in, send it with PUT"
                    ));
                    continue;
                }
                file.json.clone_from(&served.json);
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
    _: Vec<RuleFile>,
    _: mpsc::Sender<RuleToServe>,
    _: ServerLog,
) -> std::io::Result<()> {
    Ok(())
}
