//! `haltwise decide`: scores of many live streams in, decisions out.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use haltwise::stream::{Limits, Message, Outcome, Streams};
use haltwise::{Rule, Step};
use haltwise_io::read_rule;
use haltwise_serve::Line;

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
/// no more steps) or "end" (the stream said so). Later lines of a halted stream
/// are ignored until one says "end": true. Then its id may be used again.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Fields of a line:
  id      required: a string or a number; each id names one stream
  score   the step's score in [0, 1]
  probs   the class probabilities, if the rule computes its score from them
  prediction  the predicted class, a number or a string, if the rule has a learned
          score and the line has no \"probs\", or if it is not the most probable class
  group   with the first step, if the rule is by group: the value of its column
  t       optional: the step, counted from 1; missing steps before it are reported
          and counted
  end     optional: true at the stream's last step, or alone after it

Bad lines, and lines after missing steps, are reported with their number, and the exit
code is then 1. A step with a missing or invalid score counts, but cannot halt the
stream. A line that is not JSON (NaN is not) belongs to no stream: send \"t\", so that
the missing step is noticed. The same holds for a line of more than 16 MiB, which is
skipped. An id may have 4096 bytes.

A stream longer than the longest calibrated sequence is read to its end. If all those
sequences had one length, it halts at that length.

A rule by group (`calibrate --by`) reads streams of groups that it has never seen to
their end, and reports them. Some rules halt in some groups only. They read all other
streams to their end; a stream that does not name its group is reported.

Memory: about 110 bytes for each open stream with an id of a dozen letters. A learned
score takes 100 more, and 8 for each class. If there are more than --max-streams,
decide forgets the streams that halted longest ago. If one of them sends more, it
counts as a new stream. If none has halted, lines of new streams are refused. Once
there is room, such a stream begins with its next line, at step 1 or at the line's \"t\".")]
pub(crate) struct Args {
    /// The rule file
    rule: PathBuf,

    /// The largest number of open streams; halted streams make room, running ones never do
    #[arg(long, value_name = "N", default_value = "1000000")]
    max_streams: NonZeroUsize,

    /// Has no effect: decisions are always JSON
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
    let mut streams = OpenStreams::new(&rule, args.max_streams);
    let mut faults = Faults::default();
    loop {
        // Before waiting for more input, send out the decisions so far.
        if !lines.at_hand() {
            out.flush()?;
        }
        let answer = match lines.next().context("standard input")? {
            None => break,
            Some(Ok([])) => continue,
            Some(Ok(line)) => streams.take(line, &mut out)?,
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

/// The lines of an input. A line that is too long is skipped.
struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    longest: usize,
    /// How many lines were read.
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

/// The fault of a line.
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

    /// One sentence about these lines, if there were any.
    fn describe(&self, lines: u64) -> Option<String> {
        let of = |n, what| (n > 0).then(|| format!("{} {what}", count(n, "line", "lines")));
        let unusable = of(self.unusable, "could not be used");
        let gaps = of(self.gaps, "came after missing steps");
        let all: Vec<String> = unusable.into_iter().chain(gaps).collect();
        let all = all.join(" and ");
        (!all.is_empty()).then(|| format!("{all}, out of {}", show::number(lines)))
    }
}

/// All open streams.
struct OpenStreams<'r> {
    rule: &'r Rule,
    streams: Streams,
}

type Answer = Result<(), Fault>;

impl<'r> OpenStreams<'r> {
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
        let group = line.group_said();
        let begins = self.streams.get(&line.id).is_none();
        let message = Message {
            step,
            t: line.t,
            end: line.end,
            group: group.as_deref(),
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
        let unexpected = || {
            let found = self.rule.unexpected_group(group.as_deref());
            found.filter(|_| begins)
        };
        let problem = problem
            .or_else(|| taken.unusable.map(|error| line.words(error)))
            .or_else(unexpected);
        Ok(match (problem, taken.missing) {
            (None, None) => Ok(()),
            (None, Some(missing)) => Err(Fault::Gap(missing.to_string())),
            (Some(problem), None) => Err(problem.into()),
            (Some(problem), Some(missing)) => Err(format!("{missing}; {problem}").into()),
        })
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
