//! `haltwise decide`: scores of many live streams in, decisions out.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use haltwise::score::{ScoreSource, StepError};
use haltwise::stream::{Limits, Message, Outcome, Refusal, Streams};
use haltwise::{Rule, Step};
use haltwise_io::read_rule;
use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::show::{self, count, shortened};

/// Apply a rule to live streams: scores in, decisions out
///
/// Reads one JSON object per line from standard input, each one step of one
/// stream, and writes one line per decision as soon as it is made:
///
///   {"id": "a", "score": 0.93}               in
///   {"id":"a","t":1,"reason":"threshold"}    out: stop reading a, it halts at step 1
///
/// The reason is "threshold" (the score reached it), "last-step" (the rule has
/// no more steps) or "end" (the stream said so). What a halted stream still
/// sends is ignored until it says "end": true; its id may then be used again.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Fields of a line:
  id      required: a string or a number; each id is a stream of its own
  score   the step's score in [0, 1]
  probs   the class probabilities, where the rule computes its score from them
  prediction  the predicted class, a number or a string, where a learned score
          is used without \"probs\", or the class is not the most probable one
  t       optional: the step, counted from 1; where steps are missing before it,
          they are reported and counted
  end     optional: true at the stream's last step, or alone after it

A line that cannot be used, or that comes after missing steps, is reported with its
number, and the exit code is then 1. A step whose score is missing or invalid is
counted, but cannot halt the stream; a line that is no JSON at all (NaN is not)
belongs to no stream, so send \"t\" to have the gap noticed. So it is with a line of
more than 16 MiB, which is passed over. An id may have 4096 bytes.

A stream that goes on past the longest sequence that the rule was calibrated on is
read to its end, unless all those sequences were of one length: it then halts there.

Memory: about 110 bytes for each open stream with an id of a dozen letters; where the
rule's score is learned, 100 more and 8 for each class. Past
--max-streams, the longest-halted are forgotten to make room; should one of them
send more, it counts as a new stream. Where none has halted, a line of a new stream
is refused. Once there is room, that stream is taken in with its next line, as its
first step unless the line has \"t\".")]
pub(crate) struct Args {
    /// The rule file
    rule: PathBuf,

    /// Open streams at the most; the longest-halted make room, running ones never do
    #[arg(long, value_name = "N", default_value = "1000000")]
    max_streams: NonZeroUsize,

    /// Accepted for uniformity: the decisions are JSON in any case
    #[arg(long)]
    json: bool,
}

/// Bad lines are shown up to this many, then only counted.
const SHOWN: u64 = 100;

/// The most bytes of a line, so that no input takes all memory.
const LONGEST_LINE: usize = 16 << 20;

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let rule = read_rule(&args.rule)?;
    let mut lines = Lines::new(io::stdin().lock(), LONGEST_LINE);
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut desk = Desk::new(&rule, args.max_streams);
    let mut faults = Faults::default();
    loop {
        // No whole line is at hand: whoever waits for a decision gets it before
        // we wait for them.
        if !lines.at_hand() {
            out.flush()?;
        }
        let answer = match lines.next().context("standard input")? {
            None => break,
            Some(Ok([])) => continue,
            Some(Ok(line)) => desk.take(line, &mut out)?,
            Some(Err(fault)) => Err(fault),
        };
        if let Err(fault) = answer {
            faults.report(lines.number, &fault);
        }
    }
    out.flush()?;
    match faults.describe(lines.number) {
        Some(faults) => anyhow::bail!(faults),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The lines of an input, of which none is kept that is longer than may be.
struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    longest: usize,
    /// How many were read.
    number: u64,
}

impl<R: Read> Lines<R> {
    fn new(input: R, longest: usize) -> Self {
        Self {
            input: BufReader::with_capacity(1 << 18, input),
            line: Vec::new(),
            longest,
            number: 0,
        }
    }

