//! `read`, `ask`, `vote` and `think` with a real model on a real server: SmolLM2-135M-Instruct on
//! llama.cpp. `make test` installs both; without them these tests are skipped.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use common::{haltwise, json_lines, ran};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The server's address while it is this test's alone, or `None`, said aloud,
/// where it is not installed.
///
/// It ends when its standard input closes, with this process.
fn server() -> Option<(&'static str, MutexGuard<'static, ()>)> {
    static SERVER: OnceLock<Option<(Child, String)>> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let server = SERVER.get_or_init(|| python().map(|python| start(&python)));
    if server.is_none() {
        let test = thread::current().name().unwrap_or("a test").to_owned();
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED {test}: no llama.cpp; run `make llama`"
        );
        let required = std::env::var_os("HALTWISE_REQUIRE_LLAMA").is_some();
        assert!(
            !required,
            "llama.cpp's server is required and not installed"
        );
    }
    server.as_ref().map(|(_, url)| (url.as_str(), turn))
}

fn python() -> Option<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/llama/bin/python");
    let python = std::env::var_os("HALTWISE_LLAMA_PYTHON").map_or(default, PathBuf::from);
    python.is_file().then_some(python)
}

fn start(python: &Path) -> (Child, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/llama_server.py");
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = lines.find_map(|line| line.ok().filter(|line| line.starts_with("http")));
    // Someone must go on listening, or it would block on a full pipe.
    thread::spawn(move || lines.for_each(drop));
    (child, url.expect("the server says where it listens"))
}

const TEXT: &str = "\
The ferry to the island left at nine. Mrs. Oduya had bought two tickets, one for herself and one \
for the large brown dog that sat on her feet. The sea was calm that morning. The captain, a thin \
man called Ferrand, counted the passengers twice and wrote a number in his book. Nobody spoke to \
him. Halfway across, the engine stopped. For an hour the boat drifted among the gulls while \
Ferrand took the pump apart and found a small blue stone in it. He put the stone in his pocket. \
At noon the engine started again. On the island a boy was waiting at the pier with a cart full of \
onions. The dog ran to him at once, and Mrs. Oduya laughed. She paid the boy for the onions and \
gave the captain one of them, which he ate like an apple.";

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let question = |question: &str, options: &[&str], label: usize| json!({"document": TEXT, "question": question, "options": options, "label": label});
    let lines = [
        question(
            "What animal does Mrs. Oduya travel with?",
            &["A cat", "A dog"],
            1,
        ),
        question(
            "What was found in the pump?",
            &["A stone", "A ring", "A fish"],
            0,
        ),
        question(
            "Who is the captain?",
            &["Oduya", "A boy", "Nobody", "Ferrand"],
            3,
        ),
    ];
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    fs::write(folder.path().join("q.jsonl"), text.join("\n")).unwrap();
    folder
}

const READ: [&str; 7] = [
    "read",
    "q.jsonl",
    "--parts",
    "4",
    "--concurrency",
    "1",
    "--server",
];

