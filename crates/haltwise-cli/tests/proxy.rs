//! `haltwise proxy` between clients and servers that behave, and those that do not.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(feature = "proxy")]

mod common;

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use common::proxy::{Proxy, parsed};
use common::server::{Response, Server};
use common::voter::{folder, model, votes};
use common::{haltwise, ran, signal};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with a rule for the model: certified, and one that asks for two votes
/// before it may stop at the third.
fn rules() -> TempDir {
    let folder = folder(300, true);
    let server = model();
    let args = [
        "vote",
        "q.jsonl",
        "--server",
        &server.url,
        "-o",
        "t.parquet",
        "--samples",
        "5",
    ];
    let run = ran(haltwise().current_dir(&folder).args(args));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let calibrate = ["calibrate", "t.parquet", "-o", "certified.json"];
    haltwise()
        .current_dir(&folder)
        .args(calibrate)
        .assert()
        .success();
    let rule = fs::read(folder.path().join("certified.json")).unwrap();
    let mut rule: Value = serde_json::from_slice(&rule).unwrap();
    (rule["method"], rule["promise"], rule["trail"]) =
        (json!("screen-only"), Value::Null, json!([]));
    rule["score"] = json!("confidence");
    rule["thresholds"] = json!([null, null, 0.9, null, null]);
    fs::write(folder.path().join("rule.json"), rule.to_string()).unwrap();
    folder
}

/// A folder with a rule about disagreements, made without labels.
fn without_labels() -> TempDir {
    let folder = folder(300, false);
    let server = model();
    let vote = "vote q.jsonl -o t.parquet --samples 5 --server";
    let run = |words: &str, more: &[&str]| {
        let mut command = haltwise();
        command.current_dir(&folder).args(words.split(' '));
        let run = ran(command.args(more));
        assert_eq!(run.code, 0, "{words}: {}", run.stderr);
    };
    run(vote, &[&server.url]);
    let calibrate = "calibrate t.parquet --loss disagreement --method marginal -o free.json";
    run(calibrate, &[]);
    folder
}

/// Votes as usual, or such that the first two agree on what the others do not say;
/// whichever the switch says.
fn drifting(switch: &Arc<AtomicBool>) -> Server {
    let drifted = Arc::clone(switch);
    Server::start("vllm", move |_, request| {
        let mut request = request.clone();
        if !drifted.load(Ordering::SeqCst) {
            return votes(&request, true);
        }
        let early = request.body["seed"].as_u64() < Some(3);
        request.body["seed"] = json!(1);
        let sum = if early { 1 } else { 50 };
        let asked = json!(format!("What is {sum} plus 3? (difficulty 0)"));
        request.body["messages"][0]["content"] = asked;
        votes(&request, true)
    })
}

/// A question in the words that `vote` asks in.
fn question(difficulty: usize) -> Value {
    let text = format!(
        "What is 4 plus 3? (difficulty {difficulty})\n\nThink step by step, and put the final \
         answer in \\boxed{{}}."
    );
    json!({"model": "m", "messages": [{"role": "user", "content": text}], "seed": 1})
}

/// Waits for what a store says of a rule.
fn until(proxy: &Proxy, name: &str, what: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let status = parsed(&proxy.ask("GET", &format!("/{name}/status"), "").2);
        if what(&status) {
            return status;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{status}");
    }
}

#[test]
fn a_request_becomes_as_many_votes_as_the_rule_asks_for() {
    let folder = rules();
    let server = model();
    let proxy = Proxy::start(folder.path(), "rule.json", &server.url, &[]);
    let mut request = question(0);
    request["temperature"] = json!(0);
    let (status, head, body) = proxy.chat(&request);
    assert_eq!(status, 200, "{body}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let reply = parsed(&body);
    assert_eq!(reply["choices"].as_array().unwrap().len(), 1);
    assert_eq!(
        reply["choices"][0]["message"]["content"],
        "It is easy: \\boxed{7.0}."
    );
    assert_eq!(
        reply["haltwise"],
        json!({"votes": 3, "of": 5, "agreement": 1.0, "saved_tokens": 20, "answer": "7",
            "promised": false, "reason": "the rule was screened, not certified"})
    );
    let usage = &reply["usage"];
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(90), &json!(30))
    );
    assert_eq!(usage["total_tokens"], 120);
    let asked = server.requests();
    let seeds: HashSet<u64> = asked
        .iter()
        .map(|r| r.body["seed"].as_u64().unwrap())
        .collect();
    assert_eq!((asked.len(), seeds.len()), (3, 3));
    for vote in &asked {
        // The rule's temperature, not the client's.
        assert_eq!(
            (&vote.body["temperature"], &vote.body["max_tokens"]),
            (&json!(0.7), &json!(1024))
        );
        assert!(
            vote.head
                .to_ascii_lowercase()
                .contains("authorization: bearer sesame")
        );
        assert_eq!(vote.body.get("stream"), None);
    }
    let said = proxy.stop();
    assert!(
        said.contains("1 request voted on by 3 of 5 votes; 30 tokens generated, about 20 saved"),
        "{said}"
    );
    assert!(!said.contains("sesame"), "{said}");
}

