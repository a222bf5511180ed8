//! The `.ts` format of the aeon and tsml archive: `@` headers, then one
//! sequence per line, channels separated by `:` and the class label last.

use std::path::Path;

use super::draft::{ClassOrder, Draft, Missing, class_name};
use super::text::{Line, bad_field, lines, number};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Memory;
use crate::problem::{Checked, Problem, quoted};

/// Reads a `.ts` file's content.
pub(super) fn parse(path: &Path, bytes: &[u8], missing: Missing, memory: Memory) -> Result<Draft> {
    let mut lines = lines(bytes).filter(|line| !line.bytes.starts_with(b"#"));
    let header = Header::read(path, &mut lines, &memory)?;
    header.check(path)?;

    let mut draft = Draft::new(missing, ClassOrder::Declared, memory);
    for class in &header.classes {
        draft.class(class);
    }
    let mut scratch = Scratch::default();
    for line in lines {
        let text = line.text(path)?;
        line.check_room(path, &memory)?;
        sequence(text, &header, &mut scratch, &mut draft).map_err(|problem| {
            let place = format!("line {}, sequence {}", line.number, draft.len() + 1);
            problem.at(place).in_file(path)
        })?;
    }
    Ok(draft)
}

/// The headers that matter here. Headers that only describe the data, or that are unknown,
/// are skipped.
#[derive(Debug, Default)]
struct Header {
    target_label: bool,
    time_stamps: bool,
    class_label: Option<bool>,
    classes: Vec<String>,
    univariate: bool,
    dimensions: Option<usize>,
    equal_length: bool,
    series_length: Option<usize>,
}

impl Header {
    /// Reads up to and including `@data`.
    fn read<'a>(
        path: &Path,
        lines: &mut impl Iterator<Item = Line<'a>>,
        memory: &Memory,
    ) -> Result<Self> {
        let mut header = Self::default();
        for line in lines {
            let text = line.text(path)?;
            let here = |problem: String| {
                Error::new(path, problem)
                    .of_kind(ErrorKind::Format)
                    .at(format_args!("line {}", line.number))
            };
            let Some(header_line) = text.strip_prefix('@') else {
                return Err(here(format!(
                    "expected an @ header and found {}; put @data on a line of its own before \
                     the first sequence",
                    quoted(text)
                )));
            };
            let (key, value) = header_line
                .split_once(char::is_whitespace)
                .unwrap_or((header_line, ""));
            if key.eq_ignore_ascii_case("data") {
                return Ok(header);
            }
            line.check_room(path, memory)?;
            let key = key.to_ascii_lowercase();
            header.set(&key, value.trim()).map_err(here)?;
        }
        Err(Error::new(
            path,
            "there is no @data line; this is not a .ts file, or it is cut short",
        )
        .of_kind(ErrorKind::Format))
    }

    fn set(&mut self, key: &str, value: &str) -> std::result::Result<(), String> {
        match key {
            "timestamps" => self.time_stamps = flag(key, value)?,
            "targetlabel" => self.target_label = flag(key, value)?,
            "univariate" => self.univariate = flag(key, value)?,
            "equallength" => self.equal_length = flag(key, value)?,
            "dimensions" | "dimension" => self.dimensions = Some(count(key, value)?),
            "serieslength" => self.series_length = Some(count(key, value)?),
            "classlabel" => {
                let (given, names) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
                self.class_label = Some(flag(key, given)?);
                self.classes = names.split_whitespace().map(class_name).collect();
            }
            _ => {}
        }
        Ok(())
    }

    /// Refuses data that cannot be classified step by step.
    fn check(&self, path: &Path) -> Result<()> {
        let refuse = |problem| Err(Error::new(path, problem).of_kind(ErrorKind::Unsupported));
        if self.target_label {
            return refuse(
                "@targetLabel true: this is a regression problem; \
                 give a dataset with classes (@classLabel true)",
            );
        }
        if self.time_stamps {
            return refuse(
                "@timeStamps true: values with time stamps are not supported; \
                 resample to a fixed rate and write plain values with @timeStamps false",
            );
        }
        match self.class_label {
            Some(true) => Ok(()),
            Some(false) => refuse(
                "@classLabel false: the sequences have no labels; give a dataset with classes",
            ),
            None => refuse("there is no @classLabel header; add one: @classLabel true NAME NAME …"),
        }
    }
}

