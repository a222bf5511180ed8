//! Reads columns of Arrow arrays, from any file, as sequences.

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Schema};

use haltwise::Sequence;
use haltwise::traces::{About, Numbers};

use super::arrays::{
    At, Lists, at_step, classes, doubles, floats, is_text, item_type, known_labels, no_nulls,
    plain, plain_type, read_probs, steps as step_numbers, texts,
};
use super::columns::{Columns, PER_SEQUENCE, PER_STEP};
use super::intake::Intake;
use super::steps::{Step, Steps, Values, Whole};
use crate::problem::{Checked, Problem, listed};

/// Reads batches of either layout.
pub(super) struct Batches {
    layout: Layout,
    /// The positions of the columns that are read; others are ignored.
    needed: Vec<usize>,
    /// How many rows were read so far.
    rows: u64,
}

enum Layout {
    PerSequence(Buffers),
    PerStep(Steps),
}

/// The values of the current row; reused for the next.
#[derive(Default)]
struct Buffers {
    predictions: Vec<u32>,
    numbers: Vec<f32>,
    scores: Vec<f32>,
    probs: Vec<f32>,
    losses: Vec<f32>,
    costs: Vec<f32>,
}

/// The kind of a column's content.
#[derive(Clone, Copy)]
enum Kind {
    Id,
    Step,
    Label,
    Class,
    Float,
    Number,
    /// The name of a group or unit.
    Name,
    Probs,
}

impl Layout {
    /// Decides the layout by the columns' names.
    fn of(schema: &Schema) -> Result<Self, Problem> {
        let has = |name: &str| schema.column_with_name(name).is_some();
        let steps = has("id") && has("t") && has("score");
        if steps && (has("prediction") || has("loss")) {
            Ok(Self::PerStep(Steps::new("row")))
        } else if has("probs") || has("scores") && (has("predictions") || has("losses")) {
            Ok(Self::PerSequence(Buffers::default()))
        } else {
            Err(missing(schema))
        }
    }

    /// The columns that are read if present, their content, and whether they are lists.
    fn wanted<'c>(&self, columns: &'c Columns) -> Vec<(&'c str, Kind, bool)> {
        let (label, prediction) = match columns.numbers {
            true => (Kind::Number, Kind::Number),
            false => (Kind::Label, Kind::Class),
        };
        let mut wanted = vec![("id", Kind::Id, false), ("label", label, false)];
        let lists = matches!(self, Self::PerSequence(_));
        let losses = if lists {
            wanted.push(("predictions", prediction, true));
            wanted.push(("scores", Kind::Float, true));
            wanted.push(("probs", Kind::Probs, true));
            "losses"
        } else {
            wanted.push(("t", Kind::Step, false));
            wanted.push(("prediction", prediction, false));
            wanted.push(("score", Kind::Float, false));
            "loss"
        };
        wanted.extend(columns.losses.then_some((losses, Kind::Number, lists)));
        let texts = [columns.group_column(), columns.unit.as_deref()];
        wanted.extend(texts.into_iter().flatten().map(|n| (n, Kind::Name, false)));
        wanted.extend(columns.weight.as_deref().map(|n| (n, Kind::Number, false)));
        wanted.extend(columns.costs.as_deref().map(|n| (n, Kind::Number, lists)));
        wanted
    }
}

impl Batches {
    /// Decides the layout by the columns' names, and checks their types.
    pub(super) fn find(schema: &Schema, columns: &Columns) -> Result<Self, Problem> {
        let layout = Layout::of(schema)?;
        let names = match layout {
            Layout::PerSequence(_) => PER_SEQUENCE,
            Layout::PerStep(_) => PER_STEP,
        };
        columns.check(&names, schema.fields().iter().map(|f| f.name().as_str()))?;
        let mut needed = Vec::new();
        for (name, kind, lists) in layout.wanted(columns) {
            if let Some((place, field)) = schema.column_with_name(name) {
                check_type(kind, lists, field.data_type())
                    .map_err(|p| p.at(format_args!("column {name}")))?;
                needed.push(place);
            }
        }
        needed.sort_unstable();
        needed.dedup();
        Ok(Self {
            layout,
            needed,
            rows: 0,
        })
    }

