//! A voter: a model on a server, with all that its votes depend on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::extract::Extract;
use super::sample::{Sample, Sampling};
use crate::chat::{ChatRequest, PromptShape};
use crate::error::Error;
use crate::letters::Letters;
use crate::prompt::Template;
use crate::questions::Question;
use crate::reader::{Mismatch, Record};
use crate::reply::Tokens;
use crate::server::{Endpoint, Server};

/// A model that is asked the same question several times.
#[derive(Debug)]
pub struct Voter {
    /// The model's server.
    pub server: Server,
    /// How it is asked; none where all requests are recorded ones.
    pub template: Option<Template>,
    /// The system message before a prompt of the template.
    pub system: Option<String>,
    /// What the options are called, where there are some.
    pub letters: Letters,
    /// How to find the answer in a completion.
    pub extract: Extract,
    /// How what it says is sampled.
    pub sampling: Sampling,
    /// The votes on a question, if all are cast.
    pub samples: usize,
    /// What else was said about the server: flags that it does not tell.
    pub flags: Option<String>,
}

/// Two questions that have no letter in common, each with a document.
const STAND_INS: [(&str, &str); 2] = [("AxA", "CuC"), ("ByB", "DvD")];

/// What votes depend on, by the names in a record.
const NAMES: [&str; 9] = [
    "model",
    "endpoint",
    "template",
    "letters",
    "temperature",
    "top_p",
    "max_tokens",
    "answer",
    "samples",
];

impl Voter {
    /// The usual prompt for questions whose answers are found this way: what
    /// there is of a document, the question, its options, and how to answer.
    pub fn default_template(extract: &Extract, questions: &[Question]) -> String {
        let options = questions.iter().any(|q| !q.options.is_empty());
        format!(
            "{{% if context %}}{{{{ context }}}}\n\n{{% endif %}}{{{{ question }}}}\n\
             {{% for option in options %}}{{{{ option.letter }}}}. {{{{ option.text }}}}\n\
             {{% endfor %}}\n{{% raw %}}{}{{% endraw %}}",
            extract.instruction(options)
        )
    }

    /// Asks for `n` votes on a question, and gets at least one.
    pub fn ask(
        &self,
        question: &Question,
        seed: u64,
        n: usize,
    ) -> crate::Result<(Vec<Sample>, Tokens)> {
        let endpoint = self.server.options().endpoint;
        let request = match endpoint {
            Endpoint::Chat => Value::Object(self.request(question)?.fields().clone()),
            Endpoint::Completions => json!({"prompt": self.prompt(question)?}),
        };
        self.server
            .sample(endpoint, request, &self.sampling, seed, n)
    }

    /// The chat request that asks a question.
    pub(crate) fn request(&self, question: &Question) -> crate::Result<ChatRequest> {
        Ok(match &question.request {
            Some(request) => request.clone(),
            None => ChatRequest::of_texts(self.system.as_deref(), &self.prompt(question)?),
        })
    }

    pub(crate) fn prompt(&self, question: &Question) -> crate::Result<String> {
        let template = self.template.as_ref();
        let template = template.ok_or_else(|| {
            Error::input("there is no template for questions; give recorded requests (--requests)")
        })?;
        template.fill(&question.document, question, &self.letters)
    }

