//! A set while it is being read: values without gaps, class names in the order of
//! appearance. It knows nothing about files; readers say where a problem is.

use std::collections::HashMap;

use super::set::{Origin, SeriesSet};
use crate::memory::Memory;
use crate::problem::{Checked, Problem};

/// What to do about values that a file marks as missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missing {
    /// Refuse the file, and say where the first one is.
    #[default]
    Refuse,
    /// Carry the channel's last observed value forward; before the first, use 0. A live
    /// stream can do the same, because no step uses its future.
    Fill,
}

/// How the classes are put in order once all are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClassOrder {
    /// By number if every name is a number, else by name.
    Sorted,
    /// By number if every name is a number, else as declared.
    Declared,
    /// As declared, because the file's labels are positions in that list.
    Fixed,
}

#[derive(Debug)]
pub(super) struct Draft {
    missing: Missing,
    order: ClassOrder,
    /// Values per step; 0 until the first sequence says how many.
    features: usize,
    starts: Vec<usize>,
    values: Vec<f32>,
    labels: Vec<u32>,
    origins: Vec<Option<Origin>>,
    names: Vec<String>,
    index: HashMap<String, u32>,
    /// The memory for all of it, and what the names of classes take.
    memory: Memory,
    bytes_of_names: usize,
}

/// The memory of a sequence in addition to its values, and of a class name in addition to
/// its text.
const PER_SEQUENCE: usize = size_of::<(usize, u32, Option<Origin>)>();
const PER_NAME: usize = 2 * size_of::<String>() + 48;

impl Draft {
    pub(super) fn new(missing: Missing, order: ClassOrder, memory: Memory) -> Self {
        Self {
            missing,
            order,
            features: 0,
            starts: vec![0],
            values: Vec::new(),
            labels: Vec::new(),
            origins: Vec::new(),
            names: Vec::new(),
            index: HashMap::new(),
            memory,
            bytes_of_names: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.labels.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// How many steps the first sequence has, if there is one.
    pub(super) fn first_length(&self) -> Option<usize> {
        self.starts.get(1).copied()
    }

    /// How many classes are known.
    pub(super) fn classes(&self) -> usize {
        self.names.len()
    }

    /// The class of this name, if it is known.
    pub(super) fn known_class(&self, name: &str) -> Option<u32> {
        self.index.get(name).copied()
    }

    /// The class of this name, which is added if it is new.
    pub(super) fn class(&mut self, name: &str) -> u32 {
        if let Some(known) = self.known_class(name) {
            return known;
        }
        // Cannot overflow: 2³² names do not fit in memory.
        let new = self.names.len() as u32;
        self.bytes_of_names += PER_NAME + 2 * name.len();
        self.names.push(name.to_owned());
        self.index.insert(name.to_owned(), new);
        new
    }

    /// Adds one sequence, given step by step, `features` values each; NaN is a
    /// missing value.
    pub(super) fn push(
        &mut self,
        features: usize,
        values: &[f32],
        label: u32,
        origin: Option<Origin>,
    ) -> Checked {
        if features == 0 || values.is_empty() {
            return Err(Problem::new(
                "the sequence has no steps; remove it or give it at least one value",
            ));
        }
        if self.features != 0 && self.features != features {
            return Err(Problem::conflict(format_args!(
                "the sequence has {features} channels where those before it have {}; \
                 give every sequence the same channels",
                self.features
            )));
        }
        self.features = features;
        self.check_room(1, values.len())?;
        let start = self.values.len();
        self.values.extend_from_slice(values);
        if let Err(problem) = settle(&mut self.values[start..], features, self.missing) {
            self.values.truncate(start);
            return Err(problem);
        }
        self.starts.push(self.values.len() / features);
        self.labels.push(label);
        self.origins.push(origin);
        Ok(())
    }

    /// Refuses additions that would exceed the memory limit; lists double as they grow.
    fn check_room(&self, sequences: usize, values: usize) -> Checked {
        let values = (self.values.len() + values) * size_of::<f32>();
        let sequences = (self.len() + sequences) * PER_SEQUENCE;
        let bytes = 2 * (values + sequences) + self.bytes_of_names;
        self.memory.check("the sequences up to here", bytes as u64)
    }

    /// Sets the origin of sequences that have none.
    pub(super) fn set_origin(&mut self, origin: Origin) {
        for unknown in self.origins.iter_mut().filter(|o| o.is_none()) {
            *unknown = Some(origin);
        }
    }

    /// Adds another draft's sequences after these; classes are matched by name.
    pub(super) fn append(&mut self, other: Self) -> Checked {
        if self.features != other.features {
            return Err(Problem::conflict(format_args!(
                "its sequences have {} channels where the training half has {}; \
                 both halves must come from one dataset",
                other.features, self.features
            )));
        }
        self.check_room(other.len(), other.values.len())?;
        let renamed: Vec<u32> = other.names.iter().map(|name| self.class(name)).collect();
        let steps = self.starts.last().copied().unwrap_or(0);
        self.labels
            .extend(other.labels.iter().map(|&label| renamed[label as usize]));
        self.starts
            .extend(other.starts.iter().skip(1).map(|start| start + steps));
        self.values.extend_from_slice(&other.values);
        self.origins.extend_from_slice(&other.origins);
        Ok(())
    }

    /// The finished set, with its classes in order.
    pub(super) fn finish(mut self, name: String) -> SeriesSet {
        let order = self.class_order();
        let mut position = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            position[old] = new as u32;
        }
        for label in &mut self.labels {
            *label = position[*label as usize];
        }
        SeriesSet {
            name,
            features: self.features,
            classes: order.iter().map(|&old| self.names[old].clone()).collect(),
            starts: self.starts,
            values: self.values,
            labels: self.labels,
            origins: self.origins,
        }
    }

    fn class_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        if self.order == ClassOrder::Fixed {
            return order;
        }
        let numbers: Option<Vec<f64>> = self.names.iter().map(|name| as_number(name)).collect();
        match numbers {
            Some(numbers) => order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b])),
            None if self.order == ClassOrder::Sorted => {
                order.sort_by(|&a, &b| self.names[a].cmp(&self.names[b]));
            }
            None => {}
        }
        order
    }
}

