//! The server behind the proxy: requests that are tried again, and ones that are
//! passed through.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, RETRY_AFTER, TRANSFER_ENCODING,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use haltwise_llm::{LONGEST_WAIT, may_pass};
use haltwise_serve::FailureReason;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Sleep, sleep};

use crate::body::PartedBody;
use crate::metrics::{Entered, Metrics};
use crate::outcome::{Cause, Outcome, UpstreamError};
use crate::settings::{Options, ProxyError};

/// A completion may be this long.
const MOST_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct Upstream {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    base: String,
    retries: u32,
    first_wait: Duration,
    room: Semaphore,
    /// The same for requests that are passed through, so that they keep no votes waiting.
    room_to_pass: Arc<Semaphore>,
    metrics: Arc<Metrics>,
    /// Whether clients' keys are the proxy's, which the server must not see.
    own_keys: bool,
    key: Option<HeaderValue>,
}

/// An answer that is not the one hoped for.
#[derive(Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    /// The problem, in words.
    pub(crate) problem: String,
    pub(crate) retry_after: Option<HeaderValue>,
    /// What the server said, which is passed back as it is.
    answer: Option<Box<Answer>>,
}

#[derive(Debug, PartialEq)]
struct Answer {
    content_type: Option<HeaderValue>,
    body: Bytes,
}

impl Failure {
    /// One of our own.
    pub(crate) fn new(cause: Cause, problem: &str) -> Self {
        Self {
            cause,
            problem: problem.to_owned(),
            retry_after: None,
            answer: None,
        }
    }

    /// The server's answer is no completion.
    pub(crate) fn nonsense() -> Self {
        let problem = "the model's server answered with something that is no completion";
        Self::new(Cause::Nonsense, problem)
    }

    /// What the client is told: of our own failures in the words that clients of OpenAI know.
    pub(crate) fn body(&self) -> Bytes {
        if let Some(answer) = &self.answer {
            return answer.body.clone();
        }
        let status = self.cause.status();
        let kind = match status {
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => "upstream_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        };
        let code = (status == StatusCode::UNAUTHORIZED).then_some("invalid_api_key");
        let error = json!({"error": {"message": self.problem, "type": kind, "code": code}});
        error.to_string().into()
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body()));
        *response.status_mut() = self.cause.status();
        let extensions = response.extensions_mut();
        extensions.insert(Outcome::Failed(self.cause));
        extensions.insert(FailureReason(self.problem));
        let content_type = match self.answer {
            Some(answer) => answer.content_type,
            None => Some(HeaderValue::from_static("application/json")),
        };
        let headers = [
            (RETRY_AFTER, self.retry_after),
            (CONTENT_TYPE, content_type),
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
        may_pass(self.cause.status().as_u16())
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
    pub(crate) fn new(options: &Options, metrics: Arc<Metrics>) -> Result<Self, ProxyError> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(options.timeout.min(Duration::from_secs(30))));
        let connector = HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let at_once = options.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        let key = options.server_key.as_ref();
        if key.is_some() && options.keys.is_empty() {
            return Err(ProxyError::OpenServerKey);
        }
        let key = key.map(|key| key.header().ok_or(ProxyError::ServerKey));
        Ok(Self {
            own_keys: !options.keys.is_empty(),
            key: key.transpose()?,
            client: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(at_once)
                .build(connector),
            base: base(&options.server)?,
            retries: options.retries,
            first_wait: options.first_wait,
            room: Semaphore::new(at_once),
            room_to_pass: Arc::new(Semaphore::new(at_once)),
            metrics,
        })
    }

    /// Posts until there is a good answer, a lasting failure, or too many of those
    /// that pass.
    pub(crate) async fn post(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: &PartedBody,
    ) -> Result<Bytes, Failure> {
        let mut patience = self.patience();
        loop {
            match self.post_once(path, headers, body).await {
                Ok(whole) => return Ok(whole),
                Err(failure) => patience.bear(failure).await?,
            }
        }
    }

    /// The same, up to where the answer begins. It comes in pieces.
    pub(crate) async fn open(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: &PartedBody,
    ) -> Result<OpenAnswer<'_>, Failure> {
        let mut patience = self.patience();
        loop {
            match self.open_once(path, headers, body).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => patience.bear(failure).await?,
            }
        }
    }

    /// How often and how late a request is tried again.
    pub(crate) fn patience(&self) -> Patience {
        Patience {
            left: self.retries,
            wait: self.first_wait,
        }
    }

    async fn post_once(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: &PartedBody,
    ) -> Result<Bytes, Failure> {
        let answer = self.open_once(path, headers, body).await?;
        let whole = Limited::new(answer.body, MOST_BYTES).collect().await;
        Ok(whole.map_err(|e| self.unreachable(&*e))?.to_bytes())
    }

    async fn open_once(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: &PartedBody,
    ) -> Result<OpenAnswer<'_>, Failure> {
        // Held until the answer is here: the server is asked this many at once.
        let waiting = self.metrics.upstream_waiting.enter();
        let room = self.room.acquire().await;
        drop(waiting);
        let running = self.metrics.upstream_running.enter();
        let response = self
            .send(Method::POST, path, headers, Body::new(body.clone()))
            .await?;
        let (head, body) = response.into_parts();
        if head.status.is_success() {
            return Ok(OpenAnswer {
                body,
                upstream: self,
                _room: room.ok(),
                _running: running,
            });
        }
        let body = Limited::new(body, MOST_BYTES).collect().await;
        let body = body.map_err(|e| self.unreachable(&*e))?.to_bytes();
        Err(Failure {
            cause: Cause::Answered(head.status),
            problem: format!("the model's server answered {}", head.status),
            retry_after: head.headers.get(RETRY_AFTER).cloned(),
            answer: Some(Box::new(Answer {
                content_type: head.headers.get(CONTENT_TYPE).cloned(),
                body,
            })),
        })
    }

    /// Passes a request through as it is, and its answer as it comes, once there is room.
    pub(crate) async fn pass(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response<Body>, Failure> {
        // It is never closed.
        let room = Arc::clone(&self.room_to_pass).acquire_owned().await.ok();
        let answer = self.send(method, path, headers, body).await?;
        Ok(answer.map(|body| Body::new(Roomed { body, _room: room })))
    }

    /// Sends a request, and returns the answer as it comes.
    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response<Body>, Failure> {
        let uri: Uri = format!("{}{path}", self.base)
            .parse()
            .map_err(|_| Failure::new(Cause::Path, "the path cannot be used"))?;
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = passed_on(headers);
        if self.own_keys {
            request.headers_mut().remove(AUTHORIZATION);
        }
        if let Some(key) = &self.key {
            request.headers_mut().insert(AUTHORIZATION, key.clone());
        }
        let response = self
            .client
            .request(request)
            .await
            .map_err(|e| self.unreachable(&e))?;
        let (mut head, body) = response.into_parts();
        if let Some(error) = UpstreamError::of(head.status) {
            self.metrics.upstream_failed(error);
        }
        head.headers = passed_on(&head.headers);
        Ok(Response::from_parts(head, Body::new(body)))
    }

    /// The server is not there, or the request's body does not come.
    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> Failure {
        let failure = not_sent(error);
        if failure.cause == Cause::Unreachable {
            self.metrics.upstream_failed(UpstreamError::Unreachable);
        }
        failure
    }
}

