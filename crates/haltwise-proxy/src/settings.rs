//! What a proxy is told, and what its rule says.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use haltwise::Rule;
use haltwise::terms::LABEL;
use haltwise_llm::{Extract, Letters, Mismatch, Probing, PromptShape};
use haltwise_serve::{ConnectionLimits, RuleToServe, Tls};

use crate::keys::Key;

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
    /// How many connections there may be, and how long they may be silent and take to end.
    pub connections: ConnectionLimits,
    /// A certificate, if connections are to be encrypted.
    pub tls: Option<Tls>,
    /// What the body of a request may take to arrive. One that is passed through as it
    /// comes may pause this long.
    pub body_timeout: Duration,
    /// How long a stream is silent at the most while votes come in.
    pub keep_alive: Duration,
    /// The most bytes of bodies in memory at the same time.
    pub body_bytes: usize,
    /// Whether requests are voted on although the rule promises nothing about them. Else they
    /// are passed through.
    pub votes_without_promise: bool,
    /// Other names of the rule's model, under which the server knows it as well.
    pub aliases: Vec<String>,
    /// What clients must show to be let in; anyone is where there are none.
    pub keys: Vec<Key>,
    /// What the proxy shows to the server. Without it, and without keys, clients' own
    /// keys are passed on.
    pub server_key: Option<Key>,
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
            connections: ConnectionLimits::default(),
            tls: None,
            body_timeout: Duration::from_secs(30),
            // Load balancers cut off streams that are silent, the strictest after 30 s.
            keep_alive: Duration::from_secs(5),
            body_bytes: 256 << 20,
            votes_without_promise: false,
            aliases: Vec::new(),
            keys: Vec::new(),
            server_key: None,
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
    /// The server's key cannot be sent.
    #[error("the server's key has characters that a header cannot have; copy it again")]
    ServerKey,
    /// Anyone could use the server's key.
    #[error("anyone could use the server's key through the proxy; give the proxy keys of its own")]
    OpenServerKey,
    /// Audits cannot be kept.
    #[error(transparent)]
    Store(#[from] haltwise_serve::Error),
    /// The network failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// How answers are sampled: as those were that the rule was calibrated on.
#[derive(Debug)]
pub(crate) struct Voting {
    model: String,
    aliases: Vec<String>,
    pub(crate) extract: Extract,
    letters: Vec<char>,
    pub(crate) temperature: f64,
    pub(crate) top_p: Option<f64>,
    pub(crate) max_tokens: u64,
    /// Whether answers were asked for as clients of the proxy ask.
    is_chat: bool,
    /// How thoughts are probed, if the rule is for thoughts; else it is for votes.
    pub(crate) probing: Option<Probing>,
    /// Whether the server was llama.cpp's, which makes prompts of chats in its own way.
    pub(crate) is_llama_cpp: bool,
}

impl Voting {
    pub(crate) fn new(rule: &Rule, aliases: &[String]) -> Result<Self, ProxyError> {
        let wrong = |problem: &str| ProxyError::Rule(problem.to_owned());
        let record = rule.classifier().ok_or_else(|| {
            wrong(
                "it does not say how its votes were cast or its thoughts probed; calibrate one on \
                 traces of `haltwise vote` or `haltwise think`, which also take recorded requests \
                 (--requests)",
            )
        })?;
        let said = |name: &str| record.get(name).map(String::as_str);
        let probing = Probing::read(record).map_err(|e| wrong(&e.to_string()))?;
        if probing.is_none() {
            let samples: Option<usize> = number(said("samples"), "samples")?;
            let samples = samples.ok_or_else(|| {
                wrong(
                    "it is neither for votes nor for thoughts; calibrate one on traces of \
                     `haltwise vote` or `haltwise think`",
                )
            })?;
            haltwise::votes::Ballot::new(rule).map_err(|e| wrong(&e.to_string()))?;
            if samples != rule.t_max() {
                return Err(wrong("it has not as many steps as there were votes"));
            }
        }
        let terms = rule.terms();
        let by = terms.by.as_deref().filter(|&by| by != LABEL);
        if let Some(column) = terms.unit.as_deref().or(by) {
            return Err(ProxyError::Rule(format!(
                "it promises something about each {column:?}, and requests do not say theirs; \
                 calibrate one without --unit and --by"
            )));
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
            aliases: aliases.to_vec(),
            extract: extract.map_err(|e: haltwise_llm::Error| wrong(&e.to_string()))?,
            letters,
            temperature: number(said("temperature"), "temperature")?.unwrap_or(0.7),
            top_p: number(said("top_p"), "top_p")?,
            max_tokens: number(said("max_tokens"), "max_tokens")?.unwrap_or(1024),
            is_chat: said("endpoint") == Some("chat"),
            probing,
            is_llama_cpp: said("server").is_some_and(|server| server.starts_with("llama.cpp")),
        })
    }

    /// Whether this is a name of the rule's model.
    pub(crate) fn is_for(&self, model: &str) -> bool {
        self.model == model || self.aliases.iter().any(|alias| alias == model)
    }

    /// The prompts that a rule promises something about, or why it promises nothing.
    pub(crate) fn promised_by(&self, rule: &Rule) -> Result<PromptShape, &'static str> {
        if rule.promise().is_none() {
            return Err("the rule was screened, not certified");
        }
        if !self.is_chat {
            return Err("the rule was calibrated on plain completions, not on chats");
        }
        let shape = rule.classifier().and_then(PromptShape::read);
        shape.ok_or("the rule does not say which prompts it was calibrated on")
    }

    /// The answer that a completion gives, empty where there is none.
    pub(crate) fn answer(&self, completion: &str, cut: bool) -> String {
        if cut {
            return String::new();
        }
        self.extract.answer(completion, &self.letters)
    }

    /// The answer that a probe gives, empty where there is none.
    pub(crate) fn probed_answer(&self, probing: &Probing, said: &str, cut: bool) -> String {
        probing.answer(&self.extract, said, cut, &self.letters)
    }
}

