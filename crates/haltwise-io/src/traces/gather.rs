//! Checks sequences in memory like those of a file.

use std::ops::Range;

use haltwise::Sequence;
use haltwise::traces::Trace;

use super::Visit;
use super::columns::Columns;
use super::ids::Ids;
use super::intake::Intake;
use crate::memory::{MEMORY, Memory};
use crate::stretches::in_stretches;

/// Takes sequences one by one. An error names the problem and its place.
pub type Take<'a> = dyn FnMut(Sequence<'_>) -> Result<(), String> + 'a;

/// Shows sequences in memory to a visitor, as [`visit_traces`] does with those of files. A
/// problem names its row and step. Take no further sequences after a problem.
///
/// ```
/// use haltwise::Sequence;
/// use haltwise_io::visit_given;
///
/// let mut scores: Vec<f32> = Vec::new();
/// visit_given(
///     |take| {
///         take(Sequence {
///             label: Some(1),
///             probs: Some((&[0.6, 0.4, 0.1, 0.9], 2)),
///             ..Sequence::default()
///         })
///     },
///     &mut |trace| {
///         scores.extend(trace.scores());
///         Ok(())
///     },
/// )?;
/// assert_eq!(scores, [0.6, 0.9]);
/// # Ok::<(), String>(())
/// ```
///
/// [`visit_traces`]: crate::visit_traces
pub fn visit_given<E>(
    feed: impl FnOnce(&mut Take<'_>) -> Result<(), E>,
    visit: &mut Visit<'_>,
) -> Result<(), E> {
    visit_from(0, &mut Ids::now(), feed, visit)
}

/// Does the same from a row on, counted from 0.
fn visit_from<E>(
    first: usize,
    ids: &mut Ids,
    feed: impl FnOnce(&mut Take<'_>) -> Result<(), E>,
    visit: &mut Visit<'_>,
) -> Result<(), E> {
    let mut no_progress = |_, _| {};
    // Sequences in memory already have all their data.
    let none = Columns::default();
    let mut intake = Intake::new(&none, Memory::new(MEMORY), ids, visit, &mut no_progress, 0);
    let mut row = first;
    feed(&mut |sequence| {
        row += 1;
        let taken = intake.take(sequence);
        taken.map_err(|problem| problem.at(format_args!("row {row}")).to_string())
    })
}

/// Shows sequences in memory to visitors on all cores, and returns their final states. The
/// result of combining all states must not depend on which visitor saw which sequence.
///
/// `feed` passes in some of the `rows`; a visitor receives a sequence's row, counted from
/// 0. The calling thread asks `going_on` from time to time whether to continue.
pub fn fold_given<S: Send, E: From<String> + Send>(
    rows: usize,
    going_on: &mut dyn FnMut() -> Result<(), E>,
    start: impl Fn() -> S + Sync,
    feed: impl Fn(Range<usize>, &mut Take<'_>) -> Result<(), E> + Sync,
    visit: impl Fn(&mut S, u64, &Trace<'_>) -> Result<(), String> + Sync,
) -> Result<Vec<S>, E> {
    let show = |state: &mut S, ids: &mut Ids, rows: Range<usize>| {
        let mut position = rows.start as u64;
        visit_from(rows.start, ids, |take| feed(rows, take), &mut |trace| {
            let shown = visit(state, position, trace);
            position += 1;
            shown
        })
    };
    let shown = in_stretches(
        rows,
        going_on,
        || (start(), Ids::later()),
        |(state, ids), rows| show(state, ids, rows),
    )?;
    let (states, ids): (Vec<S>, Vec<Ids>) = shown.into_iter().unzip();
    if Ids::any_twice(ids) {
        // Read once more in order, to confirm the error and its place.
        let (mut state, mut ids) = (start(), Ids::now());
        show(&mut state, &mut ids, 0..rows)?;
        return Ok(vec![state]);
    }
    Ok(states)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given<'a>(predictions: &'a [u32], scores: &'a [f32]) -> Sequence<'a> {
        Sequence {
            label: Some(1),
            predictions: Some(predictions),
            scores: Some(scores),
            ..Sequence::default()
        }
    }

    #[test]
    fn rows_in_memory_are_shown_as_the_same_rows_of_a_file() {
        let text = "id,t,label,prediction,score\na,1,1,0,0.5\na,2,1,1,0.75\n";
        let mut print = None;
        let mut of = |trace: &haltwise::traces::Trace<'_>| {
            let new = trace.fingerprint(&mut Vec::new());
            assert_eq!(*print.get_or_insert(new), new);
            Ok(())
        };
        let format = crate::Format::Csv;
        let none = Columns::default();
        crate::visit_bytes("t.csv", format, text.as_bytes(), &none, &mut of).unwrap();
        visit_given(|take| take(given(&[0, 1], &[0.5, 0.75])), &mut of).unwrap();
    }

    /// The rows that visitors on all cores were shown, where row `i` has the id `id(i)` and row
    /// `bad` a score that is none.
    fn folded(id: impl Fn(usize) -> usize + Sync, bad: usize) -> Result<Vec<u64>, String> {
        let feed = |rows: Range<usize>, take: &mut Take<'_>| {
            for i in rows {
                let score = if i == bad { f32::NAN } else { 0.5 };
                take(Sequence {
                    id: Some(&id(i).to_string()),
                    ..given(&[0], &[score])
                })?;
            }
            Ok::<(), String>(())
        };
        let visit = |seen: &mut Vec<u64>, row, trace: &Trace<'_>| {
            assert_eq!(trace.scores(), [0.5]);
            seen.push(row);
            Ok(())
        };
        let mut seen = fold_given(20_000, &mut || Ok(()), Vec::new, feed, visit)?.concat();
        seen.sort_unstable();
        Ok(seen)
    }

    #[test]
    fn on_all_cores_every_row_is_shown_once() {
        let none = usize::MAX;
        assert_eq!(folded(|i| i, none), Ok((0..20_000).collect()));
        let twice = folded(|i| if i == 19_000 { 7 } else { i }, none).unwrap_err();
        assert!(
            twice.contains("row 19001: the id \"7\" was met before"),
            "{twice}"
        );
        let unsound = folded(|i| i, 12_000).unwrap_err();
        assert!(
            unsound.starts_with("row 12001, scores, step 1: the score NaN"),
            "{unsound}"
        );
    }

    #[test]
    fn a_problem_names_the_row_and_the_step() {
        let problem = visit_given(
            |take| {
                take(given(&[0], &[0.5]))?;
                take(given(&[0, 1], &[0.5, f32::NAN]))
            },
            &mut |_| Ok(()),
        );
        let expected = "row 2, scores, step 2: the score NaN is not a number in [0, 1]; \
                        fill it in, or cut the sequence before it";
        assert_eq!(problem, Err(expected.to_owned()));
    }
}
