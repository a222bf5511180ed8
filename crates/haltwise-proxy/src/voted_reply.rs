//! Votes on a request, and the reply that is made of them.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Response};
use haltwise::votes::{Ballot, Standing};
use haltwise_llm::Tokens;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::outcome::Cause;
use crate::reported_request::ReportedRequest;
use crate::settings::Voting;
use crate::upstream::{Failure, Upstream};
use crate::vote_request::VoteRequest;

pub(crate) const PATH: &str = "/v1/chat/completions";

/// A request whose votes are in.
#[derive(Debug)]
pub(crate) struct VotedReply {
    /// The completion that is passed on.
    completion: Value,
    answer: Option<String>,
    standing: Standing,
    of: usize,
    usage: Usage,
    /// The id of the audit, if it is audited.
    audit: Option<String>,
}

/// One vote.
#[derive(Debug)]
pub(crate) struct Vote {
    completion: Value,
    pub(crate) answer: String,
    pub(crate) tokens: u64,
}

impl Vote {
    pub(crate) fn new(body: &Bytes, voting: &Voting) -> Result<Self, Failure> {
        let completion = parsed(body)?;
        let choice = &completion["choices"][0];
        let text = choice["message"]["content"].as_str().unwrap_or_default();
        Ok(Self {
            answer: voting.answer(text, choice["finish_reason"] == "length"),
            tokens: completion["usage"]["completion_tokens"]
                .as_u64()
                .unwrap_or(0),
            completion,
        })
    }
}

/// The tokens of several completions.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) prompt: Tokens,
    pub(crate) completion: u64,
    /// Those of thoughts, if the server tells.
    pub(crate) reasoning: Option<u64>,
}

impl Usage {
    fn add(&mut self, completion: &Value) {
        let usage = &completion["usage"];
        let generated = usage["completion_tokens"].as_u64().unwrap_or(0);
        self.prompt += Tokens::of_prompt(usage);
        // A server may claim any number, and the sum must not overflow.
        self.completion = self.completion.saturating_add(generated);
        if let Some(more) = usage["completion_tokens_details"]["reasoning_tokens"].as_u64() {
            self.reasoning = Some(self.reasoning.unwrap_or(0).saturating_add(more));
        }
    }

    pub(crate) fn json(self) -> Value {
        let Tokens { sent, cached } = self.prompt;
        let mut usage = json!({
            "prompt_tokens": sent, "completion_tokens": self.completion,
            "total_tokens": sent.saturating_add(self.completion),
            "prompt_tokens_details": {"cached_tokens": cached},
        });
        if let Some(reasoning) = self.reasoning {
            usage["completion_tokens_details"] = json!({"reasoning_tokens": reasoning});
        }
        usage
    }
}

impl VotedReply {
    /// Asks for votes until the rule has enough.
    ///
    /// Those that it cannot do without are asked for at once. They count in the
    /// order they were asked for, not in that of their coming: short answers come
    /// first, and counting them first would not be what was calibrated.
    pub(crate) async fn new(
        mut ballot: Ballot<'_>,
        voting: &Voting,
        upstream: &Arc<Upstream>,
        headers: &Arc<HeaderMap>,
        request: &VoteRequest,
        reported: &mut Option<ReportedRequest>,
    ) -> Result<Self, Failure> {
        let mut completions: Vec<Value> = Vec::new();
        let reason = loop {
            let mut halted = None;
            let first = completions.len();
            for body in wave(upstream, headers, request, first, ballot.wanted()).await? {
                let vote = Vote::new(&body, voting)?;
                halted = ballot.vote(&vote.answer).map_err(internal)?;
                if let Some(reported) = reported {
                    reported.vote(&vote)?;
                }
                completions.push(vote.completion);
            }
            if let Some(reason) = halted {
                break reason;
            }
        };
        if let Some(reported) = reported {
            reported.halt(reason).await?;
        }
        let mut usage = Usage::default();
        completions
            .iter()
            .for_each(|completion| usage.add(completion));
        Ok(Self {
            completion: completions.swap_remove(ballot.chosen()),
            answer: ballot.leader().map(str::to_owned),
            standing: ballot.standing(),
            of: ballot.of(),
            usage,
            audit: reported.as_ref().and_then(|w| w.id()).map(str::to_owned),
        })
    }

    /// The votes that were cast, and how many there could have been.
    pub(crate) fn votes(&self) -> (u64, u64) {
        (self.standing.cast.into(), self.of as u64)
    }

