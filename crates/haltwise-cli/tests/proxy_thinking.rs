//! `haltwise proxy` with a rule for thoughts, between clients and servers that behave, and those
//! that do not.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(feature = "proxy")]

mod common;

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use common::proxy::{Proxy, parsed};
use common::server::{Request, Response, Server};
use common::thinker::{generated, length, thinker, thinks};
use common::voter::folder;
use common::{haltwise, ran};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with certified rules for the model: about right answers, and about disagreement.
fn rules() -> TempDir {
    let folder = folder(300, true);
    let server = thinker("vllm");
    let run = |words: &str, more: &[&str]| {
        let run = ran(haltwise()
            .current_dir(&folder)
            .args(words.split(' '))
            .args(more));
        assert_eq!(run.code, 0, "{words}: {}", run.stderr);
    };
    run(
        "think q.jsonl --every 10 -o t.parquet --server",
        &[&server.url],
    );
    run(
        "calibrate t.parquet --promise average --delta 0.05 --cost cost -o right.json",
        &[],
    );
    run(
        "calibrate t.parquet --loss disagreement --method marginal --delta 0.05 -o free.json",
        &[],
    );
    folder
}

/// A question in the words that `think` asks in. The whole thought about it has 88 words.
fn question(difficulty: usize) -> Value {
    let text = format!(
        "What is 4 plus 3? (difficulty {difficulty})\n\nThink step by step, and put the final \
         answer in \\boxed{{}}."
    );
    json!({"model": "m", "messages": [{"role": "user", "content": text}], "seed": 1})
}

fn streamed(mut request: Value) -> Value {
    request["stream"] = true.into();
    request["stream_options"] = json!({"include_usage": true});
    request
}

/// The chunks of a stream.
fn chunks(body: &str) -> Vec<Value> {
    let events = body.lines().filter_map(|line| line.strip_prefix("data: "));
    events
        .filter(|event| *event != "[DONE]")
        .map(parsed)
        .collect()
}

/// All that came under a name, put together.
fn joined(chunks: &[Value], name: &str) -> String {
    let delta = |chunk: &Value| {
        let text = chunk["choices"][0]["delta"][name].as_str();
        text.unwrap_or_default().to_owned()
    };
    chunks.iter().map(delta).collect()
}

#[test]
fn the_thought_ends_when_the_rule_says_so_for_clients_that_stream_and_for_others() {
    let folder = rules();
    let server = thinker("vllm");
    let proxy = Proxy::start(folder.path(), "right.json", &server.url, &[]);
    let (status, _, body) = proxy.chat(&question(1));
    assert_eq!(status, 200, "{body}");
    let whole = parsed(&body);
    let (said, message) = (&whole["haltwise"], &whole["choices"][0]["message"]);
    let thought = message["reasoning_content"].as_str().unwrap();
    let tokens = thought.split_whitespace().count() as u64;
    assert!(
        tokens < length(4) / 2 && tokens.is_multiple_of(10),
        "{tokens}"
    );
    assert_eq!(message["content"], "So it is \\boxed{7}.");
    let probes = 3 * tokens / 10;
    assert_eq!(
        *said,
        json!({"thought_tokens": tokens, "probe_tokens": probes, "steps": tokens / 10,
            "reason": "threshold", "answer": "7", "agrees": true, "promised": true})
    );
    let usage = &whole["usage"];
    assert_eq!(usage["completion_tokens"], tokens + probes + 4);
    assert_eq!(
        usage["completion_tokens_details"]["reasoning_tokens"],
        tokens
    );
    assert_eq!(usage["prompt_tokens"], 30);
    // The server generated that much, and no more.
    assert_eq!(generated(&server.requests()), tokens + probes + 4);

    let (status, head, body) = proxy.chat(&streamed(question(1)));
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(body.contains("data: [DONE]\n\n"), "{body}");
    let chunks = chunks(&body);
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(joined(&chunks, "reasoning_content"), thought);
    assert_eq!(joined(&chunks, "content"), "So it is \\boxed{7}.");
    let last = &chunks[chunks.len() - 2];
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert_eq!(last["haltwise"], *said);
    assert_eq!(chunks[chunks.len() - 1]["usage"], *usage);

    let words = format!("2 requests thought about; {} tokens of thought", 2 * tokens);
    let (_, _, metrics) = proxy.ask("GET", "/metrics", "");
    let line = format!("haltwise_proxy_thought_tokens_total {}", 2 * tokens);
    assert!(metrics.contains(&line), "{line}: {metrics}");
    let said = proxy.stop();
    assert!(said.contains(&words), "{words}: {said}");
}

