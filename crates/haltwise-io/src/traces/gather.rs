//! Sequences that are in memory already, checked like those of a file.

use haltwise::Sequence;

use super::Visit;
use super::columns::Columns;
use super::ids::Ids;
use super::intake::Intake;
use crate::memory::{MEMORY, Memory};

/// What takes sequences one by one; it says what is wrong with one, and where.
pub type Take<'a> = dyn FnMut(Sequence<'_>) -> Result<(), String> + 'a;

/// Shows sequences that are in memory to a visitor, as [`visit_traces`] does
/// with those of files. A problem says at which row and step it is; after one,
/// nothing more should be taken.
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
    let mut no_progress = |_, _| {};
    // Sequences bring with them what they have.
    let (mut ids, none) = (Ids::now(), Columns::default());
    let mut intake = Intake::new(
        &none,
        Memory::new(MEMORY),
        &mut ids,
        visit,
        &mut no_progress,
        0,
    );
    let mut row = 0_u64;
    feed(&mut |sequence| {
        row += 1;
        let taken = intake.take(sequence);
        taken.map_err(|problem| problem.at(format_args!("row {row}")).to_string())
    })
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
