//! A completion of the model's server that comes in pieces, as events.

use axum::http::HeaderMap;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use crate::body::PartedBody;
use crate::outcome::Cause;
use crate::server::{Proxy, late};
use crate::upstream::{Failure, OpenAnswer};

/// Where prompts are continued.
pub(crate) const PATH: &str = "/v1/completions";

/// The longest event: one piece of text is far less.
const LONGEST_EVENT: usize = 1 << 20;
/// The most bytes of a completion: a hundred thousand tokens are far less.
const LONGEST: usize = 64 << 20;

/// A completion under way.
pub(crate) struct CompletionStream<'p> {
    proxy: &'p Proxy,
    answer: OpenAnswer<'p>,
    /// The bytes that are kept: lines that were read are dropped with the next piece.
    rest: Vec<u8>,
    /// The beginning of the first unread line.
    line: usize,
    /// Where to look for its end.
    unseen: usize,
    /// How many bytes have come in all.
    bytes: usize,
}

impl<'p> CompletionStream<'p> {
    /// Asks until a completion begins.
    pub(crate) async fn open(
        proxy: &'p Proxy,
        headers: &HeaderMap,
        mut request: Value,
    ) -> Result<Self, Failure> {
        request["stream"] = true.into();
        request["stream_options"] = serde_json::json!({"include_usage": true});
        let body = PartedBody::new([request.to_string().into()]);
        let opened = timeout(proxy.timeout, proxy.upstream.open(PATH, headers, &body)).await;
        Ok(Self {
            proxy,
            answer: opened.unwrap_or_else(|_| Err(late(proxy)))?,
            rest: Vec::new(),
            line: 0,
            unseen: 0,
            bytes: 0,
        })
    }

    /// The next event; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, Failure> {
        let due = Instant::now() + self.proxy.timeout;
        loop {
            while let Some(line) = self.next_line() {
                // Comments keep the stream open, and empty lines end an event.
                let Some(data) = line.strip_prefix(b"data:") else {
                    continue;
                };
                let data = data.trim_ascii();
                if data == b"[DONE]" {
                    return Ok(None);
                }
                let event: Value = serde_json::from_slice(data).map_err(|_| Failure::nonsense())?;
                return match &event["error"] {
                    Value::Null => Ok(Some(event)),
                    _ => Err(Failure::nonsense()),
                };
            }
            if self.rest.len() - self.line > LONGEST_EVENT || self.bytes > LONGEST {
                return Err(Failure::nonsense());
            }
            let next = timeout_at(due, self.answer.next()).await;
            match next.unwrap_or_else(|_| Err(late(self.proxy)))? {
                Some(bytes) => {
                    self.rest.drain(..self.line);
                    self.unseen -= self.line;
                    self.line = 0;
                    self.bytes += bytes.len();
                    self.rest.extend_from_slice(&bytes);
                }
                None => {
                    let problem = "the model's server broke off its answer";
                    return Err(Failure::new(Cause::Unreachable, problem));
                }
            }
        }
    }

    /// The next whole line. Each byte is looked at once.
    fn next_line(&mut self) -> Option<&[u8]> {
        let found = self.rest[self.unseen..].iter().position(|&b| b == b'\n');
        let Some(length) = found else {
            self.unseen = self.rest.len();
            return None;
        };
        let (begin, end) = (self.line, self.unseen + length);
        self.line = end + 1;
        self.unseen = self.line;
        Some(&self.rest[begin..end])
    }
}
