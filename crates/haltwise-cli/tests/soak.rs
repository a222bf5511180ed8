//! Rolling restarts under load, with several servers that want one store at once.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::Write;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};

use common::serving::{Server, folder, load_while};
use common::signal;
use serde_json::json;

/// Ends a server as an operator does.
fn tell_to_end(server: &Server) {
    signal(&server.child, "-TERM");
}

/// `HALTWISE_RESTARTS` says how often; `make soak-serve` does it 200 times.
#[test]
fn rolling_restarts_under_load_lose_nothing_that_was_acknowledged() {
    const OPEN: usize = 50;
    let restarts = std::env::var("HALTWISE_RESTARTS").map_or(3, |n| n.parse().unwrap());
    let folder = folder();
    let path = folder.path();
    // One address for all, as behind a load balancer.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let words =
        format!("rule.json --store store --audit 1 --rotate 1 --on-alarm keep --listen {address}");
    let words = &*words;
    let mut server = Server::start(path, words);
    let (mut audited, mut labelled) = (0, 0);
    let mut memory = Vec::new();
    for round in 0..restarts {
        // Streams that are open when the server ends.
        let open: String = (0..OPEN)
            .map(|i| {
                let line = json!({"id": format!("o{round}-{i}"), "t": 1, "score": 0.1,
                    "prediction": 1});
                format!("{line}\n")
            })
            .collect();
        assert_eq!(
            server.post("/rule/streams", &open).body,
            "",
            "round {round}"
        );
        let is_over = AtomicBool::new(false);
        let (next, loser) = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..3)
                .map(|client| {
                    let (address, name) = (server.address.clone(), format!("r{round}-{client}"));
                    let goes_on = || !is_over.load(Ordering::Relaxed);
                    scope.spawn(move || load_while(&address, &name, goes_on))
                })
                .collect();
            // Two that race for the store while the first still answers.
            let (tell, hear) = std::sync::mpsc::channel();
            for _ in 0..2 {
                let tell = tell.clone();
                scope.spawn(move || drop(tell.send(Server::start(path, words))));
            }
            // In the midst of the load, each time at another point of it.
            let labels = || server.status()["totals"]["labels"].as_u64().unwrap();
            let due = labels() + 5 + 7 * (round % 8);
            while labels() < due {}
            tell_to_end(&server);
            let next = hear.recv().unwrap();
            // A client that was quick goes on with the next server.
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(
                server.child.wait().unwrap().code(),
                Some(0),
                "round {round}"
            );
            for client in clients {
                let (streams, ids) = client.join().unwrap();
                audited += streams;
                labelled += ids.len() as u64;
            }
            memory.push(next.memory() >> 10);
            // The other waits until this one ends, and is not needed then.
            let status = next.status();
            let counted = |what: &str| status["totals"][what].as_u64().unwrap();
            assert!(
                counted("audited") >= audited,
                "round {round}: {audited} of {status}"
            );
            assert!(
                counted("labels") >= labelled,
                "round {round}: {labelled} of {status}"
            );
            let rest = open.replace("\"t\":1}", "\"t\":2}").replace("0.1", "1.0");
            let halts = next.post("/rule/streams", &rest).lines();
            assert_eq!(halts.len(), OPEN, "round {round}: {:?}", halts.first());
            assert!(halts.iter().all(|halt| halt["t"] == 2), "{:?}", halts[0]);
            tell_to_end(&next);
            (next, hear.recv().unwrap())
        });
        let mut next = next;
        assert_eq!(next.child.wait().unwrap().code(), Some(0), "round {round}");
        server = loser;
    }
    assert!(
        labelled > restarts,
        "{labelled} labels in {restarts} rounds"
    );
    let _ = writeln!(
        std::io::stderr(),
        "{restarts} rolling restarts at one address with two servers after the store: {audited} \
         audits and {labelled} labels acknowledged, none lost, all open streams went on; MiB after \
         each: {memory:?}"
    );
}
