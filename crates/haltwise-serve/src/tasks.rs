//! Tasks that must live for as long as the server does.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::server::ended;
use crate::server_log::ServerLog;

/// How long to wait before a task that died is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// Tasks that died, and have done none of their work since.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeadTasks(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl DeadTasks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first problem, if there is any.
    pub(crate) fn problem(&self) -> Option<String> {
        self.lock().values().next().cloned()
    }

    /// A task has done some of its work.
    pub(crate) fn works(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Runs a task until the server is to end. One that dies is told of and started again.
    pub(crate) async fn supervise<F>(
        self,
        name: &'static str,
        log: ServerLog,
        mut ending: watch::Receiver<bool>,
        start: impl Fn() -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        // When this is dropped, so is the task.
        let mut task = JoinSet::new();
        loop {
            task.spawn(start());
            tokio::select! {
                // It may have a last word to say.
                biased;
                died = task.join_next() => {
                    let Some(Err(error)) = died else {
                        return;
                    };
                    let problem = format!("{name} died and is started again: {error}");
                    log.error(&problem);
                    self.lock().insert(name, problem);
                }
                () = ended(&mut ending) => return,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::server_log::{LogForm, LogRequests};

    #[tokio::test]
    async fn a_task_that_dies_is_told_of_and_started_again() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&said);
        let write = move |line: &str| lines.lock().unwrap().push(line.to_owned());
        let log = ServerLog::new(LogForm::Text, LogRequests::Failed, write);
        let (end, ending) = watch::channel(false);
        let (dead, runs) = (DeadTasks::default(), Arc::new(AtomicU32::new(0)));
        let (worked, mut works) = tokio::sync::mpsc::unbounded_channel();
        let in_task = (dead.clone(), Arc::clone(&runs));
        let supervised = dead.clone().supervise("counting", log, ending, move || {
            let ((dead, runs), worked) = (in_task.clone(), worked.clone());
            async move {
                let is_first = runs.fetch_add(1, Ordering::Relaxed) == 0;
                let problem = dead.problem();
                assert!(!is_first, "the first run");
                dead.works("counting");
                worked.send(problem).unwrap();
                std::future::pending().await
            }
        });
        let supervised = tokio::spawn(supervised);
        let problem = works.recv().await.unwrap().unwrap();
        assert!(problem.contains("counting died"), "{problem}");
        assert_eq!((dead.problem(), runs.load(Ordering::Relaxed)), (None, 2));
        assert_eq!(*said.lock().unwrap(), [problem]);
        end.send_replace(true);
        supervised.await.unwrap();
    }
}