    /// Whether a whole line is there, without waiting for more.
    fn at_hand(&self) -> bool {
        self.input.buffer().contains(&b'\n')
    }

    /// The next line, without the space around it.
    fn next(&mut self) -> io::Result<Option<Result<&[u8], Fault>>> {
        self.line.clear();
        // The line break comes on top.
        let most = self.longest as u64 + 1;
        let read = (&mut self.input)
            .take(most)
            .read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if read as u64 == most && !self.line.ends_with(b"\n") {
            self.input.skip_until(b'\n')?;
            let problem = format!("it has more than {} bytes", show::number(most - 1));
            return Ok(Some(Err(problem.into())));
        }
        Ok(Some(Ok(self.line.trim_ascii())))
    }
}

/// What is wrong with a line.
#[derive(Debug)]
enum Fault {
    /// It cannot be used.
    Unusable(String),
    /// It was used, but steps are missing before it.
    Gap(String),
}

impl From<String> for Fault {
    fn from(problem: String) -> Self {
        Self::Unusable(problem)
    }
}

/// How many lines had which fault.
#[derive(Default)]
struct Faults {
    unusable: u64,
    gaps: u64,
}

impl Faults {
    /// Counts a fault, and tells it if not too many were told.
    fn report(&mut self, number: u64, fault: &Fault) {
        let problem = match fault {
            Fault::Unusable(problem) => {
                self.unusable += 1;
                problem
            }
            Fault::Gap(problem) => {
                self.gaps += 1;
                problem
            }
        };
        match (self.unusable + self.gaps).cmp(&SHOWN) {
            std::cmp::Ordering::Less => show::warn(format_args!("line {number}: {problem}")),
            std::cmp::Ordering::Equal => show::warn(format_args!(
                "line {number}: {problem} (further bad lines are counted, not shown)"
            )),
            std::cmp::Ordering::Greater => {}
        }
    }

    /// What they come to, if there were any.
    fn describe(&self, lines: u64) -> Option<String> {
        let of = |n, what| (n > 0).then(|| format!("{} {what}", count(n, "line", "lines")));
        let unusable = of(self.unusable, "could not be used");
        let gaps = of(self.gaps, "came after missing steps");
        let all: Vec<String> = unusable.into_iter().chain(gaps).collect();
        let all = all.join(" and ");
        (!all.is_empty()).then(|| format!("{all}, out of {}", show::number(lines)))
    }
}

/// The fields of a line of input, as they stand there.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    score: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    probs: Option<&'a RawValue>,
    #[serde(borrow)]
    prediction: Option<&'a RawValue>,
    #[serde(borrow)]
    t: Option<&'a RawValue>,
    #[serde(borrow)]
    end: Option<&'a RawValue>,
}

/// Whatever stands there, `null` included: a step with an unusable score is a
/// step all the same.
fn present<'a, D: serde::Deserializer<'a>>(value: D) -> Result<Option<&'a RawValue>, D::Error> {
    Deserialize::deserialize(value).map(Some)
}

