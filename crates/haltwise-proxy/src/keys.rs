//! Keys: those that clients show to the proxy, and the one that it shows to the server.

use std::fmt;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Response};
use axum::middleware::Next;

use crate::outcome::Cause;
use crate::server::Proxy;
use crate::upstream::Failure;

/// A key, which messages never show.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// A key of this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether a client showed this key. The time that takes does not tell where they differ.
    fn is(&self, shown: &str) -> bool {
        let bytes = self.0.bytes().zip(shown.bytes());
        let differing = bytes.fold(0, |sum, (a, b)| sum | (a ^ b));
        self.0.len() == shown.len() && differing == 0
    }

    /// The key as a header; `None` where it has characters that no header may have.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Lets in who shows one of the keys, or anyone where there are none.
pub(crate) async fn authorised(
    State(proxy): State<Arc<Proxy>>,
    request: Request,
    next: Next,
) -> Response<Body> {
    if proxy.keys.is_empty() || shows_one(&proxy.keys, request.headers()) {
        return next.run(request).await;
    }
    let refused = Failure::new(
        Cause::Key,
        "the request has no key of this proxy; send one as a header: Authorization: Bearer KEY",
    );
    let mut response = refused.into_response();
    let scheme = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    response
}

fn shows_one(keys: &[Key], headers: &HeaderMap) -> bool {
    let shown = headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
    let Some((scheme, shown)) = shown.and_then(|shown| shown.split_once(' ')) else {
        return false;
    };
    // All keys are compared, so that the time does not tell which one it was.
    let same = keys.iter().fold(false, |found, key| found | key.is(shown));
    scheme.eq_ignore_ascii_case("bearer") && same
}