/// Prepares a rule for a proxy: labels are compared with the answers that its votes or probes give,
/// and only a rule for answers that are sampled in the same way may take its place.
pub fn for_answers(served: RuleToServe) -> Result<RuleToServe, ProxyError> {
    let extract = Voting::new(&served.rule, &[])?.extract;
    Ok(RuleToServe {
        label: Some(Arc::new(move |label| extract.label(label))),
        check: Some(Arc::new(are_for_the_same_answers)),
        ..served
    })
}

/// A value of a record in a message; `None` if it is too long for that, as templates are.
fn shown(value: Option<&str>) -> Option<String> {
    match value {
        None => Some("the usual".into()),
        Some(value) => (value.len() <= 60).then(|| format!("{value:?}")),
    }
}

/// Whether a rule may take the place of another: answers under way and audits in the store are
/// sampled in one way.
fn are_for_the_same_answers(rule: &Rule, other: &Rule) -> Result<(), String> {
    Voting::new(other, &[]).map_err(|e| e.to_string())?;
    let (Some(rule), Some(other)) = (rule.classifier(), other.classifier()) else {
        return Err("it does not say how its answers were sampled".into());
    };
    let mismatches = match rule.contains_key("every") {
        true => Mismatch::between_thoughts(rule, other),
        false => Mismatch::between_votes(rule, other),
    };
    let differences: Vec<String> = mismatches
        .into_iter()
        .filter(|mismatch| mismatch.voids)
        .map(
            |Mismatch {
                 what, rule, here, ..
             }| {
                match (shown(rule.as_deref()), shown(here.as_deref())) {
                    (Some(rule), Some(here)) => format!("{what} is {here}, not {rule}"),
                    _ => format!("{what} is another"),
                }
            },
        )
        .collect();
    if differences.is_empty() {
        return Ok(());
    }
    let differences = differences.join("; ");
    Err(format!(
        "the rule is for answers that are sampled in another way: {differences}"
    ))
}

fn number<T: FromStr>(text: Option<&str>, name: &str) -> Result<Option<T>, ProxyError> {
    let wrong = |text: &str| ProxyError::Rule(format!("its record of {name} is {text:?}"));
    text.map(|text| text.parse().map_err(|_| wrong(text)))
        .transpose()
}