#[test]
fn a_real_model_reads_is_calibrated_and_answers() {
    let Some((url, _turn)) = server() else {
        return;
    };
    let folder = folder();
    for (name, more) in [
        (
            "chat.parquet",
            &["--split", "sentences", "--endpoint", "chat"][..],
        ),
        (
            "plain.parquet",
            &["--split", "periods", "--chat-format", "chatml"],
        ),
        (
            "tokens.parquet",
            &["--split", "tokens", "--chat-format", "chatml"],
        ),
    ] {
        let args = [&READ[..], &[url, "--json", "-o", name], more].concat();
        let run = ran(haltwise().current_dir(&folder).args(args));
        assert_eq!(run.code, 0, "{name}: {}", run.stderr);
        let said: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(
            (&said["answers"], &said["t_max"]),
            (&json!(12), &json!(4)),
            "{name}"
        );
        // The server computes each token of a document once.
        let (sent, kept) = (said["tokens"].as_u64(), said["tokens_cached"].as_u64());
        assert!(
            kept.unwrap() * 2 > sent.unwrap(),
            "{name}: {kept:?} of {sent:?} were kept"
        );
        assert_eq!(said["answers_without_letters"], 0, "{name}");
    }
    let inspected =
        ran(haltwise()
            .current_dir(&folder)
            .args(["inspect", "chat.parquet", "--json"]));
    let inspected: Value = serde_json::from_str(&inspected.stdout).unwrap();
    assert_eq!(inspected["classifier"]["model"], "SmolLM2-135M-Instruct");
    let software = inspected["classifier"]["server"].as_str().unwrap();
    assert!(software.starts_with("llama.cpp"), "{software}");

    let calibrate = ["calibrate", "--method", "screen-only", "--alpha", "0.9"];
    let files = ["chat.parquet", "-o", "rule.json"];
    haltwise()
        .current_dir(&folder)
        .args(calibrate)
        .args(files)
        .assert()
        .success();
    let ask = ["ask", "q.jsonl", "--rule", "rule.json", "--server", url];
    let run = ran(haltwise().current_dir(&folder).args(ask));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let answers: Vec<Value> = json_lines(&run.stdout);
    assert_eq!(answers.len(), 3);
    for answer in &answers {
        assert!(answer["t"].as_u64() < Some(4), "{answer}");
        assert!(answer["tokens_saved"].as_u64() > Some(0), "{answer}");
    }
}

/// Runs the command until its journal, that of `t.parquet`, has this many lines, and
/// kills it; returns how many there are then.
fn killed(folder: &Path, args: &[&str], after: usize) -> usize {
    let journal = folder.join("t.parquet.journal");
    let lines = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("haltwise"))
        .current_dir(folder)
        .args(args)
        .spawn()
        .unwrap();
    while lines() < after && child.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    lines()
}

#[test]
fn killed_and_resumed_on_a_real_server_the_file_is_the_same() {
    let Some((url, _turn)) = server() else {
        return;
    };
    let folder = folder();
    let args = |output| [&READ[..], &[url, "--endpoint", "chat", "-o", output]].concat();
    haltwise()
        .current_dir(&folder)
        .args(args("whole.parquet"))
        .assert()
        .success();

    let before = killed(folder.path(), &args("t.parquet"), 6);
    assert!((6..13).contains(&before), "killed after {before} lines");

    haltwise()
        .current_dir(&folder)
        .args(args("t.parquet"))
        .assert()
        .success();
    let read = |name| fs::read(folder.path().join(name)).unwrap();
    assert!(
        read("whole.parquet") == read("t.parquet"),
        "killed after {before} lines"
    );
}

const VOTE: [&str; 13] = [
    "vote",
    "sums.jsonl",
    "--samples",
    "4",
    "--max-tokens",
    "16",
    "--answer",
    "number",
    "--template",
    "template.txt",
    "--concurrency",
    "1",
    "--server",
];

/// Questions without labels, and a prompt that asks for a short answer.
fn sums() -> TempDir {
    let folder = TempDir::new().unwrap();
    let question = |i: usize| json!({"id": i, "question": format!("What is {i} + {}?", i + 1)});
    let text: Vec<String> = (2..6).map(|i| question(i).to_string()).collect();
    fs::write(folder.path().join("sums.jsonl"), text.join("\n")).unwrap();
    let template = "{{ question }} Answer with the number alone.";
    fs::write(folder.path().join("template.txt"), template).unwrap();
    folder
}

