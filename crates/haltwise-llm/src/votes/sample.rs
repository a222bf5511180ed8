//! Completions, sampled: one request, one or more of them.

use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::reply::Tokens;
use crate::server::{Endpoint, Server};

/// How completions are sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// How far the likeliest words are strayed from; above 0, or all votes are one.
    pub temperature: f64,
    /// The share of probability that is sampled from, where it is not all.
    pub top_p: Option<f64>,
    /// The most tokens of a completion. One that is cut off there gives no answer.
    pub max_tokens: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.7,
            top_p: None,
            max_tokens: 1024,
        }
    }
}

/// One completion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// What the model said.
    pub text: String,
    /// How many tokens that took.
    pub tokens: u64,
    /// Whether it was cut off at the most tokens it may have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// The seed of the request that it came with.
    #[serde(skip)]
    pub seed: u64,
}

impl Server {
    /// Asks for `n` completions of a request. As many come back as the server
    /// makes at a time, at least one: some know no `n`.
    pub(crate) fn sample(
        &self,
        endpoint: Endpoint,
        mut request: Value,
        sampling: &Sampling,
        seed: u64,
        n: usize,
    ) -> crate::Result<(Vec<Sample>, Tokens)> {
        request["model"] = self.model().into();
        request["temperature"] = sampling.temperature.into();
        request["max_tokens"] = sampling.max_tokens.into();
        request["seed"] = seed.into();
        if let Some(top_p) = sampling.top_p {
            request["top_p"] = top_p.into();
        }
        if self.is_llama_cpp() && request["cache_prompt"].is_null() {
            // The server's cache of earlier prompts changes the last digits of the
            // next ones, and so one token in ten thousand: a killed run would not
            // continue as it had begun.
            request["cache_prompt"] = false.into();
        }
        let body = self.several(endpoint.path(), request, n)?;
        let mut read = read(&body).map_err(|e| self.error(e))?;
        read.0.truncate(n);
        read.0.iter_mut().for_each(|sample| sample.seed = seed);
        Ok(read)
    }

    /// Asks for `n` completions, or for one where the server refuses to make more
    /// at a time (llama.cpp makes as many as it has slots).
    fn several(&self, path: &str, mut request: Value, n: usize) -> crate::Result<Value> {
        if n > 1 && !self.one_at_a_time().load(Ordering::Relaxed) {
            request["n"] = n.into();
            if let Some(body) = self.post_unless_refused(path, &request)? {
                return Ok(body);
            }
            if let Value::Object(fields) = &mut request {
                fields.remove("n");
            }
            let body = self.post_json(path, &request)?;
            self.one_at_a_time().store(true, Ordering::Relaxed);
            return Ok(body);
        }
        self.post_json(path, &request)
    }
}

/// The completions in a server's answer, in order, and the tokens of the prompt.
fn read(body: &Value) -> Result<(Vec<Sample>, Tokens), String> {
    let choices = body["choices"].as_array().filter(|all| !all.is_empty());
    let choices =
        choices.ok_or("its answer has no \"choices\"; is this an OpenAI-compatible server?")?;
    let mut choices: Vec<&Value> = choices.iter().collect();
    choices.sort_by_key(|choice| choice["index"].as_u64());
    let text = |choice: &Value| {
        let said = choice["message"]["content"].as_str();
        said.or(choice["text"].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    let texts: Vec<String> = choices.iter().map(|choice| text(choice)).collect();
    let usage = &body["usage"];
    let generated = usage["completion_tokens"].as_u64();
    let tokens = shares(&texts, generated);
    let samples = std::iter::zip(std::iter::zip(texts, tokens), &choices)
        .map(|((text, tokens), choice)| Sample {
            text,
            tokens,
            cut: choice["finish_reason"] == "length",
            seed: 0,
        })
        .collect();
    Ok((samples, Tokens::of_prompt(usage)))
}

/// How many tokens each completion took: servers tell only the sum. It is shared
/// in proportion to the lengths of the texts; a server that tells nothing is taken
/// to make a token of four bytes.
fn shares(texts: &[String], generated: Option<u64>) -> Vec<u64> {
    let all: u64 = texts.iter().map(|text| text.len() as u64).sum();
    let sum = generated.unwrap_or(all.div_ceil(4));
    let mut shared = 0;
    let mut bytes = 0;
    let share = |text: &String| {
        bytes += text.len() as u64;
        let upto = match all {
            0 => sum,
            _ => (u128::from(sum) * u128::from(bytes) / u128::from(all)) as u64,
        };
        let share = upto - shared;
        shared = upto;
        share
    };
    texts.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_endpoints_are_read_in_order_of_their_indices() {
        let chat = json!({"choices": [
            {"index": 1, "message": {"content": "bbbbbb"}, "finish_reason": "length"},
            {"index": 0, "message": {"content": "aaa"}, "finish_reason": "stop"},
            {"index": 2, "message": {"content": null}, "finish_reason": "stop"},
        ], "usage": {"prompt_tokens": 7, "completion_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 5}}});
        let (samples, sent) = read(&chat).unwrap();
        let told: Vec<_> = samples
            .iter()
            .map(|s| (s.text.as_str(), s.tokens, s.cut))
            .collect();
        assert_eq!(
            told,
            [("aaa", 3, false), ("bbbbbb", 6, true), ("", 0, false)]
        );
        assert_eq!(sent, Tokens { sent: 7, cached: 5 });
        let plain = json!({"choices": [{"text": "12345"}]});
        let (samples, _) = read(&plain).unwrap();
        assert_eq!((samples[0].text.as_str(), samples[0].tokens), ("12345", 2));
    }

    #[test]
    fn tokens_are_shared_out_to_the_last_one() {
        let texts =
            |lengths: &[usize]| -> Vec<String> { lengths.iter().map(|n| "x".repeat(*n)).collect() };
        for lengths in [&[1, 1, 1][..], &[5, 0, 9, 1], &[0, 0], &[100]] {
            let shares = shares(&texts(lengths), Some(101));
            assert_eq!(shares.iter().sum::<u64>(), 101, "{lengths:?}: {shares:?}");
        }
    }

    #[test]
    fn what_is_no_answer_is_said() {
        for body in [json!({}), json!({"choices": []}), json!([])] {
            assert!(read(&body).unwrap_err().contains("no \"choices\""));
        }
    }
}
