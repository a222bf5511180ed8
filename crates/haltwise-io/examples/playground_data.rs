//! Makes the playground's data from the folder of `haltwise demo`: the traces to calibrate
//! on, those to measure on, and the strokes of the latter. `playground_data DEMO FOLDER`

use std::error::Error;
use std::path::Path;

use haltwise::Sequence;
use haltwise_io::series::builtin;
use haltwise_io::{Columns, TraceWriter, WriteOptions, visit_traces};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [demo, folder] = &arguments[..] else {
        return Err("usage: playground_data DEMO FOLDER".into());
    };
    let (demo, folder) = (Path::new(demo), Path::new(folder));
    std::fs::create_dir_all(folder)?;
    let calibration = ["screening", "certifying"].map(|part| demo.join(format!("{part}.parquet")));
    write(&calibration, &folder.join("calibration.npz"))?;
    let ids = write(&[demo.join("test.parquet")], &folder.join("test.npz"))?;

    let set = builtin("PenDigits")?;
    let mut strokes = Vec::new();
    for id in ids {
        // The demo names a stroke by its place in the set, counted from 1.
        let place = id.rsplit(':').next().and_then(|place| place.parse().ok());
        let place: usize = place.ok_or("the demo names its strokes in another way")?;
        let i = place - 1;
        let points = set.sequence(i).chunks_exact(set.features());
        let points: Vec<[f32; 2]> = points.map(|p| [p[0], p[1]]).collect();
        let label = &set.classes()[set.labels()[i] as usize];
        strokes.push(serde_json::json!({"label": label, "points": points}));
    }
    std::fs::write(
        folder.join("strokes.json"),
        serde_json::to_string(&strokes)?,
    )?;
    Ok(())
}

/// Copies traces into one file, and returns their ids.
fn write(files: &[std::path::PathBuf], to: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut writer = TraceWriter::create(to, WriteOptions::default())?;
    let mut ids = Vec::new();
    visit_traces(files, &Columns::default(), &mut |_, _| {}, &mut |trace| {
        ids.push(trace.id().unwrap_or_default().to_owned());
        let row = Sequence {
            id: trace.id(),
            label: trace.label(),
            predictions: Some(trace.predictions()),
            scores: Some(trace.scores()),
            probs: trace.probs().map(|probs| (probs, trace.classes())),
            ..Sequence::default()
        };
        writer.write(row).map_err(|e| e.to_string())
    })?;
    writer.finish()?;
    Ok(ids)
}
