//! `vote` against servers that behave, and servers that do not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::process::Stdio;
use std::sync::{Mutex, mpsc};

use common::server::{Request, Response, Server};
use common::voter::{folder, model, votes};
use common::{Ran, haltwise, json_lines, ran};
use serde_json::{Value, json};
use tempfile::TempDir;

fn vote(folder: &TempDir, server: &Server, output: &str, more: &[&str]) -> Ran {
    let args = ["vote", "q.jsonl", "--server", &server.url, "-o", output];
    ran(haltwise().current_dir(folder).args(args).args(more))
}

fn bytes(folder: &TempDir, name: &str) -> Vec<u8> {
    fs::read(folder.path().join(name)).unwrap()
}

fn json_of(run: &Ran) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("{e}: {}", run.stderr))
}

#[test]
fn from_questions_to_a_rule_to_answers_with_fewer_votes() {
    for labels in [true, false] {
        let folder = folder(400, labels);
        let server = model();
        let more = ["--samples", "9", "--completions", "said.jsonl", "--json"];
        let run = vote(&folder, &server, "t.parquet", &more);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        let said = json_of(&run);
        assert_eq!(
            (&said["votes"], &said["tokens"]),
            (&json!(3600), &json!(36000))
        );
        assert_eq!(said["late_accuracy"].is_null(), !labels);
        assert!(!folder.path().join("t.parquet.journal").exists());
        // Every vote has its own seed, and they are written down.
        let lines = String::from_utf8(bytes(&folder, "said.jsonl")).unwrap();
        let lines: Vec<Value> = json_lines(&lines);
        let seeds: HashSet<u64> = lines
            .iter()
            .flat_map(|l| l["seeds"].as_array().unwrap())
            .map(|seed| seed.as_u64().unwrap())
            .collect();
        assert_eq!(seeds.len(), 3600);
        let asked: HashSet<u64> = server
            .requests()
            .iter()
            .map(|r| r.body["seed"].as_u64().unwrap())
            .collect();
        assert_eq!(seeds, asked);
        assert_eq!(lines[0]["answers"], json!(vec!["3"; 9]));

        let calibrate = [
            "calibrate",
            "t.parquet",
            "--loss",
            if labels { "gap" } else { "disagreement" },
            "--delta",
            "0.05",
            "-o",
            "rule.json",
        ];
        haltwise()
            .current_dir(&folder)
            .args(calibrate)
            .assert()
            .success();
        let rule: Value = serde_json::from_slice(&bytes(&folder, "rule.json")).unwrap();
        assert_eq!(rule["classifier"]["samples"], "9");
        assert_eq!(rule["classifier"]["temperature"], "0.7");

        let server = model();
        let live = [
            "vote",
            "q.jsonl",
            "--rule",
            "rule.json",
            "--server",
            &server.url,
        ];
        let run = ran(haltwise()
            .current_dir(&folder)
            .args(live)
            .args(["--seed", "1"]));
        assert_eq!(run.code, 0, "{}", run.stderr);
        let answers: Vec<Value> = json_lines(&run.stdout);
        assert_eq!((answers.len(), &answers[399]["id"]), (400, &json!("q399")));
        assert!(
            answers
                .iter()
                .all(|a| a["promised"] == true && a["of"] == 9)
        );
        let votes: u64 = answers.iter().map(|a| a["votes"].as_u64().unwrap()).sum();
        assert!(votes < 1800, "{votes} of 3600");
        assert_eq!(server.requests().iter().map(asked_for).sum::<u64>(), votes);
        for answer in &answers {
            let completion = answer["completion"].as_str().unwrap();
            let chosen = format!("\\boxed{{{}", answer["answer"].as_str().unwrap_or("?"));
            assert!(
                completion.contains(&chosen) || answer["answer"].is_null(),
                "{answer}"
            );
            assert_eq!(answer.get("right").is_some(), labels);
        }
        assert!(
            run.stderr.contains("of 9 votes on average"),
            "{}",
            run.stderr
        );
    }
}

fn asked_for(request: &Request) -> u64 {
    request.body["n"].as_u64().unwrap_or(1)
}

