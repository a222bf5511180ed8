//! The reply to a request whose model thinks: as events while it comes, or whole at the end.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Response};
use haltwise::stream::Reason;
use http_body::Frame;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, Interval, interval_at};

use crate::pending_reply::event;
use crate::settings::Voting;
use crate::thought::{Completed, OpenThought};
use crate::upstream::Failure;
use crate::vote_request::VoteRequest;
use crate::voted_reply::Usage;

/// A reply that is under way.
pub(crate) struct ThoughtReply {
    /// Where events go, if the client wants a stream.
    events: Option<UnboundedSender<Bytes>>,
    include_usage: bool,
    has_begun: bool,
    /// What all events say: who made the completion, and when.
    head: Map<String, Value>,
    thought: String,
    content: String,
    finish: &'static str,
    usage: Usage,
    thought_tokens: u64,
    probe_tokens: u64,
    answer_tokens: u64,
    /// Why the thought ended, after which step, and with which answer.
    halted: Option<(Reason, u32, Option<String>)>,
    /// The id of the audit, if it is audited.
    pub(crate) audit: Option<String>,
}

impl ThoughtReply {
    pub(crate) fn new(request: &VoteRequest, events: Option<UnboundedSender<Bytes>>) -> Self {
        Self {
            events,
            include_usage: request.include_usage,
            has_begun: false,
            head: Map::new(),
            thought: String::new(),
            content: String::new(),
            finish: "stop",
            usage: Usage::default(),
            thought_tokens: 0,
            probe_tokens: 0,
            answer_tokens: 0,
            halted: None,
            audit: None,
        }
    }

    /// A piece of the thought comes.
    pub(crate) fn thought(&mut self, piece: &str, event: &Value) {
        self.thought += piece;
        self.send("reasoning_content", piece, event);
    }

    /// A piece of the answer comes.
    pub(crate) fn answer(&mut self, piece: &str, event: &Value) {
        self.content += piece;
        self.send("content", piece, event);
    }

    /// A step of the thought is over.
    pub(crate) fn count_thought(&mut self, completed: &Completed) {
        if self.thought_tokens == 0 {
            self.usage.prompt = completed.prompt;
        }
        self.thought_tokens = self.thought_tokens.saturating_add(completed.tokens);
    }

    /// The thought is over.
    pub(crate) fn halted(&mut self, reason: Reason, answer: Option<&str>, thought: &OpenThought) {
        self.probe_tokens = thought.probe_tokens;
        self.halted = Some((reason, thought.steps(), answer.map(str::to_owned)));
    }

    /// The answer is over.
    pub(crate) fn end(&mut self, completed: &Completed) {
        self.answer_tokens = completed.tokens;
        self.finish = if completed.is_cut { "length" } else { "stop" };
        self.usage.reasoning = Some(self.thought_tokens);
        let parts = [self.thought_tokens, self.probe_tokens, self.answer_tokens];
        self.usage.completion = parts.into_iter().fold(0, u64::saturating_add);
    }

    /// Tokens of the thought, of probes, and of all.
    pub(crate) fn tokens(&self) -> (u64, u64, u64) {
        (
            self.thought_tokens,
            self.probe_tokens,
            self.usage.completion,
        )
    }

    fn haltwise(&self, request: &VoteRequest, voting: &Voting) -> Value {
        let mut said = json!({
            "thought_tokens": self.thought_tokens, "probe_tokens": self.probe_tokens,
            "promised": request.is_promised(),
        });
        if let Some((reason, steps, answer)) = &self.halted {
            let written = voting.answer(&self.content, self.finish == "length");
            said["reason"] = json!(reason);
            said["steps"] = (*steps).into();
            said["answer"] = json!(answer);
            said["agrees"] = (written == answer.as_deref().unwrap_or_default()).into();
        }
        if let Some((_, unpromised)) = request.difference() {
            said["unpromised"] = unpromised.into();
        }
        if let Some(id) = &self.audit {
            said["audit"] = id.as_str().into();
        }
        said
    }

