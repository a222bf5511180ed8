//! `haltwise serve`, end to end, over real connections.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
// Just enough of a browser's protocol, shared with the reports' tests.
#[allow(dead_code)]
#[path = "../../haltwise-report/tests/browser/chromium.rs"]
mod chromium;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::serving::{Server, done, folder, load, stream};
use common::{haltwise, ran};
use haltwise_io::{ModelTexts, RULE_IN_MODEL, with_model_texts};
use serde_json::{Value, json};

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some());
    all.sort();
    all
}

#[test]
fn streams_are_answered_as_by_decide() {
    let folder = folder();
    let lines: String = (0..50).map(|i| stream(&format!("s{i}"), 1, 1)).collect();
    let decided = ran(haltwise()
        .current_dir(folder.path())
        .args(["decide", "rule.json"])
        .write_stdin(lines.clone()));
    let server = Server::start(folder.path(), "rule.json --store store --audit 0");
    let served = server.post("/rule/streams", &lines);
    assert_eq!((served.status, &served.body), (200, &decided.stdout));
    assert_eq!(server.get("/health").body, "alive\n");
    assert_eq!(server.get("/ready").body, "ready\n");
    assert_eq!(server.get("/rules").json(), json!(["rule"]));
    let metrics = server.get("/metrics").body;
    assert!(
        metrics.contains("haltwise_halted_total{rule=\"rule\"} 50"),
        "{metrics}"
    );
    assert!(metrics.contains("# TYPE haltwise_e_value gauge"));
    let openapi = server.get("/openapi.json").json();
    assert!(openapi["paths"]["/{name}/streams"]["post"].is_object());
}

#[test]
fn a_rule_in_a_model_file_is_served_and_monitored_as_in_a_file_of_its_own() {
    let folder = folder();
    let path = folder.path();
    let rule = std::fs::read_to_string(path.join("rule.json")).unwrap();
    let texts = ModelTexts::from([(RULE_IN_MODEL.to_owned(), rule.clone())]);
    let file = with_model_texts(b"\x02\0\0\0\0\0\0\0{}", texts).unwrap();
    std::fs::write(path.join("early.safetensors"), &file).unwrap();
    let server = Server::start(path, "early.safetensors --store store --audit 1");
    assert_eq!(server.get("/early/rule").body, rule);
    server.post("/early/streams", &stream("a", 1, 1));
    server.stop();
    std::fs::write(path.join("early.json"), rule).unwrap();
    let of_model = done(path, "monitor early.safetensors store --json");
    assert!(of_model.contains("\"audits\":1,"), "{of_model}");
    assert_eq!(done(path, "monitor early.json store --json"), of_model);
}

