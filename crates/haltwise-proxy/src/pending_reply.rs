//! A stream of events that stays open while votes come in.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Response};
use http_body::Frame;
use tokio::time::{Instant, Interval, interval_at};

use crate::upstream::Failure;

type Reply = Pin<Box<dyn Future<Output = Result<Response<Body>, Failure>> + Send>>;

/// A stream: comments until there is a reply, then its events.
pub(crate) struct PendingReply {
    begun: bool,
    tick: Interval,
    state: State,
}

enum State {
    Voting(Reply),
    Replying(Body),
    Over,
}

impl PendingReply {
    /// A stream that is never silent for longer than this, until there is a reply.
    pub(crate) fn new(reply: Reply, silence: Duration) -> Self {
        Self {
            begun: false,
            tick: interval_at(Instant::now() + silence, silence),
            state: State::Voting(reply),
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

/// A failure after the status has been sent, as an event.
pub(crate) fn event(failure: &Failure) -> Bytes {
    let text = String::from_utf8_lossy(&failure.body()).replace(['\r', '\n'], " ");
    format!("data: {text}\n\n").into()
}

fn comment() -> Frame<Bytes> {
    Frame::data(Bytes::from_static(b": votes are being cast\n\n"))
}

impl HttpBody for PendingReply {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.begun {
            self.begun = true;
            return Poll::Ready(Some(Ok(comment())));
        }
        if let State::Voting(reply) = &mut self.state {
            match reply.as_mut().poll(context) {
                Poll::Ready(Ok(reply)) => self.state = State::Replying(reply.into_body()),
                Poll::Ready(Err(failure)) => {
                    self.state = State::Over;
                    return Poll::Ready(Some(Ok(Frame::data(event(&failure)))));
                }
                Poll::Pending => {
                    return self.tick.poll_tick(context).map(|_| Some(Ok(comment())));
                }
            }
        }
        match &mut self.state {
            State::Replying(body) => Pin::new(body).poll_frame(context),
            _ => Poll::Ready(None),
        }
    }
}
