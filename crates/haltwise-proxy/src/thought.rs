//! A request whose model thinks: step by step, with a probe after each, until the rule says stop.

use std::sync::Arc;

use axum::http::HeaderMap;
use haltwise::Rule;
use haltwise::stream::Reason;
use haltwise::thoughts::{LiveThought, Thought};
use haltwise_llm::{Probing, Tokens};
use haltwise_serve::ReportedStream;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::body::PartedBody;
use crate::completion_stream::{self, CompletionStream};
use crate::reported_request::{NO_ANSWER, broken};
use crate::server::{Proxy, late};
use crate::thought_reply::ThoughtReply;
use crate::upstream::Failure;
use crate::vote_request::VoteRequest;
use crate::voted_reply::internal;

/// An answer may take what the thought has left of the client's limit. If the client gave none, it
/// has at least this many tokens: a thought that was closed at the rule's limit also has an answer.
const LEAST_ANSWER: u64 = 1024;

/// Who asks what.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) proxy: &'a Proxy,
    pub(crate) probing: &'a Probing,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) request: &'a VoteRequest,
}

/// A thought so far.
#[derive(Debug, Clone)]
pub(crate) struct OpenThought {
    /// The prompt and the thought.
    text: String,
    steps: u32,
    tokens: u64,
    pub(crate) probe_tokens: u64,
    is_over: bool,
}

/// An audited thought that goes on although the rule has ended it.
#[derive(Debug)]
pub(crate) struct AuditedThought {
    stream: ReportedStream,
    thought: Thought,
    open: OpenThought,
}

/// Thinks until the rule says stop. What comes goes into the reply at once. Returns the thought, to
/// be answered, and the same once more if it is audited and goes on to its end. That must not wait
/// for the answer: clients leave wrong answers more often than right ones.
pub(crate) async fn think(
    asked: Asked<'_>,
    rule: Arc<Rule>,
    reply: &mut ThoughtReply,
) -> Result<(OpenThought, Option<AuditedThought>), Failure> {
    let Asked { proxy, request, .. } = asked;
    // Another rule may have come since. The request ends with the one that it begins with.
    let begun = request
        .is_promised()
        .then(|| ReportedStream::begin(&proxy.served));
    let mut stream = begun.transpose().map_err(broken)?;
    let (rule, reads_on) = match &stream {
        Some(stream) => (Arc::clone(stream.rule()), stream.reads_on()),
        None => (rule, proxy.served.reading_on()),
    };
    let mut live = match reads_on {
        true => LiveThought::to_the_end(&rule),
        false => LiveThought::new(&rule),
    };
    let mut open = OpenThought::begin(asked).await?;
    let reason = loop {
        let tokens = open.go_on(asked, Some(reply)).await?;
        let is_audited = stream.as_ref().is_some_and(ReportedStream::is_audited);
        if !live.can_halt() && !open.is_over && !is_audited {
            continue;
        }
        let (answer, probe_tokens) = open.probe(asked).await?;
        let halted = match open.is_over {
            true => Some(live.end(&answer).map_err(internal)?),
            false => live.probe(&answer).map_err(internal)?,
        };
        if let Some(stream) = &mut stream {
            step(stream, live.thought(), tokens.saturating_add(probe_tokens));
        }
        if let Some(reason) = halted {
            break reason;
        }
    };
    if let Some(stream) = &mut stream {
        stream.halt(open.steps, reason).await.map_err(broken)?;
    }
    reply.halted(reason, live.answer(), &open);
    if let Some(stream) = stream.as_ref().filter(|stream| stream.is_audited()) {
        reply.audit = Some(stream.id().to_owned());
    }
    let goes_on = |stream: &ReportedStream| stream.is_audited() && reason == Reason::Threshold;
    let audited = stream.filter(goes_on).map(|stream| AuditedThought {
        stream,
        thought: live.thought().clone(),
        open: open.clone(),
    });
    Ok((open, audited))
}

/// Tells an audit of a step.
fn step(stream: &mut ReportedStream, thought: &Thought, tokens: u64) {
    let answer = thought.answer().unwrap_or(NO_ANSWER);
    stream.step(answer, thought.standing().score, tokens as f32);
}

impl AuditedThought {
    /// Thinks to the end. Returns how many tokens that took.
    pub(crate) async fn finish(mut self, asked: Asked<'_>) -> Result<u64, Failure> {
        let mut sum = 0;
        while !self.open.is_over {
            let tokens = self.open.go_on(asked, None).await?;
            let (answer, probe_tokens) = self.open.probe(asked).await?;
            self.thought.probe(&answer).map_err(internal)?;
            let spent = tokens.saturating_add(probe_tokens);
            step(&mut self.stream, &self.thought, spent);
            sum = tokens.saturating_add(probe_tokens).saturating_add(sum);
        }
        self.stream.end().map_err(broken)?;
        Ok(sum)
    }
}