#[test]
fn an_answer_comes_while_the_request_is_still_open() {
    let folder = folder();
    let server = Server::start(folder.path(), "rule.json --store store --audit 1");
    let mut connection = server.connect();
    write!(
        connection,
        "POST /rule/streams HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .unwrap();
    let mut send = |text: &str| write!(connection, "{:x}\r\n{text}\r\n", text.len()).unwrap();
    // Lines may be cut anywhere.
    send("{\"id\":\"a\",\"score\":0.1}\n{\"id\":\"a\",\"sc");
    send("ore\":1.0,\"prediction\":1}\n");
    let mut answers = BufReader::new(server_side(&connection)).lines();
    let mut next = || loop {
        let line = answers.next().unwrap().unwrap();
        if line.starts_with('{') {
            return serde_json::from_str::<Value>(&line).unwrap();
        }
    };
    let halt = json!({"id": "a", "t": 2, "reason": "threshold", "audit": true});
    assert_eq!(next(), halt);
    let send = |text: &str| write!(&connection, "{:x}\r\n{text}\r\n", text.len()).unwrap();
    send("{\"id\":\"a\",\"score\":0.9,\"prediction\":1,\"end\":true}\n");
    assert_eq!(next(), json!({"id": "a", "t": 3, "audited": true}));
    // The error of a line stands between the answers.
    send("nonsense\n");
    let fault = next();
    assert_eq!(fault["line"], 4);
    assert!(fault["remedy"].as_str().unwrap().contains("JSON object"));
}

fn server_side(connection: &TcpStream) -> TcpStream {
    connection.try_clone().unwrap()
}

#[test]
fn one_observation_at_a_time_labels_and_events() {
    let folder = folder();
    let server = Server::start(folder.path(), "rule.json --store store --audit 1");
    let mut events = server.connect();
    write!(events, "GET /rule/events HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut events = BufReader::new(events).lines().map_while(Result::ok);
    assert!(events.any(|line| line.contains("text/event-stream")));
    let observe = |line: &str| server.post("/rule/observe", line);
    let step = json!({"id": 7, "score": 0.1, "prediction": 0}).to_string();
    assert_eq!(
        observe(&step).json(),
        json!({"halted": false, "answers": []})
    );
    let step = json!({"id": 7, "score": 1.0, "prediction": 0}).to_string();
    let said = observe(&step).json();
    assert_eq!(said["halted"], true);
    assert_eq!(said["answers"][0]["audit"], true);
    assert!(events.any(|line| line.contains("{\"halt\":{\"id\":7,\"t\":2")));
    observe(&json!({"id": 7, "score": 1.0, "prediction": 1, "end": true}).to_string());
    assert_eq!(server.get("/rule/labels/wanted").json(), json!([7]));
    let said = server.post(
        "/rule/labels",
        "{\"id\": 7, \"label\": 1}\n{\"id\": 8, \"label\": 1}\n",
    );
    let said = said.json();
    assert_eq!(
        (&said["labels"], &said["refused"][0]["line"]),
        (&json!(1), &json!(2))
    );
    let status = server.status();
    assert_eq!(
        (&status["audits"], &status["unknown"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(status["by_step"][0]["gap"], 1.0);
}

#[test]
fn mistakes_are_answered_with_a_remedy() {
    let folder = folder();
    let server = Server::start(folder.path(), "rule.json --store store --max-line 1000");
    for (answer, status, part) in [
        (server.get("/nothing"), 404, "openapi"),
        (server.get("/other/status"), 404, "ask for one of: rule"),
        (server.get("/rule/streams"), 405, "openapi"),
        (server.post("/rule/observe", "{"), 422, "JSON object"),
        (
            server.post("/rule/observe", "{\"id\": 1, \"end\": true}"),
            422,
            "openapi",
        ),
        (
            server.post("/rule/labels", "{\"id\": 1, \"label\": 2}"),
            404,
            "wanted",
        ),
        (server.post("/rule/labels", "{\"id\": 1}"), 422, "label"),
        (
            server.ask("PUT", "/rule/rule", "{}"),
            422,
            "haltwise calibrate",
        ),
    ] {
        assert_eq!(answer.status, status, "{answer:?}");
        let said = answer.json();
        assert!(said["error"].is_string());
        assert!(said["remedy"].as_str().unwrap().contains(part), "{said}");
    }
    let long = format!(
        "{{\"id\": 1, \"score\": 0.5, \"x\": \"{}\"}}\n",
        "x".repeat(5000)
    );
    let said = server.post("/rule/streams", &long).lines();
    assert!(
        said[0]["remedy"].as_str().unwrap().contains("--max-line"),
        "{said:?}"
    );
}

#[test]
fn who_can_be_reached_from_elsewhere_wants_a_token() {
    let folder = folder();
    let refused = ran(haltwise()
        .current_dir(folder.path())
        .env_remove("HALTWISE_TOKEN")
        .args("serve rule.json --store s --listen 0.0.0.0:0".split(' ')));
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.contains("HALTWISE_TOKEN"),
        "{}",
        refused.stderr
    );
    let server = Server::start_with(folder.path(), "rule.json --store s", Some("secret"));
    assert_eq!(server.status()["audits"], 0);
    for headers in [
        "",
        "Authorization: Bearer secre\r\n",
        "Authorization: Basic secret\r\n",
    ] {
        for path in ["/rule/status", "/metrics", "/rule/events"] {
            let answer = server.ask_with("GET", path, headers, "").unwrap();
            assert_eq!(answer.status, 401, "{path} {headers}");
            assert!(answer.json()["remedy"].as_str().unwrap().contains("Bearer"));
        }
    }
    for path in ["/", "/health", "/ready", "/rules", "/openapi.json"] {
        assert_eq!(
            server.ask_with("GET", path, "", "").unwrap().status,
            200,
            "{path}"
        );
    }
}

#[test]
fn pages_of_other_sites_get_no_answer() {
    let folder = folder();
    let server = Server::start(
        folder.path(),
        "rule.json --store store --allow-host halt.test",
    );
    let ask = |method: &str, path: &str, headers: &str| {
        let lines = stream("a", 1, 1);
        server.ask_with(method, path, headers, &lines).unwrap()
    };
    let host = format!("Host: {}\r\n", server.address);
    let foreign = [
        "Host: evil.example\r\n".to_owned(),
        format!("{host}Origin: https://evil.example\r\n"),
        format!("{host}Origin: null\r\n"),
        format!("{host}Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"),
        format!("{host}Sec-Fetch-Site: same-site\r\n"),
    ];
    for headers in &foreign {
        for (method, path) in [
            ("POST", "/rule/streams"),
            ("POST", "/rule/observe"),
            ("POST", "/rule/labels"),
            ("PUT", "/rule/rule"),
            ("POST", "/rule/rotate"),
            ("GET", "/rule/ws"),
            ("GET", "/rule/status"),
            ("GET", "/rule/events"),
            ("GET", "/metrics"),
            ("GET", "/ready"),
            ("GET", "/"),
            ("GET", "/nothing"),
        ] {
            let answer = ask(method, path, headers);
            assert_eq!(answer.status, 403, "{method} {path} {headers}");
            assert!(answer.json()["remedy"].is_string());
        }
    }
    assert_eq!(server.status()["totals"]["streams"], 0);
    for headers in [
        host.clone(),
        "Host: halt.test\r\n".into(),
        format!("{host}Origin: http://{}\r\n", server.address),
        format!("{host}Sec-Fetch-Site: same-origin\r\n"),
    ] {
        assert_eq!(
            ask("POST", "/rule/streams", &headers).status,
            200,
            "{headers}"
        );
    }
    // The handshake of a WebSocket.
    for (origin, is_welcome) in [
        ("https://evil.example", false),
        (&*format!("http://{}", server.address), true),
    ] {
        use tungstenite::client::IntoClientRequest;
        let mut request = format!("ws://{}/rule/ws", server.address)
            .into_client_request()
            .unwrap();
        request
            .headers_mut()
            .insert("origin", origin.parse().unwrap());
        let answered = tungstenite::client(request, server.connect());
        assert_eq!(answered.is_ok(), is_welcome, "{origin}");
    }
}

#[test]
fn from_drift_to_alarm_to_a_new_rule() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder, "rule.json --store store --audit 1");
    let label = |from: usize, to: usize| {
        let lines: String = (from..to)
            .map(|i| format!("{{\"id\":\"s{i}\",\"label\":1}}\n"))
            .collect();
        let said = server.post("/rule/labels", &lines).json();
        assert_eq!(said["refused"], json!([]));
    };
    let send = |from: usize, to: usize, bad: usize| {
        let lines: String = (from..to)
            .map(|i| stream(&format!("s{i}"), u32::from(i % 10 >= bad), 1))
            .collect();
        server.post("/rule/streams", &lines)
    };
    send(0, 300, 0);
    label(0, 300);
    assert_eq!(server.status()["alarm"], false);
    send(300, 500, 5);
    label(300, 500);
    let status = server.status();
    assert_eq!(
        (&status["alarm"], &status["reading_on"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(status["worst_step"].as_u64().unwrap(), 2);
    // Nothing is halted early any more.
    let said = send(500, 501, 0).lines();
    assert_eq!(said[0]["reason"], "last-step");
    // The verdict of the store is the server's.
    let status = server.status();
    let words = "monitor rule.json store --json";
    let verdict: Value = serde_json::from_str(&done(folder, words)).unwrap();
    for field in [
        "audits",
        "e_value",
        "alarm",
        "worst_step",
        "gap",
        "interval",
    ] {
        assert_eq!(verdict[field], status[field], "{field}");
    }
    // The audits since the alarm are what the next rule is calibrated on.
    send(501, 1500, 0);
    label(500, 1500);
    assert_eq!(server.post("/rule/rotate", "").status, 200);
    let traces = files(&folder.join("store/rule"));
    assert_eq!(traces.len(), 1, "{traces:?}");
    let delta = status["next_delta"].as_f64().unwrap();
    let words = format!("calibrate store/rule --method conditional --delta {delta} -o new.json");
    done(folder, &words);
    let rule: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("new.json")).unwrap()).unwrap();
    let used = |set: &str| rule[set]["sequences"].as_u64().unwrap();
    assert_eq!(used("screened_on") + used("certified_on"), 1000);
    done(
        folder,
        "calibrate traces.npz --method conditional --delta 0.009 -o much.json",
    );
    let much = std::fs::read_to_string(folder.join("much.json")).unwrap();
    let refused = server.ask("PUT", "/rule/rule", &much);
    assert_eq!(refused.status, 422);
    assert!(
        refused.json()["remedy"]
            .as_str()
            .unwrap()
            .contains("next_delta")
    );
    let new = std::fs::read_to_string(folder.join("new.json")).unwrap();
    let renewed = server.ask("PUT", "/rule/rule", &new);
    assert_eq!(renewed.json(), json!({"renewal": 2}));
    assert_eq!(server.get("/rule/rule").body, new);
    let status = server.status();
    assert_eq!(
        (&status["alarm"], &status["audits"]),
        (&json!(false), &json!(0))
    );
    // After a restart with the old file it is still the new rule.
    server.stop();
    let server = Server::start(folder, "rule.json --store store --audit 1");
    assert_eq!(server.status()["renewal"], 2);
    assert_eq!(server.get("/rule/rule").body, new);
}

#[test]
fn streams_go_on_after_a_stop_and_begin_again_after_a_kill() {
    let folder = folder();
    let words = "rule.json --store store --audit 0";
    let server = Server::start(folder.path(), words);
    let step = |score: f64| json!({"id": "a", "score": score, "prediction": 1}).to_string();
    assert_eq!(server.post("/rule/observe", &step(0.1)).status, 200);
    server.stop();
    let server = Server::start(folder.path(), words);
    let said = server.post("/rule/observe", &step(1.0)).json();
    assert_eq!(said["answers"][0]["t"], 2, "{said}");
    let other = json!({"id": "b", "score": 0.1}).to_string();
    server.post("/rule/observe", &other);
    server.kill();
    let server = Server::start(folder.path(), words);
    let refused = server.post("/rule/observe", &other);
    assert_eq!(refused.status, 409);
    assert!(
        refused.json()["remedy"]
            .as_str()
            .unwrap()
            .contains("\"t\": 1")
    );
    let first = json!({"id": "b", "t": 1, "score": 0.1}).to_string();
    assert_eq!(server.post("/rule/observe", &first).status, 200);
}

#[test]
fn groups_are_watched_and_their_audits_make_the_next_rule() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let site = |i: usize| ["north", "south"][i % 2];
    let traces: String = (0..2000)
        .map(|i| {
            let trace = json!({"id": i, "site": site(i), "label": 1,
                "predictions": [0, 1, 1, 1, 1], "scores": [0.1, 1.0, 1.0, 1.0, 1.0]});
            format!("{trace}\n")
        })
        .collect();
    std::fs::write(folder.join("traces.jsonl"), traces).unwrap();
    let calibrate = "calibrate traces.jsonl --method conditional --by site -o rule.json";
    done(folder, calibrate);
    let server = Server::start(folder, "rule.json --store store --audit 1");
    let refused = server.post("/rule/streams", &stream("x", 1, 1)).lines();
    assert!(
        refused[0]["remedy"].as_str().unwrap().contains("groups"),
        "{refused:?}"
    );
    let lines: String = (0..600)
        .map(|i| {
            let group = format!("\"t\":1,\"group\":\"{}\"", site(i));
            stream(&format!("s{i}"), 1, 1).replacen("\"t\":1", &group, 1)
        })
        .collect();
    server.post("/rule/streams", &lines);
    let labels: String = (0..600)
        .map(|i| format!("{{\"id\":\"s{i}\",\"label\":1}}\n"))
        .collect();
    assert_eq!(server.post("/rule/labels", &labels).json()["labels"], 600);
    let status = server.status();
    assert_eq!(status["groups"], json!(["north", "south"]));
    let halted = |group: usize| {
        let mut steps = status["by_step"].as_array().unwrap().iter();
        let last = steps.rfind(|step| step["group"] == group);
        last.unwrap()["halted"].clone()
    };
    assert_eq!((halted(0), halted(1)), (json!(300), json!(300)), "{status}");
    assert_eq!(server.post("/rule/rotate", "").status, 200);
    let words = "calibrate store/rule --method conditional --by site --delta 0.003 -o new.json";
    done(folder, words);
    let new = std::fs::read_to_string(folder.join("new.json")).unwrap();
    assert_eq!(server.ask("PUT", "/rule/rule", &new).status, 200);
    assert_eq!(server.status()["groups"], json!(["north", "south"]));
}

/// `HALTWISE_KILLS` says how often; `make soak-serve` does it a thousand times.
#[test]
fn nothing_that_was_acknowledged_is_lost_by_kills() {
    let kills = std::env::var("HALTWISE_KILLS").map_or(20, |n| n.parse().unwrap());
    let folder = folder();
    let words = "rule.json --store store --audit 1 --rotate 1 --on-alarm keep";
    let (mut audited, mut labelled, mut last) = (0, 0, Vec::new());
    let mut draw = 1_u64;
    for round in 0..=kills {
        // What the log says before a server takes it up, twice, and what that then knows.
        let replayed = (round > 0).then(|| {
            let replay = || done(folder.path(), "monitor rule.json store --json");
            let (first, second) = (replay(), replay());
            assert_eq!(first, second, "round {round}");
            serde_json::from_str::<Value>(&first).unwrap()
        });
        let server = Server::start(folder.path(), words);
        let status = server.status();
        if let Some(replayed) = replayed {
            for (field, value) in replayed.as_object().unwrap() {
                assert_eq!(*value, status[field], "round {round}: {field}");
            }
        }
        let counted = |what: &str| status["totals"][what].as_u64().unwrap();
        assert!(counted("audited") >= audited, "round {round}: {status}");
        assert!(counted("labels") >= labelled, "round {round}: {status}");
        for id in &last {
            // Labelled for good: it does not wait for one any more.
            let again = server.post("/rule/labels", &format!("{{\"id\":\"{id}\",\"label\":1}}"));
            assert_eq!(again.status, 404, "round {round}: {id}");
        }
        last.clear();
        if round == kills {
            break;
        }
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let moment = Duration::from_micros((draw >> 33) % 200_000);
        std::thread::scope(|scope| {
            let address = server.address.clone();
            let clients: Vec<_> = (0..3)
                .map(|client| {
                    let (address, name) = (address.clone(), format!("k{round}-{client}"));
                    scope.spawn(move || load(&address, &name))
                })
                .collect();
            std::thread::sleep(moment);
            server.kill();
            for client in clients {
                let (streams, ids) = client.join().unwrap();
                audited += streams;
                labelled += ids.len() as u64;
                last.extend(ids);
            }
        });
    }
    assert!(labelled > kills, "{labelled} labels in {kills} rounds");
    let _ = writeln!(
        std::io::stderr(),
        "{kills} kills: {audited} audits and {labelled} labels acknowledged, none lost"
    );
}

#[test]
fn a_store_has_one_server() {
    let folder = folder();
    let first = Server::start(folder.path(), "rule.json --store store");
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        // Not even while the first one goes over to a new log.
        scope.spawn(|| {
            while !is_done.load(relaxed) {
                assert_eq!(first.post("/rule/rotate", "").status, 200);
            }
        });
        let words = "serve rule.json --store store --listen 127.0.0.1:0 --wait-for-store 2";
        let second = ran(haltwise().current_dir(folder.path()).args(words.split(' ')));
        is_done.store(true, relaxed);
        assert_eq!(second.code, 1);
        let said = second.stderr;
        assert!(said.contains("store/rule: another server uses"), "{said}");
        assert!(said.contains("--wait-for-store"), "{said}");
    });
    // Readers need no lock.
    done(folder.path(), "monitor rule.json store");
}

