//! A voter: a model on a server, with all that its votes depend on.

use super::extract::Extract;
use super::sample::{Sample, Sampling};
use crate::letters::Letters;
use crate::prompt::Template;
use crate::questions::Question;
use crate::reader::{Mismatch, Record};
use crate::reply::Tokens;
use crate::server::Server;

/// A model that is asked the same question several times.
#[derive(Debug)]
pub struct Voter {
    /// The model's server.
    pub server: Server,
    /// How it is asked.
    pub template: Template,
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
             {{% endfor %}}\n{{% raw %}}{}{{% endraw %}}\n",
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
        let prompt = self
            .template
            .fill(&question.document, question, &self.letters)?;
        self.server.sample(&prompt, &self.sampling, seed, n)
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
            ("template", self.template.source().to_owned()),
            ("letters", self.letters.to_string()),
            ("temperature", self.sampling.temperature.to_string()),
            ("max_tokens", self.sampling.max_tokens.to_string()),
            ("answer", self.extract.to_string()),
            ("samples", self.samples.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let known = [
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
