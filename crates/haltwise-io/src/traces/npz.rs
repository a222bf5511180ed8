//! NumPy's archive of arrays: one row per sequence in each array, all arrays
//! read in lockstep.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};

use haltwise::Sequence;
use haltwise::traces::{About, MAX_STEPS, Numbers, Trace};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::classes::Classes;
use super::columns::{ARRAYS, Columns};
use super::intake::Intake;
use super::writer::{self, Named, WriteOptions};
use crate::memory::Memory;
use crate::npy::{self, Array, Shape};
use crate::npz::{Archive, Listed};
use crate::problem::{Checked, Problem};

/// How much of an array is buffered before it is written.
const BUFFER: usize = 1 << 17;

/// The array that names the value in place of labels that are not known.
const MISSING: &str = "missing";

/// The role of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Labels,
    Predictions,
    Scores,
    Probs,
    Lengths,
    Ids,
    Losses,
    Costs,
    Group,
    Unit,
    Weight,
}

/// The arrays that are read if present, and their axes.
fn wanted(columns: &Columns) -> Vec<(Role, &str, &'static [&'static str])> {
    let per_sequence: &[&str] = &["n"];
    let per_step: &[&str] = &["n", "T"];
    let per_class: &[&str] = &["n", "T", "K"];
    let mut wanted = vec![
        (Role::Labels, "labels", per_sequence),
        (Role::Predictions, "predictions", per_step),
        (Role::Scores, "scores", per_step),
        (Role::Probs, "probs", per_class),
        (Role::Lengths, "lengths", per_sequence),
        (Role::Ids, "ids", per_sequence),
    ];
    let asked = [
        (Role::Losses, columns.losses.then_some("losses"), per_step),
        (Role::Costs, columns.costs.as_deref(), per_step),
        (Role::Group, columns.group_column(), per_sequence),
        (Role::Unit, columns.unit.as_deref(), per_sequence),
        (Role::Weight, columns.weight.as_deref(), per_sequence),
    ];
    let named = |(role, name, axes)| Option::map(name, |name| (role, name, axes));
    wanted.extend(asked.into_iter().filter_map(named));
    wanted
}

/// Reads an archive. It is opened once per array, so that all arrays can be read in
/// parallel.
pub(super) fn read<R: Read + Seek>(
    open: &dyn Fn() -> io::Result<R>,
    intake: &mut Intake<'_>,
) -> Checked {
    let columns = intake.columns;
    let archive = || Archive::open(open().map_err(Problem::unreadable)?);
    let found = archive()?.names();
    check_names(&found)?;
    columns.check(&ARRAYS, found.iter().map(String::as_str))?;
    let mut archives = Vec::new();
    for (role, name, axes) in wanted(columns) {
        if found.iter().any(|f| f == name) {
            archives.push((role, name, axes, archive()?));
        }
    }
    let mut memory = intake.memory;
    let missing = match found.iter().any(|name| name == MISSING) {
        true => read_missing(&mut archive()?, &mut memory).map_err(|p| p.at(MISSING))?,
        false => None,
    };
    let arrays = archives
        .iter_mut()
        .map(|(role, name, axes, archive)| {
            let array = open_array(name, axes, archive, &mut memory).map_err(|p| p.at(name))?;
            Ok((*role, array))
        })
        .collect::<Checked<Vec<_>>>()?;
    Arrays::new(arrays)?.read(missing, intake)
}

fn check_names(found: &[String]) -> Checked {
    let has = |name: &str| found.iter().any(|f| f == name);
    if has("probs") || has("scores") && (has("predictions") || has("losses")) {
        return Ok(());
    }
    Err(Problem::format(format_args!(
        "there is neither an array `probs` nor both `predictions` and `scores`; needed are either \
         probs (n, T, K) or predictions (n, T) with scores (n, T), and labels (n) where they are \
         known; found are {}",
        Listed(found)
    )))
}