fn flag(key: &str, value: &str) -> std::result::Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("@{key} is {}; write true or false", quoted(value))),
    }
}

fn count(key: &str, value: &str) -> std::result::Result<usize, String> {
    value
        .parse()
        .map_err(|_| format!("@{key} is {}; write a whole number", quoted(value)))
}

/// Reused from line to line.
#[derive(Debug, Default)]
struct Scratch {
    /// Channel after channel, as in the file.
    by_channel: Vec<f32>,
    /// Step after step, as in a set.
    by_step: Vec<f32>,
}

fn sequence(text: &str, header: &Header, scratch: &mut Scratch, draft: &mut Draft) -> Checked {
    let Some((values, label)) = text.rsplit_once(':') else {
        return Err(Problem::new(
            "there is no class label; end the line with a colon and the label",
        ));
    };
    let label = class(label.trim(), header, draft)?;
    let features = channels(values, header)?;
    let steps = read_channels(values, &mut scratch.by_channel)?;
    check_length(steps, header, draft)?;

    scratch.by_step.clear();
    for step in 0..steps {
        let channels = scratch.by_channel.iter().skip(step).step_by(steps);
        scratch.by_step.extend(channels);
    }
    draft.push(features, &scratch.by_step, label, None)
}

fn class(label: &str, header: &Header, draft: &mut Draft) -> Checked<u32> {
    if label.is_empty() || label == "?" {
        let missing = "the class label is missing; end the line with a colon and the label";
        return Err(Problem::new(missing).at("class label"));
    }
    let name = class_name(label);
    match draft.known_class(&name) {
        Some(class) => Ok(class),
        // `@classLabel true` without names means that the data have the names.
        None if header.classes.is_empty() => Ok(draft.class(&name)),
        None => Err(Problem::conflict(format_args!(
            "{} is not among the classes of @classLabel; correct it or add it there",
            quoted(label)
        ))
        .at("class label")),
    }
}

fn channels(values: &str, header: &Header) -> Checked<usize> {
    let found = values.bytes().filter(|&byte| byte == b':').count() + 1;
    let declared = if header.univariate {
        Some(1)
    } else {
        header.dimensions
    };
    match declared {
        Some(declared) if declared != found => Err(Problem::conflict(format_args!(
            "the sequence has {found} channels where the header declares {declared}; \
             correct the line, or @univariate and @dimensions",
        ))),
        _ => Ok(found),
    }
}

/// Reads channel after channel; returns how many steps each of them has.
///
/// The memory is bounded by the length of the line, whatever the product of its separator
/// counts.
fn read_channels(values: &str, out: &mut Vec<f32>) -> Checked<usize> {
    out.clear();
    let mut steps = 0;
    for (channel, text) in values.split(':').enumerate() {
        let start = out.len();
        if text.trim().is_empty() {
            let empty = "the channel has no values; give at least one, or ? for a missing one";
            return Err(Problem::new(empty).at(format_args!("channel {}", channel + 1)));
        }
        for (step, field) in text.split(',').enumerate() {
            let field = field.trim();
            let value = number(field).map_err(|why| {
                let place = format!("channel {}, step {}", channel + 1, step + 1);
                bad_field(field, why, place)
            })?;
            out.push(value);
        }
        let found = out.len() - start;
        if channel == 0 {
            steps = found;
        } else if steps != found {
            return Err(Problem::conflict(format_args!(
                "the channel has {found} steps where channel 1 has {steps}; \
                 give every channel of a sequence the same length",
            ))
            .at(format_args!("channel {}", channel + 1)));
        }
    }
    Ok(steps)
}