impl OpenThought {
    /// A thought that is opened behind the chat.
    async fn begin(asked: Asked<'_>) -> Result<Self, Failure> {
        let prompt = chat_prompt(asked).await?;
        Ok(Self {
            text: asked.probing.opened(&prompt),
            steps: 0,
            tokens: 0,
            probe_tokens: 0,
            is_over: false,
        })
    }

    pub(crate) fn steps(&self) -> u32 {
        self.steps
    }

    /// Thinks the next step. Returns how many tokens it took.
    async fn go_on(
        &mut self,
        asked: Asked<'_>,
        mut reply: Option<&mut ThoughtReply>,
    ) -> Result<u64, Failure> {
        let limit = asked.request.max_tokens;
        let most = limit
            .saturating_sub(self.tokens)
            .min(asked.probing.every.get().into());
        let fields = asked.request.others.clone();
        let request = |text: &str, most| {
            let request = asked.probing.continuation(text, fields.clone());
            asked.sampled(request, most, u64::from(self.steps))
        };
        let mut text = String::new();
        let completed = complete(
            asked,
            most,
            |so_far, left| request(&(self.text.clone() + so_far), left),
            |piece, event| {
                text += piece;
                if let Some(reply) = reply.as_deref_mut() {
                    reply.thought(piece, event);
                }
            },
        )
        .await?;
        if completed.is_cut {
            // The limit may cut a letter in two, as in the traces.
            text.truncate(text.trim_end_matches('\u{fffd}').len());
        }
        self.text += &text;
        self.steps += 1;
        self.tokens += if completed.is_cut {
            most
        } else {
            completed.tokens.min(most)
        };
        self.is_over = !completed.is_cut || text.is_empty() || self.tokens >= limit;
        if let Some(reply) = reply {
            reply.count_thought(&completed);
        }
        Ok(completed.tokens)
    }

    /// Asks for the answer so far. Returns it with the tokens that it took.
    async fn probe(&mut self, asked: Asked<'_>) -> Result<(String, u64), Failure> {
        let Asked { proxy, probing, .. } = asked;
        let (mut request, sampling) = probing.probe(&self.text, &proxy.voting.extract);
        request["model"] = asked.request.model.as_str().into();
        request["temperature"] = sampling.temperature.into();
        request["max_tokens"] = sampling.max_tokens.into();
        let said = post(asked, completion_stream::PATH, &request).await?;
        let choice = &said["choices"][0];
        let text = choice["text"].as_str().ok_or_else(Failure::nonsense)?;
        let is_cut = choice["finish_reason"] == "length";
        let tokens = said["usage"]["completion_tokens"].as_u64().unwrap_or(0);
        self.probe_tokens = self.probe_tokens.saturating_add(tokens);
        Ok((proxy.voting.probed_answer(probing, text, is_cut), tokens))
    }

    /// Answers behind the thought as it is.
    pub(crate) async fn answer(
        &self,
        asked: Asked<'_>,
        reply: &mut ThoughtReply,
    ) -> Result<(), Failure> {
        let closed = asked.probing.closed(&self.text);
        let left = asked.request.max_tokens.saturating_sub(self.tokens);
        let most = match asked.request.has_limit {
            true => left,
            false => left.max(LEAST_ANSWER),
        };
        if most == 0 {
            reply.end(&Completed {
                is_cut: true,
                ..Completed::default()
            });
            return Ok(());
        }
        let request = |so_far: &str, left| {
            let mut request = Value::Object(asked.request.others.clone());
            request["prompt"] = (closed.clone() + so_far).into();
            asked.sampled(request, left, u64::from(self.steps))
        };
        let completed = complete(asked, most, request, |piece, event| {
            reply.answer(piece, event)
        })
        .await?;
        reply.end(&completed);
        Ok(())
    }
}

impl Asked<'_> {
    /// A request with the model and the sampling of the rule.
    fn sampled(self, mut request: Value, most: u64, step: u64) -> Value {
        let voting = &self.proxy.voting;
        request["model"] = self.request.model.as_str().into();
        request["temperature"] = voting.temperature.into();
        if let Some(top_p) = voting.top_p {
            request["top_p"] = top_p.into();
        }
        request["max_tokens"] = most.into();
        if let Some(seed) = self.request.seed_of(step) {
            request["seed"] = seed.into();
        }
        request
    }
}