#[test]
fn a_thought_is_streamed_as_it_comes() {
    let folder = rules();
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(Some(gate));
    let server = Server::start("vllm", move |_, request| {
        let is_thought = request.body["stream"] == true;
        match gate.lock().unwrap().take_if(|_| is_thought) {
            Some(gate) => {
                // The second word comes when the client has the first.
                let pieces = common::thinker::pieces(&thinks(request))
                    .into_iter()
                    .enumerate();
                Response::Pieces(Box::new(pieces.map(move |(i, piece)| {
                    if i == 1 {
                        gate.recv().unwrap();
                    }
                    piece
                })))
            }
            None => thinks(request),
        }
    });
    let proxy = Proxy::start(folder.path(), "right.json", &server.url, &[]);
    let request = streamed(question(1)).to_string();
    let stream = proxy.send("POST", "/v1/chat/completions", &request);
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let first = lines
        .find(|line| line.contains("reasoning_content"))
        .unwrap();
    assert!(first.contains("\"w"), "{first}");
    go.send(()).unwrap();
    assert!(lines.any(|line| line.contains("[DONE]")));
}

#[test]
fn events_may_be_cut_anywhere_and_have_comments_between_them() {
    let folder = rules();
    let server = Server::start("vllm", |_, request| {
        if request.body["stream"] != true {
            return thinks(request);
        }
        let events = common::thinker::pieces(&thinks(request)).concat();
        let events = format!(": hello\n\n{events}").replace('\n', "\r\n");
        let parts: Vec<String> = events
            .as_bytes()
            .chunks(7)
            .map(|part| String::from_utf8(part.to_vec()).unwrap())
            .collect();
        Response::Pieces(Box::new(parts.into_iter()))
    });
    let cut = Proxy::start(folder.path(), "right.json", &server.url, &[]);
    let server = thinker("vllm");
    let whole = Proxy::start(folder.path(), "right.json", &server.url, &[]);
    let reply = |proxy: &Proxy| parsed(&proxy.chat(&question(2)).2);
    assert_eq!(reply(&cut), reply(&whole));
}

#[test]
fn what_the_promise_is_not_about_is_passed_on_without_probes() {
    let folder = rules();
    let server = Server::start("vllm", |_, request| match request.path.as_str() {
        "/v1/chat/completions" => Response::ok(json!({"choices": [{"message": {"content": "x"}}]})),
        _ => thinks(request),
    });
    let proxy = Proxy::start(folder.path(), "right.json", &server.url, &[]);
    let mut bare = question(1);
    bare["messages"][0]["content"] = json!("What is 4 plus 3? (difficulty 1)");
    let mut formatted = question(1);
    formatted["response_format"] = json!({"type": "json_object"});
    let mut limited = question(1);
    limited["max_tokens"] = json!(25);
    for (request, said) in [(&bare, true), (&formatted, false), (&limited, true)] {
        let reply = parsed(&proxy.chat(request).2);
        assert_eq!(reply["haltwise"]["promised"] == false, said, "{reply}");
        assert_eq!(server.requests().last().unwrap().body, *request);
    }
    assert_eq!(server.requests().len(), 3);
    // Asked to, it thinks about them all the same, within the client's limit.
    let proxy = Proxy::start(
        folder.path(),
        "right.json",
        &server.url,
        &["--unpromised", "vote"],
    );
    let mut hard = limited.clone();
    hard["messages"] = question(9)["messages"].clone();
    let reply = parsed(&proxy.chat(&hard).2);
    let said = &reply["haltwise"];
    assert_eq!(
        (&said["promised"], &said["thought_tokens"]),
        (&json!(false), &json!(25))
    );
    assert_eq!(said["reason"], "end");
    let why = said["unpromised"].as_str().unwrap();
    assert!(why.contains("its max_tokens is 25"), "{why}");
}

