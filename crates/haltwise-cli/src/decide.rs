//! `haltwise decide`: scores of many live streams in, decisions out.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, BufReader, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use haltwise::{Decision, Memory, Rule, Score, ScoreSource, Step, StepError, Stream};
use haltwise_io::read_rule;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::show::{self, count};

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
belongs to no stream, so send \"t\" to have the gap noticed.

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

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let rule = read_rule(&args.rule)?;
    let mut input = BufReader::with_capacity(1 << 18, io::stdin().lock());
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut desk = Desk::new(&rule, args.max_streams.get());
    let (mut line, mut number, mut faults) = (Vec::new(), 0_u64, Faults::default());
    loop {
        // No whole line is at hand: whoever waits for a decision gets it before
        // we wait for them.
        if !input.buffer().contains(&b'\n') {
            out.flush()?;
        }
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        if read.context("standard input")? == 0 {
            break;
        }
        number += 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        if let Err(fault) = desk.take(line.trim_ascii(), &mut out)? {
            faults.report(number, &fault);
        }
    }
    out.flush()?;
    match faults.describe(number) {
        Some(faults) => anyhow::bail!(faults),
        None => Ok(ExitCode::SUCCESS),
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
            let text = e.to_string();
            let what = text.split(" at line ").next().unwrap_or_default();
            format!(
                "it is no sound JSON object: {what} at column {}",
                e.column()
            )
        })?;
        let id = fields.id.ok_or("it has no \"id\"")?;
        let t = |raw: &RawValue| match raw.get().parse() {
            Ok(t) if t > 0 => Ok(t),
            _ => Err(format!("\"t\" is {raw}, and not a step, counted from 1")),
        };
        let end = match fields.end.map(RawValue::get) {
            None | Some("false") => false,
            Some("true") => true,
            Some(raw) => return Err(format!("\"end\" is {raw}, and neither true nor false")),
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
}

/// All open streams.
struct Desk<'r> {
    rule: &'r Rule,
    max_streams: usize,
    streams: HashMap<Box<str>, Open>,
    /// Ids of halted streams, the longest-halted first; some may have ended.
    halted: VecDeque<Box<str>>,
}

/// How far a stream has come.
#[derive(Clone, Copy, Default)]
struct Progress {
    steps: u32,
    halted: bool,
}

/// An open stream.
#[derive(Default)]
struct Open {
    progress: Progress,
    /// What a learned score remembers; nothing is kept for any other.
    memory: Option<Box<Memory>>,
}

type Answer = Result<(), Fault>;

impl<'r> Desk<'r> {
    fn new(rule: &'r Rule, max_streams: usize) -> Self {
        Self {
            rule,
            max_streams,
            streams: HashMap::new(),
            halted: VecDeque::new(),
        }
    }

    /// Takes one line. The outer result is about the output, the inner about
    /// the line.
    fn take(&mut self, line: &[u8], out: &mut impl Write) -> io::Result<Answer> {
        let line = match Line::parse(line) {
            Ok(line) => line,
            Err(problem) => return Ok(Err(problem.into())),
        };
        let id = &*line.id;
        let progress = match self.open(id, &line) {
            Ok(progress) => progress,
            Err(problem) => return Ok(Err(problem.into())),
        };
        let known = self.streams.get_mut(id);
        let memory = known.and_then(|open| open.memory.take());
        let before = Open { progress, memory };
        let (open, decided, answer) = self.step(before, &line);
        if let Some(reason) = decided {
            let t = open.progress.steps;
            writeln!(out, "{{\"id\":{id},\"t\":{t},\"reason\":\"{reason}\"}}")?;
        }
        self.keep(id, open, decided.is_some(), line.end);
        Ok(answer)
    }

    /// The stream a line belongs to; a new one where there is room.
    fn open(&mut self, id: &str, line: &Line<'_>) -> Result<Progress, String> {
        let known = self.streams.get(id).map(|open| open.progress);
        let open = known.unwrap_or_default();
        let has_step = line.has_step();
        if !has_step && !line.end {
            return Err("neither a \"score\" nor \"probs\" nor \"end\": true".into());
        }
        if !has_step && known.is_none() {
            return Err(format!("the stream {id} ends, but has no steps"));
        }
        let due = u64::from(open.steps) + 1;
        if let Some(t) = line.t.filter(|&t| has_step && !open.halted && t < due) {
            return Err(format!(
                "stream {id}: step {t} came where step {due} was due"
            ));
        }
        if known.is_none() && self.streams.len() >= self.max_streams && !self.make_room() {
            return Err(format!(
                "no room for the stream {id}: {} are open and none has halted; raise --max-streams",
                self.max_streams
            ));
        }
        Ok(open)
    }

    /// Drops the longest-halted stream.
    fn make_room(&mut self) -> bool {
        while let Some(id) = self.halted.pop_front() {
            if self
                .streams
                .get(&id)
                .is_some_and(|open| open.progress.halted)
            {
                self.streams.remove(&id);
                return true;
            }
        }
        false
    }

