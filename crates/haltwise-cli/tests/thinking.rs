//! `think` against servers that behave, and servers that do not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::HashSet;
use std::fs;
use std::process::Stdio;
use std::sync::{Mutex, mpsc};

use common::server::{Request, Response, Server};
use common::thinker::{generated, length, thinker, thinks};
use common::voter::{folder, votes};
use common::{Ran, haltwise, json_lines, ran};
use serde_json::{Value, json};
use tempfile::TempDir;

fn think(folder: &TempDir, server: &Server, output: &str, more: &[&str]) -> Ran {
    let args = ["think", "q.jsonl", "--server", &server.url, "-o", output];
    let every = ["--every", "10"];
    ran(haltwise()
        .current_dir(folder)
        .args(args)
        .args(every)
        .args(more))
}

/// Answers under a rule.
fn live(folder: &TempDir, server: &Server, more: &[&str]) -> Ran {
    let args = ["think", "--rule", "rule.json", "--server", &server.url];
    ran(haltwise().current_dir(folder).args(args).args(more))
}

fn calibrate(folder: &TempDir, more: &[&str]) {
    let args = [
        "calibrate",
        "t.parquet",
        "-o",
        "rule.json",
        "--promise",
        "average",
    ];
    haltwise()
        .current_dir(folder)
        .args(args)
        .args(["--cost", "cost", "--delta", "0.05"])
        .args(more)
        .assert()
        .success();
}

fn bytes(folder: &TempDir, name: &str) -> Vec<u8> {
    fs::read(folder.path().join(name)).unwrap()
}

fn json_of(run: &Ran) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("{e}: {}", run.stderr))
}

fn completions(server: &Server) -> Vec<Request> {
    let all = server.requests().into_iter();
    all.filter(|r| r.path == "/v1/completions").collect()
}

