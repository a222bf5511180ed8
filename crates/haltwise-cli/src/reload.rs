//! SIGHUP: rule files are read again.

use std::path::PathBuf;

use haltwise_serve::{Renewal, ServerLog};
use tokio::sync::mpsc;

/// The file of a rule, and its content when it last came into use.
#[cfg_attr(not(unix), expect(dead_code, reason = "nothing asks for it again"))]
pub(crate) struct RuleFile {
    pub(crate) path: PathBuf,
    pub(crate) json: String,
}

/// Reads the files again at each SIGHUP, and hands on the rules of the files that have changed
/// since they came into use. A rule that came in over HTTP stays while its file is unchanged.
/// Without this handler, the signal would end the process.
#[cfg(unix)]
pub(crate) fn on_hangup(
    mut files: Vec<RuleFile>,
    renewals: mpsc::Sender<Renewal>,
    log: ServerLog,
) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    use tokio::sync::oneshot;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            for file in &mut files {
                let (path, lines) = (file.path.clone(), log.clone());
                // On a thread of its own: to read a rule takes a while, and a mistake there must
                // not end this task.
                let reading =
                    tokio::task::spawn_blocking(move || crate::serve::served(&path, &lines));
                let served = match reading.await.map_err(anyhow::Error::from).flatten() {
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
                let json = served.json.clone();
                let (is_in_use, answer) = oneshot::channel();
                let renewal = Renewal {
                    rule: served,
                    is_in_use,
                };
                if renewals.send(renewal).await.is_err() {
                    return;
                }
                // A rule that was not swapped in is still new at the next signal.
                if answer.await == Ok(true) {
                    file.json = json;
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
    _: mpsc::Sender<Renewal>,
    _: ServerLog,
) -> std::io::Result<()> {
    Ok(())
}
