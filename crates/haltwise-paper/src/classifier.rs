//! A trained LSTM over series: what it says about every prefix, written as traces.

use std::borrow::Cow;
use std::path::Path;

use haltwise::Sequence;
use haltwise_io::series::SeriesSet;
use haltwise_io::{TraceWriter, WriteOptions};
use haltwise_lstm::{Device, Model, Scores, Series};

/// A set as the network reads it: sequence after sequence, none of them padded.
pub fn network_series(set: &SeriesSet) -> haltwise_lstm::Result<Series<'_>> {
    Series::packed(set.values(), set.starts(), set.features())
}

/// What came of scoring.
#[derive(Debug)]
pub struct Written {
    /// How many full predictions are right.
    pub right: usize,
    /// The GPU that was used, where one was.
    pub gpu: Option<String>,
    /// Why the CPU took over from the GPU, where it did.
    pub gpu_failed: Option<String>,
}

/// Writes one trace per sequence. `done` gets the number of sequences scored since its last call.
pub fn write_traces(
    model: &Model,
    set: &SeriesSet,
    places: &[usize],
    output: &Path,
    with_probs: bool,
    device: Device,
    done: impl Fn(usize),
) -> anyhow::Result<Written> {
    let head = match model.shape().gap_head {
        true => "gap head of haltwise-lstm: P(no gap)",
        false => "confidence head of haltwise-lstm: P(prediction right)",
    };
    let options = WriteOptions {
        metadata: vec![("score".into(), head.into())],
        ..WriteOptions::default()
    };
    let mut writer = TraceWriter::create(output, options)?;
    let mut right = 0;
    let mut stream = model.score_on(network_series(set)?, device)?;
    let gpu = stream.gpu().map(String::from);
    for scores in stream.by_ref() {
        let scores = scores?;
        let safety = safety(&scores);
        for (i, &length) in scores.lengths.iter().enumerate() {
            let sequence = scores.first + i;
            let label = set.labels()[sequence];
            right += usize::from(scores.full_prediction(i) == label);
            let steps = i * scores.steps..i * scores.steps + length;
            let probs = steps.start * scores.classes..steps.end * scores.classes;
            writer.write(Sequence {
                id: Some(&format!("{}:{}", set.name(), places[sequence] + 1)),
                label: Some(label),
                predictions: Some(&scores.predictions[steps.clone()]),
                scores: Some(&safety[steps]),
                probs: with_probs.then(|| (&scores.probabilities[probs], scores.classes)),
                ..Sequence::default()
            })?;
        }
        done(scores.lengths.len());
    }
    writer.finish()?;
    let gpu_failed = stream.given_up();
    Ok(Written {
        right,
        gpu,
        gpu_failed: gpu_failed.map(|why| format!("the CPU scored in its place: {why}")),
    })
}

/// How safe the model finds it to stop: by the head that was trained for just
/// that, where there is one, else by how likely it finds its prediction right.
fn safety(scores: &Scores) -> Cow<'_, [f32]> {
    match &scores.gap {
        Some(gap) => gap.iter().map(|gap| 1.0 - gap).collect(),
        None => Cow::Borrowed(&scores.confidence),
    }
}