#[test]
fn from_questions_to_a_rule_to_answers_with_less_thought() {
    for (owner, labels) in [("vllm", true), ("llamacpp", false)] {
        let folder = folder(400, labels);
        let server = thinker(owner);
        let run = think(
            &folder,
            &server,
            "t.parquet",
            &["--json", "--thoughts", "said.jsonl"],
        );
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        let said = json_of(&run);
        let whole: u64 = (0..400).map(length).sum();
        assert_eq!(said["thought_tokens"], whole);
        assert_eq!(said["late_accuracy"].is_null(), !labels);
        let probes = said["probe_tokens"].as_u64().unwrap();
        assert_eq!(generated(&server.requests()), whole + probes);
        assert!(!folder.path().join("t.parquet.journal").exists());
        // The first thought, step by step.
        let lines = String::from_utf8(bytes(&folder, "said.jsonl")).unwrap();
        let first = &json_lines(&lines)[0];
        assert_eq!(first["tokens"], json!([10, 10, 10, 10, 10, 10, 0]));
        assert_eq!(first["probe_tokens"], json!([3; 7].to_vec()));
        assert_eq!(first["answers"], json!(["3"; 7].to_vec()));

        calibrate(
            &folder,
            &["--loss", if labels { "gap" } else { "disagreement" }],
        );
        let rule: Value = serde_json::from_slice(&bytes(&folder, "rule.json")).unwrap();
        assert_eq!(rule["classifier"]["every"], "10");
        assert!(rule["classifier"].get("samples").is_none());

        let server = thinker(owner);
        let run = live(&folder, &server, &["q.jsonl"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(run.stderr.contains("the rule ended"), "{}", run.stderr);
        let answers = json_lines(&run.stdout);
        assert_eq!((answers.len(), &answers[399]["id"]), (400, &json!("q399")));
        let sum = |name: &str| {
            answers
                .iter()
                .map(|a| a[name].as_u64().unwrap())
                .sum::<u64>()
        };
        assert_eq!(
            sum("thought_tokens") + sum("probe_tokens"),
            generated(&server.requests())
        );
        assert!(
            2 * sum("thought_tokens") < whole,
            "{} of {whole}",
            sum("thought_tokens")
        );
        for answer in &answers {
            assert_eq!(answer["promised"], true);
            assert_eq!(answer.get("right").is_some(), labels);
            let words = answer["thought"]
                .as_str()
                .unwrap()
                .split_whitespace()
                .count();
            assert_eq!(answer["thought_tokens"], words);
            assert_eq!(
                answer["reason"] == "end",
                answer["thought_tokens"] == length(id(answer))
            );
        }

        let run = live(
            &folder,
            &server,
            &["--question", "What is 7 plus 3? (difficulty 2)"],
        );
        assert!(
            run.stdout.starts_with("10\n"),
            "{}{}",
            run.stdout,
            run.stderr
        );
        assert!(run.stdout.contains("the rule ended it."), "{}", run.stdout);
    }
}

fn id(answer: &Value) -> u64 {
    answer["id"].as_str().unwrap()[1..].parse().unwrap()
}

#[test]
fn killed_and_resumed_the_file_is_the_same() {
    let folder = folder(5, true);
    for owner in ["vllm", "llamacpp"] {
        let more = ["--concurrency", "1", "--samples", "2"];
        let calm = thinker(owner);
        assert_eq!(think(&folder, &calm, "whole.parquet", &more).code, 0);
        let whole = completions(&calm).len();
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let is_first = Mutex::new(true);
        let server = Server::start(owner, move |asked, request| {
            let mut is_first = is_first.lock().unwrap();
            if asked > 40 && request.path == "/v1/completions" && *is_first {
                *is_first = false;
                tell.lock().unwrap().send(()).unwrap();
                return Response::Silence;
            }
            thinks(request)
        });
        let args = [
            "think",
            "q.jsonl",
            "--server",
            &server.url,
            "-o",
            "t.parquet",
        ];
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("haltwise"))
            .current_dir(&folder)
            .args(args)
            .args(["--every", "10"])
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        told.recv().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!folder.path().join("t.parquet").exists());
        let before = completions(&server).len();
        let run = think(
            &folder,
            &server,
            "t.parquet",
            &[&more[..], &["--json"]].concat(),
        );
        assert!(
            json_of(&run)["asked_earlier"].as_u64() > Some(0),
            "{}",
            run.stderr
        );
        assert!(
            bytes(&folder, "whole.parquet") == bytes(&folder, "t.parquet"),
            "{owner}"
        );
        let again = completions(&server).len() - whole;
        if owner == "vllm" {
            // A step that was not in the journal is asked for again.
            assert!((1..=2).contains(&again), "{again}");
        } else {
            // The thought under way begins again, because the server has forgotten how it came there.
            assert!((1..=14).contains(&again), "{again}");
            let first = &completions(&server)[before];
            assert_eq!(first.body["cache_prompt"], false);
            assert!(first.prompt().ends_with("<think>\n"), "{}", first.prompt());
        }
        fs::remove_file(folder.path().join("t.parquet")).unwrap();
    }
}

#[test]
fn a_server_that_fails_half_the_time_costs_nothing_but_time() {
    let folder = folder(4, true);
    assert_eq!(
        think(&folder, &thinker("vllm"), "whole.parquet", &[]).code,
        0
    );
    let failures = Mutex::new(HashSet::new());
    let server = Server::start("vllm", move |n, request| {
        let asked = request.path.clone() + &request.body.to_string();
        match (failures.lock().unwrap().insert(asked), n % 3) {
            (false, _) => thinks(request),
            (true, 0) => Response::Body(429, "Retry-After: 0\r\n", "slow down".into()),
            (true, 1) => Response::Body(503, "Retry-After: 0\r\n", "loading".into()),
            (true, _) => Response::Body(500, "Retry-After: 0\r\n", "oops".into()),
        }
    });
    let run = think(&folder, &server, "t.parquet", &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("trying again in 0 s"), "{}", run.stderr);
    assert!(bytes(&folder, "whole.parquet") == bytes(&folder, "t.parquet"));
}