#[test]
fn an_upstream_that_fails_half_the_time_is_asked_again_and_goes_on_where_it_broke_off() {
    let folder = rules();
    let whole = {
        let server = thinker("vllm");
        let proxy = Proxy::start(folder.path(), "right.json", &server.url, &[]);
        parsed(&proxy.chat(&question(2)).2)
    };
    let failed = Mutex::new(HashSet::new());
    let server = Server::start("vllm", move |n, request| {
        let asked = request.path.clone() + &request.body.to_string();
        match (failed.lock().unwrap().insert(asked), n % 4) {
            (false, _) => thinks(request),
            (true, 0) => Response::Body(429, "Retry-After: 0\r\n", "slow down".into()),
            (true, 1) => Response::Body(503, "Retry-After: 0\r\n", "loading".into()),
            (true, _) if request.body["stream"] == true => {
                // It breaks off after some pieces.
                let pieces = common::thinker::pieces(&thinks(request));
                Response::Pieces(Box::new(pieces.into_iter().take(3)))
            }
            (true, _) => Response::Cut("{\"choices\"".into()),
        }
    });
    let proxy = Proxy::start(
        folder.path(),
        "right.json",
        &server.url,
        &["--retries", "20"],
    );
    for stream in [false, true] {
        let mut request = question(2);
        request["seed"] = json!(1 + usize::from(stream));
        let request = if stream { streamed(request) } else { request };
        let (status, _, body) = proxy.chat(&request);
        assert_eq!(status, 200, "{body}");
        let said = match stream {
            true => {
                let chunks = chunks(&body);
                chunks[chunks.len() - 2]["haltwise"].clone()
            }
            false => parsed(&body)["haltwise"].clone(),
        };
        assert_eq!(said, whole["haltwise"]);
    }
    let said = proxy.stop();
    assert!(
        said.contains("2 requests") && !said.contains("failed"),
        "{said}"
    );
}