/// What a reply says about its votes, and how many requests reached the server for it.
fn voted(proxy: &Proxy, server: &Server, request: &Value) -> (Value, usize) {
    let before = server.requests().len();
    let (status, _, body) = proxy.chat(request);
    assert_eq!(status, 200, "{body}");
    let said = parsed(&body)["haltwise"].take();
    (said, server.requests().len() - before)
}

#[test]
fn a_certified_rule_promises_to_requests_like_those_it_knows() {
    let folder = rules();
    let server = model();
    let proxy = Proxy::start(folder.path(), "certified.json", &server.url, &[]);
    let (said, asked) = voted(&proxy, &server, &question(0));
    assert_eq!(
        (&said["promised"], said.get("reason")),
        (&json!(true), None)
    );
    assert!((2..5).contains(&asked), "{said}");
    // `vote` had told the model how to answer.
    let mut bare = question(0);
    bare["messages"][0]["content"] = json!("What is 4 plus 3? (difficulty 0)");
    bare["temperature"] = json!(0.1);
    let mut with_system = question(0);
    let system = json!({"role": "system", "content": "Be brief."});
    with_system["messages"]
        .as_array_mut()
        .unwrap()
        .insert(0, system);
    let with = |field: &str, value: Value| {
        let mut other = question(0);
        other[field] = value;
        other
    };
    for (request, expected) in [
        (
            bare,
            "its last message does not end with \"\\n\\nThink step by step",
        ),
        (
            with_system,
            "its messages are: system, user; the rule was calibrated on: user",
        ),
        (with("max_tokens", json!(5)), "its max_tokens is 5"),
        (
            with("presence_penalty", json!(1)),
            "it has the field \"presence_penalty\"",
        ),
    ] {
        // It is passed on as it is.
        let (said, asked) = voted(&proxy, &server, &request);
        assert_eq!((&said["promised"], asked), (&json!(false), 1), "{said}");
        let reason = said["reason"].as_str().unwrap();
        assert!(reason.contains(expected), "{expected}: {reason}");
        assert_eq!(server.requests().last().unwrap().body, request);
    }
    let votes = ["--unpromised", "vote"];
    let proxy = Proxy::start(folder.path(), "certified.json", &server.url, &votes);
    let (said, asked) = voted(&proxy, &server, &with("presence_penalty", json!(1)));
    assert_eq!(said["promised"], false);
    assert!((2..5).contains(&asked), "{said}");
}

