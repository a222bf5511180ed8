//! The log of a server: what whoever runs it should know, as text or as JSON, a line each.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::{self, Next};
use axum::response::Response;
use serde_json::{Value, json};

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogForm {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON object a line.
    Json,
}

/// Which requests have a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogRequests {
    /// Those that failed, which is not their client's fault.
    #[default]
    Failed,
    /// All.
    All,
}

/// Lines about failed requests per second at the most; the others are counted.
const MOST_FAILED: u32 = 100;

/// The longest id of a request that is taken from a client, and the longest path or method that is
/// logged.
const MOST_ID: usize = 128;
const MOST_PATH: usize = 200;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The log of a server.
#[derive(Clone)]
pub struct ServerLog {
    form: LogForm,
    requests: LogRequests,
    write: Arc<dyn Fn(&str) + Send + Sync>,
    failed: Arc<Mutex<FailedInSecond>>,
}

/// Failed requests since the beginning of a second.
struct FailedInSecond {
    began: Instant,
    failed: u32,
}

impl std::fmt::Debug for ServerLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerLog")
            .field("form", &self.form)
            .field("requests", &self.requests)
            .finish_non_exhaustive()
    }
}

impl ServerLog {
    /// A log that writes each line with `write`, which adds the end of the line.
    pub fn new(
        form: LogForm,
        requests: LogRequests,
        write: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let began = Instant::now();
        Self {
            form,
            requests,
            write: Arc::new(write),
            failed: Arc::new(Mutex::new(FailedInSecond { began, failed: 0 })),
        }
    }

    /// Says what goes on.
    pub fn info(&self, message: &str) {
        self.line("info", message, Value::Null);
    }

    /// Says what someone should look at.
    pub fn warn(&self, message: &str) {
        self.line("warn", message, Value::Null);
    }

    /// Says what failed.
    pub fn error(&self, message: &str) {
        self.line("error", message, Value::Null);
    }

    /// Writes a line. With JSON, `more` has fields for it.
    fn line(&self, level: &str, message: &str, more: Value) {
        if self.form == LogForm::Text {
            return (self.write)(message);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut line = json!({
            "time": rfc3339(now.unwrap_or_default()),
            "level": level,
            "message": message,
        });
        if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
            line.extend(more);
        }
        (self.write)(&line.to_string());
    }

    /// Gives each request of these routes an id, and logs it.
    pub fn around(&self, routes: Router) -> Router {
        routes.layer(middleware::from_fn_with_state(self.clone(), logged))
    }

    fn request(&self, request: &LoggedRequest, status: u16, reason: &str, took: Duration) {
        let has_failed = status >= 500;
        if self.requests == LogRequests::Failed && !(has_failed && self.has_room()) {
            return;
        }
        let level = match status {
            500.. => "error",
            400.. => "warn",
            _ => "info",
        };
        let LoggedRequest {
            id,
            method,
            path,
            route,
        } = request;
        let ms = took.as_secs_f64() * 1e3;
        let mut message = format!("{method} {path}: {status} in {ms:.1} ms, request {id}");
        if !reason.is_empty() {
            message = format!("{message}: {reason}");
        }
        let more = json!({
            "request_id": id,
            "method": method,
            "path": path,
            "route": route,
            "status": status,
            "reason": reason,
            "duration_ms": (ms * 1e3).round() / 1e3,
        });
        self.line(level, &message, more);
    }

    /// Whether one more failed request has a line.
    fn has_room(&self) -> bool {
        let mut second = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let untold = second.failed.saturating_sub(MOST_FAILED);
        let is_over = second.began.elapsed() >= Duration::from_secs(1);
        if is_over {
            let began = Instant::now();
            *second = FailedInSecond { began, failed: 0 };
        }
        second.failed = second.failed.saturating_add(1);
        let has_room = second.failed <= MOST_FAILED;
        drop(second);
        if is_over && untold > 0 {
            self.error(&format!("{untold} more requests failed"));
        }
        has_room
    }
}

/// Sixteen digits that no one else has. The keys of the standard hasher come from the system's
/// chance, and differ each time.
pub(crate) fn random_id() -> String {
    format!("{:016x}", RandomState::new().hash_one(0))
}

/// What the log says of a request.
struct LoggedRequest {
    id: String,
    method: String,
    path: String,
    route: Option<String>,
}

/// The id of a request, which its client may have given it.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

/// Why a request failed: the log says so if it is among the extensions of a response.
#[derive(Debug, Clone)]
pub struct FailureReason(pub String);

async fn logged(State(log): State<ServerLog>, mut request: Request, next: Next) -> Response {
    let given = request.headers().get(&REQUEST_ID);
    let id = given
        .and_then(|id| id.to_str().ok())
        .filter(|id| (1..=MOST_ID).contains(&id.len()))
        .map_or_else(random_id, str::to_owned);
    let route = request.extensions().get::<MatchedPath>();
    // Without what follows "?", which may be a secret.
    let path = request.uri().path().chars().take(MOST_PATH).collect();
    let method = request.method().as_str();
    let said = LoggedRequest {
        method: method.chars().take(MOST_PATH).collect(),
        path,
        route: route.map(|route| route.as_str().to_owned()),
        id: id.clone(),
    };
    let header = HeaderValue::from_str(&id);
    request.extensions_mut().insert(RequestId(id));
    let began = Instant::now();
    let mut response = next.run(request).await;
    let reason = response.extensions().get::<FailureReason>();
    let reason = reason.map_or("", |FailureReason(reason)| reason);
    log.request(&said, response.status().as_u16(), reason, began.elapsed());
    if let Ok(header) = header {
        response.headers_mut().insert(REQUEST_ID, header);
    }
    response
}

/// A time since 1970 as `2026-11-18T20:21:14.123Z`.
fn rfc3339(since: Duration) -> String {
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (mut year, mut day) = (1970, days);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let days_of = |year| if is_leap(year) { 366 } else { 365 };
    while day >= days_of(year) {
        day -= days_of(year);
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let mut text = format!("{year:04}-{month:02}-{:02}T", day + 1);
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "{hour:02}:{minute:02}:{second:02}.{:03}Z",
        since.subsec_millis()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_868_799, "2000-02-29T23:59:59.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_798_761_599, "2026-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds)), text);
        }
        assert!(rfc3339(Duration::from_millis(7)).ends_with("00.007Z"));
    }

    #[test]
    fn failed_requests_do_not_flood_the_log() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        let write = move |line: &str| seen.lock().unwrap().push(line.to_owned());
        let log = ServerLog::new(LogForm::Json, LogRequests::Failed, write);
        let request = LoggedRequest {
            id: "a".into(),
            method: "GET".into(),
            path: "/\n".into(),
            route: None,
        };
        for status in [200, 404, 503] {
            (0..1000).for_each(|_| log.request(&request, status, "why", Duration::ZERO));
        }
        log.failed.lock().unwrap().began -= Duration::from_secs(1);
        log.request(&request, 500, "", Duration::ZERO);
        let lines = lines.lock().unwrap();
        assert!(
            lines.len() <= 2 * MOST_FAILED as usize + 2,
            "{}",
            lines.len()
        );
        let lines: Vec<Value> = lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            (&lines[0]["status"], &lines[0]["reason"]),
            (&json!(503), &json!("why"))
        );
        let untold = |line: &Value| line["message"].as_str().unwrap().contains("more requests");
        assert_eq!(lines.iter().filter(|line| untold(line)).count(), 1);
        assert_eq!(lines[lines.len() - 1]["status"], 500);
    }
}
