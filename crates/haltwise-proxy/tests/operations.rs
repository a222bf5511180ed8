//! What whoever runs a proxy can ask it for, with and without a store.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{
    CHAT, answer, ask, begin, certified, completion, model, proxy, question, rule, send, served,
    waiting_model,
};
use haltwise::Rule;
use haltwise_proxy::{Key, Options, Proxy, for_answers};
use haltwise_serve::{
    LogForm, LogRequests, Role, RuleToServe, ServedRules, ServerLog, Tokens, WatchOptions,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

/// The rules and the notices of a proxy.
struct Watched {
    address: String,
    notices: Arc<Mutex<Vec<String>>>,
}

fn served_rule(rule: Rule) -> RuleToServe {
    let json = haltwise_io::rule_json(&rule).unwrap();
    for_answers(RuleToServe::new("rule", rule, json)).unwrap()
}

impl Watched {
    async fn start(rule: Rule, store: Option<&Path>, options: &Options) -> Self {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&notices);
        let log = ServerLog::new(LogForm::Text, LogRequests::Failed, move |line: &str| {
            lines.lock().unwrap().push(line.to_owned());
        });
        let watching = WatchOptions {
            store: store.map(Path::to_path_buf),
            log,
            ..WatchOptions::new(vec![served_rule(rule)])
        };
        let (rules, _) = ServedRules::start(watching, Duration::ZERO).await.unwrap();
        let proxy = Proxy::new(rules, options).unwrap();
        Self {
            address: begin(proxy).await,
            notices,
        }
    }

    async fn get(&self, path: &str) -> String {
        let (status, said) = self.ask("GET", path, "").await;
        assert_eq!(status, 200, "{path}: {said}");
        said.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// The metrics, once they say this.
    async fn until(&self, expected: &str) -> String {
        let metrics = async {
            loop {
                let metrics = self.get("/metrics").await;
                if metrics.contains(expected) {
                    return metrics;
                }
            }
        };
        let metrics = timeout(Duration::from_secs(30), metrics).await;
        metrics.unwrap_or_else(|_| panic!("no {expected}"))
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let close = "Connection: close\r\n";
        let mut stream = common::request(
            &self.address,
            method,
            path,
            close,
            body.len(),
            body.as_bytes(),
        )
        .await;
        answer(&mut stream).await
    }

    async fn put(&self, rule: &Rule) -> (u16, String) {
        let rule = haltwise_io::rule_json(rule).unwrap();
        self.ask("PUT", "/rule/rule", &rule).await
    }

    /// What a reply says about its votes.
    async fn votes(&self) -> Value {
        let (status, said) = ask(&self.address, CHAT, "Connection: close\r\n").await;
        assert_eq!(status, 200, "{said}");
        let body = said.split_once("\r\n\r\n").unwrap().1;
        serde_json::from_str::<Value>(body).unwrap()["haltwise"].take()
    }
}

/// The same rule for votes that are cast in another way.
fn with_record(rule: &Rule, name: &str, value: &str) -> Rule {
    let mut json = serde_json::to_value(rule).unwrap();
    json["classifier"][name] = value.into();
    serde_json::from_value(json).unwrap()
}

#[tokio::test]
async fn a_proxy_does_all_that_it_describes_with_and_without_a_store() {
    let (server, _) = model(completion(json!(1))).await;
    let folder = tempfile::tempdir().unwrap();
    for store in [None, Some(folder.path())] {
        let proxy = Watched::start(certified(1, 0.1), store, &Options::new(&server)).await;
        let described = proxy.get("/openapi.json").await;
        let described: Value = serde_json::from_str(&described).unwrap();
        let paths = described["paths"].as_object().unwrap();
        let mut tried = 0;
        for (path, methods) in paths {
            let path = path.replace("{name}", "rule").replace("{path}", "models");
            for method in ["get", "put", "post"] {
                if methods.get(method).is_none() {
                    continue;
                }
                let (status, said) = proxy.ask(&method.to_uppercase(), &path, "").await;
                assert!(
                    ![404, 405, 500].contains(&status),
                    "{method} {path}: {said}"
                );
                tried += 1;
            }
        }
        assert!(tried >= 12, "{tried}");
        assert_eq!(paths.contains_key("/{name}/rotate"), store.is_some());
        for path in ["/health", "/ready", "/metrics", "/rule/status", "/"] {
            proxy.get(path).await;
        }
        for path in ["/rule/streams", "/rule/observe", "/rule/ws"] {
            let (status, said) = proxy.ask("POST", path, "").await;
            assert_eq!(status, 404, "{path}: {said}");
        }
        assert!(proxy.get("/rules").await.contains("[\"rule\"]"));
    }
}

#[tokio::test]
async fn a_rule_is_replaced_while_requests_end_with_the_one_they_began_with() {
    let folder = tempfile::tempdir().unwrap();
    for store in [None, Some(folder.path())] {
        let told = Arc::new(Notify::new());
        let server = waiting_model(completion(json!(1)), Arc::clone(&told)).await;
        let proxy = Watched::start(certified(1, 0.1), store, &Options::new(&server)).await;
        let body = question().to_string();
        let close = "Connection: close\r\n";
        let mut first = send(&proxy.address, CHAT, close, body.len(), body.as_bytes()).await;
        proxy.until("haltwise_proxy_upstream_running 1").await;
        let (status, said) = proxy.put(&certified(2, 0.03)).await;
        assert_eq!(status, 200, "{said}");
        assert!(said.contains("{\"renewal\":2}"), "{said}");
        told.notify_one();
        let mut said = String::new();
        first.read_to_string(&mut said).await.unwrap();
        assert!(said.contains("\"votes\":1"), "{said}");
        assert!(said.contains("\"promised\":true"), "{said}");
        // The next one asks for two votes at once, by the new rule.
        let answering = async {
            loop {
                told.notify_one();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let next = tokio::select! {
            next = proxy.votes() => next,
            _ = timeout(Duration::from_secs(30), answering) => panic!("no reply"),
        };
        assert_eq!(
            (&next["votes"], &next["promised"]),
            (&json!(2), &json!(true))
        );
        let status: Value = serde_json::from_str(&proxy.get("/rule/status").await).unwrap();
        assert_eq!(status["renewal"], 2, "{status}");
        assert_eq!(status["totals"]["halted"], 2, "{status}");
        // Halts are counted by step for the rule in use alone.
        assert_eq!(status["halted_at"][0], 0, "{status}");
        assert_eq!(status["halted_at"][1], 1, "{status}");
    }
}

#[tokio::test]
async fn a_rule_for_votes_that_are_cast_in_another_way_is_refused() {
    let (server, _) = model(completion(json!(1))).await;
    let proxy = Watched::start(certified(1, 0.1), None, &Options::new(&server)).await;
    let before = proxy.get("/rule/rule").await;
    let other = certified(2, 0.03);
    for (name, value, expected) in [
        ("temperature", "1", "temperature is \"1\", not the usual"),
        ("model", "n", "model is \"n\", not \"m\""),
        ("template", &"x".repeat(1000), "template is another"),
        ("samples", "4", "not as many steps"),
        ("answer", "number", "answer is \"number\""),
    ] {
        let (status, said) = proxy.put(&with_record(&other, name, value)).await;
        assert_eq!(status, 422, "{name}: {said}");
        let said = said.replace('\\', "");
        assert!(said.contains(expected), "{expected}: {said}");
    }
    // It promises nothing, or more than this renewal may spend.
    for rule in [rule(), certified(2, 0.09)] {
        assert_eq!(proxy.put(&rule).await.0, 422);
    }
    assert_eq!(proxy.get("/rule/rule").await, before);
    // Another version of the server is no other way.
    let (status, said) = proxy.put(&with_record(&other, "server", "vLLM 9")).await;
    assert_eq!(status, 200, "{said}");
}

/// Requests say neither a unit nor a group. Audits that are tied would be watched one by one.
#[test]
fn a_rule_about_units_or_groups_is_refused() {
    let with_terms = |terms: serde_json::Value| {
        let mut json = serde_json::to_value(rule()).unwrap();
        json["terms"] = terms;
        let rule = serde_json::from_value(json.clone()).unwrap();
        for_answers(RuleToServe::new("rule", rule, json.to_string())).map(drop)
    };
    for (terms, column) in [
        (json!({"unit": "author"}), "author"),
        (json!({"by": "site"}), "site"),
    ] {
        let refused = with_terms(terms).unwrap_err().to_string();
        assert!(refused.contains(column), "{refused}");
        assert!(
            refused.contains("calibrate one without --unit"),
            "{refused}"
        );
    }
    assert!(with_terms(json!({"by": "label"})).is_ok());
    assert!(with_terms(json!({})).is_ok());
}

#[tokio::test]
async fn metrics_tell_how_requests_came_out_and_what_they_cost() {
    let (server, _) = model(completion(json!(10))).await;
    let options = Options {
        votes_without_promise: true,
        ..Options::new(&server)
    };
    let proxy = Watched::start(certified(1, 0.1), None, &options).await;
    for _ in 0..2 {
        proxy.votes().await;
    }
    let mut other = question();
    other["max_tokens"] = 7.into();
    proxy.ask("POST", CHAT, &other.to_string()).await;
    other["model"] = "n".into();
    proxy.ask("POST", CHAT, &other.to_string()).await;
    proxy.ask("GET", "/v1/models", "").await;
    proxy.ask("GET", "/v1/../x", "").await;
    let metrics = proxy.get("/metrics").await;
    for line in [
        "haltwise_build_info{version=\"",
        "haltwise_proxy_requests_total{outcome=\"promised\",reason=\"none\"} 2\n",
        "haltwise_proxy_requests_total{outcome=\"unpromised\",reason=\"max_tokens\"} 1\n",
        "haltwise_proxy_requests_total{outcome=\"passed_through\",reason=\"model\"} 1\n",
        "haltwise_proxy_requests_total{outcome=\"passed_through\",reason=\"path\"} 1\n",
        "haltwise_proxy_requests_total{outcome=\"refused\",reason=\"path\"} 1\n",
        "haltwise_proxy_requests_total{outcome=\"abandoned\",reason=\"none\"} 0\n",
        "haltwise_proxy_votes_total 3\n",
        "haltwise_proxy_votes_saved_total 6\n",
        "haltwise_proxy_tokens_total 30\n",
        "haltwise_proxy_tokens_saved_total 60\n",
        "haltwise_proxy_requests_running 0\n",
        "haltwise_proxy_upstream_running 0\n",
        "haltwise_proxy_upstream_waiting 0\n",
        "haltwise_proxy_body_bytes 0\n",
        "haltwise_proxy_request_seconds_count{kind=\"voted\"} 3\n",
        "haltwise_proxy_request_seconds_count{kind=\"passed_through\"} 2\n",
        "haltwise_proxy_first_byte_seconds_bucket{kind=\"failed\",le=\"+Inf\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // One family, one description.
    let mut families: Vec<&str> = metrics
        .lines()
        .filter(|l| l.starts_with("# TYPE"))
        .collect();
    let all = families.len();
    families.sort_unstable();
    families.dedup();
    assert_eq!(families.len(), all, "{metrics}");
    assert!(proxy.notices.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_is_not_promised_gets_no_votes_and_the_reason() {
    let (server, asked) = model(completion(json!(10))).await;
    let options = Options {
        aliases: vec!["n".into()],
        ..Options::new(&server)
    };
    let rule = with_record(&certified(2, 0.1), "prompt_ends", " In one word.");
    let proxy = Watched::start(rule, None, &options).await;
    let user = |text: &str| json!([{"role": "user", "content": text}]);
    let system = json!({"role": "system", "content": "Be brief."});
    let mut long = user("Why? In one word.");
    long.as_array_mut().unwrap().insert(0, system);
    let good = user("Why? In one word.");
    let request = |messages: &Value, name: &str, value: Value| {
        let mut request = json!({"model": "m", "messages": messages});
        request[name] = value;
        request.to_string()
    };
    let seen = || asked.lock().unwrap().len();
    for (body, label, reason) in [
        (
            request(&user("Why?"), "seed", json!(1)),
            "words",
            "does not end with \" In one word.\"",
        ),
        (
            request(&long, "seed", json!(1)),
            "messages",
            "its messages are: system, user",
        ),
        (
            request(&good, "effort", json!("low")),
            "fields",
            "it has the field \"effort\"",
        ),
        (
            request(&good, "max_tokens", json!(9)),
            "max_tokens",
            "its max_tokens is 9",
        ),
    ] {
        let before = seen();
        let (status, said) = proxy.ask("POST", CHAT, &body).await;
        assert_eq!((status, seen() - before), (200, 1), "{said}");
        let (head, reply) = said.split_once("\r\n\r\n").unwrap();
        let head = head.to_ascii_lowercase();
        assert!(head.contains("x-haltwise-unpromised: it"), "{head}");
        let reply: Value = serde_json::from_str(reply).unwrap();
        assert_eq!(reply["choices"][0]["message"]["content"], "\\boxed{34}");
        assert_eq!(reply["haltwise"]["promised"], false);
        let found = reply["haltwise"]["reason"].as_str().unwrap();
        assert!(found.contains(reason), "{reason}: {found}");
        let outcome = "haltwise_proxy_requests_total{outcome=\"passed_through\"";
        let metrics = proxy.get("/metrics").await;
        let line = format!("{outcome},reason=\"{label}\"}} 1\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    // What is promised is voted on, also under another name of the model.
    for model in ["m", "n"] {
        let before = seen();
        let (_, said) = proxy
            .ask("POST", CHAT, &request(&good, "model", json!(model)))
            .await;
        assert!(said.contains("\"promised\":true"), "{said}");
        assert_eq!(seen() - before, 2);
    }
    // Nobody has to take votes.
    let (body, before) = (request(&good, "seed", json!(1)), seen());
    let off = "X-Haltwise: Off\r\nConnection: close\r\n";
    let mut stream = send(&proxy.address, CHAT, off, body.len(), body.as_bytes()).await;
    assert_eq!(answer(&mut stream).await.0, 200);
    assert_eq!(seen() - before, 1);
    let metrics = proxy.get("/metrics").await;
    assert!(metrics.contains("reason=\"opted_out\"} 1\n"), "{metrics}");
    assert!(
        metrics.contains("haltwise_proxy_votes_total 4\n"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_rule_that_does_not_say_which_prompts_it_is_about_promises_nothing() {
    let (server, _) = model(completion(json!(10))).await;
    let mut json = serde_json::to_value(certified(1, 0.1)).unwrap();
    json["classifier"]
        .as_object_mut()
        .unwrap()
        .remove("messages");
    let rule = serde_json::from_value(json).unwrap();
    let proxy = Watched::start(rule, None, &Options::new(&server)).await;
    let said = proxy.votes().await;
    assert_eq!(
        (&said["promised"], &said["reason"]),
        (
            &json!(false),
            &json!("the rule does not say which prompts it was calibrated on")
        )
    );
}

#[tokio::test]
async fn failures_of_the_server_are_counted_by_kind_and_told_to_who_runs_the_proxy() {
    let busy = axum::Router::new().fallback(|| async { axum::http::StatusCode::TOO_MANY_REQUESTS });
    let silent = axum::Router::new().fallback(|| async {
        std::future::pending::<()>().await;
    });
    let (nonsense, _) = model("no completion".into()).await;
    let gone = "http://127.0.0.1:1".to_owned();
    let cases = [
        (gone, 502, "unreachable", "cannot reach the model's server"),
        (nonsense, 502, "nonsense", "no completion"),
        (
            served(silent).await,
            504,
            "timeout",
            "did not answer within 0.3 s",
        ),
        (served(busy).await, 429, "busy", ""),
    ];
    for (server, status, kind, notice) in cases {
        let options = Options {
            timeout: Duration::from_millis(300),
            retries: 0,
            ..Options::new(&server)
        };
        let proxy = Watched::start(certified(1, 0.1), None, &options).await;
        assert_eq!(ask(&proxy.address, CHAT, "").await.0, status, "{kind}");
        let metrics = proxy.get("/metrics").await;
        let line = format!("haltwise_proxy_upstream_errors_total{{kind=\"{kind}\"}} 1\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
        assert!(metrics.contains("outcome=\"failed\""), "{metrics}");
        let notices = proxy.notices.lock().unwrap();
        let told = notices.iter().filter(|told| told.contains(notice));
        // A server that is busy is the client's to wait for.
        assert_eq!(told.count(), usize::from(status >= 500), "{notices:?}");
    }
}

#[tokio::test]
async fn a_stream_that_fails_after_it_began_is_counted_and_logged() {
    let told = Arc::new(Notify::new());
    let server = waiting_model("no completion".into(), Arc::clone(&told)).await;
    let options = Options {
        keep_alive: Duration::from_millis(10),
        ..Options::new(&server)
    };
    let proxy = Watched::start(certified(1, 0.1), None, &options).await;
    let mut request = question();
    request["stream"] = true.into();
    let body = request.to_string();
    let more = "Connection: close\r\nX-Request-Id: mine\r\n";
    let mut stream = send(&proxy.address, CHAT, more, body.len(), body.as_bytes()).await;
    // The head of the answer is there.
    stream.read_exact(&mut [0; 12]).await.unwrap();
    proxy.until("haltwise_proxy_upstream_running 1").await;
    told.notify_one();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    assert!(said.contains("upstream_error"), "{said}");
    let failed = "haltwise_proxy_requests_total{outcome=\"failed\",reason=\"nonsense\"} 1";
    proxy.until(failed).await;
    let notices = proxy.notices.lock().unwrap();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(
        notices[0].contains("a stream failed, request mine: "),
        "{notices:?}"
    );
}

#[tokio::test]
async fn a_client_that_hangs_up_is_counted_as_one_that_did() {
    let server = waiting_model(completion(json!(1)), Arc::default()).await;
    let proxy = Watched::start(certified(1, 0.1), None, &Options::new(&server)).await;
    let body = question().to_string();
    let stream = send(&proxy.address, CHAT, "", body.len(), body.as_bytes()).await;
    proxy.until("haltwise_proxy_upstream_running 1").await;
    drop(stream);
    let abandoned = "haltwise_proxy_requests_total{outcome=\"abandoned\",reason=\"none\"} 1";
    let metrics = proxy.until(abandoned).await;
    assert!(
        metrics.contains("haltwise_proxy_requests_running 0"),
        "{metrics}"
    );
}

#[tokio::test]
async fn pages_of_other_sites_cannot_ask_the_model_through_a_proxy_without_keys() {
    let (server, asked) = model(completion(json!(1))).await;
    let open = proxy(&Options::new(&server)).await;
    let page = "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n";
    for path in [CHAT, "/v1/models", "/rule/status"] {
        let (status, said) = ask(&open, path, page).await;
        assert_eq!(status, 403, "{path}: {said}");
    }
    // Nor can links, nor a page whose name was made to lead here; a token for the rest of the
    // proxy does not let it in.
    let tokens = Tokens::new([(Role::Administer, "master".to_owned())]);
    let with_token = WatchOptions {
        tokens,
        ..WatchOptions::new(vec![served_rule(rule())])
    };
    let (rules, _) = ServedRules::start(with_token, Duration::ZERO)
        .await
        .unwrap();
    let with_token = begin(Proxy::new(rules, &Options::new(&server)).unwrap()).await;
    let link = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n\
                Sec-Fetch-Dest: document\r\n";
    for address in [&open, &with_token] {
        for path in [CHAT, "/v1/models"] {
            let mut stream = common::request(address, "GET", path, link, 0, b"").await;
            assert_eq!(answer(&mut stream).await.0, 403, "{path}");
            let mut stream = TcpStream::connect(address).await.unwrap();
            let rebound = format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n");
            stream.write_all(rebound.as_bytes()).await.unwrap();
            let (status, said) = answer(&mut stream).await;
            assert_eq!(status, 403, "{path}: {said}");
        }
    }
    assert!(asked.lock().unwrap().is_empty());
    let keys = Options {
        keys: vec![Key::new("alice")],
        ..Options::new(&server)
    };
    let address = proxy(&keys).await;
    let shown = format!("{page}Authorization: Bearer alice\r\n");
    assert_eq!(ask(&address, CHAT, &shown).await.0, 200);
}