/// What a completion came to.
#[derive(Debug, Default)]
pub(crate) struct Completed {
    pub(crate) tokens: u64,
    pub(crate) prompt: Tokens,
    /// Whether it reached its limit.
    pub(crate) is_cut: bool,
}

/// A completion, piece by piece. One that breaks off goes on from what has come of it. `request`
/// is told that, and how many tokens are left. A server that sends more is not heard further.
async fn complete(
    asked: Asked<'_>,
    most: u64,
    request: impl Fn(&str, u64) -> Value,
    mut take: impl FnMut(&str, &Value),
) -> Result<Completed, Failure> {
    let mut patience = asked.proxy.upstream.patience();
    let (mut so_far, mut earlier) = (String::new(), 0);
    loop {
        let request = request(&so_far, most - earlier);
        let mut stream = CompletionStream::open(asked.proxy, asked.headers, request).await?;
        // A server that does not count its tokens sends each by itself.
        let (mut pieces, mut usage, mut finish) = (0, Value::Null, Value::Null);
        let failure = loop {
            let event = match stream.next().await {
                Ok(Some(event)) => event,
                Ok(None) => break None,
                Err(failure) => break Some(failure),
            };
            let choice = &event["choices"][0];
            if let Some(text) = choice["text"].as_str().filter(|text| !text.is_empty()) {
                if pieces == most - earlier {
                    finish = "length".into();
                    break None;
                }
                pieces += 1;
                so_far += text;
                take(text, &event);
            }
            for (seen, kept) in [
                (&choice["finish_reason"], &mut finish),
                (&event["usage"], &mut usage),
            ] {
                if !seen.is_null() {
                    *kept = seen.clone();
                }
            }
        };
        if !finish.is_null() {
            let counted = usage["completion_tokens"].as_u64().unwrap_or(pieces);
            return Ok(Completed {
                tokens: counted.saturating_add(earlier),
                prompt: Tokens::of_prompt(&usage),
                is_cut: finish == "length",
            });
        }
        drop(stream);
        earlier += pieces;
        if earlier >= most {
            return Ok(Completed {
                tokens: earlier,
                is_cut: true,
                ..Completed::default()
            });
        }
        patience
            .bear(failure.unwrap_or_else(Failure::nonsense))
            .await?;
    }
}

/// The prompt that the server makes of the chat.
async fn chat_prompt(asked: Asked<'_>) -> Result<String, Failure> {
    let voting = &asked.proxy.voting;
    if voting.is_llama_cpp {
        let made = post_body(asked, "/apply-template", &asked.request.vote(0)).await?;
        return text_of(&made, &["prompt"]);
    }
    let tokens = |answer: &Value| {
        answer["tokens"]
            .as_array()
            .cloned()
            .ok_or_else(Failure::nonsense)
    };
    let all = tokens(&post_body(asked, "/tokenize", &asked.request.vote(0)).await?)?;
    let model = asked.request.model.as_str();
    // The server puts the tokens that begin every text before the prompt once more.
    let begins = match asked.proxy.text_begins.get() {
        Some(begins) => begins,
        None => {
            let empty = post(asked, "/tokenize", &json!({"model": model, "prompt": ""})).await?;
            asked
                .proxy
                .text_begins
                .get_or_init(|| tokens(&empty).unwrap_or_default())
        }
    };
    let rest = all.strip_prefix(begins.as_slice()).unwrap_or(&all);
    let request = json!({"model": model, "tokens": rest, "skip_special_tokens": false});
    text_of(
        &post(asked, "/detokenize", &request).await?,
        &["prompt", "text"],
    )
}

fn text_of(answer: &Value, names: &[&str]) -> Result<String, Failure> {
    let text = names.iter().find_map(|name| answer[*name].as_str());
    text.map(str::to_owned).ok_or_else(Failure::nonsense)
}

async fn post(asked: Asked<'_>, path: &str, request: &Value) -> Result<Value, Failure> {
    post_body(asked, path, &PartedBody::new([request.to_string().into()])).await
}

async fn post_body(asked: Asked<'_>, path: &str, body: &PartedBody) -> Result<Value, Failure> {
    let Asked { proxy, headers, .. } = asked;
    let posted = timeout(proxy.timeout, proxy.upstream.post(path, headers, body)).await;
    let answer = posted.unwrap_or_else(|_| Err(late(proxy)))?;
    serde_json::from_slice(&answer).map_err(|_| Failure::nonsense())
}