#[test]
fn a_real_model_votes_is_killed_goes_on_and_is_calibrated_without_labels() {
    let Some((url, _turn)) = server() else {
        return;
    };
    let folder = sums();
    for wave in ["1", "4"] {
        let args = |output| [&VOTE[..], &[url, "--wave", wave, "-o", output]].concat();
        haltwise()
            .current_dir(&folder)
            .args(args("whole.parquet"))
            .assert()
            .success();
        let before = killed(folder.path(), &args("t.parquet"), 4);
        assert!((4..17).contains(&before), "killed after {before} lines");
        let said = ran(haltwise()
            .current_dir(&folder)
            .args(args("t.parquet"))
            .arg("--json"));
        assert_eq!(said.code, 0, "{}", said.stderr);
        let said: Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!((&said["votes"], &said["samples"]), (&json!(16), &json!(4)));
        let read = |name| fs::read(folder.path().join(name)).unwrap();
        assert!(
            read("whole.parquet") == read("t.parquet"),
            "killed after {before} lines of waves of {wave}"
        );
        fs::remove_file(folder.path().join("t.parquet")).unwrap();
    }

    let calibrate = [
        "calibrate",
        "--loss",
        "disagreement",
        "--method",
        "screen-only",
        "--alpha",
        "0.9",
    ];
    let files = ["whole.parquet", "-o", "rule.json"];
    haltwise()
        .current_dir(&folder)
        .args(calibrate)
        .args(files)
        .assert()
        .success();
    let live = [
        "vote",
        "sums.jsonl",
        "--rule",
        "rule.json",
        "--server",
        url,
        "--concurrency",
        "1",
    ];
    let run = ran(haltwise().current_dir(&folder).args(live));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let answers: Vec<Value> = json_lines(&run.stdout);
    assert_eq!(answers.len(), 4);
    assert!(answers.iter().any(|a| a["votes"].as_u64() < Some(4)));
    #[cfg(feature = "proxy")]
    openai_gets_two_votes(url, folder.path());
}

const THINK: [&str; 15] = [
    "think",
    "sums.jsonl",
    "--every",
    "8",
    "--max-tokens",
    "64",
    "--probe-tokens",
    "8",
    "--answer",
    "number",
    "--template",
    "explain.txt",
    "--concurrency",
    "1",
    "--server",
];

/// The tokens that the server has generated, as it counts them itself.
fn generated(url: &str) -> u64 {
    let curl = Command::new("curl")
        .args(["-s", &format!("{url}/metrics")])
        .output();
    let metrics = String::from_utf8(curl.unwrap().stdout).unwrap();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("llamacpp:tokens_predicted_total "));
    line.unwrap().trim().parse().unwrap()
}

/// The model does not think by itself: the thought is opened for it, and closed at its limit.
#[test]
fn a_real_model_thinks_is_killed_goes_on_and_is_ended_by_a_rule() {
    let Some((url, _turn)) = server() else {
        return;
    };
    let folder = sums();
    let template = "{{ question }} Explain every step at length.";
    fs::write(folder.path().join("explain.txt"), template).unwrap();
    let args = |output| [&THINK[..], &[url, "-o", output]].concat();
    let before = generated(url);
    let whole = ran(haltwise()
        .current_dir(&folder)
        .args(args("whole.parquet"))
        .arg("--json"));
    assert_eq!(whole.code, 0, "{}", whole.stderr);
    let said: Value = serde_json::from_str(&whole.stdout).unwrap();
    let sum = |said: &Value| {
        let tokens = |name: &str| said[name].as_u64().unwrap();
        tokens("thought_tokens") + tokens("probe_tokens")
    };
    assert_eq!(
        (&said["thoughts"], sum(&said)),
        (&json!(4), generated(url) - before)
    );

    let before = killed(folder.path(), &args("t.parquet"), 6);
    assert!((6..17).contains(&before), "killed after {before} lines");
    haltwise()
        .current_dir(&folder)
        .args(args("t.parquet"))
        .assert()
        .success();
    let read = |name| fs::read(folder.path().join(name)).unwrap();
    assert!(
        read("whole.parquet") == read("t.parquet"),
        "killed after {before} lines"
    );

    let calibrate = "calibrate whole.parquet --loss disagreement --method screen-only --alpha 0.9";
    haltwise()
        .current_dir(&folder)
        .args(calibrate.split(' '))
        .args(["-o", "rule.json"])
        .assert()
        .success();
    // It ends a thought at its first step, whatever its answer is.
    with_thresholds(folder.path(), "live.json", |_| Some(0.0));
    let before = generated(url);
    let live = "think sums.jsonl --rule live.json --concurrency 1 --server";
    let run = ran(haltwise()
        .current_dir(&folder)
        .args(live.split(' '))
        .arg(url));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let answers: Vec<Value> = json_lines(&run.stdout);
    let here: u64 = answers.iter().map(sum).sum();
    assert_eq!((answers.len(), here), (4, generated(url) - before));
    assert!(2 * here < sum(&said), "{here} of {}", sum(&said));
    assert!(answers.iter().all(|a| a["reason"] == "threshold"));
    #[cfg(feature = "proxy")]
    openai_gets_one_step_of_thought(url, folder.path());
}