#[test]
fn a_rolling_restart_keeps_all_open_streams() {
    let folder = folder();
    let words = "rule.json --store store --audit 0.5";
    let mut server = Server::start(folder.path(), words);
    let first: String = (0..5000)
        .map(|i| format!("{{\"id\":\"s{i}\",\"t\":1,\"score\":0.1,\"prediction\":1}}\n"))
        .collect();
    let second = first.replace("\"t\":1,\"score\":0.1", "\"t\":2,\"score\":1.0");
    assert_eq!(server.post("/rule/streams", &first).body, "");
    for _ in 0..3 {
        common::signal(&server.child, "-TERM");
        // The next one starts before the first has ended.
        let next = Server::start(folder.path(), words);
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
        server = next;
    }
    let halted = server.post("/rule/streams", &second);
    let halts = halted.lines();
    assert_eq!(halts.len(), 5000, "{:?}", halts.first());
    assert!(halts.iter().all(|halt| halt["t"] == 2), "{:?}", halts[0]);
}

#[test]
fn lines_go_by_websocket_too() {
    let folder = folder();
    let server = Server::start(folder.path(), "rule.json --store store --audit 0");
    let address = format!("ws://{}/rule/ws", server.address);
    let (mut socket, _) = tungstenite::client(address, server.connect()).unwrap();
    let mut say = |text: &str| {
        socket.send(tungstenite::Message::text(text)).unwrap();
        let answer = socket.read().unwrap().into_text().unwrap();
        answer
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect::<Vec<Value>>()
    };
    let halts = say("{\"id\":1,\"score\":0.1}\n{\"id\":1,\"score\":1.0}");
    assert_eq!(halts, [json!({"id": 1, "t": 2, "reason": "threshold"})]);
    let fault = say("{\"id\":2");
    assert_eq!(fault[0]["line"], 3);
    assert!(fault[0]["remedy"].is_string());
}

