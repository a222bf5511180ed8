//! A model that answers questions, in votes or thoughts: its prompt and sampling. Options left out
//! are as in the rule.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::bail;
use haltwise::votes::MOST_VOTES;
use haltwise_llm::{
    CHAT_FORMATS, Endpoint, Extract, Letters, Question, Record, Sampling, Template, Voter,
};

use crate::reader::{EndpointArg, Recorded, ServerArgs};

/// The server, and how it is asked.
#[derive(clap::Args)]
pub(crate) struct VoterArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// How to ask the server [default: the rule's, else chat]
    #[arg(long, value_enum, help_heading = "Server")]
    endpoint: Option<EndpointArg>,

    /// Votes on a question [default: the rule's, else 13]
    #[arg(long, value_name = "N", help_heading = "Votes",
          value_parser = clap::value_parser!(u16).range(1..=MOST_VOTES as i64))]
    pub(crate) samples: Option<u16>,

    /// Sampling temperature [default: the rule's, else 0.7]
    #[arg(long, value_name = "T", value_parser = temperature, help_heading = "Votes")]
    temperature: Option<f64>,

    /// Sample from the likeliest tokens that together have this probability [default: the rule's,
    /// else all]
    #[arg(long, value_name = "P", value_parser = share, help_heading = "Votes")]
    top_p: Option<f64>,

    /// The largest number of tokens in a vote. A vote that is cut off has no answer [default: the
    /// rule's, else 1024]
    #[arg(long, value_name = "N", help_heading = "Votes",
          value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,

    /// How to find the answer: boxed, number, letter, line, json:PATH or regex:PATTERN [default:
    /// the rule's, else boxed]
    #[arg(long, value_name = "WHERE", help_heading = "Votes")]
    answer: Option<Extract>,

    /// The seed that draws the seeds of the votes
    #[arg(long, value_name = "SEED", default_value_t = 0, help_heading = "Votes")]
    pub(crate) seed: u64,

    /// A file with the prompt's template [default: the rule's, else the question and how to
    /// answer it]
    #[arg(long, value_name = "FILE", help_heading = "Prompt")]
    template: Option<PathBuf>,

    /// A file with the system message before each prompt [default: the rule's, else none]
    #[arg(long, value_name = "FILE", help_heading = "Prompt")]
    system: Option<PathBuf>,

    /// Put the prompt into the chat format of a family of models
    #[arg(long, value_name = "FAMILY", help_heading = "Prompt",
          value_parser = clap::builder::PossibleValuesParser::new(CHAT_FORMATS.map(|(name, _)| name)))]
    chat_format: Option<String>,

    /// The letters of the options, one character each [default: the rule's, else A to Z]
    #[arg(long, value_name = "LETTERS", help_heading = "Prompt")]
    letters: Option<Letters>,
}

impl VoterArgs {
    /// Connects to the server. Options left out are as in the record of the rule's
    /// voter, if there is a rule, else as `usual`.
    pub(crate) fn connect(
        &self,
        questions: &[Question],
        record: Option<&Record>,
        usual: Sampling,
        notice: impl Fn(&str) + Send + Sync + 'static,
    ) -> anyhow::Result<Voter> {
        let recorded = Recorded(record);
        let chat_format = self.chat_format.as_deref();
        let endpoint = recorded.endpoint(self.endpoint, chat_format, Endpoint::Chat)?;
        let sampling = Sampling {
            temperature: recorded
                .or("temperature", self.temperature)?
                .unwrap_or(usual.temperature),
            top_p: recorded.or("top_p", self.top_p)?,
            max_tokens: recorded
                .or("max_tokens", self.max_tokens)?
                .map_or_else(|| max_tokens_of(questions), |n| Ok(Some(n)))?
                .unwrap_or(usual.max_tokens),
        };
        let extract = recorded
            .or("answer", self.answer.clone())?
            .unwrap_or_default();
        let samples = recorded.or("samples", self.samples.map(usize::from))?;
        let are_recorded = questions.iter().all(|q| q.request.is_some());
        if are_recorded {
            if endpoint == Endpoint::Completions {
                bail!("--requests are requests for chats: leave out --endpoint completions");
            }
            if extract.to_string() == "letter" {
                bail!(
                    "nobody knows the options of recorded requests: give --answer regex:PATTERN \
                     in place of letter"
                );
            }
        }
        // A rule that was made of recorded requests has no template for questions.
        let of_requests = record.is_some_and(|record| !record.contains_key("template"));
        let template = (!are_recorded && (!of_requests || self.template.is_some())).then(|| {
            recorded.template(
                self.template.as_deref(),
                chat_format,
                &Voter::default_template(&extract, questions),
                |source| Template::for_questions(source, questions),
            )
        });
        let system = match (&self.system, template.is_some()) {
            (Some(path), _) => Some(crate::show::read_text(path)?),
            (None, true) => recorded.text("system").map(str::to_owned),
            (None, false) => None,
        };
        if system.is_some() && endpoint == Endpoint::Completions {
            bail!(
                "--system goes with --endpoint chat: with completions, write the system message \
                 into the template"
            );
        }
        Ok(Voter {
            template: template.transpose()?,
            system,
            letters: recorded
                .or("letters", self.letters.clone())?
                .unwrap_or_default(),
            extract,
            sampling,
            samples: samples.unwrap_or(13),
            flags: self.server.flags(recorded),
            server: self.server.connect(endpoint, None, recorded, notice)?,
        })
    }
}

/// The most tokens that all recorded requests ask for. Those that differ need a number for all.
fn max_tokens_of(questions: &[Question]) -> anyhow::Result<Option<u32>> {
    let requests = questions.iter().filter_map(|q| q.request.as_ref());
    let asked: BTreeSet<Option<u32>> = requests.map(|request| request.max_tokens).collect();
    if asked.len() > 1 {
        let known: Vec<String> = asked
            .iter()
            .map(|most| most.map_or("none".into(), |most| most.to_string()))
            .collect();
        bail!(
            "the requests differ in max_tokens ({}); give one for all with --max-tokens",
            known.join(", ")
        );
    }
    Ok(asked.into_iter().next().flatten())
}

fn temperature(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(t) if t > 0.0 && t <= 10.0 => Ok(t),
        Ok(0.0) => Err("at 0 all votes are the same; give a number above 0".into()),
        _ => Err("give a number above 0, 10 at the most".into()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(p) if p > 0.0 && p <= 1.0 => Ok(p),
        _ => Err("give a number above 0, 1 at the most".into()),
    }
}
