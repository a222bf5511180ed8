//! OpenAI-compatible servers: one prompt in, the likeliest next tokens out.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::{Response, StatusCode};

use crate::document::group_sizes;
use crate::error::Error;
use crate::reply::{self, Reply};

/// Which of a server's two ways to ask it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/completions`: the prompt is sent as it is.
    Completions,
    /// `/v1/chat/completions`: the server puts the prompt into the model's
    /// chat format.
    Chat,
}

impl Endpoint {
    /// Its name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completions => "completions",
            Self::Chat => "chat",
        }
    }

    /// Where a server has it.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Completions => "/v1/completions",
            Self::Chat => "/v1/chat/completions",
        }
    }
}

/// A key that is never shown.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// The key in a variable of the environment, where it is set.
    pub fn from_env(variable: &str) -> Option<Self> {
        let key = std::env::var(variable).ok()?;
        (!key.is_empty()).then_some(Self(key))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// How to talk to a server.
#[derive(Clone)]
pub struct ServerOptions {
    /// Its address, with or without `/v1` at the end.
    pub url: String,
    /// How it is asked.
    pub endpoint: Endpoint,
    /// How many of the likeliest tokens to ask for. vLLM gives up to 20 unless
    /// it was started with `--max-logprobs`.
    pub logprobs: u32,
    /// The time limit of one answer.
    pub timeout: Duration,
    /// How often to try again before giving up.
    pub retries: u32,
    /// How long to wait before the first of these; it doubles each time.
    pub first_wait: Duration,
    /// Sent with every request.
    pub api_key: Option<ApiKey>,
    /// Told when something is tried again.
    pub notice: Arc<dyn Fn(&str) + Send + Sync>,
}

impl ServerOptions {
    /// The usual options for a server at an address.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            endpoint: Endpoint::Completions,
            logprobs: 20,
            timeout: Duration::from_secs(600),
            retries: 6,
            first_wait: Duration::from_secs(1),
            api_key: None,
            notice: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("url", &self.url)
            .field("endpoint", &self.endpoint)
            .field("api_key", &self.api_key)
            .finish_non_exhaustive()
    }
}

/// A server with the model that is asked.
#[derive(Debug)]
pub struct Server {
    options: ServerOptions,
    agent: Agent,
    base: String,
    model: String,
    software: Option<String>,
    is_llama_cpp: bool,
    /// Whether it has refused to make several completions at a time.
    one_at_a_time: AtomicBool,
}

/// An answer may be this long: one token with its alternatives is far less.
const MOST_BYTES: u64 = 16 << 20;

/// The longest wait before a request is tried again.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Whether a request that was answered with this status may succeed later.
pub fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 409 | 425 | 429 | 500 | 502 | 503 | 504 | 529)
}

/// Why a request brought no answer.
enum Failure {
    /// It may go better next time; the server may have said when.
    Passing(String, Option<Duration>),
    Lasting(String),
}

