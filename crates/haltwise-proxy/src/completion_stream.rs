//! A completion of the model's server that comes in pieces, as events.

use axum::http::HeaderMap;
use serde_json::Value;
use tokio::time::timeout;

use crate::body::PartedBody;
use crate::outcome::Cause;
use crate::server::{Proxy, late};
use crate::upstream::{Failure, OpenAnswer};

/// Where prompts are continued.
pub(crate) const PATH: &str = "/v1/completions";

/// The longest event: one piece of text is far less.
const LONGEST_EVENT: usize = 1 << 20;

/// A completion under way.
pub(crate) struct CompletionStream<'p> {
    proxy: &'p Proxy,
    answer: OpenAnswer<'p>,
    /// What has come and is no whole line yet.
    rest: Vec<u8>,
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
        })
    }

    /// The next event; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            while let Some(end) = self.rest.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                // Comments keep the stream open, and empty lines end an event.
                let Some(data) = line.strip_prefix(b"data:") else {
                    continue;
                };
                let data = data.trim_ascii();
                if data == b"[DONE]" {
                    return Ok(None);
                }
                let event: Value = serde_json::from_slice(data).map_err(|_| Failure::nonsense())?;
                return match event.get("error") {
                    None => Ok(Some(event)),
                    Some(_) => Err(Failure::nonsense()),
                };
            }
            if self.rest.len() > LONGEST_EVENT {
                return Err(Failure::nonsense());
            }
            let next = timeout(self.proxy.timeout, self.answer.next()).await;
            match next.unwrap_or_else(|_| Err(late(self.proxy)))? {
                Some(bytes) => self.rest.extend_from_slice(&bytes),
                None => {
                    let problem = "the model's server broke off its answer";
                    return Err(Failure::new(Cause::Unreachable, problem));
                }
            }
        }
    }
}
