//! `read` and `ask` against servers that behave, and servers that do not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;

use common::server::{Request, Response, Server, Shape, clever, reply};
use common::{Ran, haltwise, ran};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Questions about documents of ten sentences, each of which answers one.
fn questions(documents: usize, per_document: usize) -> String {
    let mut lines = String::new();
    for d in 0..documents {
        let value = |i: usize| ["red", "blue"][(i * 7 + d) / 3 % 2];
        let sentence = |i: usize| format!("Also, thing{d}x{i} is {}", value(i));
        let text: Vec<String> = (0..10).map(sentence).collect();
        for i in 0..per_document {
            let question = json!({
                "id": format!("{d}-{i}"), "document": text.join(". ") + ".",
                "question": format!("What is thing{d}x{i}?"),
                "options": ["red", "blue"], "label": value(i),
            });
            lines += &format!("{question}\n");
        }
    }
    lines
}

fn folder(documents: usize, per_document: usize) -> TempDir {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("q.jsonl");
    fs::write(path, questions(documents, per_document)).unwrap();
    folder
}

fn read(folder: &TempDir, server: &Server, output: &str, more: &[&str]) -> Ran {
    let args = ["read", "q.jsonl", "--server", &server.url, "-o", output];
    ran(haltwise().current_dir(folder).args(args).args(more))
}

fn journal(folder: &TempDir, output: &str) -> usize {
    let path = folder.path().join(format!("{output}.journal"));
    fs::read_to_string(path).unwrap().lines().count() - 1
}

