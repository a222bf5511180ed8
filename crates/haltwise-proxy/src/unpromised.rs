//! Requests that are not voted on because nothing is promised about them, or the client wants it so.

use axum::body::{self, Body, HttpBody};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde_json::json;

use crate::outcome::Cause;
use crate::upstream::Failure;

/// The header by which a client asks for no votes.
const OPT_OUT: HeaderName = HeaderName::from_static("x-haltwise");

/// The header that says why nothing is promised.
const REASON: HeaderName = HeaderName::from_static("x-haltwise-unpromised");

/// The longest reply that is held to add to it.
const LONGEST: usize = 4 << 20;

/// Whether a client wants its request passed on as it is.
pub(crate) fn opts_out(headers: &HeaderMap) -> bool {
    let said = headers.get(OPT_OUT).map(HeaderValue::as_bytes);
    said.is_some_and(|said| said.eq_ignore_ascii_case(b"off"))
}

/// A reply of the model's server that also says why nothing is promised: in a header, and in a
/// whole completion as the proxy's own replies say it.
pub(crate) async fn without_promise(mut reply: Response<Body>, reason: &str) -> Response<Body> {
    let is_shown = |c: char| c == ' ' || c.is_ascii_graphic();
    let shown = reason.replace(|c| !is_shown(c), "?");
    if let Ok(value) = HeaderValue::from_str(&shown) {
        reply.headers_mut().insert(REASON, value);
    }
    if !is_short_json(&reply) {
        return reply;
    }
    let (head, whole) = reply.into_parts();
    let whole = match body::to_bytes(whole, LONGEST).await {
        Ok(whole) => whole,
        Err(error) => {
            let problem = format!("the model's server broke off its answer: {error}");
            return Failure::new(Cause::Unreachable, &problem).into_response();
        }
    };
    let mut text = whole.to_vec();
    let end = text.trim_ascii_end().len();
    // A completion has fields, so that another can follow.
    if text[..end].ends_with(b"}") {
        let said = json!({"votes": 1, "promised": false, "reason": reason});
        text.truncate(end - 1);
        text.extend(format!(",\"haltwise\":{said}}}").into_bytes());
    }
    Response::from_parts(head, text.into())
}

/// Whether a reply is a whole completion of a known and small length.
fn is_short_json(reply: &Response<Body>) -> bool {
    let headers = reply.headers();
    let is_json = headers.get(CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.as_bytes().to_ascii_lowercase();
        kind.starts_with(b"application/json")
    });
    let length = reply.body().size_hint().exact();
    reply.status() == StatusCode::OK
        && is_json
        && !headers.contains_key(CONTENT_ENCODING)
        && length.is_some_and(|length| (3..=LONGEST as u64).contains(&length))
}
