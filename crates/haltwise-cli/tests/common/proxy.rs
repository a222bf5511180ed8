//! A proxy for a test, and what clients send it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;

use super::signal;

/// A proxy that ends with the test.
pub struct Proxy {
    pub child: Child,
    pub address: String,
    pub said: BufReader<ChildStderr>,
}

impl Proxy {
    pub fn start(folder: &Path, rule: &str, server: &str, more: &[&str]) -> Self {
        Self::start_with(folder, rule, server, more, &[])
    }

    /// The same with variables of the environment.
    pub fn start_with(
        folder: &Path,
        rule: &str,
        server: &str,
        more: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let mut child = Command::new(assert_cmd::cargo::cargo_bin!("haltwise"))
            .current_dir(folder)
            .args([
                "proxy",
                "--rule",
                rule,
                "--server",
                server,
                "--listen",
                "127.0.0.1:0",
            ])
            // This one promises nothing.
            .args(if rule == "rule.json" {
                &["--unpromised", "vote"][..]
            } else {
                &[]
            })
            .args(more)
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("Listening on http://") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "it does not listen");
        }
        let address = line.rsplit("http://").next().unwrap();
        let is_of_address = |c: char| c.is_ascii_digit() || ".:".contains(c);
        let end = address.find(|c| !is_of_address(c)).unwrap();
        let address = address[..end].to_owned();
        Self {
            child,
            address,
            said,
        }
    }

    pub fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sesame\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all((head + body).as_bytes()).unwrap();
        stream
    }

    /// The status, the head and the body of an answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String, String) {
        let mut text = String::new();
        self.send(method, path, body)
            .read_to_string(&mut text)
            .unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_ascii_lowercase(), body.to_owned())
    }

    pub fn chat(&self, request: &Value) -> (u16, String, String) {
        self.ask("POST", "/v1/chat/completions", &request.to_string())
    }

    /// Ends it as a scheduler would, and returns what it said.
    pub fn stop(mut self) -> String {
        signal(&self.child, "-TERM");
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}