/// A good answer that comes in pieces. It has its room until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenAnswer<'u> {
    body: Body,
    upstream: &'u Upstream,
    _room: Option<SemaphorePermit<'u>>,
    _running: Entered<'u>,
}

impl OpenAnswer<'_> {
    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|e| self.upstream.unreachable(&e))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// How often and how late a request is still tried again.
#[derive(Debug)]
pub(crate) struct Patience {
    left: u32,
    wait: Duration,
}

impl Patience {
    /// Waits after a failure that may pass, unless there were too many.
    pub(crate) async fn bear(&mut self, failure: Failure) -> Result<(), Failure> {
        if !failure.passes() || self.left == 0 {
            return Err(failure);
        }
        self.left -= 1;
        sleep(failure.wait().unwrap_or(self.wait).min(LONGEST_WAIT)).await;
        self.wait = (2 * self.wait).min(LONGEST_WAIT);
        Ok(())
    }
}

/// The headers that are about the message, not about this connection.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    const OWN: [HeaderName; 6] = [
        CONNECTION,
        CONTENT_LENGTH,
        HOST,
        TRANSFER_ENCODING,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
    ];
    let also = [
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
        "accept-encoding",
    ];
    let mut passed = headers.clone();
    // The sender of a message may name more headers that end with the connection.
    for names in headers.get_all(CONNECTION) {
        let names = names.to_str().unwrap_or_default();
        for name in names.split(',') {
            passed.remove(name.trim());
        }
    }
    OWN.iter().for_each(|name| drop(passed.remove(name)));
    also.iter().for_each(|name| drop(passed.remove(*name)));
    passed
}