#[test]
fn a_rule_made_of_recorded_requests_promises_to_requests_like_those() {
    let folder = TempDir::new().unwrap();
    let request = |i: usize, system: &str| {
        let text = format!("What is {i} plus 3? (difficulty {})", i % 5);
        let messages = [("system", system), ("user", &text)];
        let messages = messages.map(|(role, text)| json!({"role": role, "content": text}));
        json!({"model": "any", "temperature": 0, "max_tokens": 300, "messages": messages})
    };
    let lines: Vec<String> = (0..300)
        .map(|i| {
            let mut line = request(i, "You add up. Put the sum in a box.");
            line["label"] = json!(i + 3);
            line.to_string()
        })
        .collect();
    fs::write(folder.path().join("chat.jsonl"), lines.join("\n")).unwrap();
    let server = model();
    let run = |words: &str, more: &[&str]| {
        let mut command = haltwise();
        command.current_dir(&folder).args(words.split(' '));
        let run = ran(command.args(more));
        assert_eq!(run.code, 0, "{words}: {}", run.stderr);
        run.stdout
    };
    run(
        "vote --requests chat.jsonl -o t.parquet --samples 5 --server",
        &[&server.url],
    );
    let asked = server.requests();
    assert_eq!(asked[0].body["messages"].as_array().unwrap().len(), 2);
    assert_eq!(
        json!([
            asked[0].body["model"],
            asked[0].body["temperature"],
            asked[0].body["max_tokens"]
        ]),
        json!(["m", 0.7, 300])
    );
    run(
        "calibrate t.parquet --method marginal -o rule_of_requests.json",
        &[],
    );
    let live = "vote --requests chat.jsonl --rule rule_of_requests.json --server";
    let first = run(live, &[&server.url]);
    assert!(
        first.lines().all(|line| parsed(line)["promised"] == true),
        "{first}"
    );

    let watched = ["--store", "store", "--audit", "1"];
    let proxy = Proxy::start(
        folder.path(),
        "rule_of_requests.json",
        &server.url,
        &watched,
    );
    let mut known = request(4, "You add up. Put the sum in a box.");
    (known["model"], known["seed"]) = (json!("m"), json!(1));
    let (said, _) = voted(&proxy, &server, &known);
    assert_eq!(said["promised"], true, "{said}");
    assert_eq!(said["audit"].as_str().unwrap().len(), 16);
    // Its other votes are in, so that the requests after it can be counted.
    until(&proxy, "rule_of_requests", |status| {
        status["totals"]["audited"] == 1
    });
    for (system, expected) in [
        (Some("You subtract."), "its system message is not the one"),
        (
            None,
            "its messages are: user; the rule was calibrated on: system, user",
        ),
    ] {
        let mut other = known.clone();
        match system {
            Some(text) => other["messages"][0]["content"] = json!(text),
            None => drop(other["messages"].as_array_mut().unwrap().remove(0)),
        }
        let (said, asked) = voted(&proxy, &server, &other);
        assert_eq!((&said["promised"], asked), (&json!(false), 1));
        let reason = said["reason"].as_str().unwrap();
        assert!(
            reason.contains(expected) && !reason.contains("add up"),
            "{reason}"
        );
    }
}

