//! Bodies of requests in memory: each has a time to come in, and all together a bound.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderValue;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::outcome::Cause;
use crate::settings::Options;
use crate::upstream::Failure;

/// The longest body that is voted on.
const MOST_BYTES: usize = 16 << 20;

/// The memory for all bodies.
#[derive(Debug, Clone)]
pub(crate) struct BodyRoom {
    bytes: usize,
    free: Arc<Semaphore>,
    timeout: Duration,
}

/// A share of the memory for all bodies. It is free again when this is dropped.
pub(crate) type Share = OwnedSemaphorePermit;

/// A body in memory, and its share of that.
#[derive(Debug)]
pub(crate) struct HeldBody {
    pub(crate) bytes: Bytes,
    pub(crate) share: Option<Share>,
}

/// A body of parts, which others have as well: it takes no memory of its own.
#[derive(Debug, Clone)]
pub(crate) struct PartedBody(VecDeque<Bytes>);

impl PartedBody {
    pub(crate) fn new(parts: impl IntoIterator<Item = Bytes>) -> Self {
        Self(parts.into_iter().collect())
    }
}

impl HttpBody for PartedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|part| part.len() as u64).sum())
    }
}

impl BodyRoom {
    pub(crate) fn new(options: &Options) -> Self {
        let bytes = options.body_bytes.min(Semaphore::MAX_PERMITS);
        Self {
            bytes,
            free: Arc::new(Semaphore::new(bytes)),
            timeout: options.body_timeout,
        }
    }

    /// What a body may take to arrive.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How many bytes are in memory.
    pub(crate) fn held(&self) -> usize {
        self.bytes.saturating_sub(self.free.available_permits())
    }

    /// Reads a whole body.
    pub(crate) async fn read(&self, body: Body) -> Result<HeldBody, Failure> {
        let read = timeout(self.timeout, self.collect(body)).await;
        read.unwrap_or_else(|_| {
            let seconds = self.timeout.as_secs_f64();
            Err(Failure::new(
                Cause::LateBody,
                &format!("the request's body did not arrive within {seconds} s; send it again"),
            ))
        })
    }

    async fn collect(&self, mut body: Body) -> Result<HeldBody, Failure> {
        let mut bytes = Vec::new();
        let mut share: Option<Share> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let problem = format!("the request's body broke off: {error}");
                Failure::new(Cause::BrokenBody, &problem)
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > MOST_BYTES {
                return Err(Failure::new(
                    Cause::LongBody,
                    "the request's body is longer than 16 MiB; send a shorter one",
                ));
            }
            // Room is taken for what has come, not for what a header claims.
            let more = Arc::clone(&self.free)
                .try_acquire_many_owned(data.len() as u32)
                .map_err(|_| full())?;
            match &mut share {
                Some(share) => share.merge(more),
                None => share = Some(more),
            }
            bytes.extend_from_slice(&data);
        }
        Ok(HeldBody {
            bytes: bytes.into(),
            share,
        })
    }
}

fn full() -> Failure {
    let problem = "the proxy holds as many bytes of requests as it may; send it again later";
    let mut failure = Failure::new(Cause::Room, problem);
    failure.retry_after = Some(HeaderValue::from_static("1"));
    failure
}