/// One line of input.
struct Line<'a> {
    id: Cow<'a, str>,
    score: Option<&'a RawValue>,
    probs: Option<&'a RawValue>,
    prediction: Option<&'a RawValue>,
    t: Option<u64>,
    end: bool,
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Result<Self, String> {
        // A list of the fields' values would be taken as well.
        if !line.starts_with(b"{") {
            return Err("it is no JSON object, such as {\"id\": \"a\", \"score\": 0.93}".into());
        }
        let fields: Fields<'a> = serde_json::from_slice(line).map_err(|e| {
            let what = match e.classify() {
                Category::Eof => "it breaks off",
                Category::Data => "a field comes twice",
                Category::Syntax | Category::Io => "it cannot be read on",
            };
            format!(
                "it is no sound JSON object: {what} at column {}",
                e.column()
            )
        })?;
        let id = fields.id.ok_or("it has no \"id\"")?;
        let t = |raw: &RawValue| match raw.get().parse() {
            Ok(t) if t > 0 => Ok(t),
            _ => Err(format!(
                "\"t\" is {}, and not a step, counted from 1",
                shortened(raw.get())
            )),
        };
        let end = match fields.end.map(RawValue::get) {
            None | Some("false") => false,
            Some("true") => true,
            Some(raw) => {
                return Err(format!(
                    "\"end\" is {}, and neither true nor false",
                    shortened(raw)
                ));
            }
        };
        Ok(Self {
            id: stream_id(id.get())?,
            score: fields.score,
            probs: fields.probs,
            prediction: fields.prediction,
            t: fields.t.map(t).transpose()?,
            end,
        })
    }

    /// Whether it is a step, not only word that the stream is over.
    fn has_step(&self) -> bool {
        self.score.is_some() || self.probs.is_some()
    }

    /// What the classifier said, as far as the rule looks at it; the class
    /// probabilities are kept in `probs`.
    fn step<'p>(&self, rule: &Rule, probs: &'p mut Vec<f32>) -> Result<Step<'p>, String> {
        let score = self.score.map(|raw| {
            let parsed = raw.get().parse::<f32>();
            parsed.map_err(|_| format!("the score {} is not a number", shortened(raw.get())))
        });
        let score = score.transpose()?;
        let takes_probs = *rule.source() != ScoreSource::Confidence || rule.classes().is_some();
        let given = self.probs.filter(|_| takes_probs);
        if let Some(raw) = given {
            *probs = serde_json::from_str(raw.get()).map_err(|_| {
                format!(
                    "\"probs\" is {}, and not a list of numbers",
                    shortened(raw.get())
                )
            })?;
        }
        let learned = matches!(rule.source(), ScoreSource::Gap(_));
        let prediction = self.prediction.filter(|_| learned);
        Ok(Step {
            prediction: prediction.map(|raw| class(raw.get())).transpose()?,
            score,
            probs: given.map(|_| &probs[..]),
        })
    }

    /// Why its step has no score.
    fn words(&self, error: StepError) -> String {
        match (error, self.prediction) {
            // As it was given: a name has no number.
            (StepError::Prediction { classes, .. }, Some(given)) => format!(
                "the prediction {} is none of the {classes} classes, counted from 0",
                shortened(given.get())
            ),
            (error, _) => error.to_string(),
        }
    }

    /// Why its stream does not take it.
    fn refused(&self, refusal: &Refusal) -> String {
        let id = shortened(&self.id);
        match refusal {
            Refusal::Nothing => "neither a \"score\" nor \"probs\" nor \"end\": true".into(),
            Refusal::NoRoom { .. } => format!("stream {id}: {refusal}; raise --max-streams"),
            _ => format!("stream {id}: {refusal}"),
        }
    }
}

/// All open streams.
struct Desk<'r> {
    rule: &'r Rule,
    streams: Streams,
}

type Answer = Result<(), Fault>;

impl<'r> Desk<'r> {
    fn new(rule: &'r Rule, max_streams: NonZeroUsize) -> Self {
        let limits = Limits {
            open: max_streams,
            ..Limits::default()
        };
        Self {
            rule,
            streams: Streams::new(limits),
        }
    }

