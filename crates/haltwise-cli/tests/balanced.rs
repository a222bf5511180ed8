//! Three servers that share nothing behind nginx, which routes by the id of a stream:
//! their verdict together is that of one that had seen it all.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::serving::{Server, done, folder, stream};
use serde_json::{Value, json};

struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        // Asked, so that it takes its workers along.
        let id = self.0.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}

/// nginx before the servers: the header `X-Stream` says which stream it is.
fn nginx(folder: &Path, servers: &[Server]) -> Option<(Nginx, String)> {
    let installed = ["/usr/sbin/nginx", "/usr/bin/nginx"];
    let Some(program) = installed.iter().find(|path| Path::new(path).is_file()) else {
        assert!(
            std::env::var_os("HALTWISE_REQUIRE_NGINX").is_none(),
            "nginx is not installed"
        );
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED balanced: nginx is not installed"
        );
        return None;
    };
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let root = folder.display();
    let each: String = servers
        .iter()
        .map(|s| format!("    server {};\n", s.address))
        .collect();
    // The file that is shipped, with these servers, and without a certificate.
    let shipped = include_str!("../../../deploy/nginx.conf");
    let lines = shipped
        .lines()
        .filter(|line| !line.contains("ssl_certificate"));
    let lines = lines.map(|line| match line.trim() {
        "server 127.0.0.1:7071;" => each.clone(),
        line if line.starts_with("server 127.0.0.1:") => String::new(),
        "listen 443 ssl;" => format!("    listen {address};"),
        _ => line.to_owned(),
    });
    let shipped = lines.collect::<Vec<_>>().join("\n");
    let text = format!(
        "daemon off; pid {root}/pid; error_log {root}/error.log;\n\
         events {{}}\n\
         http {{\n\
         access_log off; client_body_temp_path {root}/body; proxy_temp_path {root}/proxy;\n\
         fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
         {shipped}\n}}\n"
    );
    let path = folder.join("nginx.conf");
    std::fs::write(&path, text).unwrap();
    let child = Command::new(program)
        .arg("-c")
        .arg(&path)
        .args(["-e", &format!("{root}/error.log")])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut running = Nginx(child);
    while TcpStream::connect(&address).is_err() {
        let ended = running.0.try_wait().unwrap();
        assert!(
            ended.is_none(),
            "{}",
            std::fs::read_to_string(folder.join("error.log")).unwrap()
        );
        std::thread::yield_now();
    }
    Some((running, address))
}

#[test]
fn three_servers_behind_nginx_are_one() {
    let folder = folder();
    let folder = folder.path();
    let servers: Vec<Server> = ["a", "b", "c", "all"]
        .iter()
        .map(|store| {
            Server::start(
                folder,
                &format!("rule.json --store {store} --audit 1 --on-alarm keep"),
            )
        })
        .collect();
    let (one, three) = servers.split_last().unwrap();
    let Some((_nginx, address)) = nginx(folder, three) else {
        return;
    };
    // The same door, with another address.
    let door = std::mem::ManuallyDrop::new(Server {
        child: Command::new("true").spawn().unwrap(),
        address,
        token: None,
    });
    for i in 0..120 {
        let id = format!("s{i}");
        let header = format!("X-Stream: {id}\r\n");
        let early = u32::from(i % 3 != 0);
        // Each step alone, so that the stream must find its server again.
        for line in stream(&id, early, 1).lines() {
            let answer = door
                .ask_with("POST", "/rule/observe", &header, line)
                .unwrap();
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(answer.body, one.post("/rule/observe", line).body);
        }
        let label = json!({"id": id, "label": 1}).to_string();
        let answer = door
            .ask_with("POST", "/rule/labels", &header, &label)
            .unwrap();
        assert_eq!(answer.json()["labels"], 1);
        one.post("/rule/labels", &label);
    }
    let audits = three.iter().map(|s| s.status()["audits"].as_u64().unwrap());
    let audits: Vec<u64> = audits.collect();
    assert!(
        audits.iter().all(|&n| n > 5),
        "each has its share: {audits:?}"
    );
    let verdict = |stores: &str| -> Value {
        let words = format!("monitor rule.json {stores} --json");
        serde_json::from_str(&done(folder, &words)).unwrap()
    };
    let (sum, one) = (verdict("a b c"), verdict("all"));
    for field in [
        "audits",
        "unknown",
        "e_value",
        "alarm",
        "worst_step",
        "by_step",
    ] {
        assert_eq!(sum[field], one[field], "{field}");
    }
    assert_eq!(sum["alarm"], true);
    // A page's origin has its port, and so must the name that a server sees.
    let page = "Host: localhost:81\r\nOrigin: http://localhost:81\r\n";
    let answer = door.ask_with("POST", "/rule/labels", page, "{}").unwrap();
    assert_eq!(answer.status, 422, "{answer:?}");
    // More lines in one request than nginx allows unless it is told.
    let many: String = (0..12_000)
        .map(|i| stream(&format!("m{i}"), 1, 1))
        .collect();
    assert!(many.len() > 2 << 20);
    let answer = door.ask_with("POST", "/rule/streams", "X-Stream: m\r\n", &many);
    let answer = answer.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.body, servers[3].post("/rule/streams", &many).body);
}