/// Leaves no missing value in a sequence, or says where the first one is.
fn settle(values: &mut [f32], features: usize, missing: Missing) -> Checked {
    let Some(first) = values.iter().position(|v| v.is_nan()) else {
        return Ok(());
    };
    if missing == Missing::Refuse {
        let problem = Problem::new(
            "the value is missing; fill the gap in the file, or ask for missing values to be \
             filled with the last one observed",
        );
        let (channel, step) = (first % features + 1, first / features + 1);
        return Err(problem.at(format_args!("channel {channel}, step {step}")));
    }
    (0..features).try_for_each(|channel| fill(values, features, channel))
}

/// Carries a channel's last observed value forward; before there is one, it is 0. A value
/// from after the gap would show a step its future.
fn fill(values: &mut [f32], features: usize, channel: usize) -> Checked {
    let mut observed = values.iter().skip(channel).step_by(features);
    if observed.all(|v| v.is_nan()) {
        let problem = Problem::new(
            "every value is missing, so there is none to fill the gaps with; \
             remove the sequence or the channel",
        );
        return Err(problem.at(format_args!("channel {}", channel + 1)));
    }
    let mut last = 0.0;
    for value in values.iter_mut().skip(channel).step_by(features) {
        if value.is_nan() {
            *value = last;
        }
        last = *value;
    }
    Ok(())
}

/// The stored name of a class. Numbers have their shortest form, so that `1`, `1.0` and
/// `1.0000000e+00` are one class; anything else is unchanged.
pub(super) fn class_name(label: &str) -> String {
    match as_number(label) {
        // Adding zero turns −0 into 0.
        Some(number) => (number + 0.0).to_string(),
        None => label.to_owned(),
    }
}

fn as_number(name: &str) -> Option<f64> {
    name.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::memory::MEMORY;

    const GAP: f32 = f32::NAN;

    fn filled(values: &[f32], features: usize) -> Vec<f32> {
        let mut draft = Draft::new(Missing::Fill, ClassOrder::Sorted, Memory::new(MEMORY));
        draft.class("a");
        draft.push(features, values, 0, None).unwrap();
        draft.finish(String::new()).values
    }

    fn ordered(names: &[&str], order: ClassOrder) -> Vec<String> {
        let mut draft = Draft::new(Missing::Refuse, order, Memory::new(MEMORY));
        for name in names {
            draft.class(name);
        }
        draft.finish(String::new()).classes
    }

    #[test]
    fn gaps_take_the_last_value_and_at_the_start_0_never_a_later_one() {
        assert_eq!(
            filled(&[GAP, GAP, 1.0, GAP, 2.0, GAP], 1),
            [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
        );
    }

    #[test]
    fn each_channel_is_filled_from_itself() {
        assert_eq!(
            filled(&[1.0, GAP, GAP, 8.0, 3.0, GAP], 2),
            [1.0, 0.0, 1.0, 8.0, 3.0, 8.0]
        );
    }

    /// The message up to what is wrong.
    fn place(problem: Problem) -> String {
        let message = problem.in_file(Path::new("toy")).to_string();
        message.rsplit_once(": ").unwrap().0.to_owned()
    }

    #[test]
    fn a_channel_without_any_value_cannot_be_filled() {
        let mut draft = Draft::new(Missing::Fill, ClassOrder::Sorted, Memory::new(MEMORY));
        let problem = draft.push(2, &[1.0, GAP, 2.0, GAP], 0, None).unwrap_err();
        assert_eq!(place(problem), "toy: channel 2");
        assert!(draft.is_empty());
    }

    #[test]
    fn a_refused_gap_is_named_by_channel_and_step() {
        let mut draft = Draft::new(Missing::Refuse, ClassOrder::Sorted, Memory::new(MEMORY));
        let problem = draft.push(2, &[1.0, 2.0, 3.0, GAP], 0, None).unwrap_err();
        assert_eq!(place(problem), "toy: channel 2, step 2");
    }

    #[test]
    fn classes_that_are_numbers_are_in_the_order_of_numbers() {
        for order in [ClassOrder::Sorted, ClassOrder::Declared] {
            assert_eq!(ordered(&["10", "-1", "2"], order), ["-1", "2", "10"]);
        }
    }

    #[test]
    fn other_classes_are_as_declared_or_sorted() {
        let names = ["walk", "10", "run"];
        assert_eq!(ordered(&names, ClassOrder::Declared), names);
        assert_eq!(ordered(&["10", "2"], ClassOrder::Fixed), ["10", "2"]);
        assert_eq!(ordered(&names, ClassOrder::Sorted), ["10", "run", "walk"]);
    }

    #[test]
    fn one_number_has_one_name_however_it_is_written() {
        for text in ["1", "1.0", "+1", "1.0000000e+00", "01"] {
            assert_eq!(class_name(text), "1");
        }
        assert_eq!(class_name("-0.0"), "0");
        assert_eq!(class_name("-1"), "-1");
        assert_eq!(class_name("0.50"), "0.5");
        assert_eq!(class_name("inf"), "inf");
        assert_eq!(class_name("Walking up"), "Walking up");
    }
}