#[test]
fn a_streaming_client_gets_the_chosen_completion_as_a_stream() {
    let folder = rules();
    let server = model();
    let proxy = Proxy::start(folder.path(), "rule.json", &server.url, &[]);
    let mut request = question(0);
    request["stream"] = true.into();
    request["stream_options"] = json!({"include_usage": true});
    let (status, head, body) = proxy.chat(&request);
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
    let events = body
        .split_terminator("\n\n")
        .map(|e| e.strip_prefix("data: ").unwrap());
    let chunks: Vec<Value> = events.filter(|e| *e != "[DONE]").map(parsed).collect();
    let text: String = chunks
        .iter()
        .filter_map(|c| c["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, "It is easy: \\boxed{7.0}.");
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let last = &chunks[chunks.len() - 2];
    assert_eq!(
        (
            &last["choices"][0]["finish_reason"],
            &last["haltwise"]["votes"]
        ),
        (&json!("stop"), &json!(3))
    );
    assert_eq!(chunks[chunks.len() - 1]["usage"]["completion_tokens"], 30);
    assert!(chunks.len() >= 6);
}

#[test]
fn an_upstream_that_fails_half_the_time_is_asked_again() {
    let folder = rules();
    let failed = Mutex::new(HashSet::new());
    let server = Server::start("vllm", move |n, request| {
        let seed = request.body["seed"].as_u64().unwrap();
        match (failed.lock().unwrap().insert(seed), n % 3) {
            (false, _) => votes(request, true),
            (true, 0) => Response::Body(429, "Retry-After: 0\r\n", "slow down".into()),
            (true, 1) => Response::Body(503, "Retry-After: 0\r\n", "loading".into()),
            (true, _) => Response::Cut("{\"choices\"".into()),
        }
    });
    let proxy = Proxy::start(folder.path(), "rule.json", &server.url, &[]);
    for _ in 0..4 {
        let mut request = question(2);
        request["seed"] = json!(10 * server.requests().len());
        let (status, _, body) = proxy.chat(&request);
        assert_eq!(status, 200, "{body}");
    }
    let said = proxy.stop();
    assert!(
        said.contains("4 requests") && !said.contains("failed"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_mended_is_passed_back_with_its_status() {
    let folder = rules();
    let error = |message: &str| json!({"error": {"message": message}}).to_string();
    let (busy, closed) = (error("later"), error("bad key"));
    let server = Server::start("vllm", move |_, request| {
        match request.prompt().contains("difficulty 1") {
            true => Response::Body(429, "Retry-After: 0\r\nX-Mine: 1\r\n", busy.clone()),
            false => Response::Body(401, "", closed.clone()),
        }
    });
    let proxy = Proxy::start(folder.path(), "rule.json", &server.url, &["--retries", "2"]);
    let (status, head, body) = proxy.chat(&question(1));
    assert_eq!(
        (status, parsed(&body)["error"]["message"].as_str()),
        (429, Some("later"))
    );
    assert!(head.contains("retry-after: 0"), "{head}");
    let asked = server.requests().len();
    assert!((3..=9).contains(&asked), "{asked}");
    let (status, _, body) = proxy.chat(&question(2));
    assert_eq!(
        (status, parsed(&body)["error"]["message"].as_str()),
        (401, Some("bad key"))
    );
    // The proxy does not ask that again: three votes at the most. Some votes on the first
    // question may still be on their way.
    let requests = server.requests();
    let second = requests
        .iter()
        .filter(|r| !r.prompt().contains("difficulty 1"));
    assert!((1..=3).contains(&second.count()));
    assert!(proxy.stop().contains("; 2 failed"));

    let silent = Server::start("vllm", |_, _| Response::Silence);
    let proxy = Proxy::start(
        folder.path(),
        "rule.json",
        &silent.url,
        &["--timeout", "0.3"],
    );
    let (status, _, body) = proxy.chat(&question(1));
    assert_eq!(status, 504);
    let message = parsed(&body)["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(message, "the model's server did not answer within 0.3 s");

    let nonsense = Server::start("vllm", |n, _| {
        let bodies = ["[]", "{\"choices\": [{\"message\": \"x\"}]}", "<html>"];
        Response::Body(200, "", bodies[n % 3].into())
    });
    let proxy = Proxy::start(folder.path(), "rule.json", &nonsense.url, &[]);
    for _ in 0..3 {
        assert_eq!(proxy.chat(&question(1)).0, 502);
    }

    // A port where nobody listens.
    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let proxy = Proxy::start(
        folder.path(),
        "rule.json",
        &format!("http://{gone}"),
        &["--retries", "0"],
    );
    let (status, _, body) = proxy.chat(&question(1));
    assert_eq!(status, 502);
    assert!(body.contains("cannot reach the model's server"), "{body}");
    assert!(!body.contains(&gone.port().to_string()), "{body}");
}

#[test]
fn a_client_that_hangs_up_takes_its_votes_with_it() {
    let folder = rules();
    let (gone, told) = mpsc::channel();
    let gone = Mutex::new(gone);
    let (tell, asked) = mpsc::channel();
    let tell = Mutex::new(tell);
    let server = Server::start("vllm", move |_, _| {
        tell.lock().unwrap().send(()).unwrap();
        Response::Watched(gone.lock().unwrap().clone())
    });
    let proxy = Proxy::start(folder.path(), "rule.json", &server.url, &[]);
    let stream = proxy.send("POST", "/v1/chat/completions", &question(1).to_string());
    for _ in 0..3 {
        asked.recv().unwrap();
    }
    drop(stream);
    // All three are hung up on; this waits for ever otherwise.
    for _ in 0..3 {
        told.recv().unwrap();
    }
}

#[test]
fn what_is_not_voted_on_is_passed_through() {
    let folder = rules();
    let server = Server::start("vllm", |_, request| {
        let mut reply = json!({"path": request.path, "got": request.body});
        reply["key"] = request.head.contains("Bearer sesame").into();
        Response::Body(201, "X-Mine: 1\r\n", reply.to_string())
    });
    let proxy = Proxy::start(folder.path(), "rule.json", &server.url, &[]);
    let (status, _, body) = proxy.ask("GET", "/v1/models", "");
    assert_eq!(
        (status, parsed(&body)["data"][0]["id"].as_str()),
        (200, Some("m"))
    );
    let (status, head, body) = proxy.ask("POST", "/v1/embeddings?x=1", "{\"input\": \"a\"}");
    assert_eq!(
        (status, parsed(&body)["path"].as_str()),
        (201, Some("/v1/embeddings?x=1"))
    );
    assert!(head.contains("x-mine: 1"), "{head}");
    assert_eq!(parsed(&body)["key"], true);
    let with = |field: &str, value: Value| {
        let mut request = question(1);
        request[field] = value;
        request
    };
    for request in [
        with("model", json!("other")),
        with("tools", json!([{"type": "function"}])),
        with("n", json!(2)),
        with("logprobs", json!(true)),
        with("messages", json!("none")),
        json!([]),
    ] {
        let (status, _, body) = proxy.chat(&request);
        assert_eq!((status, &parsed(&body)["got"]), (201, &request));
    }
    assert_eq!(proxy.ask("GET", "/elsewhere", "").0, 404);
}

#[test]
fn rules_that_are_not_for_votes_are_refused() {
    let folder = rules();
    let mut rule = parsed(&fs::read_to_string(folder.path().join("rule.json")).unwrap());
    let refused = |rule: &Value, expected: &str| {
        fs::write(folder.path().join("bad.json"), rule.to_string()).unwrap();
        let args = [
            "proxy",
            "--rule",
            "bad.json",
            "--server",
            "http://127.0.0.1:1",
        ];
        let run = ran(haltwise().current_dir(&folder).args(args));
        assert_eq!(run.code, 1);
        assert!(
            run.stderr.contains(expected),
            "{expected:?} is not in {}",
            run.stderr
        );
    };
    rule["classifier"]["answer"] = json!("regex:(");
    refused(&rule, "the pattern \"(\" cannot be used");
    rule["classifier"]["answer"] = json!("boxed");
    rule["classifier"]["samples"] = json!("6");
    refused(&rule, "not as many steps");
    rule["classifier"]["samples"] = json!("many");
    refused(&rule, "its record of samples is \"many\"");
    rule["classifier"] = json!({"model": "m"});
    refused(&rule, "it is neither for votes nor for thoughts");
    rule["classifier"] = Value::Null;
    refused(&rule, "does not say how its votes were cast");
    let args = [
        "proxy",
        "--rule",
        "rule.json",
        "--server",
        "http://u:secret@h",
    ];
    let run = ran(haltwise().current_dir(&folder).args(args));
    assert!(
        run.code == 1 && !run.stderr.contains("secret"),
        "{}",
        run.stderr
    );
}

#[test]
fn an_audited_request_is_answered_first_and_voted_on_to_the_end_after() {
    let folder = without_labels();
    let server = model();
    let watched = ["--store", "store", "--audit", "1"];
    let proxy = Proxy::start(folder.path(), "free.json", &server.url, &watched);
    let mut votes = 0;
    for _ in 0..10 {
        let reply = parsed(&proxy.chat(&question(0)).2);
        let said = &reply["haltwise"];
        votes += said["votes"].as_u64().unwrap();
        assert_eq!(said["audit"].as_str().unwrap().len(), 16, "{reply}");
    }
    assert!(votes < 50, "{votes}");
    let status = until(&proxy, "free", |status| status["totals"]["audited"] == 10);
    assert_eq!(
        (&status["audits"], &status["unknown"], &status["gap"]),
        (&json!(10), &json!(0), &json!(0.0))
    );
    let asked = server.requests();
    assert_eq!(asked.len(), 50);
    let seeds = |n: u64| asked.iter().filter(|r| r.body["seed"] == n).count();
    assert_eq!((1..=5).map(seeds).collect::<Vec<_>>(), [10; 5]);
    let (_, _, metrics) = proxy.ask("GET", "/metrics", "");
    for line in [
        "haltwise_streams_total{rule=\"free\"} 10".to_owned(),
        "haltwise_audited_total{rule=\"free\"} 10".to_owned(),
        // Audited requests save nothing: all their votes are cast.
        "haltwise_steps_saved_total{rule=\"free\"} 0".to_owned(),
        "haltwise_alarm{rule=\"free\"} 0".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    // What the promise is not about is answered, and neither audited nor counted.
    let mut other = question(0);
    other["max_tokens"] = json!(99);
    let reply = parsed(&proxy.chat(&other).2);
    assert_eq!(reply["haltwise"].get("audit"), None, "{reply}");
    let said = proxy.stop();
    let more = format!("10 audits took {} more", 10 * (50 - votes));
    assert!(said.contains(&more), "{more}: {said}");
    assert!(!said.contains("sesame"), "{said}");
    for file in fs::read_dir(folder.path().join("store/free")).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(6).any(|part| part == b"sesame"));
    }
    // The verdict is that of `monitor`.
    let words = "monitor free.json store --json";
    let verdict = parsed(&ran(haltwise().current_dir(&folder).args(words.split(' '))).stdout);
    assert_eq!(
        (&verdict["audits"], &verdict["alarm"]),
        (&json!(10), &json!(false))
    );
}

#[test]
fn on_alarm_all_votes_are_cast_until_there_is_a_new_rule() {
    let folder = without_labels();
    let drifted = Arc::new(AtomicBool::new(true));
    let server = drifting(&drifted);
    let watched = ["--store", "store", "--audit", "1"];
    let proxy = Proxy::start(folder.path(), "free.json", &server.url, &watched);
    let votes = |proxy: &Proxy| {
        let reply = parsed(&proxy.chat(&question(0)).2);
        reply["haltwise"]["votes"].as_u64().unwrap()
    };
    let mut asked = 0;
    while !parsed(&proxy.ask("GET", "/free/status", "").2)["alarm"]
        .as_bool()
        .unwrap()
    {
        assert!(votes(&proxy) <= 5);
        asked += 1;
        assert!(asked < 200, "no alarm");
    }
    assert_eq!(votes(&proxy), 5, "it reads on");
    drifted.store(false, Ordering::SeqCst);
    for i in 0..300 {
        let mut request = question(i % 5);
        request["seed"] = json!(10 * i);
        assert_eq!(proxy.chat(&request).0, 200);
    }
    let status = until(&proxy, "free", |status| {
        status["totals"]["audited"].as_u64() > Some(300)
    });
    assert_eq!(proxy.ask("POST", "/free/rotate", "").0, 200);
    proxy.stop();
    let delta = status["next_delta"].to_string();
    let words = format!(
        "calibrate store/free --loss disagreement --method marginal -o new.json --delta {delta}"
    );
    let run = ran(haltwise().current_dir(&folder).args(words.split(' ')));
    assert_eq!(run.code, 0, "{}", run.stderr);
    fs::rename(
        folder.path().join("new.json"),
        folder.path().join("free.json"),
    )
    .unwrap();
    let watched = [&watched[..], &["--replace"]].concat();
    let proxy = Proxy::start(folder.path(), "free.json", &server.url, &watched);
    let status = until(&proxy, "free", |_| true);
    assert_eq!(
        (&status["renewal"], &status["alarm"]),
        (&json!(2), &json!(false))
    );
    assert!(votes(&proxy) < 5, "{status}");
}

#[test]
fn audits_of_a_rule_about_right_answers_want_a_label() {
    let folder = rules();
    let server = drifting(&Arc::new(AtomicBool::new(true)));
    let watched = ["--store", "store", "--audit", "1"];
    let proxy = Proxy::start(folder.path(), "certified.json", &server.url, &watched);
    let reply = parsed(&proxy.chat(&question(0)).2);
    let id = reply["haltwise"]["audit"].as_str().unwrap();
    let status = until(&proxy, "certified", |status| {
        status["totals"]["audited"] == 1
    });
    assert_eq!(
        (&status["unknown"], &status["labels_wanted"]),
        (&json!(1), &json!([id]))
    );
    // Labels are compared as answers are.
    let label = json!({"id": id, "label": "53.0"}).to_string();
    let (code, _, said) = proxy.ask("POST", "/certified/labels", &label);
    assert_eq!((code, &parsed(&said)["labels"]), (200, &json!(1)), "{said}");
    let status = until(&proxy, "certified", |_| true);
    assert_eq!(
        (&status["unknown"], &status["by_step"][0]["gap"]),
        (&json!(0), &json!(1.0))
    );
    // A proxy that other machines can reach needs a token for these paths.
    let words = "proxy --rule certified.json --server http://x --listen 0.0.0.0:0 --store s";
    let mut command = haltwise();
    command.current_dir(&folder).args(words.split(' '));
    let refused = ran(command.env("HALTWISE_PROXY_KEYS", "k"));
    assert!(
        refused.stderr.contains("HALTWISE_TOKEN"),
        "{}",
        refused.stderr
    );
}

/// Waits until a server is asked: the proxy has accepted what connected to it before.
fn until_asked(server: &Server) {
    let begun = Instant::now();
    while server.requests().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing comes");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for the end of a process that must come soon.
fn exit_within(child: &mut Child, limit: Duration) -> std::process::ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(begun.elapsed() < limit, "it is still running");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[cfg(unix)]
fn sigterm_waits_no_longer_than_the_drain_for_clients_that_never_finish() {
    let folder = rules();
    let silent = Server::start("vllm", |_, _| Response::Silence);
    let drain = ["--drain", "0.5"];
    let mut proxy = Proxy::start(folder.path(), "rule.json", &silent.url, &drain);
    let mut byte = TcpStream::connect(&proxy.address).unwrap();
    byte.write_all(b"G").unwrap();
    let _waiting = proxy.send("POST", "/v1/chat/completions", &question(1).to_string());
    until_asked(&silent);
    signal(&proxy.child, "-TERM");
    let status = exit_within(&mut proxy.child, Duration::from_secs(10));
    assert!(status.success(), "{status}");
    let mut said = String::new();
    proxy.said.read_to_string(&mut said).unwrap();
    assert!(
        said.contains("were still under way after 0.5 s were cut off"),
        "{said}"
    );
}

#[test]
#[cfg(unix)]
fn a_second_signal_ends_the_proxy_at_once() {
    let folder = rules();
    let silent = Server::start("vllm", |_, _| Response::Silence);
    let drain = ["--drain", "600"];
    let mut proxy = Proxy::start(folder.path(), "rule.json", &silent.url, &drain);
    let mut byte = TcpStream::connect(&proxy.address).unwrap();
    byte.write_all(b"G").unwrap();
    let _waiting = proxy.send("POST", "/v1/chat/completions", &question(1).to_string());
    until_asked(&silent);
    signal(&proxy.child, "-TERM");
    let mut line = String::new();
    proxy.said.read_line(&mut line).unwrap();
    assert!(line.contains("again to quit at once"), "{line}");
    signal(&proxy.child, "-TERM");
    let status = exit_within(&mut proxy.child, Duration::from_secs(10));
    assert_eq!(status.code(), Some(143));
}

#[test]
fn a_proxy_that_other_machines_reach_wants_keys_of_its_own() {
    let folder = rules();
    let refused = |listen: &str, more: &[(&str, &str)], expected: &str| {
        let words = format!("proxy --rule rule.json --server http://127.0.0.1:1 --listen {listen}");
        let mut command = haltwise();
        command.current_dir(&folder).args(words.split(' '));
        let run = ran(command.envs(more.iter().copied()));
        assert_eq!(run.code, 1);
        assert!(run.stderr.contains(expected), "{}", run.stderr);
        assert!(!run.stderr.contains("sesame"), "{}", run.stderr);
    };
    refused("0.0.0.0:0", &[], "HALTWISE_PROXY_KEYS");
    let lent = [("HALTWISE_SERVER_KEY", "sesame")];
    refused("127.0.0.1:0", &lent, "HALTWISE_PROXY_KEYS");
}

/// The next notice that says this.
fn notice(proxy: &mut Proxy, expected: &str) -> String {
    let mut line = String::new();
    while !line.contains(expected) {
        line.clear();
        assert_ne!(proxy.said.read_line(&mut line).unwrap(), 0, "{expected}");
    }
    line
}

#[test]
#[cfg(unix)]
fn sighup_reads_the_rule_file_again_and_keeps_the_rule_where_that_fails() {
    let folder = without_labels();
    let server = model();
    let calibrate = |delta: &str, name: &str| {
        let words = "calibrate t.parquet --loss disagreement --method marginal --delta";
        let mut command = haltwise();
        command.current_dir(&folder).args(words.split(' '));
        let run = ran(command.args([delta, "-o", name]));
        assert_eq!(run.code, 0, "{}", run.stderr);
    };
    calibrate("0.09", "rule.json");
    calibrate("0.03", "next.json");
    let mut proxy = Proxy::start(folder.path(), "rule.json", &server.url, &[]);
    signal(&proxy.child, "-HUP");
    notice(&mut proxy, "rule.json has not changed since it was read");
    let path = folder.path().join("rule.json");
    fs::rename(folder.path().join("next.json"), &path).unwrap();
    signal(&proxy.child, "-HUP");
    notice(&mut proxy, "rule: another rule is in use, number 2");
    let (_, _, rule) = proxy.ask("GET", "/rule/rule", "");
    assert_eq!(rule, fs::read_to_string(&path).unwrap());
    fs::write(&path, "{").unwrap();
    signal(&proxy.child, "-HUP");
    notice(&mut proxy, "the rule that is in use stays");
    assert_eq!(proxy.chat(&question(0)).0, 200);
    assert_eq!(proxy.ask("GET", "/rule/rule", "").2, rule);
}

/// The most memory that a process ever had, in KiB.
#[cfg(target_os = "linux")]
fn peak_kib(child: &Child) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.unwrap().trim().trim_end_matches(" kB");
    peak.parse().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn forty_bodies_that_never_end_take_no_more_memory_than_bodies_may() {
    let folder = rules();
    let server = model();
    let limit = ["--max-bodies", "67108864", "--body-timeout", "600"];
    let proxy = Proxy::start(folder.path(), "rule.json", &server.url, &limit);
    let part = vec![b' '; 15 << 20];
    let clients: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(&proxy.address).unwrap();
            let head =
                "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 16000000\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            // A client that is refused early may find the connection closed.
            let _ = stream.write_all(&part);
            stream
        })
        .collect();
    let (_, _, metrics) = proxy.ask("GET", "/metrics", "");
    let held = "haltwise_proxy_body_bytes ";
    let held = metrics.lines().find_map(|line| line.strip_prefix(held));
    let held: usize = held.unwrap().parse().unwrap();
    assert!((48 << 20..=64 << 20).contains(&held), "{held}");
    let peak = peak_kib(&proxy.child);
    // All of them would be 600 MiB.
    assert!(peak < 256 << 10, "{peak} kB");
    drop(clients);
}

#[test]
#[cfg(target_os = "linux")]
fn a_large_request_takes_little_more_than_its_bytes_while_it_is_voted_on() {
    let folder = rules();
    let silent = Server::start("vllm", |_, _| Response::Silence);
    let proxy = Proxy::start(folder.path(), "rule.json", &silent.url, &[]);
    // Parsed, each number would take 32 bytes, and each vote would send its own copy.
    let numbers = "0,".repeat(7 << 20);
    let mut request = question(1).to_string();
    request.insert_str(1, &format!("\"numbers\":[{numbers}0],"));
    let path = "/v1/chat/completions";
    let waiting: Vec<TcpStream> = (0..4).map(|_| proxy.send("POST", path, &request)).collect();
    let begun = Instant::now();
    while silent.requests().len() < 4 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "they do not come"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let peak = peak_kib(&proxy.child);
    assert!(peak < 256 << 10, "{peak} kB");
    // A body holds its share of the memory until its votes are over.
    let (_, _, metrics) = proxy.ask("GET", "/metrics", "");
    let held = format!("haltwise_proxy_body_bytes {}\n", 4 * request.len());
    assert!(metrics.contains(&held), "{held}: {metrics}");
    drop(waiting);
}

#[test]
fn a_failure_of_the_server_is_told_once_to_who_runs_the_proxy() {
    let folder = rules();
    let gone = ["--retries", "0"];
    let proxy = Proxy::start(folder.path(), "rule.json", "http://127.0.0.1:1", &gone);
    assert_eq!(proxy.chat(&question(0)).0, 502);
    for path in ["/health", "/ready", "/metrics", "/openapi.json"] {
        assert_eq!(proxy.ask("GET", path, "").0, 200, "{path}");
    }
    let said = proxy.stop();
    let told = said.matches("/v1/chat/completions: 502 in").count();
    assert_eq!(told, 1, "{said}");
}

#[test]
fn a_token_that_reads_replaces_no_rule_and_the_log_can_be_json() {
    let folder = rules();
    // All requests of this test show "sesame".
    let variables = [
        ("HALTWISE_TOKEN", "master"),
        ("HALTWISE_TOKEN_READ", "sesame"),
    ];
    let more = ["--retries", "0", "--log", "json"];
    let server = "http://127.0.0.1:1";
    let proxy = Proxy::start_with(folder.path(), "rule.json", server, &more, &variables);
    assert_eq!(proxy.ask("GET", "/rule/status", "").0, 200);
    let (status, _, said) = proxy.ask("PUT", "/rule/rule", "{}");
    assert_eq!(status, 403, "{said}");
    let (status, head, _) = proxy.chat(&question(0));
    assert_eq!(status, 502);
    let id = head
        .lines()
        .find_map(|line| line.strip_prefix("x-request-id: "));
    let id = id.unwrap().to_owned();
    let said = proxy.stop();
    let lines: Vec<Value> = said.lines().map(parsed).collect();
    let failed = lines.iter().find(|line| line["status"] == 502).unwrap();
    assert_eq!(failed["request_id"], id.as_str());
    let reason = failed["reason"].as_str().unwrap();
    assert!(
        reason.contains("cannot reach the model's server"),
        "{reason}"
    );
}
