//! Goes through rows in memory on all cores.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::ScopedJoinHandle;

/// How many rows a thread processes at a time.
const TOGETHER: usize = 4096;

/// Goes through rows on all cores, in stretches of consecutive rows, and returns the final
/// states of the threads. Among several errors, it returns the one of the first rows.
///
/// The calling thread asks `going_on` from time to time whether to continue.
pub fn in_stretches<S: Send, E: Send>(
    rows: usize,
    going_on: &mut dyn FnMut() -> Result<(), E>,
    start: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, Range<usize>) -> Result<(), E> + Sync,
) -> Result<Vec<S>, E> {
    let stretches = rows.div_ceil(TOGETHER);
    let stretch = |k: usize| k * TOGETHER..rows.min((k + 1) * TOGETHER);
    let threads = rayon::current_num_threads().clamp(1, stretches.max(1));
    if threads == 1 {
        let mut state = start();
        for k in 0..stretches {
            going_on()?;
            work(&mut state, stretch(k))?;
        }
        return Ok(vec![state]);
    }
    // All stretches before one that fails were started before it, and are completed.
    let next = AtomicUsize::new(0);
    let take = |told: Sender<()>| {
        let mut state = start();
        loop {
            let k = next.fetch_add(1, Ordering::Relaxed);
            if k >= stretches {
                return Ok(state);
            }
            if let Err(error) = work(&mut state, stretch(k)) {
                next.store(stretches, Ordering::Relaxed);
                return Err((k, error));
            }
            // The receiver may be gone.
            let _ = told.send(());
        }
    };
    let (told, heard) = channel();
    let ended: Vec<Result<S, (usize, E)>> = std::thread::scope(|scope| {
        let worker = |_| {
            let (take, told) = (&take, told.clone());
            scope.spawn(move || take(told))
        };
        let workers: Vec<_> = (0..threads).map(worker).collect();
        drop(told);
        let mut goes_on = Ok(());
        for () in heard {
            goes_on = going_on();
            if goes_on.is_err() {
                next.store(stretches, Ordering::Relaxed);
                break;
            }
        }
        let join = |worker: ScopedJoinHandle<'_, _>| {
            let ended = worker.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let ended = workers.into_iter().map(join).collect();
        goes_on.map(|()| ended)
    })?;
    let (mut states, mut failed) = (Vec::new(), None);
    for ended in ended {
        match ended {
            Ok(state) => states.push(state),
            Err((k, error)) => {
                if failed.as_ref().is_none_or(|(first, _)| k < *first) {
                    failed = Some((k, error));
                }
            }
        }
    }
    match failed {
        Some((_, error)) => Err(error),
        None => Ok(states),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: usize = 10 * TOGETHER + 5;

    #[test]
    fn every_row_is_met_once() {
        let met = in_stretches(
            ROWS,
            &mut || Ok::<_, String>(()),
            Vec::new,
            |met: &mut Vec<usize>, rows| {
                met.extend(rows);
                Ok(())
            },
        );
        let mut met = met.unwrap().concat();
        met.sort_unstable();
        assert_eq!(met, Vec::from_iter(0..ROWS));
    }

    #[test]
    fn of_several_errors_the_one_of_the_first_rows_is_told() {
        for bad in [0, TOGETHER, 3 * TOGETHER + 1] {
            let failed = in_stretches(
                ROWS,
                &mut || Ok(()),
                || (),
                |(), mut rows| match rows.find(|&row| row >= bad) {
                    Some(row) => Err(row),
                    None => Ok(()),
                },
            );
            assert_eq!(failed, Err(bad));
        }
    }

    #[test]
    fn who_calls_may_end_it() {
        let ended = in_stretches(ROWS, &mut || Err("enough"), || (), |(), _| Ok(()));
        assert_eq!(ended, Err("enough"));
    }
}
