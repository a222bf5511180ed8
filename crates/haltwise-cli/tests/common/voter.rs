//! A model that votes, in the test's own process, and questions for it.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::server::{Request, Response, Server};

/// Questions of which some are easy: "What is 7 plus 3? (difficulty 2)".
pub fn questions(n: usize, labels: bool) -> String {
    let mut lines = String::new();
    for i in 0..n {
        let question = format!("What is {i} plus 3? (difficulty {})", i % 5);
        let mut line = json!({"id": format!("q{i}"), "question": question});
        if labels {
            line["label"] = json!((i + 3).to_string());
        }
        lines += &format!("{line}\n");
    }
    lines
}

pub fn folder(n: usize, labels: bool) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("q.jsonl"), questions(n, labels)).unwrap();
    folder
}

/// What a model says that is wrong with `difficulty` in twelve votes, in one of a few
/// ways, and sometimes says nothing of use; the same for the same seed.
fn said(prompt: &str, seed: u64, choice: u64) -> String {
    let number = |after: &str| -> u64 {
        let rest = prompt.split_once(after).unwrap().1;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    let (sum, difficulty) = (number("What is ") + 3, number("difficulty "));
    let draw = (seed + 7919 * choice).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    match draw % 12 {
        d if d >= difficulty => format!("It is easy: \\boxed{{{sum}.0}}."),
        0 => "I do not know.".into(),
        d => format!("Well, \\boxed{{{}}}.", sum + d),
    }
}

/// A model that votes, on a server that knows `n` or does not.
pub fn votes(request: &Request, knows_n: bool) -> Response {
    let body = &request.body;
    let n = body["n"].as_u64().filter(|_| knows_n).unwrap_or(1);
    let seed = body["seed"].as_u64().unwrap();
    let choice = |i: u64| {
        let text = said(request.prompt(), seed, i);
        json!({"index": i, "text": text, "message": {"role": "assistant", "content": text},
            "finish_reason": "stop"})
    };
    let choices: Vec<Value> = (0..n).map(choice).collect();
    Response::ok(json!({
        "choices": choices,
        "usage": {"prompt_tokens": 30, "completion_tokens": 10 * n},
    }))
}

pub fn model() -> Server {
    Server::start("vllm", |_, request| votes(request, true))
}
