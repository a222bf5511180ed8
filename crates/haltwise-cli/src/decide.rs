//! `haltwise decide`: scores of many live streams in, decisions out.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use haltwise::{Decision, Memory, Rule, Score, ScoreSource, Step, Stream};
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

A line that cannot be used is reported with its number, and the exit code is then
1. A step whose score is missing or invalid is counted, but cannot halt the stream;
a line that is no JSON at all (NaN is not) belongs to no stream, so send \"t\" to
have the gap noticed.

Memory: about 110 bytes for each open stream with an id of a dozen letters; where the
rule's score is learned, 100 more and 8 for each class. Past
--max-streams, the longest-halted are forgotten to make room; should one of them
send more, it counts as a new stream.")]
pub(crate) struct Args {
    /// The rule file
    rule: PathBuf,

    /// Open streams at the most; the longest-halted make room, running ones never do
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    max_streams: usize,

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
    let mut desk = Desk::new(&rule, args.max_streams);
    let (mut line, mut number, mut bad) = (Vec::new(), 0_u64, 0_u64);
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
        if let Err(problem) = desk.take(&line, &mut out)? {
            bad += 1;
            report(number, bad, &problem);
        }
    }
    out.flush()?;
    if bad > 0 {
        let lines = count(bad, "line was", "lines were");
        anyhow::bail!("{lines} passed over out of {}", show::number(number));
    }
    Ok(ExitCode::SUCCESS)
}

fn report(number: u64, bad: u64, problem: &str) {
    match bad.cmp(&SHOWN) {
        std::cmp::Ordering::Less => show::warn(format_args!("line {number}: {problem}")),
        std::cmp::Ordering::Equal => show::warn(format_args!(
            "line {number}: {problem} (further bad lines are counted, not shown)"
        )),
        std::cmp::Ordering::Greater => {}
    }
}

/// One line of input.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow, default, deserialize_with = "present")]
    score: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    probs: Option<&'a RawValue>,
    #[serde(borrow)]
    prediction: Option<&'a RawValue>,
    t: Option<u64>,
    #[serde(default)]
    end: bool,
}

/// Whatever stands there, `null` included: a step with an unusable score is a
/// step all the same.
fn present<'a, D: serde::Deserializer<'a>>(value: D) -> Result<Option<&'a RawValue>, D::Error> {
    Deserialize::deserialize(value).map(Some)
}

impl Line<'_> {
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

type Answer = Result<(), String>;

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
        let line: Line<'_> = match serde_json::from_slice(line) {
            Ok(line) => line,
            Err(e) => return Ok(Err(format!("not a JSON object as expected: {e}"))),
        };
        let id = match stream_id(line.id.get()) {
            Ok(id) => id,
            Err(problem) => return Ok(Err(problem)),
        };
        let progress = match self.open(&id, &line) {
            Ok(progress) => progress,
            Err(problem) => return Ok(Err(problem)),
        };
        let known = self.streams.get_mut(&*id);
        let memory = known.and_then(|open| open.memory.take());
        let before = Open { progress, memory };
        let (open, decided, answer) = self.step(before, &line);
        if let Some(reason) = decided {
            let t = open.progress.steps;
            writeln!(out, "{{\"id\":{id},\"t\":{t},\"reason\":\"{reason}\"}}")?;
        }
        self.keep(&id, open, decided.is_some(), line.end);
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
            let t = line.t.unwrap_or(due).min(self.rule.t_max() as u64);
            if due < t {
                answer = Err(format!(
                    "step {t} came where step {due} was due; those between count"
                ));
            }
            for _ in due..t {
                stream.skip();
            }
            let observed = self.observe(&mut stream, line);
            answer = answer.and(observed.as_ref().map(drop).map_err(String::clone));
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
                .map_err(|e| format!("\"probs\" is not a list of numbers: {e}"))?,
        };
        let step = Step {
            prediction: line.prediction.map(|raw| class(raw.get())),
            score,
            probs: probs.as_deref(),
        };
        stream.observe_step(&step).map_err(|e| e.to_string())
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
/// others, which is all a score without class probabilities looks at.
fn class(raw: &str) -> u32 {
    // Files may have numbers in quotes too.
    let bare = raw.trim_matches('"');
    bare.parse()
        .unwrap_or_else(|_| xxhash_rust::xxh3::xxh3_64(bare.as_bytes()) as u32)
}

/// The id of a line as it is echoed and compared: a JSON string or number.
fn stream_id(raw: &str) -> Result<std::borrow::Cow<'_, str>, String> {
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