#[test]
fn a_failure_for_good_names_the_question_and_the_place_in_its_thought() {
    let folder = folder(4, true);
    let server = Server::start("vllm", |n, request| match n {
        0..43 => thinks(request),
        _ => Response::Body(400, "", r#"{"error": {"message": "too long"}}"#.into()),
    });
    let run = think(&folder, &server, "t.parquet", &["--concurrency", "1"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    run.complains("400 Bad Request: too long");
    run.complains("question q2: after 20 tokens of thought");
    run.complains("2 of 4 answers are kept");
    for other in [["--seed", "9"], ["--begin", "So:"], ["--max-tokens", "50"]] {
        let run = think(&folder, &thinker("vllm"), "t.parquet", &other);
        run.complains("begun with other questions");
    }
}

#[test]
fn without_the_servers_chat_format_the_user_gives_it() {
    let folder = folder(1, true);
    let plain = |_, request: &Request| match request.path.as_str() {
        "/v1/completions" => thinks(request),
        _ => Response::Body(404, "", "not found".into()),
    };
    let server = Server::start("other", plain);
    let run = think(&folder, &server, "t.parquet", &[]);
    assert_eq!(run.code, 1);
    run.complains("--endpoint completions and --chat-format");
    let chat = ["--endpoint", "completions", "--chat-format", "chatml"];
    let run = think(&folder, &server, "t.parquet", &chat);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let prompt = completions(&server)[0].prompt().to_owned();
    assert!(
        prompt.starts_with("<|im_start|>user\nWhat is 0"),
        "{prompt}"
    );
    assert!(
        prompt.ends_with("<|im_start|>assistant\n<think>\n"),
        "{prompt}"
    );
}

#[test]
fn a_thought_has_a_limit_and_marks_of_its_own() {
    let folder = folder(1, true);
    let server = Server::start("vllm", |_, request| {
        let prompt = request
            .prompt()
            .replace("[THINK]", "<think>")
            .replace("[/THINK]", "</think>");
        let mut request = request.clone();
        if request.path == "/v1/completions" {
            request.body["prompt"] = prompt.as_str().into();
            if request.body["stop"] == json!(["[/THINK]"]) {
                request.body["stop"] = json!(["</think>"]);
            }
        }
        thinks(&request)
    });
    let marks = [
        "--think-open",
        "[THINK]",
        "--think-close",
        "[/THINK]",
        "--max-tokens",
        "25",
    ];
    let run = think(
        &folder,
        &server,
        "t.parquet",
        &[&marks[..], &["--json"]].concat(),
    );
    let said = json_of(&run);
    assert_eq!(
        (&said["thought_tokens"], &said["cut_off"]),
        (&json!(25), &json!(1))
    );
    assert_eq!(said["probes"], 3);
    let asked = completions(&server);
    assert!(
        asked[0].prompt().ends_with("[THINK]\n"),
        "{}",
        asked[0].prompt()
    );
    assert_eq!(asked[4].body["max_tokens"], 5);
    assert!(
        asked[5].prompt().contains("\n[/THINK]\n\n"),
        "{}",
        asked[5].prompt()
    );
}

#[test]
fn probes_that_say_all_they_may_add_less_than_a_twentieth_to_a_long_thought() {
    let folder = folder(1, false);
    let server = Server::start("vllm", |_, request| {
        if request.path != "/v1/completions" {
            return thinks(request);
        }
        let most = request.body["max_tokens"].as_u64().unwrap();
        Response::ok(json!({
            "choices": [{"text": "7 ".repeat(most as usize), "finish_reason": "length"}],
            "usage": {"prompt_tokens": 30, "completion_tokens": most},
        }))
    });
    let args = [
        "think",
        "q.jsonl",
        "--server",
        &server.url,
        "-o",
        "t.parquet",
    ];
    let more = ["--max-tokens", "8000", "--json"];
    let said = json_of(&ran(haltwise().current_dir(&folder).args(args).args(more)));
    assert_eq!(
        (&said["thought_tokens"], &said["probes"]),
        (&json!(8000), &json!(32))
    );
    assert!(20 * said["probe_tokens"].as_u64().unwrap() < 8000);
}

#[test]
fn more_probes_than_can_be_counted_are_refused_before_anything_is_asked() {
    let folder = folder(1, false);
    let server = thinker("vllm");
    let args = [
        "think",
        "q.jsonl",
        "--server",
        &server.url,
        "-o",
        "t.parquet",
    ];
    let run = ran(haltwise()
        .current_dir(&folder)
        .args(args)
        .args(["--every", "3"]));
    run.complains("more than 4096 probes; give a larger --every");
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn several_thoughts_about_a_question_are_one_unit() {
    let folder = folder(200, true);
    let run = think(&folder, &thinker("vllm"), "t.parquet", &["--samples", "3"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    calibrate(&folder, &["--unit", "question"]);
    let inspected = ran(haltwise()
        .current_dir(&folder)
        .args(["inspect", "rule.json"]));
    inspected.says("question");
    let rule: Value = serde_json::from_slice(&bytes(&folder, "rule.json")).unwrap();
    let rule = rule.to_string();
    assert!(rule.contains(r#""unit":"question""#), "{rule}");
}

#[test]
fn recorded_requests_are_thought_about_as_they_stand_or_refused() {
    let folder = TempDir::new().unwrap();
    let request = |i: usize| {
        json!({"id": i, "label": i + 3, "presence_penalty": 0.5, "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": format!("What is {i} plus 3? (difficulty 1)")}]})
    };
    let write = |lines: &[Value]| {
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        fs::write(folder.path().join("chat.jsonl"), lines.join("\n")).unwrap();
    };
    write(&[request(0), request(1)]);
    let server = thinker("vllm");
    let args = [
        "think",
        "--requests",
        "chat.jsonl",
        "--every",
        "10",
        "-o",
        "t.parquet",
    ];
    let asked = || {
        ran(haltwise()
            .current_dir(&folder)
            .args(args)
            .args(["--server", &server.url]))
    };
    let run = asked();
    assert_eq!(run.code, 0, "{}", run.stderr);
    let first = &completions(&server)[0];
    assert!(
        first.prompt().starts_with("[system]Be brief.[user]What"),
        "{}",
        first.prompt()
    );
    assert_eq!(first.body["presence_penalty"], 0.5);
    let inspected = ran(haltwise()
        .current_dir(&folder)
        .args(["inspect", "t.parquet", "--json"]));
    assert_eq!(
        json_of(&inspected)["classifier"]["messages"],
        "system, user"
    );

    let mut odd = request(0);
    odd["stop"] = json!(["\n"]);
    write(&[odd]);
    asked().complains("its field \"stop\" cannot be kept");
}

#[test]
fn rules_for_votes_and_for_thoughts_are_told_apart() {
    let folder = folder(200, true);
    assert_eq!(think(&folder, &thinker("vllm"), "t.parquet", &[]).code, 0);
    calibrate(&folder, &[]);
    let server = Server::start("vllm", |_, request| votes(request, true));
    let vote = [
        "vote",
        "q.jsonl",
        "--rule",
        "rule.json",
        "--server",
        &server.url,
    ];
    ran(haltwise().current_dir(&folder).args(vote)).complains("the rule is not for votes");
    let other = live(&folder, &thinker("vllm"), &["q.jsonl", "--every", "20"]);
    other.complains("every: \"10\", but here \"20\"");
    let forced = live(
        &folder,
        &thinker("vllm"),
        &["q.jsonl", "--every", "20", "--force"],
    );
    assert_eq!(json_lines(&forced.stdout)[0]["promised"], false);

    let traces = [
        "vote",
        "q.jsonl",
        "--server",
        &server.url,
        "--samples",
        "5",
        "-o",
        "t.parquet",
    ];
    assert_eq!(ran(haltwise().current_dir(&folder).args(traces)).code, 0);
    calibrate(&folder, &[]);
    live(&folder, &thinker("vllm"), &["q.jsonl"]).complains("the rule is not for thoughts");
}

#[test]
fn a_rule_by_group_promises_nothing_to_questions_whose_group_nobody_says() {
    let folder = folder(3, true);
    let server = thinker("vllm");
    let thought = think(&folder, &server, "t.parquet", &["--samples", "60"]);
    assert_eq!(thought.code, 0, "{}", thought.stderr);
    calibrate(&folder, &["--by", "question"]);
    let refused = live(&folder, &server, &["q.jsonl"]);
    assert_eq!(refused.code, 1, "{}", refused.stdout);
    refused.complains("the rule's promise is by question");
    refused.complains("calibrate one without --by");
    let forced = live(&folder, &server, &["q.jsonl", "--force"]);
    assert_eq!(forced.code, 0, "{}", forced.stderr);
    let answers = json_lines(&forced.stdout);
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|answer| answer["promised"] == false));
}
