//! NumPy's archive of arrays: one row per sequence in each array, all arrays
//! read in lockstep.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};

use haltwise::Sequence;
use haltwise::traces::{MAX_STEPS, Trace};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::classes::Classes;
use super::intake::Intake;
use crate::npy::{self, Array, Shape};
use crate::npz::{Archive, Listed};
use crate::problem::{Checked, Problem};

/// How much of an array waits in memory before it is written.
const BUFFER: usize = 1 << 17;

/// The arrays, and what their axes are.
const ARRAYS: [(&str, &[&str]); 6] = [
    ("labels", &["n"]),
    ("predictions", &["n", "T"]),
    ("scores", &["n", "T"]),
    ("probs", &["n", "T", "K"]),
    ("lengths", &["n"]),
    ("ids", &["n"]),
];

/// Reads an archive. It is opened once per array, so that all arrays can be
/// read side by side.
pub(super) fn read<R: Read + Seek>(
    open: &dyn Fn() -> io::Result<R>,
    intake: &mut Intake<'_>,
) -> Checked {
    let archive = || Archive::open(open().map_err(Problem::unreadable)?);
    let found = archive()?.names();
    check_names(&found)?;
    let mut archives = Vec::new();
    for (name, axes) in ARRAYS {
        if found.iter().any(|f| f == name) {
            archives.push((name, axes, archive()?));
        }
    }
    let arrays = archives
        .iter_mut()
        .map(|(name, axes, archive)| open_array(name, axes, archive).map_err(|p| p.at(name)))
        .collect::<Checked<Vec<_>>>()?;
    Arrays::new(arrays)?.read(intake)
}

fn check_names(found: &[String]) -> Checked {
    let has = |name: &str| found.iter().any(|f| f == name);
    let missing = if !has("labels") {
        "there is no array `labels`"
    } else if has("probs") || (has("predictions") && has("scores")) {
        return Ok(());
    } else {
        "there is neither an array `probs` nor both `predictions` and `scores`"
    };
    Err(Problem::format(format_args!(
        "{missing}; needed are labels (n) and either probs (n, T, K) or \
         predictions (n, T) with scores (n, T); found are {}",
        Listed(found)
    )))
}

fn open_array<'a, R: Read + Seek>(
    name: &'a str,
    axes: &[&str],
    archive: &'a mut Archive<R>,
) -> Checked<Array<'a>> {
    let array = archive.array(name)?;
    if array.shape().len() != axes.len() {
        return Err(Problem::format(format_args!(
            "its shape is {}; ({}) is needed",
            Shape(array.shape()),
            axes.join(", ")
        )));
    }
    Ok(array)
}

/// The arrays of one archive.
struct Arrays<'a> {
    labels: Array<'a>,
    predictions: Option<Array<'a>>,
    scores: Option<Array<'a>>,
    probs: Option<Array<'a>>,
    lengths: Option<Array<'a>>,
    ids: Option<Array<'a>>,
    rows: usize,
    steps: usize,
    classes: usize,
}

impl<'a> Arrays<'a> {
    fn new(mut arrays: Vec<Array<'a>>) -> Checked<Self> {
        check_shapes(&arrays)?;
        let of = |axis: usize| {
            let shapes = arrays.iter().map(Array::shape);
            shapes.filter_map(|s| s.get(axis).copied()).next_back()
        };
        let (rows, steps) = (of(0).unwrap_or(0), of(1).unwrap_or(0));
        let classes = of(2).unwrap_or(0);
        let mut take = |name| {
            let at = arrays.iter().position(|a| a.name() == name)?;
            Some(arrays.swap_remove(at))
        };
        Ok(Self {
            labels: take("labels").ok_or_else(|| Problem::format("there is no array `labels`"))?,
            predictions: take("predictions"),
            scores: take("scores"),
            probs: take("probs"),
            lengths: take("lengths"),
            ids: take("ids"),
            rows,
            steps,
            classes,
        })
    }

    fn read(&mut self, intake: &mut Intake<'_>) -> Checked {
        intake.classes.are_numbers().map_err(|p| p.at("labels"))?;
        let mut row = Row::default();
        for i in 0..self.rows {
            self.read_row(&mut row)
                .and_then(|()| intake.take(row.sequence(self)))
                .map_err(|p| p.at(format_args!("row {}", i + 1)))?;
            intake.done(i as u64, self.rows as u64);
        }
        for array in self.all() {
            array.end().map_err(|p| p.at(array.name()))?;
        }
        Ok(())
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Array<'a>> {
        std::iter::once(&mut self.labels)
            .chain(&mut self.predictions)
            .chain(&mut self.scores)
            .chain(&mut self.probs)
            .chain(&mut self.lengths)
            .chain(&mut self.ids)
    }