fn check_length(steps: usize, header: &Header, draft: &Draft) -> Checked {
    if !header.equal_length {
        return Ok(());
    }
    match header.series_length.or(draft.first_length()) {
        Some(expected) if expected != steps => Err(Problem::conflict(format_args!(
            "the sequence has {steps} steps where the header declares {expected} for all; \
             complete the line, or correct @equalLength and @seriesLength",
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Format, SeriesSet};
    use super::*;
    use crate::memory::MEMORY;

    fn read(text: &str) -> Result<SeriesSet> {
        read_with(text, Missing::Refuse)
    }

    fn read_with(text: &str, missing: Missing) -> Result<SeriesSet> {
        super::super::parse("toy.ts", text.as_bytes(), Format::Ts, missing)
    }

    fn refusal(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn a_univariate_file_with_headers_in_any_case() {
        let set = read(
            "# a comment\n@PROBLEMNAME Toy\n@timestamps FALSE\n@Univariate true\n\
             @equalLength true\n@SERIESLENGTH 3\n@classlabel True b a\n@DATA\n\
             1,2,3:a\n# between\n4, 5, 6 : b\r\n",
        )
        .unwrap();
        assert_eq!(set.classes(), ["b", "a"]);
        assert_eq!(set.labels(), [1, 0]);
        assert_eq!(set.sequence(1), [4.0, 5.0, 6.0]);
        assert_eq!(set.features(), 1);
    }

    #[test]
    fn channels_become_features_of_each_step() {
        let set = read("@classLabel true 1 2\n@dimensions 2\n@data\n1,2,3:10,20,30:2.0\n").unwrap();
        assert_eq!(set.features(), 2);
        assert_eq!(set.sequence(0), [1.0, 10.0, 2.0, 20.0, 3.0, 30.0]);
        assert_eq!(set.labels(), [1]);
    }

    #[test]
    fn sequences_may_differ_in_length_and_be_one_step_long() {
        let set = read("@classLabel true a\n@equalLength false\n@data\n1,2,3:a\n4:a\n").unwrap();
        assert_eq!(set.lengths().collect::<Vec<_>>(), [3, 1]);
    }

    #[test]
    fn missing_values_are_refused_by_place_or_filled() {
        let text = "@missing true\n@classLabel true a\n@data\n1,2:3,4:a\n1,?:?,5:a\n";
        let message = refusal(text);
        assert!(
            message
                .starts_with("toy.ts: line 5, sequence 2, channel 2, step 1: the value is missing"),
            "{message}"
        );
        let set = read_with(text, Missing::Fill).unwrap();
        assert_eq!(set.sequence(1), [1.0, 0.0, 1.0, 5.0]);
    }

    #[test]
    fn comments_need_not_be_utf8_but_data_must() {
        let parse = |bytes: &[u8]| {
            parse(
                Path::new("toy.ts"),
                bytes,
                Missing::Refuse,
                Memory::new(MEMORY),
            )
        };
        assert!(parse(b"# caf\xe9\n@classLabel true a\n@data\n1:a\n").is_ok());
        let message = parse(b"@classLabel true a\n@data\n1:\xe9\n").unwrap_err();
        assert!(message.to_string().contains("line 3: this is not UTF-8"));
    }

    #[test]
    fn what_is_malformed_is_refused_with_its_place() {
        let head = "@classLabel true a b\n@data\n";
        for (lines, expected) in [
            (
                "1,x:a",
                "line 3, sequence 1, channel 1, step 2: \"x\" is not a number",
            ),
            ("1,,2:a", "channel 1, step 2: \"\" is an empty field"),
            ("1,inf:a", "step 2: \"inf\" is not a finite number"),
            ("1,2,3", "line 3, sequence 1: there is no class label"),
            ("1,2:", "class label: the class label is missing"),
            ("1,2:?", "class label: the class label is missing"),
            ("1,2:c", "class label: \"c\" is not among the classes"),
            (":a", "channel 1: the channel has no values"),
            ("a", "there is no class label"),
            (
                "1,2:1:a",
                "channel 2: the channel has 1 steps where channel 1 has 2",
            ),
            (
                "1:a\n1:2:b",
                "line 4, sequence 2: the sequence has 2 channels where those before",
            ),
            ("(0,1),(1,2):a", "\"(0\" is not a number"),
            ("", "there are no sequences"),
        ] {
            let message = refusal(&format!("{head}{lines}\n"));
            assert!(message.contains(expected), "{lines:?}: {message}");
        }
    }

    #[test]
    fn what_the_header_says_is_checked() {
        for (header, expected) in [
            ("@targetLabel true\n", "regression"),
            (
                "@timeStamps true\n@classLabel true a\n",
                "time stamps are not supported",
            ),
            ("@classLabel false\n", "no labels"),
            ("@univariate true\n", "no @classLabel header"),
            (
                "@classLabel maybe\n",
                "line 1: @classlabel is \"maybe\"; write true or false",
            ),
            (
                "@classLabel true a\n@dimensions -1\n",
                "line 2: @dimensions is \"-1\"",
            ),
            (
                "@classLabel true a\n@dimensions 99999999999999999999\n",
                "write a whole number",
            ),
            (
                "@classLabel true a\n@dimensions 18446744073709551615\n",
                "declares 18446744073709551615",
            ),
            (
                "@classLabel true a\n@univariate true\n",
                "has 2 channels where the header declares 1",
            ),
            (
                "@classLabel true a\n@equalLength true\n@seriesLength 9\n",
                "2 steps where the header declares 9",
            ),
            ("5,6:a\n", "line 1: expected an @ header"),
        ] {
            let message = refusal(&format!("{header}@data\n1,2:3,4:a\n"));
            assert!(message.contains(expected), "{header:?}: {message}");
        }
    }

    #[test]
    fn a_file_cut_short_is_refused() {
        assert!(refusal("").contains("there is no @data line"));
        assert!(refusal("@classLabel true a\n").contains("there is no @data line"));
        let text = "@classLabel true a\n@equalLength true\n@data\n1,2,3:a\n1,2:a\n";
        assert!(refusal(text).contains("line 5, sequence 2: the sequence has 2 steps"));
    }

    #[test]
    fn many_separators_do_not_multiply_into_memory() {
        let text = format!(
            "@classLabel true a\n@data\n1{}{}a\n",
            ",1".repeat(100_000),
            ":1".repeat(100_000) + ":"
        );
        assert!(refusal(&text).contains("channel 2: the channel has 1 steps"));
    }

    /// A set as text: what the reader must turn back into the set.
    fn write(classes: &[String], features: usize, sequences: &[(Vec<f32>, usize)]) -> String {
        let mut text = format!("@classLabel true {}\n@data\n", classes.join(" "));
        for (values, label) in sequences {
            for channel in 0..features {
                let fields: Vec<String> = values
                    .iter()
                    .skip(channel)
                    .step_by(features)
                    .map(f32::to_string)
                    .collect();
                text += &fields.join(",");
                text += ":";
            }
            text += &classes[*label];
            text += "\n";
        }
        text
    }

    fn sequences() -> impl Strategy<Value = (usize, Vec<(Vec<f32>, usize)>)> {
        (1usize..4).prop_flat_map(|features| {
            let value = prop::num::f32::NORMAL | prop::num::f32::ZERO | prop::num::f32::SUBNORMAL;
            let sequence = (1usize..7)
                .prop_flat_map(move |steps| prop::collection::vec(value, steps * features));
            let labelled = (sequence, 0usize..3);
            (Just(features), prop::collection::vec(labelled, 1..8))
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back((features, sequences) in sequences()) {
            let classes = ["rest".to_string(), "3".into(), "go".into()];
            let set = read(&write(&classes, features, &sequences)).unwrap();
            prop_assert_eq!(set.classes(), &classes);
            prop_assert_eq!(set.features(), features);
            prop_assert_eq!(set.len(), sequences.len());
            for (i, (values, label)) in sequences.iter().enumerate() {
                prop_assert_eq!(set.sequence(i), &values[..]);
                prop_assert_eq!(set.labels()[i] as usize, *label);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(Path::new("x"), &bytes, Missing::Fill, Memory::new(MEMORY));
        }

        #[test]
        fn no_text_of_its_alphabet_makes_it_panic(
            header in "(@(classLabel|dimensions|equalLength|seriesLength|univariate)( (true|false|[0-9]{1,2}|a|b)){0,3}\n){0,4}",
            data in "[-0-9a.,:?eN@#\n ]{0,80}",
        ) {
            let text = format!("@classLabel true a\n{header}@data\n{data}");
            for missing in [Missing::Refuse, Missing::Fill] {
                if let Ok(set) = read_with(&text, missing) {
                    prop_assert!(set.values().iter().all(|v| v.is_finite()));
                    prop_assert!(set.lengths().all(|steps| steps > 0));
                    prop_assert!(set.labels().iter().all(|&l| (l as usize) < set.classes().len()));
                }
            }
        }
    }
}
