//! A reader: a model on a server, with all that its answers depend on.

use std::collections::BTreeMap;

use crate::answer::Answer;
use crate::document::Split;
use crate::letters::Letters;
use crate::prompt::Template;
use crate::questions::Question;
use crate::reply::Tokens;
use crate::server::Server;

/// The description of a reader. Its traces and the rules made from them carry it,
/// because those rules hold for no other reader.
pub type Record = BTreeMap<String, String>;

/// A model that reads documents part by part and answers questions.
#[derive(Debug)]
pub struct Reader {
    /// The model's server.
    pub server: Server,
    /// How it is asked.
    pub template: Template,
    /// What the options are called.
    pub letters: Letters,
    /// How documents are cut into parts.
    pub split: Split,
    /// What else was said about the server: flags that it does not tell.
    pub flags: Option<String>,
}

/// One answer, and what it cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// How likely each option is.
    pub answer: Answer,
    /// The tokens of the prompt.
    pub tokens: Tokens,
    /// The length of the prompt, in bytes.
    pub bytes: usize,
}

impl Reader {
    /// The ends of a document's parts, in bytes.
    pub fn part_ends(&self, document: &str) -> crate::Result<Vec<usize>> {
        let token_ends = |parts| self.server.token_ends(document, parts);
        self.split.ends(document, token_ends)
    }

    /// Asks a question about so much of its document.
    pub fn ask(&self, read: &str, question: &Question) -> crate::Result<Asked> {
        let prompt = self.template.fill(read, question, &self.letters)?;
        let letters = self.letters.first(question.options.len())?;
        let reply = self.server.ask(&prompt)?;
        Ok(Asked {
            answer: Answer::from_tokens(&reply.likeliest, letters),
            tokens: reply.tokens,
            bytes: prompt.len(),
        })
    }

    /// How long the prompt would be, in bytes.
    pub fn prompt_bytes(&self, read: &str, question: &Question) -> crate::Result<usize> {
        Ok(self.template.fill(read, question, &self.letters)?.len())
    }

    /// All that the answers depend on, as far as it is known.
    pub fn record(&self) -> Record {
        let options = self.server.options();
        let mut record: Record = [
            ("model", self.server.model().to_owned()),
            ("endpoint", options.endpoint.name().to_owned()),
            ("logprobs", options.logprobs.to_string()),
            ("template", self.template.source().to_owned()),
            ("letters", self.letters.to_string()),
            ("split", self.split.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let known = [
            ("server", self.server.software()),
            ("flags", self.flags.as_deref()),
        ];
        for (name, value) in known {
            if let Some(value) = value {
                record.insert(name.to_owned(), value.to_owned());
            }
        }
        record
    }
}

/// Something in which a reader differs from the one that a rule is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// What differs.
    pub what: String,
    /// The value in the rule.
    pub rule: Option<String>,
    /// The value here.
    pub here: Option<String>,
    /// Whether the reader is another one for it; else it may have become one.
    pub voids: bool,
}

impl Mismatch {
    /// In what a reader differs from a record.
    pub fn between(rule: &Record, here: &Record) -> Vec<Self> {
        let names = [
            "model", "endpoint", "logprobs", "template", "letters", "split",
        ];
        Self::among(&names, rule, here)
    }

    /// In which of these things a record differs from another, and whether the
    /// server is another version.
    pub(crate) fn among(names: &[&str], rule: &Record, here: &Record) -> Vec<Self> {
        let also = ["server", "flags"];
        let mismatch = |what: &&str| Self {
            what: (*what).to_owned(),
            rule: rule.get(*what).cloned(),
            here: here.get(*what).cloned(),
            voids: names.contains(what),
        };
        let all = names.iter().chain(&also).map(mismatch);
        all.filter(|m| m.rule != m.here).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_model_voids_a_rule_and_another_version_may() {
        let record = |model: &str, server: &str| -> Record {
            [
                ("model", model),
                ("server", server),
                ("split", "periods/10"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
        };
        let differ = |here: &Record| Mismatch::between(&record("m", "vLLM 1"), here);
        assert_eq!(differ(&record("m", "vLLM 1")), []);
        let found = differ(&record("n", "vLLM 2"));
        let found: Vec<_> = found.iter().map(|m| (m.what.as_str(), m.voids)).collect();
        assert_eq!(found, [("model", true), ("server", false)]);
    }
}
