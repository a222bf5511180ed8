//! What a proxy is told, and what its rule says.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use haltwise::Rule;
use haltwise_llm::{Extract, Letters};
use haltwise_serve::LabelForm;

/// How a proxy works.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server's address, with or without `/v1` at the end.
    pub server: String,
    /// What all votes on one request may take, waiting included.
    pub timeout: Duration,
    /// How often to try again before giving up on a vote.
    pub retries: u32,
    /// How long to wait before the first of these; it doubles each time.
    pub first_wait: Duration,
    /// Requests to the server at the same time.
    pub concurrency: usize,
}

impl Options {
    /// The usual options for a server at an address.
    pub fn new(server: &str) -> Self {
        Self {
            server: server.to_owned(),
            timeout: Duration::from_secs(600),
            retries: 6,
            first_wait: Duration::from_millis(500),
            concurrency: 256,
        }
    }
}

/// Why there can be no proxy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The rule cannot be used.
    #[error("the rule cannot be used: {0}")]
    Rule(String),
    /// The server's address cannot be used.
    #[error("the server's address {0} must begin with http:// or https://, without a key in it")]
    Address(String),
    /// Audits cannot be kept.
    #[error(transparent)]
    Store(#[from] haltwise_serve::Error),
    /// The network failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// How the rule's votes were cast.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) rule: Rule,
    pub(crate) model: String,
    pub(crate) extract: Extract,
    /// The letters of the options that the rule's questions had.
    pub(crate) letters: Vec<char>,
    pub(crate) temperature: f64,
    pub(crate) top_p: Option<f64>,
    pub(crate) max_tokens: u64,
    /// Whether the rule promises anything to requests for chat completions.
    pub(crate) promises: bool,
}

impl Settings {
    pub(crate) fn new(rule: Rule) -> Result<Self, ProxyError> {
        let wrong = |problem: &str| ProxyError::Rule(problem.to_owned());
        let record = rule.classifier().ok_or_else(|| {
            wrong("it does not say how its votes were cast; calibrate one on traces of `haltwise vote`")
        })?;
        let said = |name: &str| record.get(name).map(String::as_str);
        let samples: usize = number(said("samples"), "samples")?.ok_or_else(|| {
            wrong("it is not for votes; calibrate one on traces of `haltwise vote`")
        })?;
        haltwise::votes::Ballot::new(&rule).map_err(|e| wrong(&e.to_string()))?;
        if samples != rule.t_max() {
            return Err(wrong("it has not as many steps as there were votes"));
        }
        let options = number(said("options"), "options")?.unwrap_or(0);
        let letters: Letters = said("letters")
            .map_or(Ok(Letters::default()), str::parse)
            .map_err(|e| wrong(&e.to_string()))?;
        let letters = letters
            .first(options)
            .map_err(|e| wrong(&e.to_string()))?
            .to_vec();
        let extract = said("answer").unwrap_or("boxed").parse();
        Ok(Self {
            model: said("model").unwrap_or_default().to_owned(),
            extract: extract.map_err(|e: haltwise_llm::Error| wrong(&e.to_string()))?,
            letters,
            temperature: number(said("temperature"), "temperature")?.unwrap_or(0.7),
            top_p: number(said("top_p"), "top_p")?,
            max_tokens: number(said("max_tokens"), "max_tokens")?.unwrap_or(1024),
            promises: rule.promise().is_some() && said("endpoint") == Some("chat"),
            rule,
        })
    }

    /// The answer that a completion gives, empty where there is none.
    pub(crate) fn answer(&self, completion: &str, cut: bool) -> String {
        match cut {
            true => String::new(),
            false => self.extract.answer(completion, &self.letters),
        }
    }
}

/// How labels of audited requests are written, so that they can be compared with the
/// answers that a rule's votes give.
pub fn label_form(rule: &Rule) -> Result<LabelForm, ProxyError> {
    let extract = Settings::new(rule.clone())?.extract;
    Ok(Arc::new(move |label| extract.label(label)))
}

fn number<T: FromStr>(text: Option<&str>, name: &str) -> Result<Option<T>, ProxyError> {
    let wrong = |text: &str| ProxyError::Rule(format!("its record of {name} is {text:?}"));
    text.map(|text| text.parse().map_err(|_| wrong(text)))
        .transpose()
}