impl Server {
    /// Finds out what a server is and serves. Without a name, the one model
    /// that it serves is asked.
    pub fn connect(options: ServerOptions, model: Option<&str>) -> crate::Result<Self> {
        let base = base_url(&options.url)?;
        let agent = Agent::config_builder()
            .timeout_global(Some(options.timeout))
            .timeout_connect(Some(options.timeout.min(Duration::from_secs(30))))
            .http_status_as_error(false)
            // A redirect would turn the question into a plain visit.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("haltwise/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        let mut server = Self {
            options,
            agent,
            base,
            model: model.unwrap_or_default().to_owned(),
            software: None,
            is_llama_cpp: false,
            one_at_a_time: AtomicBool::new(false),
        };
        server.find_model(model)?;
        Ok(server)
    }

    /// The model that is asked.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The server's program and version, where it says so.
    pub fn software(&self) -> Option<&str> {
        self.software.as_deref()
    }

    /// Whether it is llama.cpp's, which can be told to forget what it has read.
    pub(crate) fn is_llama_cpp(&self) -> bool {
        self.is_llama_cpp
    }

    /// Whether it has refused to make several completions at a time.
    pub(crate) fn one_at_a_time(&self) -> &AtomicBool {
        &self.one_at_a_time
    }

    /// The options it was connected with.
    pub fn options(&self) -> &ServerOptions {
        &self.options
    }

    fn find_model(&mut self, wanted: Option<&str>) -> crate::Result<()> {
        let listed = match self.with_retries(|| self.get("/v1/models")) {
            Ok(listed) => listed,
            // Not every server lists its models.
            Err(_) if wanted.is_some() && self.answers() => return Ok(()),
            Err(error) => return Err(error),
        };
        let models: Vec<&Value> = listed["data"].as_array().into_iter().flatten().collect();
        let ids: Vec<&str> = models.iter().filter_map(|m| m["id"].as_str()).collect();
        match wanted {
            Some(wanted) if !ids.is_empty() && !ids.contains(&wanted) => {
                return Err(self.error(format_args!(
                    "it does not serve the model {wanted}, but {}",
                    ids.join(", ")
                )));
            }
            Some(_) => {}
            None => match ids[..] {
                [only] => self.model = only.to_owned(),
                [] => return Err(self.error("it does not list its models; name one")),
                _ => {
                    let listed = ids.join(", ");
                    return Err(self.error(format_args!("it serves {listed}; name one of them")));
                }
            },
        }
        let owner = models.first().and_then(|m| m["owned_by"].as_str());
        self.is_llama_cpp = owner == Some("llamacpp");
        self.software = match owner {
            Some("llamacpp") => self.version("llama.cpp", "/props", "build_info"),
            Some("vllm") => self.version("vLLM", "/version", "version"),
            Some("sglang") => self.version("SGLang", "/get_server_info", "version"),
            _ => None,
        };
        Ok(())
    }

    fn version(&self, name: &str, path: &str, field: &str) -> Option<String> {
        let version = self.get(path).ok().map(|about| about[field].clone());
        let version = version.as_ref().and_then(Value::as_str);
        Some(version.map_or(name.to_owned(), |version| format!("{name} {version}")))
    }

    /// Whether anything answers at the address, be it an error.
    fn answers(&self) -> bool {
        self.agent
            .get(format!("{}/v1/models", self.base))
            .call()
            .is_ok()
    }

    /// The likeliest tokens after a prompt.
    pub(crate) fn ask(&self, prompt: &str) -> crate::Result<Reply> {
        let n = self.options.logprobs;
        let path = self.options.endpoint.path();
        let mut request = match self.options.endpoint {
            Endpoint::Completions => json!({"prompt": prompt, "logprobs": n}),
            Endpoint::Chat => json!({
                "messages": [{"role": "user", "content": prompt}],
                "logprobs": true, "top_logprobs": n,
            }),
        };
        request["model"] = self.model.as_str().into();
        request["max_tokens"] = 1.into();
        request["temperature"] = 0.into();
        let reply = self.completion(path, &request)?;
        let computed = reply.tokens.sent.saturating_sub(reply.tokens.cached);
        if self.is_llama_cpp && computed <= 1 && reply.tokens.sent > 1 {
            // It had the whole prompt from before, of a run that was killed, and
            // computed the last token alone. That goes another way than many
            // tokens at once, and comes out different in the last digits.
            request["cache_prompt"] = false.into();
            return self.completion(path, &request);
        }
        Ok(reply)
    }

    fn completion(&self, path: &str, request: &Value) -> crate::Result<Reply> {
        let request = request.to_string();
        self.with_retries(|| {
            let body = self.post(path, &request)?;
            reply::parse(&body).map_err(Failure::Lasting)
        })
    }

    /// Where groups of equally many tokens of a text end, in bytes.
    pub(crate) fn token_ends(&self, text: &str, parts: NonZeroUsize) -> crate::Result<Vec<usize>> {
        // llama.cpp reads "content", vLLM and SGLang "prompt".
        let request = json!({
            "model": self.model, "content": text, "prompt": text, "add_special_tokens": false,
        });
        let answer = self.post_json("/tokenize", &request)?;
        let tokens = answer["tokens"].as_array();
        let tokens = tokens.ok_or_else(|| self.error("it cannot count tokens (/tokenize)"))?;
        let mut ends = Vec::new();
        for size in group_sizes(tokens.len(), Some(parts)) {
            let end = if size == tokens.len() {
                text.len()
            } else {
                self.token_end(text, &tokens[..size])?
            };
            // Tokens may be parts of a letter: such a group has no end of its own.
            if ends.last().map_or(0, |&last| last) < end {
                ends.push(end);
            }
        }
        Ok(ends)
    }

    /// How much of a text its first tokens make up.
    fn token_end(&self, text: &str, tokens: &[Value]) -> crate::Result<usize> {
        let request = json!({"model": self.model, "tokens": tokens});
        let answer = self.post_json("/detokenize", &request)?;
        let names = ["content", "prompt", "text"];
        let start = names.iter().find_map(|name| answer[name].as_str());
        let start = start.ok_or_else(|| self.error("it cannot write out tokens (/detokenize)"))?;
        // Some tokenizers put a space before a text.
        let start = start
            .strip_prefix(' ')
            .filter(|_| !text.starts_with(' '))
            .unwrap_or(start);
        let same = text.char_indices().zip(start.chars());
        Ok(same
            .take_while(|((_, a), b)| a == b)
            .last()
            .map_or(0, |((at, c), _)| at + c.len_utf8()))
    }

    pub(crate) fn post_json(&self, path: &str, request: &Value) -> crate::Result<Value> {
        let request = request.to_string();
        self.with_retries(|| {
            let body = self.post(path, &request)?;
            reply::json(&body).map_err(Failure::Lasting)
        })
    }

    /// The same, or `None` where the server refuses the request for good.
    pub(crate) fn post_unless_refused(
        &self,
        path: &str,
        request: &Value,
    ) -> crate::Result<Option<Value>> {
        let request = request.to_string();
        self.with_retries(|| match self.post(path, &request) {
            Ok(body) => reply::json(&body).map(Some).map_err(Failure::Lasting),
            Err(Failure::Lasting(_)) => Ok(None),
            Err(passing) => Err(passing),
        })
    }

    fn post(&self, path: &str, request: &str) -> Result<Vec<u8>, Failure> {
        let call = self
            .agent
            .post(format!("{}{path}", self.base))
            .header("Content-Type", "application/json");
        let call = match &self.options.api_key {
            Some(key) => call.header("Authorization", format!("Bearer {}", key.0)),
            None => call,
        };
        self.body(path, call.send(request))
    }

    fn get(&self, path: &str) -> Result<Value, Failure> {
        let call = self.agent.get(format!("{}{path}", self.base));
        let call = match &self.options.api_key {
            Some(key) => call.header("Authorization", format!("Bearer {}", key.0)),
            None => call,
        };
        let body = self.body(path, call.call())?;
        reply::json(&body).map_err(Failure::Lasting)
    }

    /// The body of a good response; of any other, why it is not.
    fn body(
        &self,
        path: &str,
        response: Result<Response<ureq::Body>, ureq::Error>,
    ) -> Result<Vec<u8>, Failure> {
        let mut response = response.map_err(|e| self.broken(&e))?;
        let status = response.status();
        let after = response.headers().get("Retry-After");
        let after = after.and_then(|v| v.to_str().ok()?.trim().parse().ok());
        let body = response
            .body_mut()
            .with_config()
            .limit(MOST_BYTES)
            .read_to_vec();
        let body = body.map_err(|e| self.broken(&e))?;
        if status.is_success() {
            return Ok(body);
        }
        let said = format!("{path}: it answered {status}{}", in_its_words(&body));
        if may_pass(status.as_u16()) {
            return Err(Failure::Passing(said, after.map(Duration::from_secs)));
        }
        let remedy = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                "; put the right key into the environment (see --api-key-env)"
            }
            StatusCode::NOT_FOUND => "; is the address right, and the server OpenAI-compatible?",
            _ => "",
        };
        Err(Failure::Lasting(said + remedy))
    }

    /// What a request that broke off means.
    fn broken(&self, error: &ureq::Error) -> Failure {
        match error {
            ureq::Error::Timeout(_) => Failure::Passing(
                format!(
                    "no answer within {} s (see --timeout)",
                    self.options.timeout.as_secs_f64()
                ),
                None,
            ),
            ureq::Error::HostNotFound => Failure::Lasting("there is no such host".into()),
            ureq::Error::BadUri(_) | ureq::Error::Tls(_) | ureq::Error::Rustls(_) => {
                Failure::Lasting(error.to_string())
            }
            _ => Failure::Passing(format!("the connection failed: {error}"), None),
        }
    }

    /// Tries until it works, fails for good, or has failed too often.
    fn with_retries<T>(&self, attempt: impl Fn() -> Result<T, Failure>) -> crate::Result<T> {
        let mut wait = self.options.first_wait;
        let mut left = self.options.retries;
        loop {
            let (problem, after) = match attempt() {
                Ok(answer) => return Ok(answer),
                Err(Failure::Lasting(problem)) => return Err(self.error(problem)),
                Err(Failure::Passing(problem, after)) => (problem, after),
            };
            if left == 0 {
                let tries = self.options.retries + 1;
                return Err(self.error(format_args!("{problem} (tried {tries} times)")));
            }
            let pause = after.unwrap_or(wait).min(LONGEST_WAIT);
            let seconds = pause.as_secs_f64();
            (self.options.notice)(&format!(
                "{}: {problem}; trying again in {seconds} s",
                self.base
            ));
            thread::sleep(pause);
            wait = (2 * wait).min(LONGEST_WAIT);
            left -= 1;
        }
    }

    pub(crate) fn error(&self, problem: impl fmt::Display) -> Error {
        Error::Server {
            server: self.base.clone(),
            problem: problem.to_string(),
        }
    }
}