/// What an undisturbed run writes.
fn undisturbed(folder: &TempDir) -> Vec<u8> {
    let server = Server::clever("llamacpp", Shape::List);
    let run = read(folder, &server, "undisturbed.parquet", &[]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    fs::read(folder.path().join("undisturbed.parquet")).unwrap()
}

#[test]
fn from_questions_to_a_rule_to_answers_that_stop_early() {
    let folder = folder(40, 10);
    let server = Server::clever("vllm", Shape::Table);
    let run = read(&folder, &server, "traces.parquet", &["--json"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let said: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (&said["questions"], &said["t_max"]),
        (&json!(400), &json!(10))
    );
    assert_eq!(said["late_accuracy"], 1.0);
    assert_eq!(server.prompts().len(), 4000);
    assert!(!folder.path().join("traces.parquet.journal").exists());

    for (method, rule) in [("conditional", "rule.json"), ("adaptive", "adaptive.json")] {
        let args = [
            "calibrate",
            "traces.parquet",
            "--method",
            method,
            "-o",
            rule,
        ];
        haltwise()
            .current_dir(&folder)
            .args(args)
            .assert()
            .success();
    }
    let rule: Value =
        serde_json::from_slice(&fs::read(folder.path().join("rule.json")).unwrap()).unwrap();
    assert_eq!(rule["classifier"]["model"], "m");
    assert_eq!(rule["classifier"]["server"], "vLLM 0.12.0");

    // A new document, whose third sentence has the answer.
    let text = "First, a is red. Then b is blue. So c is blue. Also d is red. And e is red. \
                Now f is red. Yet g is red. Here h is red. There i is red. Last j is red.";
    fs::write(folder.path().join("new.txt"), text).unwrap();
    let server = Server::clever("vllm", Shape::Table);
    let ask = |rule: &str, more: &[&str]| {
        let args = ["ask", "--rule", rule, "--server", &server.url];
        ran(haltwise().current_dir(&folder).args(args).args(more))
    };
    let question = ["--question", "What is c?", "--options", "red", "blue"];
    let one = [&["--document", "new.txt"][..], &question].concat();
    let run = ask("rule.json", &one);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    for expected in [
        "B. blue (probability 97.8%)\n",
        "Read 3 of 10 parts, 30.9% of the document.",
        " tokens sent, ",
        " saved.",
    ] {
        assert!(
            run.stdout.contains(expected),
            "{expected:?} is not in {}",
            run.stdout
        );
    }
    assert_eq!(server.prompts().len(), 3);

    for rule in ["rule.json", "adaptive.json"] {
        let batch = ask(rule, &["q.jsonl"]);
        assert_eq!(batch.code, 0, "{rule}: {}", batch.stderr);
        let answers: Vec<Value> = batch
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let ids: Vec<&str> = answers.iter().map(|a| a["id"].as_str().unwrap()).collect();
        assert_eq!((ids.len(), ids[0], ids[399]), (400, "0-0", "39-9"));
        assert!(answers.iter().all(|a| a["promised"] == true));
        // At most a tenth of the right answers may be lost.
        let right = answers.iter().filter(|a| a["right"] == true).count();
        assert!(right >= 360, "{rule}: {right} of 400");
        let early = answers
            .iter()
            .filter(|a| a["tokens_saved"].as_u64() > Some(0));
        assert!(early.count() > 100, "{rule}: {}", batch.stderr);
        assert!(
            batch.stderr.contains("% of 400 are right"),
            "{}",
            batch.stderr
        );
    }
    let more = ask("rule.json", &[&one[..], &["green"]].concat());
    assert!(
        more.stderr
            .contains("it has 3 options, but the rule is for 2"),
        "{}",
        more.stderr
    );

    // A document longer than all that were calibrated on: refused, or read to its
    // end by a rule that knows that lengths differ.
    let mut short = rule.clone();
    short["method"] = json!("screen-only");
    short["promise"] = Value::Null;
    short["trail"] = json!([]);
    (short["t_max"], short["thresholds"]) = (json!(2), json!([null, 0.999]));
    let write = |rule: &Value| fs::write(folder.path().join("short.json"), rule.to_string());
    write(&short).unwrap();
    let refused = ask("short.json", &one).stderr;
    let expected = "its document has 10 parts, but the rule is for 2 at the most";
    assert!(refused.contains(expected), "{refused}");
    short["lengths"] = json!("unequal");
    write(&short).unwrap();
    let read = ask("short.json", &[&one[..], &["--json"]].concat());
    let read: Value = serde_json::from_str(&read.stdout).expect(&read.stderr);
    assert_eq!((&read["t"], &read["reason"]), (&json!(10), &json!("end")));
}

#[test]
fn every_shape_and_endpoint_gives_the_same_traces() {
    let folder = folder(2, 3);
    let mut found = Vec::new();
    for (owner, shape, endpoint) in [
        ("llamacpp", Shape::List, "completions"),
        ("vllm", Shape::Table, "completions"),
        ("sglang", Shape::Table, "completions"),
        ("vllm", Shape::List, "chat"),
    ] {
        let server = Server::clever(owner, shape);
        let run = read(&folder, &server, "t.npz", &["--endpoint", endpoint]);
        assert_eq!(run.code, 0, "{owner}: {}", run.stderr);
        let inspected = ran(haltwise()
            .current_dir(&folder)
            .args(["inspect", "t.npz", "--json"]));
        let inspected: Value = serde_json::from_str(&inspected.stdout).unwrap();
        assert_eq!(inspected["classifier"]["endpoint"], endpoint);
        found.push(inspected["fingerprint"].clone());
        let asked = server.requests();
        let body = &asked[0].body;
        assert_eq!(
            (&body["max_tokens"], &body["temperature"]),
            (&json!(1), &json!(0))
        );
        assert_eq!(
            asked[0].path,
            match endpoint {
                "chat" => "/v1/chat/completions",
                _ => "/v1/completions",
            }
        );
    }
    assert!(found.iter().all(|f| *f == found[0]), "{found:?}");
}

#[test]
fn prompts_are_ordered_so_that_a_document_is_computed_once() {
    let folder = folder(3, 10);
    let server = Server::clever("llamacpp", Shape::List);
    assert_eq!(
        read(&folder, &server, "t.parquet", &["--concurrency", "1"]).code,
        0
    );
    let prompts = server.prompts();
    assert_eq!(prompts.len(), 300);
    let sent: usize = prompts.iter().map(String::len).sum();
    let shared = |pair: &[String]| {
        let same = pair[0].bytes().zip(pair[1].bytes());
        same.take_while(|(a, b)| a == b).count()
    };
    let kept: usize = prompts.windows(2).map(shared).sum();
    let documents: usize = 3 * 10 * "Also, thing0x0 is blue. ".len();
    let questions =
        300 * "\n\nQuestion: What is thing0x0?\nA. red\nB. blue\nThe answer is:\n\n".len();
    assert!(
        sent - kept <= documents + questions,
        "{} of {sent} are new",
        sent - kept
    );
}

/// A reader that waits in vain for the answer to its prompt number `n`, from 0.
fn reading_until(n: usize, folder: &TempDir, output: &str) -> (Server, std::process::Child) {
    let (tell, told) = mpsc::channel();
    let server = Server::start("llamacpp", move |asked, request| match asked == n {
        true => {
            tell.send(()).unwrap();
            Response::Silence
        }
        false => clever(request, Shape::List),
    });
    let args = ["read", "q.jsonl", "--server", &server.url, "-o", output];
    let child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("haltwise"))
        .current_dir(folder)
        .args(args)
        .args(["--concurrency", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    told.recv().unwrap();
    (server, child)
}

#[test]
fn killed_and_resumed_the_file_is_the_same_and_nothing_is_asked_twice() {
    let folder = folder(4, 5);
    let expected = undisturbed(&folder);
    // The 78th prompt is never answered: there the reader is killed.
    let (server, mut child) = reading_until(77, &folder, "t.parquet");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!folder.path().join("t.parquet").exists());
    assert_eq!(journal(&folder, "t.parquet"), 77);

    let run = read(&folder, &server, "t.parquet", &["--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let said: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(said["answered_earlier"], 77);
    assert_eq!(fs::read(folder.path().join("t.parquet")).unwrap(), expected);
    let prompts = server.prompts();
    let different: HashSet<&String> = prompts.iter().collect();
    // All 200, and the one that was never answered again.
    assert_eq!((prompts.len(), different.len()), (201, 200));
}

/// A server that turns bad after 20 answers.
fn turns_bad(bad: impl Fn() -> Response + Send + Sync + 'static) -> Server {
    Server::start("llamacpp", move |n, request| match n {
        0..20 => clever(request, Shape::List),
        _ => bad(),
    })
}

#[test]
fn a_server_that_turns_bad_costs_nothing_but_time() {
    let folder = folder(4, 2);
    let expected = undisturbed(&folder);
    let body = |status, text: &'static str| move || Response::Body(status, "", text.into());
    let good = || reply(&[("A".into(), -0.1)], Shape::List, 9).to_string();
    let no_logprobs = r#"{"choices": [{"text": "A", "logprobs": null}]}"#;
    let busy = || {
        Response::Body(
            429,
            "Retry-After: 0\r\n",
            r#"{"error": "queue full"}"#.into(),
        )
    };
    let cases: [(&str, Server, &str); 9] = [
        (
            "times out",
            turns_bad(|| Response::Silence),
            "no answer within 0.5 s (see --timeout)",
        ),
        (
            "429",
            turns_bad(busy),
            "it answered 429 Too Many Requests: queue full (tried 2 times)",
        ),
        (
            "500",
            turns_bad(body(500, "oops")),
            "it answered 500 Internal Server Error: oops",
        ),
        (
            "no log-probabilities",
            turns_bad(body(200, no_logprobs)),
            "no log-probabilities",
        ),
        (
            "cut",
            turns_bad(move || Response::Cut(good()[..40].into())),
            "the connection failed",
        ),
        (
            "NaN",
            turns_bad(body(200, r#"{"choices": [NaN]}"#)),
            "has NaN for a number",
        ),
        (
            "no JSON",
            turns_bad(body(200, "<html>")),
            "its answer is no JSON",
        ),
        (
            "400",
            turns_bad(body(400, r#"{"error": {"message": "too long"}}"#)),
            "400 Bad Request: too long",
        ),
        ("401", turns_bad(body(401, "")), "see --api-key-env"),
    ];
    for (i, (name, server, message)) in cases.iter().enumerate() {
        let output = format!("{i}.parquet");
        let hasty = ["--timeout", "0.5", "--retries", "1", "--concurrency", "1"];
        let run = read(&folder, server, &output, &hasty);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{name}");
        let said = &run.stderr;
        assert!(
            said.contains(message),
            "{name}: {message:?} is not in {said}"
        );
        assert!(said.contains("question 1-0 after part 1"), "{name}: {said}");
        assert!(
            said.contains("20 of 80 answers are kept in"),
            "{name}: {said}"
        );
        assert_eq!(journal(&folder, &output), 20, "{name}");
        assert!(!folder.path().join(&output).exists(), "{name}");

        let server = Server::clever("llamacpp", Shape::List);
        let run = read(&folder, &server, &output, &[]);
        assert_eq!(run.code, 0, "{name}: {}", run.stderr);
        assert_eq!(server.prompts().len(), 60, "{name}");
        assert_eq!(
            fs::read(folder.path().join(&output)).unwrap(),
            expected,
            "{name}"
        );
    }
}

#[test]
fn what_passes_is_tried_again_and_said() {
    let folder = folder(1, 2);
    let expected = undisturbed(&folder);
    let server = Server::start("llamacpp", |n, request| match n {
        3 => Response::Body(503, "Retry-After: 0\r\n", "loading".into()),
        7 => Response::Cut("{\"choices\"".into()),
        _ => clever(request, Shape::List),
    });
    let run = read(&folder, &server, "t.parquet", &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stderr
            .contains("503 Service Unavailable: loading; trying again in 0 s"),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.contains("the connection failed"),
        "{}",
        run.stderr
    );
    assert_eq!(fs::read(folder.path().join("t.parquet")).unwrap(), expected);
    assert_eq!(server.prompts().len(), 22);
}

#[test]
fn a_prompt_that_llama_cpp_had_whole_is_computed_afresh() {
    let folder = folder(1, 1);
    let server = Server::start("llamacpp", |n, request| {
        let mut answer = reply(&[("A".into(), -0.1)], Shape::List, 100);
        let kept = if n == 4 { 99 } else { 60 };
        answer["usage"]["prompt_tokens_details"]["cached_tokens"] = kept.into();
        assert_eq!(request.body["cache_prompt"] == false, n == 5);
        Response::ok(answer)
    });
    assert_eq!(read(&folder, &server, "t.npz", &[]).code, 0);
    let prompts = server.prompts();
    assert_eq!(prompts.len(), 11);
    assert_eq!(prompts[4], prompts[5]);
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let folder = folder(1, 1);
    let run = |server: &str| {
        let args = [
            "read",
            "q.jsonl",
            "-o",
            "t.parquet",
            "--retries",
            "0",
            "--server",
            server,
        ];
        let run = ran(haltwise().current_dir(&folder).args(args));
        assert_eq!(run.code, 1);
        run.stderr
    };
    let gone = run("http://127.0.0.1:9");
    assert!(
        gone.contains("http://127.0.0.1:9: the connection failed"),
        "{gone}"
    );
    let secret = run("http://me:secret@127.0.0.1:9");
    assert!(
        secret.contains("no name, password") && !secret.contains("secret"),
        "{secret}"
    );
}

#[test]
fn the_api_key_is_sent_and_never_written() {
    let folder = folder(1, 1);
    let server = Server::start("llamacpp", |n, request: &Request| match n {
        2 => Response::Body(500, "", "no".into()),
        _ => clever(request, Shape::List),
    });
    let args = ["read", "q.jsonl", "--server", &server.url, "-o", "t.npz"];
    let run = ran(haltwise()
        .current_dir(&folder)
        .env("MY_KEY", "sesame")
        .args(args)
        .args(["--api-key-env", "MY_KEY", "--retries", "1"]));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let heads: Vec<String> = server.requests().into_iter().map(|r| r.head).collect();
    assert!(
        heads
            .iter()
            .all(|h| h.to_lowercase().contains("authorization: bearer sesame"))
    );
    assert!(!(run.stdout + &run.stderr).contains("sesame"));
    let text: Vec<u8> = "sesame"
        .chars()
        .flat_map(|c| u32::from(c).to_le_bytes())
        .collect();
    let file = fs::read(folder.path().join("t.npz")).unwrap();
    assert!(
        !file.windows(text.len()).any(|w| w == text) && !file.windows(6).any(|w| w == b"sesame")
    );
}

#[test]
fn letters_that_the_model_never_says_are_reported() {
    let folder = folder(1, 2);
    let server = Server::start("llamacpp", |n, _| {
        let token = if n < 5 { "The" } else { "B" };
        Response::ok(reply(&[(token.into(), -0.1)], Shape::List, 9))
    });
    let run = read(&folder, &server, "t.parquet", &["--concurrency", "1"]);
    assert_eq!(run.code, 0);
    assert!(
        run.stderr.contains("5 answers of 20 had no letter"),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr
            .contains("all options count as equally likely there"),
        "{}",
        run.stderr
    );
    // Those five are not told of again, in other words.
    assert!(
        run.stdout
            .contains("In 15 of 20 answers some letters, not all"),
        "{}",
        run.stdout
    );
}

fn rule_for(folder: &Path, server: &Server) {
    for args in [
        &[
            "read",
            "q.jsonl",
            "--server",
            &server.url,
            "-o",
            "t.parquet",
        ][..],
        &[
            "calibrate",
            "--method",
            "screen-only",
            "t.parquet",
            "-o",
            "rule.json",
        ],
    ] {
        haltwise().current_dir(folder).args(args).assert().success();
    }
}

#[test]
fn a_rule_for_another_reader_is_refused_unless_forced() {
    let folder = folder(2, 5);
    let server = Server::clever("vllm", Shape::Table);
    rule_for(folder.path(), &server);
    let ask = |server: &Server, more: &[&str]| {
        let args = [
            "ask",
            "q.jsonl",
            "--rule",
            "rule.json",
            "--server",
            &server.url,
        ];
        ran(haltwise().current_dir(&folder).args(args).args(more))
    };
    assert_eq!(ask(&server, &[]).code, 0, "its own reader needs no flags");

    for (more, differs) in [
        (
            &["--chat-format", "chatml"][..],
            "template: \"{{ context }}",
        ),
        (
            &["--letters", "XY"],
            "letters: \"ABCDEFGHIJKLMNOPQRSTUVWXYZ\", but here \"XY\"",
        ),
        (
            &["--split", "sentences"],
            "split: \"periods/10\", but here \"sentences/10\"",
        ),
        (
            &["--parts", "5"],
            "split: \"periods/10\", but here \"periods/5\"",
        ),
        (
            &["--endpoint", "chat"],
            "endpoint: \"completions\", but here \"chat\"",
        ),
    ] {
        let run = ask(&server, more);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{more:?}");
        assert!(
            run.stderr.contains("calibrated for another reader"),
            "{}",
            run.stderr
        );
        assert!(
            run.stderr.contains(differs),
            "{differs:?} is not in {}",
            run.stderr
        );
    }
    let forced = ask(&server, &["--parts", "5", "--force"]);
    assert_eq!(forced.code, 0, "{}", forced.stderr);
    assert!(
        forced.stderr.contains("Nothing is promised"),
        "{}",
        forced.stderr
    );
    assert!(forced.stdout.contains("\"promised\":false"));

    let other = ask(&server, &["--model", "n"]);
    assert!(
        other
            .stderr
            .contains("it does not serve the model n, but m"),
        "{}",
        other.stderr
    );

    // The same model on another server may answer a little differently.
    let run = ask(&Server::clever("sglang", Shape::Table), &[]);
    assert_eq!(run.code, 0);
    assert!(
        run.stderr
            .contains("server: \"vLLM 0.12.0\", but here \"SGLang 0.5.0\""),
        "{}",
        run.stderr
    );
}

#[test]
fn a_rule_that_names_no_reader_is_refused_unless_forced() {
    let folder = folder(1, 2);
    common::write_traces(&folder.path().join("t.npz"), 50, 1);
    let args = [
        "calibrate",
        "--method",
        "screen-only",
        "t.npz",
        "-o",
        "rule.json",
    ];
    haltwise()
        .current_dir(&folder)
        .args(args)
        .assert()
        .success();
    let server = Server::clever("vllm", Shape::Table);
    let args = [
        "ask",
        "q.jsonl",
        "--rule",
        "rule.json",
        "--server",
        &server.url,
    ];
    let run = ran(haltwise().current_dir(&folder).args(args));
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("does not say which model"),
        "{}",
        run.stderr
    );
    assert_eq!(server.prompts().len(), 0);
}

#[test]
fn traces_of_two_readers_do_not_make_one_rule() {
    let folder = folder(2, 5);
    let server = Server::clever("vllm", Shape::Table);
    assert_eq!(read(&folder, &server, "a.parquet", &[]).code, 0);
    assert_eq!(
        read(&folder, &server, "b.parquet", &["--letters", "XY"]).code,
        0
    );
    let args = [
        "calibrate",
        "--method",
        "conditional",
        "a.parquet",
        "--screen",
        "b.parquet",
        "-o",
        "rule.json",
    ];
    let run = ran(haltwise().current_dir(&folder).args(args));
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("traces of different classifiers"),
        "{}",
        run.stderr
    );
}

#[test]
fn what_read_needs_is_asked_for_before_anything_is_sent() {
    let folder = folder(1, 1);
    let server = Server::clever("vllm", Shape::Table);
    let csv = read(&folder, &server, "t.csv", &[]);
    assert!(
        csv.stderr.contains("no place for the model"),
        "{}",
        csv.stderr
    );
    let line = r#"{"document": "d", "question": "q", "options": ["a", "b"]}"#;
    fs::write(folder.path().join("q.jsonl"), line).unwrap();
    let unlabelled = read(&folder, &server, "t.npz", &[]);
    assert!(
        unlabelled.stderr.contains("the question 1 has no label"),
        "{}",
        unlabelled.stderr
    );
    assert_eq!(
        (csv.code, unlabelled.code, server.prompts().len()),
        (1, 1, 0)
    );
}

#[test]
fn a_journal_of_other_questions_is_not_gone_on_with() {
    let folder = folder(4, 2);
    let server = turns_bad(|| Response::Body(400, "", String::new()));
    assert_eq!(read(&folder, &server, "t.npz", &[]).code, 1);
    let kept = journal(&folder, "t.npz");
    let server = Server::clever("llamacpp", Shape::List);
    let run = read(&folder, &server, "t.npz", &["--shuffle-options", "3"]);
    assert!(
        run.stderr.contains("begun with other questions"),
        "{}",
        run.stderr
    );
    assert_eq!((run.code, journal(&folder, "t.npz")), (1, kept));
    assert!(
        !run.stderr.contains("answers are kept in"),
        "{}",
        run.stderr
    );
    assert!(!run.stderr.contains("same command"), "{}", run.stderr);
}

#[test]
fn a_journal_that_is_damaged_or_in_use_is_told_of_truly() {
    let folder = folder(4, 2);
    let server = turns_bad(|| Response::Body(400, "", String::new()));
    assert_eq!(read(&folder, &server, "t.npz", &[]).code, 1);
    let path = folder.path().join("t.npz.journal");
    let whole = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = whole.lines().collect();
    lines[2] = "garbage";
    let damaged = lines.join("\n") + "\n";
    fs::write(&path, &damaged).unwrap();
    let server = Server::clever("llamacpp", Shape::List);
    let refused = |expected: &str| {
        let run = read(&folder, &server, "t.npz", &[]);
        assert_eq!(run.code, 1);
        assert!(run.stderr.contains(expected), "{}", run.stderr);
        assert!(!run.stderr.contains("same command"), "{}", run.stderr);
    };
    refused("t.npz.journal: line 3 is damaged");
    assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
    let held = fs::File::open(&path).unwrap();
    held.lock().unwrap();
    refused("t.npz.journal: another program is writing it");
    assert_eq!(server.prompts().len(), 0);
}

#[cfg(unix)]
#[test]
fn ctrl_c_says_how_to_go_on() {
    let folder = folder(2, 2);
    let (_server, child) = reading_until(7, &folder, "t.npz");
    common::signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    let expected = "Interrupted: 7 of 40 answers are kept in t.npz.journal; run the same command \
                    again to go on";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn names_of_files_are_not_asked_about() {
    let folder = folder(2, 5);
    let server = Server::clever("vllm", Shape::Table);
    rule_for(folder.path(), &server);
    let before = server.prompts().len();
    let line = r#"{"document": "l1.txt", "question": "q", "options": ["a", "b"], "label": 0}"#;
    fs::write(folder.path().join("q.jsonl"), line).unwrap();
    for args in [
        ["read", "q.jsonl", "-o", "u.npz"],
        ["ask", "q.jsonl", "--rule", "rule.json"],
    ] {
        let server = ["--server", &server.url];
        let run = ran(haltwise().current_dir(&folder).args(args).args(server));
        assert_eq!((run.code, run.stdout.as_str()), (1, ""));
        let expected = "q.jsonl: line 1: its document is \"l1.txt\", the name of a file";
        assert!(run.stderr.contains(expected), "{}", run.stderr);
        assert!(run.stderr.contains("--documents FOLDER"), "{}", run.stderr);
    }
    assert_eq!(server.prompts().len(), before);
}

#[test]
fn asks_help_tells_no_defaults_that_the_rule_overrides() {
    // Wherever its lines are broken.
    let help = |verb: &str| {
        let help = ran(haltwise().args([verb, "--help"])).stdout;
        help.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(help("read").contains("[default: completions]"));
    let ask = help("ask");
    for untrue in ["completions]", "periods]", "default: 10", "default: 20]"] {
        assert!(!ask.contains(untrue), "{untrue:?} is in {ask}");
    }
    assert_eq!(ask.matches("[default: the rule's]").count(), 9, "{ask}");
}
