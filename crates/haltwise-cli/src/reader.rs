//! The model, its server and how to ask it: options that `read` and `ask` share.
//! `vote` has some of them.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use haltwise_llm::{
    ApiKey, CHAT_FORMATS, Endpoint, Letters, Question, Reader, Record, Server, ServerOptions,
    Split, Template, Unit, read_free_questions, read_questions, shuffle_options,
};

/// The address of the model's server.
#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    /// The address of an OpenAI-compatible server (vLLM, llama.cpp, SGLang)
    #[arg(long, value_name = "URL", help_heading = "Server")]
    pub(crate) server: String,

    /// The model's name on the server [default: the only one there is]
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    model: Option<String>,

    /// Seconds that one answer may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, value_parser = seconds,
          help_heading = "Server")]
    timeout: f64,

    /// How often to try again when the server is busy or gone
    #[arg(long, value_name = "N", default_value_t = 6, help_heading = "Server")]
    retries: u32,

    /// Documents or questions that are asked about at the same time
    #[arg(long, value_name = "N", default_value = "4", help_heading = "Server")]
    pub(crate) concurrency: NonZeroUsize,

    /// The environment variable that holds the API key, if one is needed
    #[arg(
        long,
        value_name = "VARIABLE",
        default_value = "HALTWISE_API_KEY",
        help_heading = "Server"
    )]
    api_key_env: String,

    /// A note to record about the server, such as its flags
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        help_heading = "Server"
    )]
    server_flags: Option<String>,
}

impl ServerArgs {
    /// Connects to the server.
    pub(crate) fn connect(
        &self,
        endpoint: Endpoint,
        logprobs: Option<u32>,
        recorded: Recorded<'_>,
        notice: impl Fn(&str) + Send + Sync + 'static,
    ) -> anyhow::Result<Server> {
        let mut options = ServerOptions::new(&self.server);
        options.endpoint = endpoint;
        options.logprobs = logprobs.unwrap_or(options.logprobs);
        options.timeout = Duration::from_secs_f64(self.timeout);
        options.retries = self.retries;
        options.api_key = ApiKey::from_env(&self.api_key_env);
        options.notice = Arc::new(notice);
        let model = self.model.as_deref().or(recorded.text("model"));
        Ok(Server::connect(options, model)?)
    }

    /// What to record about the server.
    pub(crate) fn flags(&self, recorded: Recorded<'_>) -> Option<String> {
        let flags = self.server_flags.as_deref().or(recorded.text("flags"));
        flags.map(str::to_owned)
    }
}

/// What a rule's record says about the model that the rule is for, if there is a rule. Options
/// that the user leaves out are as in the record.
#[derive(Clone, Copy)]
pub(crate) struct Recorded<'r>(pub(crate) Option<&'r Record>);

impl<'r> Recorded<'r> {
    /// A value of the record, as it stands there.
    pub(crate) fn text(self, name: &str) -> Option<&'r str> {
        self.0?.get(name).map(String::as_str)
    }

    /// The user's value, else the recorded one.
    pub(crate) fn or<T: FromStr>(self, name: &str, users: Option<T>) -> anyhow::Result<Option<T>>
    where
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        let (None, Some(text)) = (&users, self.text(name)) else {
            return Ok(users);
        };
        let value = text.parse().with_context(|| {
            format!("the rule's record of its classifier holds {text:?}, which cannot be used")
        })?;
        Ok(Some(value))
    }

    /// How the server is asked. A chat format of the user's goes with completions alone.
    pub(crate) fn endpoint(
        self,
        users: Option<EndpointArg>,
        chat_format: Option<&str>,
        usual: Endpoint,
    ) -> anyhow::Result<Endpoint> {
        let endpoint = match (users, self.text("endpoint")) {
            (Some(EndpointArg::Chat), _) | (None, Some("chat")) => Endpoint::Chat,
            (Some(EndpointArg::Completions), _) | (None, Some("completions")) => {
                Endpoint::Completions
            }
            (None, _) => usual,
        };
        if chat_format.is_some() && endpoint == Endpoint::Chat {
            bail!("--chat-format goes with --endpoint completions: with chat, the server adds it");
        }
        Ok(endpoint)
    }

    /// The user's template, else the recorded one, else the usual one; in the user's chat format.
    pub(crate) fn template(
        self,
        file: Option<&Path>,
        chat_format: Option<&str>,
        usual: &str,
        parse: impl Fn(&str) -> haltwise_llm::Result<Template>,
    ) -> anyhow::Result<Template> {
        let template = match (file, chat_format, self.text("template")) {
            (None, None, Some(recorded)) => parse(recorded)?,
            (None, ..) => parse(usual)?,
            (Some(path), ..) => parse(&crate::show::read_text(path)?)
                .with_context(|| format!("{}", path.display()))?,
        };
        Ok(match chat_format {
            Some(format) => template.in_chat(format)?,
            None => template,
        })
    }
}