/// A server's address without the `/v1` that every request adds.
pub fn base_url(url: &str) -> crate::Result<String> {
    let base = url.trim_end_matches('/');
    let base = base.strip_suffix("/v1").unwrap_or(base);
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|s| base.strip_prefix(s));
    match rest {
        // A password in an address would end up in trace files.
        Some(rest) if rest.contains(['@', '?', '#']) => Err(Error::input(
            "the server's address must hold no name, password or query: a key goes into the \
             environment (see --api-key-env)",
        )),
        Some(rest) if !rest.is_empty() => Ok(base.to_owned()),
        _ => Err(Error::input(format_args!(
            "the server's address {url} must begin with http:// or https://"
        ))),
    }
}

/// The message in the body of an error, at most a line of it.
fn in_its_words(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(json) => {
            let places = [
                &json["error"]["message"],
                &json["error"],
                &json["message"],
                &json["detail"],
            ];
            let found = places.iter().find_map(|place| place.as_str());
            found.map_or_else(|| json.to_string(), str::to_owned)
        }
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() {
        String::new()
    } else {
        format!(": {}", text.chars().take(300).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_with_and_without_v1_but_never_with_a_password() {
        for url in [
            "http://h:1",
            "http://h:1/",
            "http://h:1/v1",
            "http://h:1/v1/",
        ] {
            assert_eq!(base_url(url).unwrap(), "http://h:1");
        }
        for wrong in [
            "h:1",
            "ftp://h",
            "http://",
            "http://u:secret@h",
            "http://h?key=secret",
        ] {
            let error = base_url(wrong).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_key_is_never_shown() {
        let mut options = ServerOptions::new("http://h");
        options.api_key = Some(ApiKey("secret".into()));
        assert!(!format!("{options:?}").contains("secret"));
    }

    #[test]
    fn errors_are_quoted_in_a_line() {
        let body = br#"{"error": {"message": "too\nlong", "code": 400}}"#;
        assert_eq!(in_its_words(body), ": too long");
        assert_eq!(in_its_words(b"<html>"), ": <html>");
        assert_eq!(in_its_words(b""), "");
    }
}
