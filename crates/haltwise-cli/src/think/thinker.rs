//! A model that thinks: how its thoughts are sampled, cut into steps and probed.

use std::num::{NonZeroU32, NonZeroUsize};

use anyhow::bail;
use haltwise::thoughts::MOST_PROBES;
use haltwise_llm::{Probing, Question, Record, Sampling, Thinker};

use crate::reader::{Recorded, unescaped};
use crate::voter::VoterArgs;

/// The server, how it is asked, and how it is probed.
#[derive(clap::Args)]
pub(super) struct ThinkerArgs {
    #[command(flatten)]
    pub(super) voter: ThoughtArgs,

    /// Tokens of thought before each probe [default: the rule's, else 256]
    #[arg(long, value_name = "N", help_heading = "Thoughts")]
    every: Option<NonZeroU32>,

    /// The mark before a thought [default: the rule's, else <think>]
    #[arg(long, value_name = "TEXT", help_heading = "Thoughts")]
    think_open: Option<String>,

    /// The mark behind a thought [default: the rule's, else </think>]
    #[arg(long, value_name = "TEXT", help_heading = "Thoughts")]
    think_close: Option<String>,

    /// The words of a probe that begin the answer [default: the rule's, else such as
    /// '**Final answer:** \boxed{']
    #[arg(long, value_name = "TEXT", help_heading = "Thoughts")]
    begin: Option<String>,

    /// The largest number of tokens that a probe may generate [default: the rule's, else 12]
    #[arg(long, value_name = "N", help_heading = "Thoughts")]
    probe_tokens: Option<NonZeroU32>,
}

impl ThinkerArgs {
    /// The thoughts about each question.
    pub(super) fn samples(&self) -> NonZeroUsize {
        let samples = self.voter.0.samples.map(usize::from);
        samples
            .and_then(NonZeroUsize::new)
            .unwrap_or(NonZeroUsize::MIN)
    }

    /// Connects to the server. Options left out are as in the record of the rule's thinker, if
    /// there is a rule.
    pub(super) fn connect(
        &self,
        questions: &[Question],
        record: Option<&Record>,
        notice: impl Fn(&str) + Send + Sync + 'static,
    ) -> anyhow::Result<Thinker> {
        let recorded = Recorded(record);
        let usual = Sampling {
            max_tokens: Probing::MOST_TOKENS,
            ..Sampling::default()
        };
        let voter = self.voter.0.connect(questions, record, usual, notice)?;
        let text = |name: &str, users: &Option<String>| {
            let users = users.as_deref().map(unescaped);
            users.or_else(|| recorded.text(name).map(str::to_owned))
        };
        let (open, close) = Probing::MARKS;
        let probing = Probing {
            every: recorded.or("every", self.every)?.unwrap_or(Probing::EVERY),
            open: text("think_open", &self.think_open).unwrap_or_else(|| open.into()),
            close: text("think_close", &self.think_close).unwrap_or_else(|| close.into()),
            begin: text("begin", &self.begin).unwrap_or_else(|| voter.extract.beginning()),
            probe_tokens: recorded
                .or("probe_tokens", self.probe_tokens)?
                .unwrap_or(Probing::PROBE_TOKENS),
        };
        let (most, every) = (voter.sampling.max_tokens, probing.every);
        if most.div_ceil(every.get()) as usize > MOST_PROBES {
            bail!(
                "a thought of {most} tokens would have more than {MOST_PROBES} probes; give a \
                 larger --every"
            );
        }
        Ok(Thinker::new(voter, probing, questions)?)
    }
}

/// The options of votes that thoughts also have, in their words.
pub(super) struct ThoughtArgs(pub(super) VoterArgs);

impl clap::Args for ThoughtArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        VoterArgs::augment_args(command).mut_args(|arg| {
            let arg = match arg.get_help_heading() {
                Some("Votes") => arg.help_heading("Thoughts"),
                _ => arg,
            };
            match arg.get_id().as_str() {
                "samples" => arg.help("Thoughts about each question [default: 1]"),
                "max_tokens" => arg.help(
                    "The largest number of tokens in a thought. A longer one is closed there \
                     [default: the rule's, else 16384]",
                ),
                "answer" => arg.help(
                    "How to find the answer of a probe: boxed, number, letter, line, json:PATH or \
                     regex:PATTERN [default: the rule's, else boxed]",
                ),
                "seed" => arg.help("The seed that draws the seeds of the thoughts"),
                _ => arg,
            }
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for ThoughtArgs {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        VoterArgs::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}
