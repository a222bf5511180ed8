//! What a server says: the likeliest tokens, in the shapes that servers use.

use std::fmt::Display;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How many tokens of prompts a server was sent, and how many of those it still had
/// from before (as far as it says so).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tokens {
    /// Tokens of prompts.
    pub sent: u64,
    /// Those that need not be computed again.
    pub cached: u64,
}

impl Tokens {
    /// The tokens of the prompt, from the "usage" of a completion.
    pub fn of_prompt(usage: &Value) -> Self {
        let tokens = |count: &Value| count.as_u64().unwrap_or(0);
        Self {
            sent: tokens(&usage["prompt_tokens"]),
            cached: tokens(&usage["prompt_tokens_details"]["cached_tokens"]),
        }
    }
}

impl AddAssign for Tokens {
    /// A server may claim any number: a sum without room stays at the largest number.
    fn add_assign(&mut self, other: Self) {
        self.sent = self.sent.saturating_add(other.sent);
        self.cached = self.cached.saturating_add(other.cached);
    }
}

/// One answer of a server.
#[derive(Debug, PartialEq)]
pub(crate) struct Reply {
    /// The likeliest next tokens with the logarithms of their probabilities.
    pub(crate) likeliest: Vec<(String, f64)>,
    pub(crate) tokens: Tokens,
}

/// Reads an answer of `/v1/completions` or `/v1/chat/completions`.
pub(crate) fn parse(body: &[u8]) -> Result<Reply, String> {
    let body = json(body)?;
    let choice = &body["choices"][0];
    if choice.is_null() {
        return Err("its answer has no \"choices\"; is this an OpenAI-compatible server?".into());
    }
    Ok(Reply {
        likeliest: likeliest(&choice["logprobs"])?,
        tokens: Tokens::of_prompt(&body["usage"]),
    })
}

pub(crate) fn json(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|e| {
        if body.windows(3).any(|w| w == b"NaN") {
            "its answer has NaN for a number: the model's arithmetic broke down (16-bit \
                 floats that overflow, a damaged file)"
                .into()
        } else {
            format!("its answer is no JSON: {e}")
        }
    })
}

/// The first generated token's alternatives, in either shape: `content`, a list
/// of tokens each with a list of alternatives (chat everywhere, and llama.cpp's
/// completions); or `top_logprobs`, a table of alternatives per token (the
/// completions of vLLM and SGLang).
fn likeliest(logprobs: &Value) -> Result<Vec<(String, f64)>, String> {
    let first = &logprobs["content"][0]["top_logprobs"];
    let table = &logprobs["top_logprobs"][0];
    let found: Vec<(String, f64)> = if let Some(list) = first.as_array() {
        let pair = |item: &Value| {
            let token = item["token"].as_str().unwrap_or_default();
            number(token, &item["logprob"])
        };
        list.iter().map(pair).collect::<Result<_, _>>()?
    } else if let Some(table) = table.as_object() {
        let pair = |(token, logprob): (&String, &Value)| number(token, logprob);
        table.iter().map(pair).collect::<Result<_, _>>()?
    } else {
        Vec::new()
    };
    if found.is_empty() {
        Err(
            "it returned no log-probabilities; it must be able to (vLLM: \
                     --max-logprobs; hosted services often cannot), and the model must \
                     generate a token"
                .into(),
        )
    } else {
        Ok(found)
    }
}

fn number(token: &str, logprob: &Value) -> Result<(String, f64), String> {
    let wrong = |what: &dyn Display| {
        format!("the log-probability of the token {token:?} is {what}, which is none")
    };
    match logprob.as_f64() {
        // A little above 0 is rounding.
        Some(value) if value < 0.01 => Ok((token.to_owned(), value.min(0.0))),
        Some(value) => Err(wrong(&value)),
        None => Err(wrong(logprob)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// llama.cpp, both endpoints; the chat endpoint of every server.
    const LIST: &str = r#"{"choices": [{"index": 0, "text": "A", "finish_reason": "length",
        "logprobs": {"content": [{"id": 49, "token": "A", "bytes": [65], "logprob": -0.5,
        "top_logprobs": [{"id": 49, "token": "A", "bytes": [65], "logprob": -0.5},
        {"id": 50, "token": " B", "bytes": [66], "logprob": -1.5}]}]}}],
        "usage": {"prompt_tokens": 336, "completion_tokens": 1, "total_tokens": 337,
        "prompt_tokens_details": {"cached_tokens": 300}}}"#;

    /// vLLM's and SGLang's completions.
    const TABLE: &str = r#"{"id": "cmpl-1", "object": "text_completion", "created": 1,
        "model": "m", "choices": [{"index": 0, "text": "A", "finish_reason": "length",
        "stop_reason": null, "logprobs": {"text_offset": [0], "token_logprobs": [-0.5],
        "tokens": ["A"], "top_logprobs": [{"A": -0.5, " B": -1.5}]}}],
        "usage": {"prompt_tokens": 336, "total_tokens": 337, "completion_tokens": 1,
        "prompt_tokens_details": null}}"#;

    #[test]
    fn both_shapes_say_the_same() {
        let (list, table) = (
            parse(LIST.as_bytes()).unwrap(),
            parse(TABLE.as_bytes()).unwrap(),
        );
        let mut tokens = table.likeliest.clone();
        tokens.sort_by(|a, b| b.1.total_cmp(&a.1));
        assert_eq!(list.likeliest, tokens);
        assert_eq!(
            list.likeliest,
            [("A".to_owned(), -0.5), (" B".to_owned(), -1.5)]
        );
        assert_eq!(
            list.tokens,
            Tokens {
                sent: 336,
                cached: 300
            }
        );
        assert_eq!(
            table.tokens,
            Tokens {
                sent: 336,
                cached: 0
            }
        );
    }

    #[test]
    fn what_cannot_be_used_is_explained() {
        for (body, expected) in [
            (LIST.replace("-1.5", "NaN"), "has NaN for a number"),
            (LIST.replace("-1.5", "null"), "of the token \" B\" is null"),
            (
                TABLE.replace("-1.5", "\"NaN\""),
                "is \"NaN\", which is none",
            ),
            (TABLE.replace("-1.5", "0.7"), "is 0.7, which is none"),
            (LIST.replace("content", "nothing"), "no log-probabilities"),
            (
                TABLE.replace("[{\"A\": -0.5, \" B\": -1.5}]", "null"),
                "no log-probabilities",
            ),
            (LIST.replace("choices", "error"), "no \"choices\""),
            (LIST[..200].to_owned(), "is no JSON"),
        ] {
            let error = parse(body.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{expected:?} is not in {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_change_of_bytes_makes_the_reader_panic(
            table in proptest::bool::ANY, at in 0_usize..400, byte: u8, cut in 0_usize..600
        ) {
            let mut body = if table { TABLE } else { LIST }.as_bytes().to_vec();
            if let Some(place) = body.get_mut(at) {
                *place = byte;
            }
            body.truncate(cut);
            if let Ok(reply) = parse(&body) {
                assert!(reply.likeliest.iter().all(|(_, logprob)| *logprob <= 0.0));
            }
        }
    }
}