/// Whether a path stays under /v1, also for a server that resolves dots, backslashes or
/// percent signs, however often, or cuts off what follows a semicolon.
pub(crate) fn stays_below(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let mut plain = Vec::with_capacity(path.len());
    for byte in path.bytes() {
        plain.push(byte);
        // A decoded byte may complete another such sign: %25%32%65 is %2e, which is a dot.
        while let Some(decoded) = plain.last_chunk().and_then(decoded) {
            plain.truncate(plain.len() - 3);
            plain.push(decoded);
        }
    }
    let mut parts = plain.split(|byte| matches!(byte, b'/' | b'\\'));
    parts.all(|part| {
        let name = part.split(|&byte| byte == b';').next();
        !matches!(name, Some(b"." | b".."))
    })
}

/// The byte that a percent sign and two digits stand for.
fn decoded(sign: &[u8; 3]) -> Option<u8> {
    let [b'%', high, low] = *sign else {
        return None;
    };
    let digit = |byte| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// A body that has its room until it is sent.
struct Roomed {
    body: Body,
    _room: Option<OwnedSemaphorePermit>,
}

impl HttpBody for Roomed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body that may pause this long at the most.
pub(crate) fn without_long_pauses(body: Body, pause: Duration) -> Body {
    Body::new(Paced {
        body,
        pause,
        left: None,
    })
}

/// Why a body that pauses too long is not read on.
#[derive(Debug, thiserror::Error)]
#[error("the body paused for too long")]
struct Paused;

struct Paced {
    body: Body,
    pause: Duration,
    /// The time that is left, while the next part is waited for. A reader that is slow
    /// to ask for it is no pause of the body.
    left: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.left = None;
            return Poll::Ready(frame);
        }
        let pause = self.pause;
        let left = self.left.get_or_insert_with(|| Box::pin(sleep(pause)));
        ready!(left.as_mut().poll(context));
        Poll::Ready(Some(Err(axum::Error::new(Paused))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The failure of an unreachable server. It does not say the server's address,
/// which is none of a client's business.
fn not_sent(error: &(dyn std::error::Error + 'static)) -> Failure {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    if cause.is::<Paused>() {
        return Failure::new(
            Cause::LateBody,
            "the request's body paused for too long; send it again without pauses",
        );
    }
    Failure::new(
        Cause::Unreachable,
        &format!("haltwise cannot reach the model's server: {cause}"),
    )
}

/// The server's address without `/v1`. A key in it is not repeated in the error.
fn base(url: &str) -> Result<String, ProxyError> {
    let has_key = url.contains(['@', '?', '#']);
    let shown = if has_key { "given" } else { url };
    haltwise_llm::base_url(url).map_err(|_| ProxyError::Address(shown.to_owned()))
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
            ..Failure::new(Cause::Answered(StatusCode::TOO_MANY_REQUESTS), "")
        };
        assert_eq!(failure("2").wait(), Some(Duration::from_secs(2)));
        assert_eq!(failure("0.5").wait(), Some(Duration::from_millis(500)));
        for odd in ["-1", "Wed, 21 Oct 2026 07:28:00 GMT", "NaN", "1e300"] {
            assert_eq!(failure(odd).wait(), None, "{odd}");
        }
        assert!(failure("2").passes());
        assert!(!Failure::new(Cause::BrokenBody, "").passes());
    }

    #[test]
    fn what_is_about_the_connection_is_not_passed_on() {
        let mut headers = HeaderMap::new();
        for name in [
            "host",
            "content-length",
            "proxy-authorization",
            "x-hop",
            "x-other-hop",
            "authorization",
            "x-mine",
        ] {
            headers.insert(name, HeaderValue::from_static("v"));
        }
        headers.append("connection", HeaderValue::from_static("close, X-Hop"));
        headers.append("connection", HeaderValue::from_static("x-other-hop"));
        let passed = passed_on(&headers);
        let mut names: Vec<&str> = passed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "x-mine"]);
    }

    #[test]
    fn paths_that_could_leave_v1_are_seen() {
        for path in [
            "/v1/models",
            "/v1/files/a.b..c?x=../y",
            "/v1/a%20b",
            "/v1/100%25",
            "/v1/...",
            "/v1/a;../b",
            "/v1/%",
            "/v1/%ff%2",
        ] {
            assert!(stays_below(path), "{path}");
        }
        for path in [
            "/v1/../admin",
            "/v1/./x",
            "/v1/%2e%2E/admin",
            "/v1/.%2e/admin",
            "/v1/a%2f..%2f../admin",
            "/v1/..\\admin",
            "/v1/..%5Cadmin",
            "/v1/%252e%252e/admin",
            "/v1/%2525252e./admin",
            "/v1/%25%32%65%25%32%65/admin",
            "/v1/%%32e%%32%65/admin",
            "/v1/..;/admin",
            "/v1/%2e.%3Bx=1/admin",
            "/v1/..",
        ] {
            assert!(!stays_below(path), "{path}");
        }
    }
}