    /// Counts rows from this one instead of the first.
    pub(super) fn after(mut self, rows: u64) -> Self {
        self.rows = rows;
        self
    }

    /// Whether a row of such a file is a step, not a sequence.
    pub(super) fn has_row_per_step(schema: &Schema) -> bool {
        matches!(Layout::of(schema), Ok(Layout::PerStep(_)))
    }

    /// Whether every row is a sequence that can be read without the rows before it. This
    /// excludes steps, and class names, which are numbered in the order of appearance.
    pub(super) fn rows_stand_alone(&self, schema: &Schema) -> bool {
        let named = |field: &arrow_schema::FieldRef| {
            let class = match field.name().as_str() {
                "label" => Some(plain_type(field.data_type())),
                "predictions" => item_type(plain_type(field.data_type())),
                _ => return false,
            };
            class.is_some_and(is_text)
        };
        matches!(self.layout, Layout::PerSequence(_)) && !schema.fields().iter().any(named)
    }

    /// The positions of the columns that are read.
    pub(super) fn needed(&self) -> &[usize] {
        &self.needed
    }

    /// Reads the next batch.
    pub(super) fn read(&mut self, batch: &RecordBatch, intake: &mut Intake<'_>) -> Checked {
        let before = self.rows;
        let read = match &mut self.layout {
            Layout::PerSequence(buffers) => read_sequences(batch, buffers, intake),
            Layout::PerStep(steps) => read_steps(batch, before, steps, intake),
        };
        self.rows += batch.num_rows() as u64;
        read.map_err(|(i, p)| p.at(format_args!("row {}", before + i as u64 + 1)))
    }

    /// Ends the file.
    pub(super) fn finish(self, intake: &mut Intake<'_>) -> Checked {
        match self.layout {
            Layout::PerSequence(_) => Ok(()),
            Layout::PerStep(steps) => steps.finish(intake),
        }
    }
}

fn missing(schema: &Schema) -> Problem {
    Problem::format(format_args!(
        "columns are missing; needed are either probs or predictions and scores (one row per \
         sequence), or id, t, prediction and score (one row per step), and label where it is \
         known; found are {}",
        listed(schema.fields().iter().map(|f| f.name().as_str()))
    ))
}

fn check_type(kind: Kind, lists: bool, data_type: &DataType) -> Checked {
    let plain = plain_type(data_type);
    let value = if lists { item_type(plain) } else { Some(plain) };
    let named = |t: &DataType| t.is_integer() || is_text(t);
    let sound = |t: &DataType| match kind {
        Kind::Id => named(t),
        Kind::Step => t.is_integer(),
        // A column without any known label may have no type.
        Kind::Label => named(t) || matches!(t, DataType::Boolean | DataType::Null),
        Kind::Class | Kind::Name => named(t) || *t == DataType::Boolean,
        Kind::Float => t.is_floating(),
        Kind::Number => t.is_floating() || t.is_integer(),
        Kind::Probs => item_type(t).is_some_and(DataType::is_floating),
    };
    if value.is_some_and(sound) {
        return Ok(());
    }
    let values = match kind {
        Kind::Id | Kind::Class => "integers or strings",
        Kind::Label => {
            "integers or strings, null where a label is missing (in pandas: .astype(\"Int64\")),"
        }
        Kind::Step => "integers",
        Kind::Float => "floats",
        Kind::Number => "numbers",
        Kind::Name => "strings, integers or booleans",
        Kind::Probs => "lists (one per step) of lists (one per class) of floats",
    };
    let of = match kind {
        Kind::Probs => "",
        _ if lists => "lists of ",
        _ => "",
    };
    Err(Problem::format(format_args!(
        "its type is {data_type}; {of}{values} are needed"
    )))
}

