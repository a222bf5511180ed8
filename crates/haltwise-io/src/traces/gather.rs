//! Sequences that are in memory already, checked like those of a file.

use haltwise::{Outputs, ScoreSource, Traces};

use super::ids::Ids;
use super::intake::{Intake, Probs, Sequence};
use super::{Visit, add, add_output, add_scored};

/// One sequence that is in memory: a label, and either a prediction and a
/// score per step, or class probabilities, or both.
#[derive(Debug)]
pub struct Given<'a> {
    /// What it is called, where it is.
    pub id: Option<&'a str>,
    /// The true class.
    pub label: u32,
    /// The predicted class at each step; by default that of the largest
    /// probability.
    pub predictions: Option<&'a [u32]>,
    /// The score at each step; by default the largest probability.
    pub scores: Option<&'a [f32]>,
    /// The class probabilities, step after step, and how many there are per
    /// step. What rounding left outside [0, 1] is moved onto its border.
    pub probs: Option<(&'a mut [f32], usize)>,
}

/// Collects sequences that are in memory into one set of traces, with the
/// checks that hold for files. A problem says at which row and step it is;
/// after one, nothing more should be taken.
///
/// ```
/// use haltwise_io::{Given, gather_traces};
///
/// let traces = gather_traces(|take| {
///     take(Given {
///         id: None,
///         label: 1,
///         predictions: None,
///         scores: None,
///         probs: Some((&mut [0.6, 0.4, 0.1, 0.9], 2)),
///     })
/// })?;
/// assert_eq!(traces.scores(0), Some(vec![0.6, 0.9]));
/// # Ok::<(), String>(())
/// ```
pub fn gather_traces<E>(feed: impl FnOnce(&mut Take<'_>) -> Result<(), E>) -> Result<Traces, E> {
    let mut builder = None;
    visit_given(feed, &mut |row| add(&mut builder, row))?;
    Ok(builder.unwrap_or_default().finish())
}

/// Collects sequences that are in memory into traces whose scores are of a
/// given kind, as [`read_scored`](crate::read_scored) does with files.
pub fn gather_scored<E>(
    source: &ScoreSource,
    feed: impl FnOnce(&mut Take<'_>) -> Result<(), E>,
) -> Result<Traces, E> {
    let mut builder = Traces::builder().source(source.clone());
    visit_given(feed, &mut |row| add_scored(&mut builder, source, row))?;
    Ok(builder.finish())
}

/// Collects all that is said about sequences in memory, as
/// [`read_outputs`](crate::read_outputs) does with files.
pub fn gather_outputs<E>(feed: impl FnOnce(&mut Take<'_>) -> Result<(), E>) -> Result<Outputs, E> {
    let mut outputs = Outputs::new();
    visit_given(feed, &mut |row| add_output(&mut outputs, row))?;
    Ok(outputs)
}

/// What takes sequences one by one; it says what is wrong with one, and where.
pub type Take<'a> = dyn FnMut(Given<'_>) -> Result<(), String> + 'a;

/// Shows sequences that are in memory to a visitor, as [`visit_traces`] does
/// with those of files.
///
/// [`visit_traces`]: crate::visit_traces
pub fn visit_given<E>(
    feed: impl FnOnce(&mut Take<'_>) -> Result<(), E>,
    visit: &mut Visit<'_>,
) -> Result<(), E> {
    let mut no_progress = |_, _| {};
    let mut ids = Ids::now();
    let mut intake = Intake::new(&mut ids, visit, &mut no_progress, 0);
    let mut row = 0_u64;
    feed(&mut |given| {
        row += 1;
        let probs = given.probs;
        let sequence = Sequence {
            id: given.id,
            label: given.label,
            predictions: given.predictions,
            scores: given.scores,
            probs: probs.map(|(values, classes)| Probs { values, classes }),
        };
        let taken = intake.take(sequence);
        taken.map_err(|problem| problem.at(format_args!("row {row}")).to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given<'a>(predictions: &'a [u32], scores: &'a [f32]) -> Given<'a> {
        Given {
            id: None,
            label: 1,
            predictions: Some(predictions),
            scores: Some(scores),
            probs: None,
        }
    }

    #[test]
    fn rows_in_memory_become_the_traces_of_the_same_rows_in_a_file() {
        let text = "id,t,label,prediction,score\na,1,1,0,0.5\na,2,1,1,0.75\n";
        let mut builder = None;
        let format = crate::Format::Csv;
        crate::visit_bytes("t.csv", format, text.as_bytes(), &mut |row| {
            add(&mut builder, row)
        })
        .unwrap();
        let traces = gather_traces(|take| take(given(&[0, 1], &[0.5, 0.75]))).unwrap();
        assert_eq!(
            traces.fingerprint(),
            builder.unwrap().finish().fingerprint()
        );
    }

    #[test]
    fn a_problem_names_the_row_and_the_step() {
        let problem = gather_traces(|take| {
            take(given(&[0], &[0.5]))?;
            take(given(&[0, 1], &[0.5, f32::NAN]))
        });
        let expected = "row 2, scores, step 2: the score NaN is not a number in [0, 1]; \
                        fill it in, or cut the sequence before it";
        assert_eq!(problem.unwrap_err(), expected);
    }
}