#[test]
fn the_page_shows_the_alarm_as_it_is_raised() {
    let Some(program) = chromium::find_or_skip("the_page_shows_the_alarm_as_it_is_raised") else {
        return;
    };
    let folder = folder();
    let server = Server::start_with(
        folder.path(),
        "rule.json --store store --audit 1",
        Some("secret"),
    );
    let mut browser = chromium::Browser::start(&program);
    let mut tab = browser.tab();
    tab.visit(&format!("http://{}/", server.address), 1200, "dark");
    let until = |tab: &mut chromium::Tab<'_>, what: &str| {
        let begun = Instant::now();
        while tab.evaluate(what) != json!(true) {
            let state = tab.evaluate("document.body.innerText");
            assert!(begun.elapsed() < Duration::from_secs(30), "{what}: {state}");
        }
    };
    until(&mut tab, "!document.getElementById('access').hidden");
    tab.evaluate("document.getElementById('token').value = 'secret'");
    tab.evaluate("document.getElementById('enter').click()");
    until(&mut tab, "document.body.dataset.shown === 'yes'");
    until(
        &mut tab,
        "document.getElementById('verdict').innerText.includes('No alarm')",
    );
    let lines: String = (0..80).map(|i| stream(&format!("s{i}"), 0, 1)).collect();
    server.post("/rule/streams", &lines);
    until(
        &mut tab,
        "document.getElementById('labels').innerText.includes('s35')",
    );
    let lines: String = (0..80)
        .map(|i| format!("{{\"id\":\"s{i}\",\"label\":1}}\n"))
        .collect();
    server.post("/rule/labels", &lines);
    until(
        &mut tab,
        "document.getElementById('verdict').className === 'alarm'",
    );
    let words = tab.evaluate("document.getElementById('verdict').innerText");
    let words = words.as_str().unwrap();
    assert!(
        words.contains("halted by step 2") && words.contains("read to their end"),
        "{words}"
    );
    let drawn = "document.querySelectorAll('#evidence path, #gaps circle, #halts rect').length";
    assert!(tab.evaluate(drawn).as_u64().unwrap() >= 3);
    // A phone shows all of it without scrolling sideways.
    tab.visit(&format!("http://{}/", server.address), 400, "light");
    until(&mut tab, "document.body.dataset.shown === 'yes'");
    let wide = tab.evaluate("document.documentElement.scrollWidth > innerWidth");
    assert_eq!(wide, false);
    let complaints = tab.complaints();
    let refused = |c: &&String| !c.contains("401");
    assert_eq!(
        complaints.iter().filter(refused).count(),
        0,
        "{complaints:?}"
    );
}

