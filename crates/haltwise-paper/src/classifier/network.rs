//! What the LSTM says about every prefix of series, written as traces.

use std::borrow::Cow;
use std::path::Path;

use haltwise::Sequence;
use haltwise_io::series::SeriesSet;
use haltwise_io::{TraceWriter, WriteOptions};
use haltwise_lstm::{Device, Model, Scores};

use super::{Written, series_of};

/// Writes one trace per sequence. `done` is told how many sequences were scored since it was told last.
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
    let mut stream = model.score_on(series_of(set)?, device)?;
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