    /// The last events of a stream.
    pub(crate) fn send_end(&self, request: &VoteRequest, voting: &Voting) {
        let mut last = self.chunk(json!({}), &self.finish.into());
        last["haltwise"] = self.haltwise(request, voting);
        self.send_event(&last);
        if self.include_usage {
            let mut usage = self.chunk(json!({}), &Value::Null);
            usage["choices"] = json!([]);
            usage["usage"] = self.usage.json();
            self.send_event(&usage);
        }
        self.send_bytes("data: [DONE]\n\n".into());
    }

    /// The whole reply.
    pub(crate) fn whole(&self, request: &VoteRequest, voting: &Voting) -> Response<Body> {
        let message = json!({
            "role": "assistant", "content": self.content, "reasoning_content": self.thought,
        });
        let mut reply = Value::Object(self.head.clone());
        reply["object"] = "chat.completion".into();
        reply["choices"] = json!([{"index": 0, "message": message, "finish_reason": self.finish}]);
        reply["usage"] = self.usage.json();
        reply["haltwise"] = self.haltwise(request, voting);
        let mut response = Response::new(Body::from(reply.to_string()));
        response.extensions_mut().insert(request.outcome());
        let kind = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    fn send(&mut self, part: &str, piece: &str, event: &Value) {
        if self.head.is_empty() {
            let names = ["id", "created", "model"];
            self.head = names
                .map(|name| (name.to_owned(), event[name].clone()))
                .into_iter()
                .collect();
        }
        if self.events.is_none() {
            return;
        }
        if !self.has_begun {
            self.has_begun = true;
            let first = self.chunk(json!({"role": "assistant", "content": ""}), &Value::Null);
            self.send_event(&first);
        }
        let mut delta = json!({});
        delta[part] = piece.into();
        self.send_event(&self.chunk(delta, &Value::Null));
    }

    fn chunk(&self, delta: Value, finish: &Value) -> Value {
        let mut chunk = Value::Object(self.head.clone());
        chunk["object"] = "chat.completion.chunk".into();
        chunk["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn send_event(&self, event: &Value) {
        self.send_bytes(format!("data: {event}\n\n").into());
    }

    fn send_bytes(&self, bytes: Bytes) {
        if let Some(events) = &self.events {
            // Nobody listens only where the reply is dropped as well.
            let _gone = events.send(bytes);
        }
    }
}

type Thinking = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A stream of events while the model thinks. The model thinks as the stream is read, and stops
/// when the client has gone.
pub(crate) struct ThoughtStream {
    first: Option<Bytes>,
    thinking: Option<Thinking>,
    events: UnboundedReceiver<Bytes>,
    /// Why the thinking ended. Clients are told after the pieces that came before.
    failed: Option<Failure>,
    tick: Interval,
}

impl ThoughtStream {
    /// A stream that is never silent for longer than this.
    pub(crate) fn new(
        first: Option<Bytes>,
        thinking: Option<Thinking>,
        events: UnboundedReceiver<Bytes>,
        silence: Duration,
    ) -> Self {
        Self {
            first,
            thinking,
            events,
            failed: None,
            tick: interval_at(Instant::now() + silence, silence),
        }
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::new(self));
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("text/event-stream");
        headers.insert(CONTENT_TYPE, kind);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }
}

impl HttpBody for ThoughtStream {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = |bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        if let Some(first) = self.first.take() {
            return frame(first);
        }
        if let Some(thinking) = &mut self.thinking
            && let Poll::Ready(done) = thinking.as_mut().poll(context)
        {
            self.thinking = None;
            self.failed = done.err();
        }
        match self.events.poll_recv(context) {
            Poll::Ready(Some(bytes)) => {
                self.tick.reset();
                frame(bytes)
            }
            Poll::Ready(None) => match self.failed.take() {
                Some(failure) => frame(event(&failure)),
                None => Poll::Ready(None),
            },
            Poll::Pending => {
                let silent = self.tick.poll_tick(context);
                silent.map(|_| Some(Ok(Frame::data(Bytes::from_static(b": thinking\n\n")))))
            }
        }
    }
}