/// The server, and how it is asked.
#[derive(clap::Args)]
pub(crate) struct ReaderArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// How to ask the server [default: completions]
    #[arg(long, value_enum, help_heading = "Server")]
    endpoint: Option<EndpointArg>,

    /// How many of the likeliest tokens to ask for [default: 20]
    #[arg(long, value_name = "N", help_heading = "Server",
          value_parser = clap::value_parser!(u32).range(2..=10_000))]
    logprobs: Option<u32>,

    /// A file with the prompt's template [default: the paper's wording]
    #[arg(long, value_name = "FILE", help_heading = "Prompt")]
    template: Option<PathBuf>,

    /// Put the prompt into the chat format of a family of models
    #[arg(long, value_name = "FAMILY", help_heading = "Prompt",
          value_parser = clap::builder::PossibleValuesParser::new(CHAT_FORMATS.map(|(name, _)| name)))]
    chat_format: Option<String>,

    /// The letters of the options, one character each [default: A to Z]
    #[arg(long, value_name = "LETTERS", help_heading = "Prompt")]
    letters: Option<Letters>,

    /// The pieces to cut documents into [default: periods]
    #[arg(long, value_enum, help_heading = "Parts")]
    split: Option<UnitArg>,

    /// Cut documents where this text begins, such as '\f' or '\n# '
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "split",
        help_heading = "Parts"
    )]
    mark: Option<String>,

    /// The number of parts, of equally many pieces each [default: 10; with --mark, each piece is a
    /// part]
    #[arg(long, value_name = "N", help_heading = "Parts")]
    parts: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
pub(crate) enum EndpointArg {
    /// /v1/completions: the prompt as it is
    Completions,
    /// /v1/chat/completions: the server adds the model's chat format
    Chat,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum UnitArg {
    /// Sentences as the paper finds them, ended by ". "
    Periods,
    /// Sentences by Unicode's rules, abbreviations minded
    Sentences,
    /// The model's tokens, as the server counts them
    Tokens,
}

/// The same for a rule's reader: options left out are as in the rule.
pub(crate) struct RuleReaderArgs(pub(crate) ReaderArgs);

/// The fields of a rule's record about its reader.
const OF_RULE: [&str; 9] = [
    "model",
    "endpoint",
    "logprobs",
    "server_flags",
    "template",
    "chat_format",
    "letters",
    "split",
    "parts",
];

impl clap::Args for RuleReaderArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        ReaderArgs::augment_args(command).mut_args(|arg| {
            if !OF_RULE.contains(&arg.get_id().as_str()) {
                return arg;
            }
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let what = help.split(" [default: ").next().unwrap_or_default();
            arg.help(format!("{what} [default: the rule's]"))
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for RuleReaderArgs {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        ReaderArgs::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// The source of questions.
#[derive(clap::Args)]
pub(crate) struct QuestionArgs {
    /// The "document" of a question is the name of a file in this folder
    #[arg(long, value_name = "FOLDER", help_heading = "Questions")]
    documents: Option<PathBuf>,

    /// Put the options of each question in an order drawn from this seed
    #[arg(long, value_name = "SEED", help_heading = "Questions")]
    shuffle_options: Option<u64>,
}

impl QuestionArgs {
    pub(crate) fn read(&self, path: &std::path::Path) -> anyhow::Result<Vec<Question>> {
        Ok(self.shuffled(read_questions(path, self.documents.as_deref())?))
    }

    /// Questions that need neither documents nor options.
    pub(crate) fn read_free(&self, path: &std::path::Path) -> anyhow::Result<Vec<Question>> {
        Ok(self.shuffled(read_free_questions(path, self.documents.as_deref())?))
    }

    fn shuffled(&self, mut questions: Vec<Question>) -> Vec<Question> {
        if let Some(seed) = self.shuffle_options {
            shuffle_options(&mut questions, seed);
        }
        questions
    }
}

impl ReaderArgs {
    /// Connects to the server. Options left out are as in the record of the rule's
    /// reader, if there is a rule.
    pub(crate) fn connect(
        &self,
        record: Option<&Record>,
        notice: impl Fn(&str) + Send + Sync + 'static,
    ) -> anyhow::Result<Reader> {
        let recorded = Recorded(record);
        let chat_format = self.chat_format.as_deref();
        let endpoint = recorded.endpoint(self.endpoint, chat_format, Endpoint::Completions)?;
        let logprobs = recorded.or("logprobs", self.logprobs)?;
        let paper = Template::default();
        Ok(Reader {
            template: recorded.template(
                self.template.as_deref(),
                chat_format,
                paper.source(),
                Template::new,
            )?,
            letters: recorded
                .or("letters", self.letters.clone())?
                .unwrap_or_default(),
            split: self.split(recorded.text("split"))?,
            flags: self.server.flags(recorded),
            server: self.server.connect(endpoint, logprobs, recorded, notice)?,
        })
    }

    fn split(&self, recorded: Option<&str>) -> anyhow::Result<Split> {
        let mut split: Split = match recorded {
            Some(split) => split.parse()?,
            None => Split::default(),
        };
        if let Some(unit) = self.split {
            split.unit = match unit {
                UnitArg::Periods => Unit::Periods,
                UnitArg::Sentences => Unit::Sentences,
                UnitArg::Tokens => Unit::Tokens,
            };
        }
        if let Some(mark) = &self.mark {
            split.unit = Unit::Mark(unescaped(mark));
            split.parts = None;
        }
        split.parts = self.parts.or(split.parts);
        Ok(split)
    }
}

/// A mark as it was meant: shells make it hard to give a line break.
pub(crate) fn unescaped(text: &str) -> String {
    text.replace("\\n", "\n")
        .replace("\\t", "\t")
        .replace("\\f", "\u{c}")
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e6 => Ok(seconds),
        _ => Err("give a number of seconds above 0".into()),
    }
}