/// The column of this name, without a dictionary and without nulls.
fn column(batch: &RecordBatch, name: &str) -> At<Option<ArrayRef>> {
    let array = with_nulls(batch, name)?;
    if let Some(array) = &array {
        no_nulls(array).map_err(|(i, p)| (i, p.at(name)))?;
    }
    Ok(array)
}

/// The column of this name, without a dictionary.
fn with_nulls(batch: &RecordBatch, name: &str) -> At<Option<ArrayRef>> {
    let Some(array) = batch.column_by_name(name) else {
        return Ok(None);
    };
    plain(array).map(Some).map_err(|p| (0, p.at(name)))
}

fn needed_column(batch: &RecordBatch, name: &str) -> At<ArrayRef> {
    column(batch, name)?.ok_or_else(|| (0, Problem::format("the column is missing").at(name)))
}

/// The data of a batch's rows about whole sequences.
struct Wholes {
    labels: Option<Vec<Option<u32>>>,
    /// The labels of a regression.
    numbers: Option<Vec<f32>>,
    groups: Option<StringArray>,
    units: Option<StringArray>,
    weights: Option<Vec<f64>>,
}

impl Wholes {
    fn read(batch: &RecordBatch, intake: &mut Intake<'_>) -> At<Self> {
        let columns = intake.columns;
        let text = |name: Option<&str>| {
            let array = name.map_or(Ok(None), |name| column(batch, name))?;
            At::Ok(array.map(|array| texts(&array)))
        };
        let (mut labels, mut numbers, mut weights) = (None, None, None);
        if columns.numbers {
            let mut values = Vec::new();
            floats(&needed_column(batch, "label")?, &mut values);
            numbers = Some(values);
        } else if let Some(array) = with_nulls(batch, "label")? {
            let read = known_labels(&array, &mut intake.classes);
            labels = Some(read.map_err(|(i, p)| (i, p.at("label")))?);
        }
        if let Some(name) = &columns.weight
            && let Some(array) = column(batch, name)?
        {
            let mut values = Vec::new();
            doubles(&array, &mut values);
            weights = Some(values);
        }
        Ok(Self {
            labels,
            numbers,
            groups: text(columns.group_column())?,
            units: text(columns.unit.as_deref())?,
            weights,
        })
    }

    fn of_row(&self, i: usize) -> Whole<'_> {
        Whole {
            label: self.labels.as_ref().and_then(|labels| labels[i]),
            number: self.numbers.as_ref().map(|numbers| numbers[i]),
            group: self.groups.as_ref().map(|groups| groups.value(i)),
            unit: self.units.as_ref().map(|units| units.value(i)),
            weight: self.weights.as_ref().map(|weights| weights[i]),
        }
    }
}