#[test]
fn waves_bring_the_same_as_long_as_the_server_knows_n_and_all_votes_where_it_does_not() {
    let folder = folder(6, true);
    let run = vote(&folder, &model(), "n.parquet", &["--wave", "5", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(json_of(&run)["votes"], 78);
    let server = model();
    vote(
        &folder,
        &server,
        "n.parquet",
        &["--wave", "5", "--concurrency", "1"],
    );
    let waves: Vec<u64> = server.requests().iter().take(3).map(asked_for).collect();
    assert_eq!(waves, [5, 5, 3]);
    let single = Server::start("vllm", |_, request| votes(request, false));
    let run = vote(&folder, &single, "one.parquet", &["--wave", "5", "--json"]);
    assert_eq!(json_of(&run)["votes"], 78);
    assert_eq!(single.requests().len(), 78);
    // One that refuses is asked for several only once by each worker.
    let refuses = Server::start("llamacpp", |_, request| match asked_for(request) {
        1 => votes(request, true),
        _ => Response::Body(400, "", "Field 'n': must be 1".into()),
    });
    let run = vote(&folder, &refuses, "no.parquet", &["--wave", "5", "--json"]);
    assert_eq!(json_of(&run)["votes"], 78, "{}", run.stderr);
    assert!((79..=82).contains(&refuses.requests().len()));
    let asked = &refuses.requests()[1].body;
    assert_eq!(asked["cache_prompt"], false);
}

#[test]
fn chat_and_completions_are_asked_as_they_want_it() {
    let folder = folder(2, false);
    for (endpoint, path, more) in [
        ("chat", "/v1/chat/completions", &[][..]),
        (
            "completions",
            "/v1/completions",
            &["--chat-format", "chatml"],
        ),
    ] {
        let server = model();
        let args = [
            "--endpoint",
            endpoint,
            "--top-p",
            "0.9",
            "--max-tokens",
            "77",
            "--temperature",
            "1",
        ];
        let run = vote(&folder, &server, "t.arrow", &[&args[..], more].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(
            run.stdout.contains("Not every question has a label"),
            "{}",
            run.stdout
        );
        let asked = &server.requests()[0];
        assert_eq!(asked.path, path);
        assert_eq!(
            json!([
                asked.body["temperature"],
                asked.body["top_p"],
                asked.body["max_tokens"]
            ]),
            json!([1.0, 0.9, 77])
        );
        let prompt = asked.prompt();
        assert!(
            prompt.contains("put the final answer in \\boxed{}."),
            "{prompt}"
        );
        assert_eq!(
            prompt.starts_with("<|im_start|>user\nWhat is"),
            endpoint == "completions"
        );
    }
}

#[test]
fn killed_and_resumed_the_file_is_the_same_and_nothing_is_asked_twice() {
    let folder = folder(5, true);
    for wave in ["1", "4"] {
        let more = ["--wave", wave, "--concurrency", "1"];
        assert_eq!(vote(&folder, &model(), "whole.parquet", &more).code, 0);
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let server = Server::start("vllm", move |asked, request| match asked {
            11 => {
                tell.lock().unwrap().send(()).unwrap();
                Response::Silence
            }
            _ => votes(request, true),
        });
        let args = [
            "vote",
            "q.jsonl",
            "--server",
            &server.url,
            "-o",
            "t.parquet",
        ];
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("haltwise"))
            .current_dir(&folder)
            .args(args)
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        told.recv().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!folder.path().join("t.parquet").exists());
        let run = vote(
            &folder,
            &server,
            "t.parquet",
            &[&more[..], &["--json"]].concat(),
        );
        assert!(json_of(&run)["asked_earlier"].as_u64() > Some(0));
        assert!(
            bytes(&folder, "whole.parquet") == bytes(&folder, "t.parquet"),
            "{wave}"
        );
        let mut asked: HashMap<u64, usize> = HashMap::new();
        for request in server.requests() {
            *asked
                .entry(request.body["seed"].as_u64().unwrap())
                .or_default() += 1;
        }
        // All but the one that was never answered are asked for once.
        assert_eq!(asked.values().filter(|n| **n > 1).count(), 1);
        fs::remove_file(folder.path().join("t.parquet")).unwrap();
    }
}

#[test]
fn a_server_that_fails_half_the_time_costs_nothing_but_time() {
    let folder = folder(8, true);
    assert_eq!(vote(&folder, &model(), "whole.parquet", &[]).code, 0);
    let failures = Mutex::new(HashSet::new());
    let server = Server::start("vllm", move |n, request| {
        let seed = request.body["seed"].as_u64().unwrap();
        // Every vote fails the first time, in one way or another.
        match (failures.lock().unwrap().insert(seed), n % 3) {
            (false, _) => votes(request, true),
            (true, 0) => Response::Body(429, "Retry-After: 0\r\n", "slow down".into()),
            (true, 1) => Response::Body(503, "Retry-After: 0\r\n", "loading".into()),
            (true, _) => Response::Body(500, "Retry-After: 0\r\n", "oops".into()),
        }
    });
    let run = vote(&folder, &server, "t.parquet", &["--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("trying again in 0 s"), "{}", run.stderr);
    assert!(bytes(&folder, "whole.parquet") == bytes(&folder, "t.parquet"));
    assert_eq!(server.requests().len(), 2 * 8 * 13);
}

#[test]
fn a_server_that_fails_for_good_is_named_with_the_question_and_the_vote() {
    let folder = folder(4, true);
    let server = Server::start("vllm", |n, request| match n {
        0..20 => votes(request, true),
        _ => Response::Body(400, "", r#"{"error": {"message": "too long"}}"#.into()),
    });
    let run = vote(&folder, &server, "t.parquet", &["--concurrency", "1"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    for expected in [
        "400 Bad Request: too long",
        "question q1, vote 8",
        "20 of 52 answers are kept",
    ] {
        assert!(
            run.stderr.contains(expected),
            "{expected:?} is not in {}",
            run.stderr
        );
    }
    // Other questions, another seed or temperature do not go on with it.
    for other in [
        ["--seed", "9"],
        ["--temperature", "0.8"],
        ["--samples", "5"],
    ] {
        let run = vote(&folder, &model(), "t.parquet", &other);
        assert!(
            run.stderr.contains("begun with other questions"),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn a_vote_that_was_cut_off_or_says_nothing_is_no_answer() {
    let folder = folder(1, true);
    let server = Server::start("vllm", |n, _| {
        let (text, finish) = [
            ("\\boxed{7}", "length"),
            ("I pass", "stop"),
            ("\\boxed{3}", "stop"),
        ][n % 3];
        let choice = json!({"index": 0, "message": {"content": text}, "finish_reason": finish});
        Response::ok(json!({"choices": [choice], "usage": {"completion_tokens": 5}}))
    });
    let more = ["--samples", "3", "--completions", "said.jsonl", "--json"];
    let said = json_of(&vote(&folder, &server, "t.parquet", &more));
    assert_eq!(
        (&said["without_answer"], &said["cut_off"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(said["late_accuracy"], 1.0);
    let line: Value = serde_json::from_slice(&bytes(&folder, "said.jsonl")).unwrap();
    assert_eq!(line["answers"], json!(["", "", "3"]));
}

#[test]
fn options_are_voted_on_by_letter() {
    let folder = TempDir::new().unwrap();
    let line = json!({"document": "It is blue.", "question": "What is it?",
        "options": ["red", "blue"], "label": "blue"});
    fs::write(folder.path().join("q.jsonl"), line.to_string()).unwrap();
    let server = Server::start("vllm", |_, _| {
        let choice = json!({"message": {"content": "Clear. The answer is (B)."}});
        Response::ok(json!({"choices": [choice]}))
    });
    let run = vote(
        &folder,
        &server,
        "t.parquet",
        &["--answer", "letter", "--json"],
    );
    assert_eq!(json_of(&run)["late_accuracy"], 1.0, "{}", run.stderr);
    let prompt = &server.prompts()[0];
    assert!(
        prompt.starts_with("It is blue.\n\nWhat is it?\nA. red\nB. blue\n"),
        "{prompt}"
    );
}

/// What the traces of a file say about the prompts.
fn prompts_of(folder: &TempDir, traces: &str) -> Value {
    let inspected = ran(haltwise()
        .current_dir(folder)
        .args(["inspect", traces, "--json"]));
    json_of(&inspected)["classifier"].take()
}

#[test]
fn traces_record_the_shape_of_their_prompts() {
    let folder = folder(6, true);
    fs::write(folder.path().join("system.txt"), "Be brief.").unwrap();
    let server = model();
    let more = ["--samples", "2", "--system", "system.txt"];
    assert_eq!(vote(&folder, &server, "t.parquet", &more).code, 0);
    let asked = &server.requests()[0].body["messages"];
    assert_eq!(asked[0], json!({"role": "system", "content": "Be brief."}));
    assert_eq!(asked[1]["role"], "user");
    let found = prompts_of(&folder, "t.parquet");
    assert_eq!(
        json!([found["messages"], found["most_messages"], found["system"]]),
        json!(["system, user", "2", "Be brief."])
    );
    // All questions begin with "What is", but that is no part of the template.
    assert_eq!(found.get("prompt_begins"), None);
    let ends = found["prompt_ends"].as_str().unwrap();
    assert!(ends.starts_with("\n\nThink step by step"), "{ends}");
    // Another system message is another run.
    fs::write(folder.path().join("system.txt"), "Be kind.").unwrap();
    let down = Server::start("vllm", |_, _| Response::Body(400, "", "no".into()));
    fs::remove_file(folder.path().join("t.parquet")).unwrap();
    assert_eq!(
        vote(&folder, &down, "t.parquet", &["--samples", "2"]).code,
        1
    );
    let run = vote(&folder, &server, "t.parquet", &more);
    assert!(
        run.stderr.contains("begun with other questions"),
        "{}",
        run.stderr
    );
}

#[test]
fn recorded_requests_are_voted_on_as_they_were_sent() {
    let folder = TempDir::new().unwrap();
    let server = model();
    let run = |lines: &[Value], more: &[&str]| {
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        fs::write(folder.path().join("chat.jsonl"), lines.join("\n")).unwrap();
        let args = ["vote", "--requests", "chat.jsonl", "--server", &server.url];
        let args = [&args[..], &["-o", "t.parquet", "--samples", "3"], more].concat();
        ran(haltwise().current_dir(&folder).args(args))
    };
    let user = |text: &str| json!({"role": "user", "content": text});
    let turn = [
        user("Hello."),
        json!({"role": "assistant", "content": "Hello."}),
    ];
    let ask = user("What is 4 plus 3? (difficulty 0)");
    let short =
        json!({"id": "a", "label": 7, "messages": [ask], "response_format": {"type": "text"}});
    let mut long = short.clone();
    (long["id"], long["messages"]) = (json!("b"), json!([turn[0], turn[1], ask]));
    long["seed"] = json!(5);
    let done = run(
        &[short.clone(), long.clone()],
        &["--json", "--concurrency", "1"],
    );
    assert_eq!(
        (done.code, json_of(&done)["late_accuracy"].clone()),
        (0, json!(1.0))
    );
    let asked = server.requests();
    assert_eq!(asked.len(), 6);
    assert_eq!(asked[0].body["messages"], short["messages"]);
    assert_eq!(asked[5].body["messages"], long["messages"]);
    assert_eq!(asked[5].body["response_format"], short["response_format"]);
    assert_eq!(asked[5].body.get("label"), None);
    let found = prompts_of(&folder, "t.parquet");
    assert_eq!(found["messages"], "user | user, assistant, user");
    assert_eq!(found["fields"], "{\"response_format\":{\"type\":\"text\"}}");
    assert_eq!(found.get("template"), None);

    let before = server.requests().len();
    long["max_tokens"] = json!(99);
    for (lines, more, expected) in [
        (
            vec![short.clone(), long.clone()],
            &[][..],
            "differ in max_tokens (none, 99)",
        ),
        (
            vec![json!({"question": "Who?"})],
            &[],
            "line 1: its \"messages\" are no list",
        ),
        (
            vec![short.clone()],
            &["--endpoint", "completions"],
            "requests for chats",
        ),
        (
            vec![short.clone()],
            &["--answer", "letter"],
            "regex:PATTERN",
        ),
    ] {
        let refused = run(&lines, more);
        assert_eq!(refused.code, 1, "{}", refused.stderr);
        assert!(
            refused.stderr.contains(expected),
            "{expected}: {}",
            refused.stderr
        );
    }
    assert_eq!(server.requests().len(), before);
    let run = run(&[short, long], &["--max-tokens", "50"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn what_vote_needs_is_asked_for_before_anything_is_sent() {
    let folder = folder(2, true);
    let server = model();
    let refused = |more: &[&str], output: &str, expected: &str| {
        let run = vote(&folder, &server, output, more);
        assert_ne!(run.code, 0);
        assert!(
            run.stderr.contains(expected),
            "{expected:?} is not in {}",
            run.stderr
        );
    };
    refused(&[], "t.npz", "write .parquet or .arrow");
    refused(
        &["--temperature", "0"],
        "t.parquet",
        "at 0 all votes are the same",
    );
    refused(
        &["--answer", "nothing"],
        "t.parquet",
        "json:PATH or regex:PATTERN",
    );
    refused(&["--samples", "101"], "t.parquet", "101");
    refused(&["--rule", "r.json"], "t.parquet", "cannot be used with");
    fs::write(folder.path().join("template.txt"), "no place").unwrap();
    refused(
        &["--template", "template.txt"],
        "t.parquet",
        "no place for the question",
    );
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn a_rule_for_another_voter_or_for_readers_is_refused() {
    let folder = folder(300, true);
    assert_eq!(
        vote(&folder, &model(), "t.parquet", &["--samples", "5"]).code,
        0
    );
    let calibrate = ["calibrate", "t.parquet", "-o", "rule.json"];
    haltwise()
        .current_dir(&folder)
        .args(calibrate)
        .assert()
        .success();
    let server = model();
    let live = |more: &[&str]| {
        let args = ["vote", "--rule", "rule.json", "--server", &server.url];
        let question = ["--question", "What is 4 plus 3? (difficulty 0)"];
        ran(haltwise()
            .current_dir(&folder)
            .args(args)
            .args(question)
            .args(more))
    };
    let run = live(&[]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert!(run.stdout.starts_with("7\n"), "{}", run.stdout);
    assert!(
        run.stdout.contains(" of 5 votes, 100% of them for it"),
        "{}",
        run.stdout
    );
    let asked = server.requests().len();
    for (more, what) in [
        (
            ["--temperature", "1.3"],
            "temperature: \"0.7\", but here \"1.3\"",
        ),
        (
            ["--answer", "number"],
            "answer: \"boxed\", but here \"number\"",
        ),
        (["--samples", "7"], "samples: \"5\", but here \"7\""),
    ] {
        let run = live(&more);
        assert_eq!(run.code, 1);
        assert!(
            run.stderr.contains(what),
            "{what:?} is not in {}",
            run.stderr
        );
    }
    assert_eq!(server.requests().len(), asked);
    let down = Server::start("vllm", |_, _| Response::Body(400, "", "too long".into()));
    let args = [
        "vote",
        "q.jsonl",
        "--rule",
        "rule.json",
        "--server",
        &down.url,
    ];
    let run = ran(haltwise().current_dir(&folder).args(args));
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("error: question q"), "{}", run.stderr);
    assert!(
        run.stderr.contains("400 Bad Request: too long"),
        "{}",
        run.stderr
    );
    let forced = live(&["--temperature", "1.3", "--force", "--json"]);
    assert_eq!(json_of(&forced)["promised"], false);

    let mut rule: Value = serde_json::from_slice(&bytes(&folder, "rule.json")).unwrap();
    rule["classifier"] = json!({"model": "m", "split": "periods/10"});
    fs::write(folder.path().join("rule.json"), rule.to_string()).unwrap();
    let run = live(&[]);
    assert!(
        run.stderr.contains("the rule is not for votes"),
        "{}",
        run.stderr
    );
}