    /// What a line makes of its stream: its new state, the reason if that is a
    /// decision, and what is wrong with the line.
    fn step(&self, open: Open, line: &Line<'_>) -> (Open, Option<&'static str>, Answer) {
        if open.progress.halted {
            return (open, None, Ok(()));
        }
        let memory = open.memory.map_or_else(Memory::default, |memory| *memory);
        let before = open.progress.steps;
        let mut stream = Stream::resume(self.rule, before, memory);
        let (mut decision, mut answer) = (Decision::Continue, Ok(()));
        if line.has_step() {
            let due = u64::from(before) + 1;
            let t = line.t.unwrap_or(due);
            for _ in due..t.min(self.rule.t_max() as u64) {
                stream.skip();
            }
            let gap = (due < t)
                .then(|| format!("step {t} came where step {due} was due; those between count"));
            let observed = self.observe(&mut stream, line);
            answer = match (&observed, gap) {
                (Ok(_), None) => Ok(()),
                (Ok(_), Some(gap)) => Err(Fault::Gap(gap)),
                (Err(problem), None) => Err(problem.clone().into()),
                (Err(problem), Some(gap)) => Err(format!("{gap}; {problem}").into()),
            };
            decision = observed.unwrap_or_else(|_| stream.skip());
        }
        let at_last = stream.steps() as usize == self.rule.t_max();
        let reason = match decision {
            Decision::Halt if !at_last => Some("threshold"),
            Decision::Halt => Some("last-step"),
            Decision::Continue if line.end => Some("end"),
            Decision::Continue => None,
        };
        let progress = Progress {
            steps: stream.steps(),
            halted: reason.is_some(),
        };
        let remembers = !progress.halted && matches!(self.rule.source(), ScoreSource::Gap(_));
        let memory = remembers.then(|| Box::new(stream.into_memory()));
        (Open { progress, memory }, reason, answer)
    }

    /// Shows a line to its stream, scored the way the rule was calibrated for.
    fn observe(&self, stream: &mut Stream<'_>, line: &Line<'_>) -> Result<Decision, String> {
        let score = match line.score.map(|raw| (raw.get(), raw.get().parse::<f32>())) {
            Some((raw, Err(_))) => return Err(format!("the score {raw} is not a number")),
            Some((_, Ok(score))) => Some(score),
            None => None,
        };
        match (score, self.rule.source()) {
            // What a learned score is computed from.
            (_, ScoreSource::Gap(_)) => {}
            // The score itself, ready to use; unless what it is computed from is
            // there, and it may be another.
            (Some(score), source) if *source == ScoreSource::Confidence || line.probs.is_none() => {
                let score = Score::try_from(score).map_err(|e| e.to_string())?;
                return Ok(stream.observe(score));
            }
            (_, ScoreSource::Confidence) => {
                return Err("the rule needs a \"score\", it cannot be had from \"probs\"".into());
            }
            _ => {}
        }
        let probs: Option<Vec<f32>> = match line.probs {
            None => None,
            Some(raw) => serde_json::from_str(raw.get())
                .map_err(|_| format!("\"probs\" is {raw}, and not a list of numbers"))?,
        };
        let step = Step {
            prediction: line.prediction.map(|raw| class(raw.get())).transpose()?,
            score,
            probs: probs.as_deref(),
        };
        stream
            .observe_step(&step)
            .map_err(|e| match (e, line.prediction) {
                // As it was given: a name has no number.
                (StepError::Prediction { classes, .. }, Some(given)) => {
                    format!(
                        "the prediction {given} is none of the {classes} classes, counted from 0"
                    )
                }
                (e, _) => e.to_string(),
            })
    }

    /// Remembers a stream until it ends.
    fn keep(&mut self, id: &str, open: Open, decided: bool, ended: bool) {
        if ended {
            self.streams.remove(id);
            return;
        }
        if decided {
            self.halted.push_back(id.into());
            // Streams that ended leave their ids here: swept before they are
            // more than the open ones.
            if self.halted.len() > 2 * self.streams.len() + 1024 {
                let streams = &self.streams;
                self.halted
                    .retain(|id| streams.get(id).is_some_and(|open| open.progress.halted));
                self.halted.push_back(id.into());
            }
        }
        match self.streams.get_mut(id) {
            Some(known) => *known = open,
            None => {
                self.streams.insert(id.into(), open);
            }
        }
    }
}

/// A predicted class as a number. A name becomes one that only tells it from
/// others, which is all a score without class probabilities looks at; it is none
/// that a class has.
fn class(raw: &str) -> Result<u32, String> {
    if !raw.starts_with(['"', '-']) && !raw.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!(
            "the prediction {raw} is neither a number nor a string"
        ));
    }
    // Files may have numbers in quotes too.
    let bare = raw.trim_matches('"');
    let named = || xxhash_rust::xxh3::xxh3_64(bare.as_bytes()) as u32 | 1 << 31;
    Ok(bare.parse().unwrap_or_else(|_| named()))
}

/// The id of a line as it is echoed and compared: a JSON string or number.
fn stream_id(raw: &str) -> Result<Cow<'_, str>, String> {
    match raw.as_bytes().first() {
        // Two ways to write a string are one id.
        Some(b'"') if raw.contains('\\') => {
            let text: String = serde_json::from_str(raw).map_err(|e| e.to_string())?;
            serde_json::to_string(&text)
                .map(Into::into)
                .map_err(|e| e.to_string())
        }
        Some(b'"' | b'-' | b'0'..=b'9') => Ok(raw.into()),
        _ => Err(format!("the id {raw} is neither a string nor a number")),
    }
}