    fn read_row(&mut self, row: &mut Row) -> Checked {
        let (all_steps, classes) = (self.steps, self.classes);
        for array in self.all() {
            array.advance().map_err(|p| p.at(array.name()))?;
        }
        let within = |array: &Array<'_>, done: Checked| done.map_err(|p| p.at(array.name()));
        let out_of_range = |_, number| npy::out_of_range(number);
        let labels = &self.labels;
        within(labels, labels.integers(1, &mut row.label, out_of_range))?;
        // What pads a short sequence is nobody's business: only the steps it
        // has are decoded.
        let mut steps = all_steps;
        if let Some(lengths) = &self.lengths {
            within(lengths, lengths.integers(1, &mut row.length, out_of_range))?;
            steps = row.length[0] as usize;
            within(lengths, check_length(steps, all_steps))?;
        }
        if let Some(array) = &self.predictions {
            within(array, array.integers(steps, &mut row.predictions, no_class))?;
        }
        if let Some(array) = &self.scores {
            within(array, array.floats(steps, &mut row.scores))?;
        }
        if let Some(array) = &self.probs {
            within(array, array.floats(steps * classes, &mut row.probs))?;
        }
        if let Some(array) = &self.ids {
            within(array, array.text(&mut row.id))?;
        }
        Ok(())
    }
}

fn no_class(t: usize, number: i128) -> Problem {
    Classes::not_a_class(number).at(format_args!("step {}", t + 1))
}

fn check_length(steps: usize, all_steps: usize) -> Checked {
    if (1..=all_steps).contains(&steps) {
        return Ok(());
    }
    Err(Problem::new(format_args!(
        "the length {steps} is not between 1 and the {all_steps} steps of the arrays"
    )))
}

