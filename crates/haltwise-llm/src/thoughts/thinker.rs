//! A thinker: a model that thinks, with all that its thoughts and probes depend on.

use std::num::NonZeroU32;

use serde_json::{Map, Value};

use super::probing::{NAMES, Probing};
use crate::chat::NOT_FOR_THOUGHTS;
use crate::error::Error;
use crate::questions::Question;
use crate::reader::{Mismatch, Record};
use crate::reply::Tokens;
use crate::server::Endpoint;
use crate::votes::{Sample, Voter, seed_of};

/// A model that thinks about questions. Its limit of tokens is that of a thought.
#[derive(Debug)]
pub struct Thinker {
    /// The model, its prompt, and how its thoughts are sampled.
    pub voter: Voter,
    /// How thoughts are cut into steps and probed.
    pub probing: Probing,
}

/// The answer so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// What the model said behind the words that begin an answer.
    pub said: Sample,
    /// The answer in its normal form; empty where there is none.
    pub answer: String,
    /// The tokens of the prompt.
    pub prompt: Tokens,
}

impl Thinker {
    /// A model that thinks. Refuses questions whose requests ask for what thoughts cannot keep.
    pub fn new(voter: Voter, probing: Probing, questions: &[Question]) -> crate::Result<Self> {
        let requests = questions
            .iter()
            .filter_map(|q| Some((q, q.request.as_ref()?)));
        for (question, request) in requests {
            let fields = request.other_fields();
            let odd = NOT_FOR_THOUGHTS
                .iter()
                .find(|name| fields.contains_key(**name));
            if let Some(name) = odd {
                return Err(Error::input(format_args!(
                    "request {}: its field {name:?} cannot be kept while the model thinks; leave \
                     such requests out",
                    question.id
                )));
            }
        }
        Ok(Self { voter, probing })
    }

    /// Begins a thought about a question. The seed and the number of the thought, from 0, make its
    /// own random numbers.
    pub fn begin(
        &self,
        question: &Question,
        seed: u64,
        number: usize,
    ) -> crate::Result<OpenThought<'_>> {
        let (prompt, fields) = match self.voter.server.options().endpoint {
            Endpoint::Completions => (self.voter.prompt(question)?, Map::new()),
            Endpoint::Chat => {
                let request = self.voter.request(question)?;
                let prompt = self.voter.server.chat_prompt(request.fields())?;
                (prompt, request.other_fields())
            }
        };
        Ok(OpenThought {
            thinker: self,
            text: self.probing.opened(&prompt),
            begins: self.probing.opened(&prompt).len(),
            fields,
            seed,
            name: format!("{number}:{}", question.id),
            steps: 0,
            tokens: 0,
            is_over: false,
            is_new: true,
        })
    }

    /// The answer of a probe in its normal form.
    pub fn answer(&self, question: &Question, said: &Sample) -> crate::Result<String> {
        let letters = self.voter.letters.first(question.options.len())?;
        let extract = &self.voter.extract;
        Ok(self.probing.answer(extract, &said.text, said.cut, letters))
    }

    /// All that the steps depend on, as far as it is known.
    pub fn record(&self) -> Record {
        let mut record = self.voter.record();
        // How often a question is thought about is no matter of one thought.
        record.remove("samples");
        self.probing.write(&mut record);
        record
    }

    /// In what this thinker differs from the one that a rule is for.
    pub fn mismatches(&self, rule: &Record) -> Vec<Mismatch> {
        Mismatch::between_thoughts(rule, &self.record())
    }
}

impl Mismatch {
    /// In what thoughts differ from those of a record.
    pub fn between_thoughts(rule: &Record, here: &Record) -> Vec<Self> {
        let names: Vec<&str> = Voter::names().chain(NAMES).collect();
        Self::among(&names, rule, here)
    }
}

/// A thought that goes on.
#[derive(Debug)]
pub struct OpenThought<'a> {
    thinker: &'a Thinker,
    /// The prompt, and the thought so far.
    text: String,
    /// The byte of the text at which the thought begins.
    begins: usize,
    /// Fields of the request beside its messages.
    fields: Map<String, Value>,
    seed: u64,
    /// Its name. The seed and the name fix its random numbers.
    name: String,
    steps: usize,
    /// Tokens of the thought, against its limit.
    tokens: u32,
    is_over: bool,
    /// Whether nothing of it was asked for by this program.
    is_new: bool,
}

impl OpenThought<'_> {
    /// The thought so far.
    pub fn text(&self) -> &str {
        &self.text[self.begins..]
    }

    /// Whether the model has ended the thought, or its limit has.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// How many steps it has.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Thinks the next step.
    pub fn go_on(&mut self) -> crate::Result<(Sample, Tokens)> {
        let Thinker { voter, probing } = self.thinker;
        let mut request = probing.continuation(&self.text, self.fields.clone());
        self.use_cache(&mut request);
        let mut sampling = voter.sampling;
        sampling.max_tokens = self.asked_for();
        let seed = seed_of(self.seed, &self.name, self.steps);
        let server = &voter.server;
        let asked = server.sample(Endpoint::Completions, request, &sampling, seed, 1);
        let (samples, tokens) = asked.map_err(|e| e.at(self.place()))?;
        let mut step = samples.into_iter().next().unwrap_or_default();
        // The limit may cut a letter in two.
        let whole = step.text.trim_end_matches('\u{fffd}').len();
        step.text.truncate(whole);
        self.add(&step);
        Ok((step, tokens))
    }

    /// Takes a step that was thought before.
    pub fn add(&mut self, step: &Sample) {
        // A server that miscounts tokens must not think for ever.
        let most = self.asked_for();
        let tokens = u32::try_from(step.tokens).unwrap_or(most);
        self.tokens += if step.cut { most } else { tokens.min(most) };
        self.text += &step.text;
        self.steps += 1;
        self.is_over = !step.cut || step.text.is_empty() || self.left() == 0;
        self.is_new = false;
    }

    /// Asks for the answer so far.
    pub fn probe(&self, question: &Question) -> crate::Result<Probe> {
        let Thinker { voter, probing } = self.thinker;
        let (mut request, sampling) = probing.probe(&self.text, &voter.extract);
        self.use_cache(&mut request);
        let server = &voter.server;
        let asked = server.sample(Endpoint::Completions, request, &sampling, 0, 1);
        let (samples, prompt) = asked.map_err(|e| e.at(self.place()))?;
        let said = samples.into_iter().next().unwrap_or_default();
        Ok(Probe {
            answer: self.thinker.answer(question, &said)?,
            said,
            prompt,
        })
    }

    /// llama.cpp's last digits depend on what it has read before: a thought begins with nothing,
    /// so that the same thought comes again in the same way.
    fn use_cache(&self, request: &mut Value) {
        if self.thinker.voter.server.is_llama_cpp() {
            request["cache_prompt"] = (!self.is_new).into();
        }
    }

    fn left(&self) -> u32 {
        let most = self.thinker.voter.sampling.max_tokens;
        most.saturating_sub(self.tokens)
    }

    fn asked_for(&self) -> u32 {
        let every: NonZeroU32 = self.thinker.probing.every;
        self.left().min(every.get())
    }

    fn place(&self) -> String {
        format!("after {} tokens of thought", self.tokens)
    }
}