    /// What the prompts of these questions have in common; `None` for plain completions, which
    /// have no messages.
    pub fn prompt_shape(&self, questions: &[Question]) -> crate::Result<Option<PromptShape>> {
        if self.server.options().endpoint == Endpoint::Completions {
            return Ok(None);
        }
        let recorded: Option<Vec<&ChatRequest>> =
            questions.iter().map(|q| q.request.as_ref()).collect();
        if let Some(recorded) = recorded {
            return PromptShape::of_requests(recorded).map(Some);
        }
        // The template's own words are what prompts with other questions have in common.
        let forms = questions
            .iter()
            .map(|q| (q.document.is_empty(), q.options.len()));
        let forms: BTreeSet<(bool, usize)> = forms.collect();
        let stand_ins = forms
            .into_iter()
            .flat_map(|form| STAND_INS.map(|words| (form, words)));
        let requests = stand_ins.map(|((is_free, options), (words, document))| {
            self.request(&Question {
                id: String::new(),
                document: if is_free { "" } else { document }.into(),
                question: words.into(),
                options: vec![words.to_owned(); options],
                label: None,
                answer: None,
                request: None,
            })
        });
        let requests: Vec<ChatRequest> = requests.collect::<crate::Result<_>>()?;
        PromptShape::of_stand_ins(&requests).map(Some)
    }

    /// How the prompt of a question differs from those that a rule was calibrated on.
    pub fn prompt_difference(
        &self,
        question: &Question,
        rule: &Record,
    ) -> crate::Result<Option<String>> {
        if self.server.options().endpoint == Endpoint::Completions {
            return Ok(None);
        }
        let Some(shape) = PromptShape::read(rule) else {
            return Ok(Some(
                "the rule does not say which prompts it was calibrated on".into(),
            ));
        };
        let request = self.request(question)?;
        let (messages, fields) = (request.messages(), request.other_fields());
        let fields: BTreeMap<&str, String> = fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_string()))
            .collect();
        let fields = fields
            .iter()
            .map(|(name, json)| (*name, json.as_str()))
            .collect();
        let difference = shape.difference(&request.seen(&messages)?, &fields);
        Ok(difference.map(|difference| difference.reason))
    }

    /// A completion's answer to a question, empty where it gives none: also where
    /// it was cut off, since a number on the way is not the result.
    pub fn answer(&self, question: &Question, sample: &Sample) -> crate::Result<String> {
        let letters = self.letters.first(question.options.len())?;
        Ok(if sample.cut {
            String::new()
        } else {
            self.extract.answer(&sample.text, letters)
        })
    }

    /// The right answer to a question as a vote for it is written, where it is known.
    pub fn label(&self, question: &Question) -> crate::Result<Option<String>> {
        let letters = self.letters.first(question.options.len())?;
        Ok(match question.label {
            Some(label) if self.extract.gives_letters() => letters.get(label).map(char::to_string),
            Some(label) => {
                let option = question.options.get(label);
                option.map(|option| self.extract.label(option))
            }
            None => question
                .answer
                .as_deref()
                .map(|text| self.extract.label(text)),
        })
    }

    /// All that the votes depend on, as far as it is known.
    pub fn record(&self) -> Record {
        let mut record: Record = [
            ("model", self.server.model().to_owned()),
            ("endpoint", self.server.options().endpoint.name().to_owned()),
            ("letters", self.letters.to_string()),
            ("temperature", self.sampling.temperature.to_string()),
            ("max_tokens", self.sampling.max_tokens.to_string()),
            ("answer", self.extract.to_string()),
            ("samples", self.samples.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let known = [
            (
                "template",
                self.template.as_ref().map(|t| t.source().to_owned()),
            ),
            ("top_p", self.sampling.top_p.map(|p| p.to_string())),
            ("server", self.server.software().map(str::to_owned)),
            ("flags", self.flags.clone()),
        ];
        for (name, value) in known {
            if let Some(value) = value {
                record.insert(name.to_owned(), value);
            }
        }
        record
    }

    /// What a thought depends on as a vote does, by the names in a record.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().filter(|name| *name != "samples")
    }

    /// In what this voter differs from the one that a rule is for.
    pub fn mismatches(&self, rule: &Record) -> Vec<Mismatch> {
        Mismatch::between_votes(rule, &self.record())
    }
}

impl Mismatch {
    /// In what votes differ from those of a record.
    pub fn between_votes(rule: &Record, here: &Record) -> Vec<Self> {
        Self::among(&NAMES, rule, here)
    }
}