/// Files may not grow beyond a limit: a short write, then an error, as on a disk
/// that is full.
#[test]
fn a_full_disk_stops_answers_and_loses_none() {
    let folder = folder();
    let words = "rule.json --store store --audit 1";
    let limited = "trap '' XFSZ; ulimit -f 400;";
    let server = Server::start_after(limited, folder.path(), words, None);
    let mut labelled = Vec::new();
    let refused = loop {
        let id = format!("s{}", labelled.len());
        let said = server.post("/rule/streams", &stream(&id, 0, 1));
        if said.body.contains("cannot be written") {
            break said.body;
        }
        let label = format!("{{\"id\":\"{id}\",\"label\":1}}");
        let said = server.post("/rule/labels", &label);
        if said.status != 200 {
            assert_eq!(said.status, 503);
            break said.body;
        }
        labelled.push(id);
        assert!(labelled.len() < 100_000, "the disk is never full");
    };
    assert!(refused.contains("remedy"), "{refused}");
    server.fill_disk();
    assert_eq!(server.get("/health").status, 200);
    let ready = server.get("/ready");
    assert_eq!(ready.status, 503);
    assert!(
        ready.json()["remedy"]
            .as_str()
            .unwrap()
            .contains("make room")
    );
    server.kill();
    // With room again, nothing that was answered is missing.
    let server = Server::start(folder.path(), words);
    let status = server.status();
    assert!(status["audits"].as_u64().unwrap() >= labelled.len() as u64);
    let last = labelled.last().unwrap();
    let again = server.post(
        "/rule/labels",
        &format!("{{\"id\":\"{last}\",\"label\":1}}"),
    );
    assert_eq!(again.status, 404, "it has its label");
}