fn open_array<'a, R: Read + Seek>(
    name: &'a str,
    axes: &[&str],
    archive: &'a mut Archive<R>,
    memory: &mut Memory,
) -> Checked<Array<'a>> {
    let array = archive.array(name, memory)?;
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
    arrays: Vec<(Role, Array<'a>)>,
    rows: usize,
    steps: usize,
    classes: usize,
}

impl<'a> Arrays<'a> {
    fn new(arrays: Vec<(Role, Array<'a>)>) -> Checked<Self> {
        check_shapes(&arrays)?;
        let of = |axis: usize| {
            let shapes = arrays.iter().map(|(_, array)| array.shape());
            shapes.filter_map(|s| s.get(axis).copied()).next_back()
        };
        Ok(Self {
            rows: of(0).unwrap_or(0),
            steps: of(1).unwrap_or(0),
            classes: of(2).unwrap_or(0),
            arrays,
        })
    }

    fn read(&mut self, missing: Option<i128>, intake: &mut Intake<'_>) -> Checked {
        let numbers = intake.columns.numbers;
        let of_classes = |role| matches!(role, Role::Labels | Role::Predictions);
        let mut arrays = self.arrays.iter().filter(|(role, _)| of_classes(*role));
        if let (Some((_, array)), false) = (arrays.next(), numbers) {
            let are_numbers = intake.classes.are_numbers();
            are_numbers.map_err(|p| p.at(array.name()))?;
        }
        let mut row = Row {
            there: self.arrays.iter().map(|(role, _)| *role).collect(),
            missing,
            ..Row::default()
        };
        for i in 0..self.rows {
            self.read_row(&mut row, numbers)
                .and_then(|()| intake.take(row.sequence(self.classes)))
                .map_err(|p| p.at(format_args!("row {}", i + 1)))?;
            intake.done(i as u64, self.rows as u64);
        }
        for (_, array) in &mut self.arrays {
            array.end().map_err(|p| p.at(array.name()))?;
        }
        Ok(())
    }

    fn read_row(&mut self, row: &mut Row, numbers: bool) -> Checked {
        // The padding of a short sequence is ignored: only its own steps are decoded.
        let mut steps = self.steps;
        for (role, array) in &mut self.arrays {
            let read = array.advance().and_then(|()| match role {
                Role::Lengths => {
                    let out_of_range = |_, number| npy::out_of_range(number);
                    array.integers(1, &mut row.length, out_of_range)?;
                    steps = row.length[0] as usize;
                    check_length(steps, self.steps)
                }
                _ => Ok(()),
            });
            read.map_err(|p| p.at(array.name()))?;
        }
        for (role, array) in &self.arrays {
            row.decode(*role, array, steps, self.classes, numbers)
                .map_err(|p| p.at(array.name()))?;
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

fn no_label(number: i128) -> Problem {
    Problem::new(format_args!(
        "{number} is not a class; classes are integers from 0 to {}. If it stands for a label that is \
         not known, say so by one more value in the archive: np.savez(..., missing={number}). If the \
         classes have other numbers or names, such as -1 and 1, number them from 0 in the order of the \
         probabilities: np.unique(labels, return_inverse=True)[1]",
        u32::MAX
    ))
}

/// Reads the value in place of labels that are not known: one integer. An array of that name with
/// another shape is not ours.
fn read_missing<R: Read + Seek>(
    archive: &mut Archive<R>,
    memory: &mut Memory,
) -> Checked<Option<i128>> {
    let mut array = archive.array(MISSING, memory)?;
    if array.rows() != 1 || array.row_values() != 1 || array.is_text() {
        return Ok(None);
    }
    array.advance()?;
    Ok(array.whole())
}

fn check_shapes(arrays: &[(Role, Array<'_>)]) -> Checked {
    let arrays = || arrays.iter().map(|(_, array)| array);
    for axis in 0..2 {
        let mut sizes = arrays().filter_map(|a| a.shape().get(axis));
        let first = sizes.next();
        if sizes.any(|size| Some(size) != first) {
            let what = ["sequences", "steps"][axis];
            let shapes: Vec<_> = arrays()
                .map(|a| format!("{} {}", a.name(), Shape(a.shape())))
                .collect();
            return Err(Problem::conflict(format_args!(
                "the arrays disagree on the number of {what}: {}",
                shapes.join(", ")
            )));
        }
    }
    let steps = arrays().filter_map(|a| a.shape().get(1)).max();
    match steps {
        Some(&steps) if steps > MAX_STEPS => Err(Problem::new(format_args!(
            "there are {steps} steps; at most {MAX_STEPS} are possible"
        ))),
        _ => Ok(()),
    }
}

/// The values of the current row; buffers are reused for the next.
#[derive(Default)]
struct Row {
    /// Which arrays are present.
    there: Vec<Role>,
    length: Vec<u32>,
    label: Option<u32>,
    /// The value in place of a label that is not known, if the archive names one.
    missing: Option<i128>,
    /// The label of a regression.
    number: Option<f32>,
    predictions: Vec<u32>,
    numbers: Vec<f32>,
    scores: Vec<f32>,
    probs: Vec<f32>,
    losses: Vec<f32>,
    costs: Vec<f32>,
    id: String,
    group: String,
    unit: String,
    weight: Option<f64>,
}

impl Row {
    fn decode(
        &mut self,
        role: Role,
        array: &Array<'_>,
        steps: usize,
        classes: usize,
        numbers: bool,
    ) -> Checked {
        match role {
            Role::Labels if numbers => self.number = Some(array.number()? as f32),
            Role::Labels => self.label = array.class(self.missing, no_label)?,
            Role::Predictions if numbers => array.numbers(steps, &mut self.numbers)?,
            Role::Predictions => array.integers(steps, &mut self.predictions, no_class)?,
            Role::Scores => array.floats(steps, &mut self.scores)?,
            Role::Probs => array.floats(steps * classes, &mut self.probs)?,
            Role::Lengths => {}
            Role::Ids => array.text(&mut self.id)?,
            Role::Losses => array.numbers(steps, &mut self.losses)?,
            Role::Costs => array.numbers(steps, &mut self.costs)?,
            Role::Group => array.text(&mut self.group)?,
            Role::Unit => array.text(&mut self.unit)?,
            Role::Weight => self.weight = Some(array.number()?),
        }
        Ok(())
    }

    fn sequence(&self, classes: usize) -> Sequence<'_> {
        let has = |role| self.there.contains(&role);
        let numbers = self.number.filter(|_| has(Role::Predictions));
        let predicts = has(Role::Predictions) && numbers.is_none();
        Sequence {
            id: has(Role::Ids).then_some(&self.id),
            label: self.label,
            predictions: predicts.then_some(&self.predictions),
            scores: has(Role::Scores).then_some(&self.scores),
            probs: has(Role::Probs).then_some((&self.probs[..], classes)),
            numbers: numbers.map(|label| Numbers {
                predictions: &self.numbers,
                label,
            }),
            losses: has(Role::Losses).then_some(&self.losses),
            class_names: None,
            about: About {
                group: has(Role::Group).then_some(&self.group),
                unit: has(Role::Unit).then_some(&self.unit),
                weight: self.weight,
                costs: has(Role::Costs).then_some(&self.costs),
            },
        }
    }
}

/// Writes an archive. The arrays' shapes are known only after the last sequence, so each
/// array waits in an unnamed file until then.
#[derive(Debug)]
pub(super) struct NpzWriter<W: Write + Seek> {
    out: W,
    metadata: Vec<(String, String)>,
    labels: Vec<Option<u32>>,
    /// The labels of a regression.
    numbers: Vec<f32>,
    predictions: Option<Spool>,
    scores: Option<Spool>,
    probs: Option<(usize, Spool)>,
    losses: Option<Spool>,
    ids: Option<Texts>,
    named: Vec<(String, ColumnFile)>,
    lengths: Vec<u32>,
}

/// A file that holds a named column until the archive is written.
#[derive(Debug)]
enum ColumnFile {
    Group(Texts),
    Unit(Texts),
    Weight(Spool),
    Costs(Spool),
}

impl<W: Write + Seek> NpzWriter<W> {
    pub(super) fn new(
        out: W,
        folder: &std::path::Path,
        shape: writer::Shape,
        options: &WriteOptions,
    ) -> io::Result<Self> {
        let spool = |wanted: bool| wanted.then(|| Spool::new(folder)).transpose();
        let mut named = Vec::new();
        for (what, name) in shape.named(&options.columns) {
            let kept = match what {
                Named::Group => ColumnFile::Group(Texts::new(folder)?),
                Named::Unit => ColumnFile::Unit(Texts::new(folder)?),
                Named::Weight => ColumnFile::Weight(Spool::new(folder)?),
                Named::Costs => ColumnFile::Costs(Spool::new(folder)?),
            };
            named.push((name.to_owned(), kept));
        }
        Ok(Self {
            out,
            metadata: options.metadata.clone(),
            labels: Vec::new(),
            numbers: Vec::new(),
            predictions: spool(shape.has_predictions())?,
            scores: spool(!shape.scores_follow())?,
            probs: match shape.classes {
                Some(classes) => Some((classes, Spool::new(folder)?)),
                None => None,
            },
            losses: spool(shape.losses)?,
            ids: shape.id.then(|| Texts::new(folder)).transpose()?,
            named,
            lengths: Vec::new(),
        })
    }

    pub(super) fn write(&mut self, row: &Trace<'_>) -> io::Result<()> {
        self.lengths.push(row.scores().len() as u32);
        match row.numbers() {
            Some(numbers) => self.numbers.push(numbers.label),
            None => self.labels.push(row.label()),
        }
        if let Some(predictions) = &mut self.predictions {
            match row.numbers() {
                Some(numbers) => predictions.write_floats(numbers.predictions)?,
                None => {
                    for class in row.predictions() {
                        predictions.write(&class.to_le_bytes())?;
                    }
                }
            }
        }
        if let Some(scores) = &mut self.scores {
            scores.write_floats(row.scores())?;
        }
        if let Some((_, probs)) = &mut self.probs {
            probs.write_floats(row.probs().unwrap_or_default())?;
        }
        if let Some(losses) = &mut self.losses {
            losses.write_floats(row.losses().unwrap_or_default())?;
        }
        if let Some(ids) = &mut self.ids {
            ids.write(row.id().unwrap_or_default())?;
        }
        let about = row.about();
        for (_, kept) in &mut self.named {
            match kept {
                ColumnFile::Group(texts) => texts.write(about.group.unwrap_or_default())?,
                ColumnFile::Unit(texts) => texts.write(about.unit.unwrap_or_default())?,
                ColumnFile::Weight(spool) => {
                    spool.write(&about.weight.unwrap_or_default().to_le_bytes())?;
                }
                ColumnFile::Costs(spool) => spool.write_floats(about.costs.unwrap_or_default())?,
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> io::Result<W> {
        let (n, lengths) = (self.lengths.len(), &self.lengths[..]);
        let steps = lengths.iter().max().map_or(0, |&t| t as usize);
        let mut zip = ZipWriter::new(self.out);
        write_labels(&mut zip, &self.labels, &self.numbers)?;
        let row_of = |values: usize| move |t: u32| t as usize * values * 4;
        let per_step = |zip: &mut _, name: &str, descr: &str, spool: Spool| {
            start(zip, name, descr, &[n, steps])?;
            spool.copy(zip, lengths, row_of(1), steps * 4)
        };
        if let Some(predictions) = self.predictions {
            let descr = if self.numbers.is_empty() {
                "<u4"
            } else {
                "<f4"
            };
            per_step(&mut zip, "predictions", descr, predictions)?;
        }
        if let Some(scores) = self.scores {
            per_step(&mut zip, "scores", "<f4", scores)?;
        }
        if let Some((classes, probs)) = self.probs {
            start(&mut zip, "probs", "<f4", &[n, steps, classes])?;
            let row = row_of(classes);
            probs.copy(&mut zip, lengths, row, steps * classes * 4)?;
        }
        if lengths.iter().any(|&t| t as usize != steps) {
            start(&mut zip, "lengths", "<u4", &[n])?;
            for t in lengths {
                zip.write_all(&t.to_le_bytes())?;
            }
        }
        if let Some(ids) = self.ids {
            ids.copy(&mut zip, "ids")?;
        }
        if let Some(losses) = self.losses {
            per_step(&mut zip, "losses", "<f4", losses)?;
        }
        for (name, kept) in self.named {
            match kept {
                ColumnFile::Group(texts) | ColumnFile::Unit(texts) => {
                    texts.copy(&mut zip, &name)?
                }
                ColumnFile::Costs(spool) => per_step(&mut zip, &name, "<f4", spool)?,
                ColumnFile::Weight(spool) => {
                    start(&mut zip, &name, "<f8", &[n])?;
                    spool.copy(&mut zip, lengths, |_| 8, 8)?;
                }
            }
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

/// Writes the labels, if there are any. −1 marks one that is not known, and the archive says so.
fn write_labels<W: Write + Seek>(
    zip: &mut ZipWriter<W>,
    labels: &[Option<u32>],
    numbers: &[f32],
) -> io::Result<()> {
    const NAME: &str = "labels";
    if !numbers.is_empty() {
        start(zip, NAME, "<f4", &[numbers.len()])?;
        let mut numbers = numbers.iter();
        return numbers.try_for_each(|number| zip.write_all(&number.to_le_bytes()));
    }
    let known = labels.iter().flatten().count();
    if known == labels.len() {
        start(zip, NAME, "<u4", &[labels.len()])?;
        let mut labels = labels.iter().flatten();
        return labels.try_for_each(|label| zip.write_all(&label.to_le_bytes()));
    }
    if known > 0 {
        start(zip, NAME, "<i8", &[labels.len()])?;
        for label in labels {
            zip.write_all(&label.map_or(-1, i64::from).to_le_bytes())?;
        }
        start(zip, MISSING, "<i8", &[])?;
        zip.write_all(&(-1_i64).to_le_bytes())?;
    }
    Ok(())
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

/// Bytes buffered in a file without a name.
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
}

/// Buffered texts, and their lengths.
#[derive(Debug)]
struct Texts {
    spool: Spool,
    /// In bytes.
    lengths: Vec<u32>,
    /// The longest, in characters.
    width: usize,
}

impl Texts {
    fn new(folder: &std::path::Path) -> io::Result<Self> {
        Ok(Self {
            spool: Spool::new(folder)?,
            lengths: Vec::new(),
            width: 1,
        })
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.width = self.width.max(text.chars().count());
        self.lengths.push(text.len() as u32);
        self.spool.write(text.as_bytes())
    }

    fn copy<W: Write + Seek>(self, zip: &mut ZipWriter<W>, name: &str) -> io::Result<()> {
        start(
            zip,
            name,
            &format!("<U{}", self.width),
            &[self.lengths.len()],
        )?;
        let mut reader = self.spool.rewind()?;
        let mut bytes = Vec::new();
        for length in self.lengths {
            bytes.resize(length as usize, 0);
            reader.read_exact(&mut bytes)?;
            write_text(zip, &String::from_utf8_lossy(&bytes), self.width)?;
        }
        Ok(())
    }
}