    /// Tokens generated, and about how many more all votes would have taken.
    pub(crate) fn tokens(&self) -> (u64, u64) {
        let (cast, of) = self.votes();
        let each = self.usage.completion as f64 / cast as f64;
        (
            self.usage.completion,
            (each * (of - cast) as f64).round() as u64,
        )
    }

    fn haltwise(&self, request: &VoteRequest) -> Value {
        let (votes, of) = self.votes();
        let mut said = json!({
            "votes": votes, "of": of, "agreement": self.standing.agreement(),
            "saved_tokens": self.tokens().1, "answer": self.answer, "promised": request.is_promised(),
        });
        if let Some((_, reason)) = request.difference() {
            said["reason"] = reason.into();
        }
        if let Some(id) = &self.audit {
            said["audit"] = id.as_str().into();
        }
        said
    }

    /// The reply as the client wants it.
    pub(crate) fn reply(&self, request: &VoteRequest) -> Response<Body> {
        let (kind, body) = if request.stream {
            ("text/event-stream", self.events(request))
        } else {
            ("application/json", self.whole(request).to_string())
        };
        let mut response = Response::new(Body::from(body));
        response.extensions_mut().insert(request.outcome());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }

    fn whole(&self, request: &VoteRequest) -> Value {
        let mut reply = self.completion.clone();
        let mut choice = reply["choices"][0].take();
        choice["index"] = 0.into();
        reply["choices"] = json!([choice]);
        reply["usage"] = self.usage.json();
        reply["haltwise"] = self.haltwise(request);
        reply
    }

    /// The completion as a stream: who speaks, the words one by one, why it ended.
    fn events(&self, request: &VoteRequest) -> String {
        let choice = &self.completion["choices"][0];
        let chunk = |delta: Value, finish: &Value| {
            let mut chunk = json!({
                "id": self.completion["id"], "object": "chat.completion.chunk",
                "created": self.completion["created"], "model": self.completion["model"],
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            });
            if request.include_usage {
                chunk["usage"] = Value::Null;
            }
            chunk
        };
        // What else a message holds, such as its reasons, comes with the first.
        let mut first = choice["message"].clone();
        let text = first["content"].take();
        let text = text.as_str().unwrap_or_default();
        first["role"] = "assistant".into();
        first["content"] = "".into();
        let mut chunks = vec![chunk(first, &Value::Null)];
        for word in text.split_inclusive(char::is_whitespace) {
            chunks.push(chunk(json!({"content": word}), &Value::Null));
        }
        let mut last = chunk(json!({}), &choice["finish_reason"]);
        last["haltwise"] = self.haltwise(request);
        chunks.push(last);
        if request.include_usage {
            let mut usage = chunk(json!({}), &Value::Null);
            usage["choices"] = json!([]);
            usage["usage"] = self.usage.json();
            chunks.push(usage);
        }
        let mut events = String::new();
        for chunk in chunks {
            events += &format!("data: {chunk}\n\n");
        }
        events + "data: [DONE]\n\n"
    }
}

/// Some votes at once, in the order they were asked for. Where one fails, or
/// whoever asked has gone, the others are dropped.
pub(crate) async fn wave(
    upstream: &Arc<Upstream>,
    headers: &Arc<HeaderMap>,
    request: &VoteRequest,
    first: usize,
    n: usize,
) -> Result<Vec<Bytes>, Failure> {
    if n == 1 {
        return Ok(vec![
            upstream.post(PATH, headers, &request.vote(first)).await?,
        ]);
    }
    let mut tasks = JoinSet::new();
    for place in 0..n {
        let (upstream, headers) = (Arc::clone(upstream), Arc::clone(headers));
        let body = request.vote(first + place);
        tasks.spawn(async move { (place, upstream.post(PATH, &headers, &body).await) });
    }
    let mut votes = vec![Bytes::new(); n];
    while let Some(done) = tasks.join_next().await {
        let (place, vote) = done.map_err(internal)?;
        votes[place] = vote?;
    }
    Ok(votes)
}

fn parsed(body: &Bytes) -> Result<Value, Failure> {
    let completion: Option<Value> = serde_json::from_slice(body).ok();
    completion
        .filter(|completion| completion["choices"][0]["message"].is_object())
        .ok_or_else(Failure::nonsense)
}

pub(crate) fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::new(Cause::Internal, &error.to_string())
}