fn check_shapes(arrays: &[Array<'_>]) -> Checked {
    for axis in 0..2 {
        let mut sizes = arrays.iter().filter_map(|a| a.shape().get(axis));
        let first = sizes.next();
        if sizes.any(|size| Some(size) != first) {
            let what = ["sequences", "steps"][axis];
            let shapes: Vec<_> = arrays
                .iter()
                .map(|a| format!("{} {}", a.name(), Shape(a.shape())))
                .collect();
            return Err(Problem::conflict(format_args!(
                "the arrays disagree on the number of {what}: {}",
                shapes.join(", ")
            )));
        }
    }
    let steps = arrays.iter().filter_map(|a| a.shape().get(1)).max();
    match steps {
        Some(&steps) if steps > MAX_STEPS => Err(Problem::new(format_args!(
            "there are {steps} steps; at most {MAX_STEPS} are possible"
        ))),
        _ => Ok(()),
    }
}

/// The buffers of the row under way, used again for the next.
#[derive(Default)]
struct Row {
    label: Vec<u32>,
    length: Vec<u32>,
    predictions: Vec<u32>,
    scores: Vec<f32>,
    probs: Vec<f32>,
    id: String,
}

impl Row {
    fn sequence<'r>(&'r self, arrays: &Arrays<'_>) -> Sequence<'r> {
        Sequence {
            id: arrays.ids.is_some().then_some(&self.id),
            label: self.label[0],
            predictions: arrays.predictions.is_some().then_some(&self.predictions),
            scores: arrays.scores.is_some().then_some(&self.scores),
            probs: arrays
                .probs
                .is_some()
                .then_some((&self.probs[..], arrays.classes)),
        }
    }
}

/// Writes an archive. The arrays' shapes are known only after the last
/// sequence, so each array waits in a nameless file of its own until then.
#[derive(Debug)]
pub(super) struct NpzWriter<W: Write + Seek> {
    out: W,
    metadata: Vec<(String, String)>,
    labels: Spool,
    predictions: Spool,
    scores: Option<Spool>,
    probs: Option<(usize, Spool)>,
    ids: Option<Spool>,
    /// The longest id, in characters.
    id_width: usize,
    id_bytes: Vec<u32>,
    lengths: Vec<u32>,
}

impl<W: Write + Seek> NpzWriter<W> {
    pub(super) fn new(
        out: W,
        folder: &std::path::Path,
        first: &Trace<'_>,
        metadata: Vec<(String, String)>,
    ) -> io::Result<Self> {
        let spool = || Spool::new(folder);
        Ok(Self {
            out,
            metadata,
            labels: spool()?,
            predictions: spool()?,
            scores: first.given_scores().map(|_| spool()).transpose()?,
            probs: match first.probs() {
                Some(_) => Some((first.classes(), spool()?)),
                None => None,
            },
            ids: first.id().map(|_| spool()).transpose()?,
            id_width: 1,
            id_bytes: Vec::new(),
            lengths: Vec::new(),
        })
    }

    pub(super) fn write(&mut self, row: &Trace<'_>) -> io::Result<()> {
        self.lengths.push(row.scores().len() as u32);
        self.labels.write(&row.label().to_le_bytes())?;
        for class in row.predictions() {
            self.predictions.write(&class.to_le_bytes())?;
        }
        if let Some(scores) = &mut self.scores {
            scores.write_floats(row.scores())?;
        }
        if let (Some((_, probs)), Some(values)) = (&mut self.probs, row.probs()) {
            probs.write_floats(values)?;
        }
        if let (Some(ids), Some(id)) = (&mut self.ids, row.id()) {
            self.id_width = self.id_width.max(id.chars().count());
            self.id_bytes.push(id.len() as u32);
            ids.write(id.as_bytes())?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> io::Result<W> {
        let n = self.lengths.len();
        let steps = self.lengths.iter().max().map_or(0, |&t| t as usize);
        let mut zip = ZipWriter::new(self.out);
        start(&mut zip, "labels", "<u4", &[n])?;
        self.labels.copy(&mut zip, &self.lengths, |_| 4, 4)?;
        let row_of = |values: usize| move |t: u32| t as usize * values * 4;
        start(&mut zip, "predictions", "<u4", &[n, steps])?;
        let row = row_of(1);
        self.predictions
            .copy(&mut zip, &self.lengths, row, steps * 4)?;
        if let Some(scores) = self.scores {
            start(&mut zip, "scores", "<f4", &[n, steps])?;
            scores.copy(&mut zip, &self.lengths, row, steps * 4)?;
        }
        if let Some((classes, probs)) = self.probs {
            start(&mut zip, "probs", "<f4", &[n, steps, classes])?;
            let row = row_of(classes);
            probs.copy(&mut zip, &self.lengths, row, steps * classes * 4)?;
        }
        if self.lengths.iter().any(|&t| t as usize != steps) {
            start(&mut zip, "lengths", "<u4", &[n])?;
            for t in &self.lengths {
                zip.write_all(&t.to_le_bytes())?;
            }
        }
        if let Some(ids) = self.ids {
            start(&mut zip, "ids", &format!("<U{}", self.id_width), &[n])?;
            ids.copy_text(&mut zip, &self.id_bytes, self.id_width)?;
        }
        if !self.metadata.is_empty() {
            let fields: serde_json::Map<_, _> = self
                .metadata
                .into_iter()
                .map(|(key, value)| (key, value.into()))
                .collect();
            let text = serde_json::Value::Object(fields).to_string();
            start(
                &mut zip,
                "metadata",
                &format!("<U{}", text.chars().count()),
                &[],
            )?;
            write_text(&mut zip, &text, 0)?;
        }
        zip.finish().map_err(io::Error::other)
    }
}

fn start<W: Write + Seek>(
    zip: &mut ZipWriter<W>,
    name: &str,
    descr: &str,
    shape: &[usize],
) -> io::Result<()> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .large_file(true);
    zip.start_file(format!("{name}.npy"), options)
        .map_err(io::Error::other)?;
    zip.write_all(&npy::header(descr, shape))
}

/// Writes text as NumPy does: 4 bytes per character, padded with zeros.
fn write_text(out: &mut impl Write, text: &str, width: usize) -> io::Result<()> {
    let mut bytes: Vec<u8> = text
        .chars()
        .flat_map(|c| u32::from(c).to_le_bytes())
        .collect();
    bytes.resize(bytes.len().max(width * 4), 0);
    out.write_all(&bytes)
}

/// Bytes that wait in a file without a name.
#[derive(Debug)]
struct Spool(io::BufWriter<File>);

impl Spool {
    fn new(folder: &std::path::Path) -> io::Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        Ok(Self(io::BufWriter::with_capacity(BUFFER, file)))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn write_floats(&mut self, values: &[f32]) -> io::Result<()> {
        values.iter().try_for_each(|v| self.write(&v.to_le_bytes()))
    }

    fn rewind(self) -> io::Result<BufReader<File>> {
        let mut file = self
            .0
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(BufReader::with_capacity(BUFFER, file))
    }

    /// Copies row after row, each padded with zeros to the same width.
    fn copy(
        self,
        out: &mut impl Write,
        lengths: &[u32],
        row_bytes: impl Fn(u32) -> usize,
        width: usize,
    ) -> io::Result<()> {
        let mut reader = self.rewind()?;
        let mut row = vec![0; width];
        for &t in lengths {
            let (values, padding) = row.split_at_mut(row_bytes(t));
            reader.read_exact(values)?;
            padding.fill(0);
            out.write_all(&row)?;
        }
        Ok(())
    }

    fn copy_text(self, out: &mut impl Write, lengths: &[u32], width: usize) -> io::Result<()> {
        let mut reader = self.rewind()?;
        let mut bytes = Vec::new();
        for &length in lengths {
            bytes.resize(length as usize, 0);
            reader.read_exact(&mut bytes)?;
            write_text(out, &String::from_utf8_lossy(&bytes), width)?;
        }
        Ok(())
    }
}