/// Writes the rule of the folder with other thresholds.
fn with_thresholds(folder: &Path, name: &str, threshold: impl Fn(usize) -> Option<f32>) {
    let rule = fs::read(folder.join("rule.json")).unwrap();
    let mut rule: Value = serde_json::from_slice(&rule).unwrap();
    let steps = rule["thresholds"].as_array().unwrap().len();
    rule["thresholds"] = (0..steps).map(threshold).collect();
    fs::write(folder.join(name), rule.to_string()).unwrap();
}

/// What OpenAI's own client sees through the proxy before the real server; `None`, said aloud,
/// where it is not installed. The rule promises nothing.
#[cfg(feature = "proxy")]
fn openai_through_the_proxy(url: &str, folder: &Path, question: &str) -> Option<Value> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/openai/bin/python");
    let python = std::env::var_os("HALTWISE_OPENAI_PYTHON").map_or(default, PathBuf::from);
    if !python.is_file() {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED the proxy: no openai; run `make openai`"
        );
        let required = std::env::var_os("HALTWISE_REQUIRE_LLAMA").is_some();
        assert!(!required, "OpenAI's client is required and not installed");
        return None;
    }
    let unpromised = ["--unpromised", "vote"];
    let proxy = common::proxy::Proxy::start(folder, "live.json", url, &unpromised);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openai_client.py");
    let output = Command::new(python)
        .arg(script)
        .arg(format!("http://{}", proxy.address))
        .arg(question)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["model"], "SmolLM2-135M-Instruct");
    assert!(!said["text"].as_str().unwrap().is_empty());
    assert!(!said["streamed"].as_str().unwrap().is_empty());
    assert!(said["completion_tokens"].as_u64() > Some(1));
    assert!(said["streamed_tokens"].as_u64() > Some(1));
    assert!(["stop", "length"].contains(&said["finish"].as_str().unwrap()));
    Some(said)
}

/// Two votes, whatever they are.
#[cfg(feature = "proxy")]
fn openai_gets_two_votes(url: &str, folder: &Path) {
    with_thresholds(folder, "live.json", |t| (t == 1).then_some(0.0));
    let question = "What is 2 + 3? Answer with the number alone.";
    let Some(said) = openai_through_the_proxy(url, folder, question) else {
        return;
    };
    for name in ["haltwise", "streamed_haltwise"] {
        assert_eq!(
            (&said[name]["votes"], &said[name]["of"]),
            (&json!(2), &json!(4))
        );
    }
}

/// One step of thought, whatever its answer is.
#[cfg(feature = "proxy")]
fn openai_gets_one_step_of_thought(url: &str, folder: &Path) {
    let before = generated(url);
    let question = "What is 2 + 3? Explain every step at length.";
    let Some(said) = openai_through_the_proxy(url, folder, question) else {
        return;
    };
    for (name, thought) in [
        ("haltwise", "thought"),
        ("streamed_haltwise", "streamed_thought"),
    ] {
        assert_eq!(
            (&said[name]["thought_tokens"], &said[name]["reason"]),
            (&json!(8), &json!("threshold"))
        );
        assert!(!said[thought].as_str().unwrap().is_empty());
    }
    let sum =
        said["completion_tokens"].as_u64().unwrap() + said["streamed_tokens"].as_u64().unwrap();
    assert_eq!(sum, generated(url) - before);
}
