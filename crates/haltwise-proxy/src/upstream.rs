//! The server behind the proxy: requests that are tried again, and ones that are
//! passed through.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::settings::{Options, ProxyError};

/// A completion may be this long.
const MOST_BYTES: usize = 16 << 20;

/// The longest wait before trying again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Upstream {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    base: String,
    retries: u32,
    first_wait: Duration,
    room: Semaphore,
}

/// An answer that is not the one hoped for, as it is passed back.
#[derive(Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<HeaderValue>,
    pub(crate) content_type: Option<HeaderValue>,
    pub(crate) body: Bytes,
}

impl Failure {
    /// One of our own, in the words that clients of OpenAI know.
    pub(crate) fn new(status: StatusCode, message: &str) -> Self {
        let kind = match status.is_client_error() {
            true => "invalid_request_error",
            false => "upstream_error",
        };
        let error = json!({"error": {"message": message, "type": kind, "code": null}});
        Self {
            status,
            retry_after: None,
            content_type: Some(HeaderValue::from_static("application/json")),
            body: error.to_string().into(),
        }
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        let headers = [
            (RETRY_AFTER, self.retry_after),
            (CONTENT_TYPE, self.content_type),
        ];
        for (name, value) in headers {
            if let Some(value) = value {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }

    /// Whether it may go better next time.
    fn passes(&self) -> bool {
        let passing = [408, 409, 425, 429, 500, 502, 503, 504, 529];
        passing.contains(&self.status.as_u16())
    }

    /// How long the server wants to be left alone, where it says so in seconds.
    fn wait(&self) -> Option<Duration> {
        let seconds: f64 = self
            .retry_after
            .as_ref()?
            .to_str()
            .ok()?
            .trim()
            .parse()
            .ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

impl Upstream {
    pub(crate) fn new(options: &Options) -> Result<Self, ProxyError> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(options.timeout.min(Duration::from_secs(30))));
        let connector = HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            base: base(&options.server)?,
            retries: options.retries,
            first_wait: options.first_wait,
            room: Semaphore::new(options.concurrency.clamp(1, Semaphore::MAX_PERMITS)),
        })
    }

    /// Posts until there is a good answer, a lasting failure, or too many of those
    /// that pass.
    pub(crate) async fn post(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Bytes, Failure> {
        let mut wait = self.first_wait;
        for _ in 0..self.retries {
            let failure = match self.post_once(path, headers, body).await {
                Err(failure) if failure.passes() => failure,
                done => return done,
            };
            sleep(failure.wait().unwrap_or(wait).min(LONGEST_WAIT)).await;
            wait = (2 * wait).min(LONGEST_WAIT);
        }
        self.post_once(path, headers, body).await
    }

    async fn post_once(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Bytes, Failure> {
        // Held until the answer is here: the server is asked this many at once.
        let _room = self.room.acquire().await;
        let response = self
            .send(Method::POST, path, headers, body.clone().into())
            .await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MOST_BYTES).collect().await;
        let body = body.map_err(|e| unreachable(&*e))?.to_bytes();
        if head.status.is_success() {
            return Ok(body);
        }
        Err(Failure {
            status: head.status,
            retry_after: head.headers.get(RETRY_AFTER).cloned(),
            content_type: head.headers.get(CONTENT_TYPE).cloned(),
            body,
        })
    }

    /// Passes a request through as it is, and its answer as it comes.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response<Body>, Failure> {
        let uri: Uri = format!("{}{path}", self.base)
            .parse()
            .map_err(|_| Failure::new(StatusCode::BAD_REQUEST, "the path cannot be used"))?;
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = passed_on(headers);
        let response = self
            .client
            .request(request)
            .await
            .map_err(|e| unreachable(&e))?;
        let (mut head, body) = response.into_parts();
        head.headers = passed_on(&head.headers);
        Ok(Response::from_parts(head, Body::new(body)))
    }
}

/// The headers that are about the message, not about this connection.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    const OWN: [HeaderName; 4] = [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING];
    let also = [
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
        "accept-encoding",
    ];
    let mut passed = headers.clone();
    OWN.iter().for_each(|name| drop(passed.remove(name)));
    also.iter().for_each(|name| drop(passed.remove(*name)));
    passed
}

/// What is said where the server is not there. Its address stays out of it: that
/// is none of a client's business.
fn unreachable(error: &dyn std::error::Error) -> Failure {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Failure::new(
        StatusCode::BAD_GATEWAY,
        &format!("haltwise cannot reach the model's server: {cause}"),
    )
}

/// An address without the `/v1` that every request adds.
fn base(url: &str) -> Result<String, ProxyError> {
    let base = url.trim_end_matches('/');
    let base = base.strip_suffix("/v1").unwrap_or(base);
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|s| base.strip_prefix(s));
    match rest {
        Some(rest) if !rest.is_empty() && !rest.contains(['@', '?', '#']) => Ok(base.to_owned()),
        Some(rest) if rest.contains(['@', '?', '#']) => Err(ProxyError::Address("given".into())),
        _ => Err(ProxyError::Address(url.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_and_keys_in_them_are_not_repeated() {
        for url in [
            "http://h:1",
            "http://h:1/",
            "http://h:1/v1",
            "http://h:1/v1/",
        ] {
            assert_eq!(base(url).unwrap(), "http://h:1");
        }
        for wrong in ["h:1", "http://", "http://u:secret@h", "http://h?key=secret"] {
            let error = base(wrong).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn retry_after_is_heeded_where_it_is_a_number_of_seconds() {
        let failure = |after: &'static str| Failure {
            retry_after: Some(HeaderValue::from_static(after)),
            ..Failure::new(StatusCode::TOO_MANY_REQUESTS, "")
        };
        assert_eq!(failure("2").wait(), Some(Duration::from_secs(2)));
        assert_eq!(failure("0.5").wait(), Some(Duration::from_millis(500)));
        for odd in ["-1", "Wed, 21 Oct 2026 07:28:00 GMT", "NaN", "1e300"] {
            assert_eq!(failure(odd).wait(), None, "{odd}");
        }
        assert!(failure("2").passes());
        assert!(!Failure::new(StatusCode::BAD_REQUEST, "").passes());
    }

    #[test]
    fn what_is_about_the_connection_is_not_passed_on() {
        let mut headers = HeaderMap::new();
        for name in [
            "host",
            "content-length",
            "connection",
            "authorization",
            "x-mine",
        ] {
            headers.insert(name, HeaderValue::from_static("v"));
        }
        let passed = passed_on(&headers);
        let mut names: Vec<&str> = passed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "x-mine"]);
    }
}