fn read_sequences(batch: &RecordBatch, buffers: &mut Buffers, intake: &mut Intake<'_>) -> At<()> {
    let columns = intake.columns;
    let ids = column(batch, "id")?.map(|ids| texts(&ids));
    let wholes = Wholes::read(batch, intake)?;
    let lists = |name: &str| {
        let lists = column(batch, name)?.map(Lists::numbers).transpose();
        lists.map_err(|(i, p)| (i, p.at(name)))
    };
    let (mut predictions, mut numbers) = (None, None);
    if columns.numbers {
        numbers = lists("predictions")?;
    } else {
        predictions = column(batch, "predictions")?
            .map(|lists| Lists::classes(lists, &mut intake.classes))
            .transpose()
            .map_err(|(i, p)| (i, p.at("predictions")))?;
    }
    let scores = lists("scores")?;
    let probs = column(batch, "probs")?;
    let asked = |name: Option<&str>| name.map_or(Ok(None), lists);
    let losses = asked(columns.losses.then_some("losses"))?;
    let costs = asked(columns.costs.as_deref())?;
    for i in 0..batch.num_rows() {
        let here = |p: Problem| (i, p);
        let predictions = match &predictions {
            Some(lists) => Some(
                lists
                    .of_row(i, &mut buffers.predictions, |list, out| {
                        classes(list, &mut intake.classes, out).map_err(at_step)
                    })
                    .map_err(|p| here(p.at("predictions")))?,
            ),
            None => None,
        };
        let mut per_step = 1;
        if let Some(lists) = &probs {
            per_step = read_probs(lists, i, &mut buffers.probs).map_err(|p| here(p.at("probs")))?;
        }
        let row = wholes.of_row(i);
        let numbers = numbers_of(&numbers, "predictions", i, &mut buffers.numbers)?;
        let cost = columns.costs.as_deref().unwrap_or_default();
        intake
            .take(Sequence {
                id: ids.as_ref().map(|ids| ids.value(i)),
                label: row.label,
                predictions,
                scores: numbers_of(&scores, "scores", i, &mut buffers.scores)?,
                probs: probs.is_some().then_some((&buffers.probs[..], per_step)),
                numbers: numbers.and_then(|predictions| {
                    Some(Numbers {
                        predictions,
                        label: row.number?,
                    })
                }),
                losses: numbers_of(&losses, "losses", i, &mut buffers.losses)?,
                class_names: None,
                about: About {
                    group: row.group,
                    unit: row.unit,
                    weight: row.weight,
                    costs: numbers_of(&costs, cost, i, &mut buffers.costs)?,
                },
            })
            .map_err(here)?;
    }
    Ok(())
}

/// The numbers of a row, if there are lists of them.
fn numbers_of<'a>(
    lists: &'a Option<Lists<f32>>,
    name: &str,
    i: usize,
    buffer: &'a mut Vec<f32>,
) -> At<Option<&'a [f32]>> {
    let Some(lists) = lists else {
        return Ok(None);
    };
    let row = lists.of_row(i, buffer, |list, out| {
        floats(list, out);
        Ok(())
    });
    row.map(Some).map_err(|p| (i, p.at(name)))
}

fn read_steps(
    batch: &RecordBatch,
    before: u64,
    steps: &mut Steps,
    intake: &mut Intake<'_>,
) -> At<()> {
    let columns = intake.columns;
    let ids = texts(&needed_column(batch, "id")?);
    let mut t = Vec::new();
    step_numbers(&needed_column(batch, "t")?, &mut t)?;
    let wholes = Wholes::read(batch, intake)?;
    let numbers = |name: Option<&str>| {
        let array = name.map_or(Ok(None), |name| column(batch, name))?;
        At::Ok(array.map(|array| {
            let mut values: Vec<f32> = Vec::new();
            floats(&array, &mut values);
            values
        }))
    };
    let mut predictions = None;
    if let (Some(array), false) = (column(batch, "prediction")?, columns.numbers) {
        let mut values = Vec::new();
        classes(&array, &mut intake.classes, &mut values)
            .map_err(|(i, p)| (i, p.at("prediction")))?;
        predictions = Some(values);
    }
    let mut scores: Vec<f32> = Vec::new();
    floats(&needed_column(batch, "score")?, &mut scores);
    let predicted = numbers(columns.numbers.then_some("prediction"))?;
    let losses = numbers(columns.losses.then_some("loss"))?;
    let costs = numbers(columns.costs.as_deref())?;
    for i in 0..batch.num_rows() {
        let step = Step {
            id: ids.value(i),
            t: t[i],
            whole: wholes.of_row(i),
            values: Values {
                score: scores[i],
                prediction: predictions.as_ref().map(|values| values[i]),
                number: predicted.as_ref().map(|values| values[i]),
                loss: losses.as_ref().map(|values| values[i]),
                cost: costs.as_ref().map(|values| values[i]),
            },
        };
        steps
            .add(before + i as u64 + 1, step, &mut intake.memory)
            .map_err(|p| (i, p))?;
    }
    Ok(())
}