    /// Takes one line. The outer result is about the output, the inner about
    /// the line.
    fn take(&mut self, line: &[u8], out: &mut impl Write) -> io::Result<Answer> {
        let line = match Line::parse(line) {
            Ok(line) => line,
            Err(problem) => return Ok(Err(problem.into())),
        };
        let mut probs = Vec::new();
        let (step, problem) = match line.has_step().then(|| line.step(self.rule, &mut probs)) {
            None => (None, None),
            Some(Ok(step)) => (Some(step), None),
            // It counts all the same.
            Some(Err(problem)) => (Some(Step::default()), Some(problem)),
        };
        let message = Message {
            step,
            t: line.t,
            end: line.end,
        };
        let taken = match self.streams.take(self.rule, &line.id, message) {
            Ok(Outcome::Taken(taken)) => taken,
            Ok(Outcome::Ignored) => return Ok(Ok(())),
            Err(refusal) => return Ok(Err(line.refused(&refusal).into())),
        };
        if let Some(reason) = taken.halted {
            let (id, t) = (&line.id, taken.steps);
            writeln!(out, "{{\"id\":{id},\"t\":{t},\"reason\":\"{reason}\"}}")?;
        }
        let problem = problem.or_else(|| taken.unusable.map(|error| line.words(error)));
        Ok(match (problem, taken.missing) {
            (None, None) => Ok(()),
            (None, Some(missing)) => Err(Fault::Gap(missing.to_string())),
            (Some(problem), None) => Err(problem.into()),
            (Some(problem), Some(missing)) => Err(format!("{missing}; {problem}").into()),
        })
    }
}

/// A predicted class as a number. A name becomes one that only tells it from
/// others, which is all a score without class probabilities looks at; it is none
/// that a class has.
fn class(raw: &str) -> Result<u32, String> {
    if !raw.starts_with(['"', '-']) && !raw.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!(
            "the prediction {} is neither a number nor a string",
            shortened(raw)
        ));
    }
    // What stands in quotes is a name, as in trace files.
    let named = || xxhash_rust::xxh3::xxh3_64(raw.as_bytes()) as u32 | 1 << 31;
    Ok(raw.parse().unwrap_or_else(|_| named()))
}

/// The id of a line as it is echoed and compared: a JSON string or number.
fn stream_id(raw: &str) -> Result<Cow<'_, str>, String> {
    match raw.as_bytes().first() {
        // Two ways to write a string are one id.
        Some(b'"') if raw.contains('\\') => {
            let text: String = serde_json::from_str(raw)
                .map_err(|_| format!("the id {} is no text that can be read", shortened(raw)))?;
            serde_json::to_string(&text)
                .map(Into::into)
                .map_err(|e| e.to_string())
        }
        Some(b'"' | b'-' | b'0'..=b'9') => Ok(raw.into()),
        _ => Err(format!(
            "the id {} is neither a string nor a number",
            shortened(raw)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines<R: Read>(mut lines: Lines<R>) -> (Vec<Result<String, String>>, usize) {
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push(match line {
                Ok(line) => Ok(String::from_utf8(line.to_vec()).unwrap()),
                Err(Fault::Unusable(problem) | Fault::Gap(problem)) => Err(problem),
            });
        }
        assert_eq!(lines.number, found.len() as u64);
        (found, lines.line.capacity())
    }

    #[test]
    fn a_line_is_as_long_as_it_may_be_and_no_longer() {
        let (found, _) = lines(Lines::new(&b"12345678\n123456789\n\n a \n12345678"[..], 8));
        let (ok, long) = (
            |text: &str| Ok(text.to_owned()),
            || "it has more than 8 bytes",
        );
        let expected = [
            ok("12345678"),
            Err(long().to_owned()),
            ok(""),
            ok("a"),
            ok("12345678"),
        ];
        assert_eq!(found, expected);
        let (found, _) = lines(Lines::new(&b"123456789"[..], 8));
        assert_eq!(found, [Err(long().to_owned())]);
    }

    #[test]
    fn endless_lines_take_no_memory() {
        let endless = || io::repeat(b'x').take(300 << 20);
        let input = endless().chain(&b"\nnext\n"[..]).chain(endless());
        let (found, kept) = lines(Lines::new(input, 4096));
        assert!(found[0].is_err() && found[2].is_err());
        assert_eq!(found[1], Ok("next".to_owned()));
        assert_eq!(found.len(), 3);
        assert!(kept < 20_000, "{kept}");
    }
}