#[test]
fn failures_and_stalls_have_their_status_or_an_event_of_the_stream() {
    let folder = rules();
    let stalled = Server::start("vllm", |_, request| match request.body["stream"] == true {
        true => Response::Silence,
        false => thinks(request),
    });
    let limits = ["--timeout", "0.3", "--retries", "0"];
    let proxy = Proxy::start(folder.path(), "right.json", &stalled.url, &limits);
    for request in [question(1), streamed(question(1))] {
        let (status, _, body) = proxy.chat(&request);
        assert_eq!(status, 504, "{body}");
        assert!(body.contains("did not answer within 0.3 s"), "{body}");
    }

    // The second step fails, when the stream is open.
    let refuses = Server::start("vllm", |_, request| {
        match request.body["prompt"]
            .as_str()
            .is_some_and(|p| p.contains("w1 "))
        {
            true => Response::Body(400, "", r#"{"error": {"message": "too long"}}"#.into()),
            false => thinks(request),
        }
    });
    let proxy = Proxy::start(folder.path(), "right.json", &refuses.url, &limits);
    let (status, _, body) = proxy.chat(&question(1));
    assert_eq!(
        (status, parsed(&body)["error"]["message"].as_str()),
        (400, Some("too long"))
    );
    let (status, _, body) = proxy.chat(&streamed(question(1)));
    assert_eq!(status, 200);
    assert!(
        body.contains("reasoning_content") && !body.contains("[DONE]"),
        "{body}"
    );
    assert!(
        body.contains(r#"data: {"error": {"message": "too long"}}"#),
        "{body}"
    );

    let nonsense = Server::start("vllm", |_, _| Response::Body(200, "", "[]".into()));
    let proxy = Proxy::start(folder.path(), "right.json", &nonsense.url, &limits);
    assert_eq!(proxy.chat(&question(1)).0, 502);
}

#[test]
fn a_client_that_hangs_up_takes_its_thought_with_it() {
    let folder = rules();
    let (gone, told) = mpsc::channel();
    let gone = Mutex::new(gone);
    let (tell, asked) = mpsc::channel();
    let tell = Mutex::new(tell);
    let server = Server::start("vllm", move |_, request| {
        if request.body["stream"] != true {
            return thinks(request);
        }
        tell.lock().unwrap().send(()).unwrap();
        Response::Watched(gone.lock().unwrap().clone())
    });
    let proxy = Proxy::start(folder.path(), "right.json", &server.url, &[]);
    for request in [question(1), streamed(question(1))] {
        let stream = proxy.send("POST", "/v1/chat/completions", &request.to_string());
        asked.recv().unwrap();
        drop(stream);
        // The server is hung up on; this waits for ever otherwise.
        told.recv().unwrap();
    }
}

#[test]
fn an_audited_request_is_answered_first_and_thought_about_to_the_end_after() {
    let folder = rules();
    let server = thinker("vllm");
    let watched = ["--store", "store", "--audit", "1"];
    let proxy = Proxy::start(folder.path(), "free.json", &server.url, &watched);
    let mut sum = 0;
    for _ in 0..10 {
        let reply = parsed(&proxy.chat(&question(0)).2);
        let said = &reply["haltwise"];
        sum += said["thought_tokens"].as_u64().unwrap();
        assert_eq!(said["audit"].as_str().unwrap().len(), 16, "{reply}");
    }
    assert!(sum < 10 * length(4), "{sum}");
    let begun = Instant::now();
    let status = loop {
        let status = parsed(&proxy.ask("GET", "/free/status", "").2);
        if status["totals"]["audited"] == 10 {
            break status;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{status}");
    };
    assert_eq!(
        (&status["audits"], &status["gap"]),
        (&json!(10), &json!(0.0))
    );
    let steps = |request: &&Request| request.body["stop"] == json!(["</think>"]);
    let asked = server.requests();
    let whole: u64 = length(4).div_ceil(10);
    assert_eq!(asked.iter().filter(steps).count() as u64, 10 * whole);
    let said = proxy.stop();
    assert!(said.contains("10 audits took"), "{said}");
    // The verdict is that of `monitor`.
    let words = "monitor free.json store --json";
    let verdict = parsed(&ran(haltwise().current_dir(&folder).args(words.split(' '))).stdout);
    assert_eq!(
        (&verdict["audits"], &verdict["alarm"]),
        (&json!(10), &json!(false))
    );
}

#[test]
fn an_audit_goes_on_although_the_client_leaves_the_answer() {
    let folder = rules();
    let (gone, told) = mpsc::channel();
    let gone = Mutex::new(gone);
    let (tell, asked) = mpsc::channel();
    let tell = Mutex::new(tell);
    let server = Server::start("vllm", move |_, request| {
        let prompt = request.body["prompt"].as_str().unwrap_or_default();
        if !prompt.ends_with("</think>\n\n") {
            return thinks(request);
        }
        tell.lock().unwrap().send(()).unwrap();
        Response::Watched(gone.lock().unwrap().clone())
    });
    let watched = ["--store", "store", "--audit", "1"];
    let proxy = Proxy::start(folder.path(), "free.json", &server.url, &watched);
    let request = streamed(question(0)).to_string();
    let stream = proxy.send("POST", "/v1/chat/completions", &request);
    asked.recv().unwrap();
    drop(stream);
    told.recv().unwrap();
    let steps = |request: &&Request| request.body["stop"] == json!(["</think>"]);
    let begun = Instant::now();
    while (server.requests().iter().filter(steps).count() as u64) < length(4).div_ceil(10) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the audit is lost"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = proxy.stop();
    assert!(said.contains("1 audit took"), "{said}");
}

#[test]
fn on_alarm_thoughts_go_to_their_ends() {
    let folder = rules();
    // The answer changes in the last words of the thought.
    let server = Server::start("vllm", |_, request| {
        let prompt = request.prompt();
        let words = prompt
            .split_whitespace()
            .filter(|word| word.starts_with('w'))
            .count() as u64;
        if words < length(4) || !prompt.ends_with("\\boxed{") {
            return thinks(request);
        }
        Response::ok(json!({
            "choices": [{"text": "50}", "finish_reason": "stop"}],
            "usage": {"completion_tokens": 3},
        }))
    });
    let watched = ["--store", "store", "--audit", "1"];
    let proxy = Proxy::start(folder.path(), "free.json", &server.url, &watched);
    let said = || parsed(&proxy.chat(&question(0)).2)["haltwise"].take();
    let mut asked = 0;
    while parsed(&proxy.ask("GET", "/free/status", "").2)["alarm"] != true {
        said();
        asked += 1;
        assert!(asked < 200, "no alarm");
    }
    let said = said();
    assert_eq!(
        (&said["thought_tokens"], &said["reason"], &said["answer"]),
        (&json!(length(4)), &json!("end"), &json!("50"))
    );
}
