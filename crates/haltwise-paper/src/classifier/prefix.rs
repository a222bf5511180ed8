//! What the prefix classifier says about every prefix of series, written as traces: a step per checkpoint.

use std::path::Path;

use anyhow::bail;
use haltwise::Sequence;
use haltwise::traces::About;
use haltwise_io::series::SeriesSet;
use haltwise_io::{Columns, Format, TraceWriter, WriteOptions};
use haltwise_prefix::{Answers, Fitted, Model};

use super::series_of;

/// The column with the time points that each step reads.
const COST: &str = "cost";
/// The most bytes of answers that are in memory at once.
const BLOCK: usize = 64 << 20;

/// The bytes that scoring takes: a block of answers, and what each thread reads.
pub(super) fn working_memory(model: &Model, longest: usize) -> u64 {
    let read = longest * model.channels() * size_of::<f32>() * 64;
    (BLOCK + read * rayon::current_num_threads()) as u64
}

/// Writes what a model says about series that did not train it. Returns how many full answers are right.
pub(super) fn write_answers(
    model: &Model,
    set: &SeriesSet,
    places: &[usize],
    output: &Path,
    with_probs: bool,
) -> anyhow::Result<usize> {
    let first = model.checkpoints().first().copied().unwrap_or(0);
    if let Some(short) = set.lengths().position(|length| length < first) {
        bail!(
            "{}: sequence {} has {} time points, but the model first answers after {first}: drop it, or \
             train with earlier --checkpoints",
            set.name(),
            places[short] + 1,
            set.steps(short)
        );
    }
    let series = series_of(set)?;
    let mut traces = Traces::create(model, set, places, output, with_probs)?;
    let each = model.checkpoints().len() * model.classes().len() * size_of::<f32>();
    let rows = (BLOCK / each).max(1);
    let mut right = 0;
    for start in (0..set.len()).step_by(rows) {
        let end = (start + rows).min(set.len());
        right += traces.write(start, &model.answers_to(&series, start..end)?)?;
    }
    traces.writer.finish()?;
    Ok(right)
}

/// Writes what a model says about its own training series, each left out. They may fit a rule, and
/// must not certify it. Series that end before the first checkpoint are left out.
pub fn write_out_of_sample(
    fitted: &Fitted,
    set: &SeriesSet,
    places: &[usize],
    output: &Path,
) -> anyhow::Result<()> {
    let mut traces = Traces::create(&fitted.model, set, places, output, true)?;
    traces.write(0, &fitted.out_of_sample)?;
    Ok(traces.writer.finish()?)
}

/// A file of traces that is being written.
struct Traces<'a> {
    writer: TraceWriter,
    set: &'a SeriesSet,
    places: &'a [usize],
    with_probs: bool,
    /// The time points between one checkpoint and the next.
    costs: Vec<f32>,
}

impl<'a> Traces<'a> {
    fn create(
        model: &Model,
        set: &'a SeriesSet,
        places: &'a [usize],
        output: &Path,
        with_probs: bool,
    ) -> anyhow::Result<Self> {
        let checkpoints = model.checkpoints();
        let before = std::iter::once(&0).chain(checkpoints);
        let costs = checkpoints.iter().zip(before);
        let listed: Vec<String> = checkpoints.iter().map(ToString::to_string).collect();
        let options = WriteOptions {
            metadata: vec![("checkpoints".into(), listed.join(","))],
            columns: Columns {
                costs: Format::of(output)?.has_costs().then(|| COST.into()),
                ..Columns::default()
            },
            ..WriteOptions::default()
        };
        Ok(Self {
            writer: TraceWriter::create(output, options)?,
            set,
            places,
            with_probs,
            costs: costs.map(|(end, start)| (end - start) as f32).collect(),
        })
    }

    /// Writes the answers about the series from `first` on. Returns how many full answers are right.
    fn write(&mut self, first: usize, answers: &Answers) -> haltwise_io::Result<usize> {
        let mut right = 0;
        for i in 0..answers.len() {
            let (series, steps) = (first + i, answers.reached(i));
            if steps == 0 {
                continue;
            }
            let label = self.set.labels()[series];
            let (predictions, scores): (Vec<u32>, Vec<f32>) =
                (0..steps).map(|step| answers.best(i, step)).unzip();
            right += usize::from(predictions.last() == Some(&label));
            let start = i * answers.checkpoints() * answers.classes();
            let probs = &answers.probabilities()[start..start + steps * answers.classes()];
            let sequence = Sequence {
                id: Some(&format!("{}:{}", self.set.name(), self.places[series] + 1)),
                label: Some(label),
                predictions: Some(&predictions),
                // With probabilities, the score follows from them.
                scores: (!self.with_probs).then_some(&scores[..]),
                probs: self.with_probs.then_some((probs, answers.classes())),
                about: About {
                    costs: Some(&self.costs[..steps]),
                    ..About::default()
                },
                ..Sequence::default()
            };
            self.writer.write(sequence)?;
        }
        Ok(right)
    }
}
