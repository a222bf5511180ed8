//! Who votes, and how: said here, or by the rule that was calibrated on it.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail};
use haltwise::votes::MOST_VOTES;
use haltwise_llm::{
    CHAT_FORMATS, Endpoint, Extract, Letters, Question, Record, Sampling, Server, Template, Voter,
};

use crate::reader::{EndpointArg, ServerArgs};
use crate::show;

/// The server, and how it is asked.
#[derive(clap::Args)]
pub(crate) struct VoterArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// How the server is asked [default: the rule's, else chat]
    #[arg(long, value_enum, help_heading = "Server")]
    endpoint: Option<EndpointArg>,

    /// Votes on a question [default: the rule's, else 13]
    #[arg(long, value_name = "N", help_heading = "Votes",
          value_parser = clap::value_parser!(u16).range(1..=MOST_VOTES as i64))]
    samples: Option<u16>,

    /// How far votes stray from the likeliest words [default: the rule's, else 0.7]
    #[arg(long, value_name = "T", value_parser = temperature, help_heading = "Votes")]
    temperature: Option<f64>,

    /// Sample from the likeliest words that make up this share [default: the rule's, else all]
    #[arg(long, value_name = "P", value_parser = share, help_heading = "Votes")]
    top_p: Option<f64>,

    /// The most tokens of a vote; one that is cut off gives no answer [default: the rule's, else
    /// 1024]
    #[arg(long, value_name = "N", help_heading = "Votes",
          value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,

    /// Where the answer is: boxed, number, letter, line, json:PATH or regex:PATTERN [default: the
    /// rule's, else boxed]
    #[arg(long, value_name = "WHERE", help_heading = "Votes")]
    answer: Option<Extract>,

    /// What the seeds of the votes are drawn from
    #[arg(long, value_name = "SEED", default_value_t = 0, help_heading = "Votes")]
    pub(crate) seed: u64,

    /// A file with the prompt's template [default: the rule's, else the question and how to
    /// answer it]
    #[arg(long, value_name = "FILE", help_heading = "Prompt")]
    template: Option<PathBuf>,

    /// Put the prompt into the chat format of a family of models
    #[arg(long, value_name = "FAMILY", help_heading = "Prompt",
          value_parser = clap::builder::PossibleValuesParser::new(CHAT_FORMATS.map(|(name, _)| name)))]
    chat_format: Option<String>,

    /// What the options are called, a character each [default: the rule's, else A to Z]
    #[arg(long, value_name = "LETTERS", help_heading = "Prompt")]
    letters: Option<Letters>,
}

impl VoterArgs {
    /// Connects to the server. What was not said is as in the record, of the
    /// voter that a rule is for, where there is one.
    pub(crate) fn connect(
        &self,
        questions: &[Question],
        record: Option<&Record>,
        notice: impl Fn(&str) + Send + Sync + 'static,
    ) -> anyhow::Result<Voter> {
        let recorded = |name: &str| record.and_then(|r| r.get(name)).map(String::as_str);
        let endpoint = match (self.endpoint, recorded("endpoint")) {
            (Some(EndpointArg::Completions), _) | (None, Some("completions")) => {
                Endpoint::Completions
            }
            _ => Endpoint::Chat,
        };
        if self.chat_format.is_some() && endpoint == Endpoint::Chat {
            bail!("--chat-format goes with --endpoint completions: with chat, the server adds it");
        }
        let usual = Sampling::default();
        let sampling = Sampling {
            temperature: said(self.temperature, recorded("temperature"))?
                .unwrap_or(usual.temperature),
            top_p: said(self.top_p, recorded("top_p"))?,
            max_tokens: said(self.max_tokens, recorded("max_tokens"))?.unwrap_or(usual.max_tokens),
        };
        let extract = said(self.answer.clone(), recorded("answer"))?.unwrap_or_default();
        let options = self.server.options(endpoint, notice);
        let model = self.server.model.as_deref().or(recorded("model"));
        Ok(Voter {
            template: self.template(&extract, questions, recorded("template"))?,
            letters: said(self.letters.clone(), recorded("letters"))?.unwrap_or_default(),
            extract,
            sampling,
            samples: said(self.samples.map(usize::from), recorded("samples"))?.unwrap_or(13),
            flags: self
                .server
                .server_flags
                .clone()
                .or(recorded("flags").map(str::to_owned)),
            server: Server::connect(options, model)?,
        })
    }

    fn template(
        &self,
        extract: &Extract,
        questions: &[Question],
        recorded: Option<&str>,
    ) -> anyhow::Result<Template> {
        if let (None, None, Some(source)) = (&self.template, &self.chat_format, recorded) {
            return Ok(Template::for_questions(source, questions)?);
        }
        let source = match &self.template {
            None => Voter::default_template(extract, questions),
            Some(path) => show::read_text(path)?,
        };
        let template = Template::for_questions(&source, questions);
        let template = match &self.template {
            None => template?,
            Some(path) => template.with_context(|| format!("{}", path.display()))?,
        };
        Ok(match &self.chat_format {
            Some(format) => template.in_chat(format)?,
            None => template,
        })
    }
}

/// What was said, else what is recorded.
fn said<T: FromStr>(said: Option<T>, recorded: Option<&str>) -> anyhow::Result<Option<T>>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    match (said, recorded) {
        (None, Some(text)) => Ok(Some(text.parse().with_context(|| {
            format!("the rule's record of its classifier holds {text:?}, which cannot be used")
        })?)),
        (said, _) => Ok(said),
    }
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
