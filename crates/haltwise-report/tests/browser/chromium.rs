//! Just enough of the DevTools protocol to open a page and ask it questions.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

/// How long the browser may take for one answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program to run, if there is one.
fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("HALTWISE_CHROMIUM") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    [
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
    ]
    .iter()
    .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
    .find(|program| program.is_file())
}

/// The program to run. Without one the test says that it was skipped, or fails where
/// `HALTWISE_REQUIRE_CHROMIUM` is set.
pub(crate) fn find_or_skip(test: &str) -> Option<PathBuf> {
    let program = find();
    if program.is_none() {
        let required = std::env::var_os("HALTWISE_REQUIRE_CHROMIUM").is_some();
        assert!(
            !required,
            "HALTWISE_REQUIRE_CHROMIUM is set, but there is no Chromium"
        );
        // Straight to the terminal: what a passing test prints is not shown.
        let said = format!("SKIPPED {test}: no Chromium found (apt-get install chromium)");
        let _ = writeln!(io::stderr(), "{said}");
    }
    program
}

pub(crate) struct Browser {
    child: Child,
    socket: WebSocket<TcpStream>,
    last: u64,
    complaints: Vec<String>,
    loaded: bool,
    // Removed when the browser is.
    _profile: tempfile::TempDir,
}

pub(crate) struct Tab<'a> {
    browser: &'a mut Browser,
    session: String,
}

impl Browser {
    pub(crate) fn start(program: &Path) -> Self {
        let profile = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--hide-scrollbars",
                "--remote-debugging-port=0",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Chromium starts");
        let said = BufReader::new(child.stderr.take().expect("its messages"));
        let mut lines = said.lines().map_while(Result::ok);
        let address = lines
            .find_map(|line| Some(line.split_once("listening on ")?.1.to_owned()))
            .expect("Chromium says where it listens");
        // Someone must go on listening, or it would block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let host = address.trim_start_matches("ws://").split('/').next();
        let stream = TcpStream::connect(host.expect("a host")).expect("a connection");
        // Only then a limit: with one, a process that was stopped for a while is interrupted.
        let (socket, _) = tungstenite::client(address, stream).expect("a socket");
        let limited = socket.get_ref().set_read_timeout(Some(PATIENCE));
        limited.expect("a limit");
        Self {
            child,
            socket,
            last: 0,
            complaints: Vec::new(),
            loaded: false,
            _profile: profile,
        }
    }

    pub(crate) fn tab(&mut self) -> Tab<'_> {
        let target = self.call(None, "Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call(None, "Target.attachToTarget", attach);
        let session = session["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            self.call(Some(&session), &format!("{domain}.enable"), json!({}));
        }
        Tab {
            browser: self,
            session,
        }
    }

    fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut request = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = session {
            request["sessionId"] = session.into();
        }
        let text = Message::text(request.to_string());
        self.socket.send(text).expect("Chromium listens");
        loop {
            let mut message = self.read();
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
        }
    }

    /// The next message; what the page complains about is kept.
    fn read(&mut self) -> Value {
        // A process that was stopped for a while is interrupted when it goes on.
        let interrupted = |e: &io::Error| e.kind() == io::ErrorKind::Interrupted;
        let text = loop {
            match self.socket.read() {
                Err(tungstenite::Error::Io(e)) if interrupted(&e) => {}
                read => break read.expect("Chromium answers in time"),
            }
        };
        let message: Value = serde_json::from_str(text.to_text().expect("text")).expect("JSON");
        match message["method"].as_str() {
            Some("Page.loadEventFired") => self.loaded = true,
            Some("Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded") => {
                self.complaints.push(message["params"].to_string());
            }
            _ => {}
        }
        message
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tab<'_> {
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.browser.call(Some(&self.session), method, params)
    }

    /// Opens a file at a width in a colour scheme; 500 and below is a phone.
    pub(crate) fn open(&mut self, page: &Path, width: u32, scheme: &str) {
        self.visit(&format!("file://{}", page.display()), width, scheme);
    }

    /// The same for an address.
    pub(crate) fn visit(&mut self, address: &str, width: u32, scheme: &str) {
        let size = json!({
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width <= 500,
        });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.call("Emulation.setEmulatedMedia", json!({"features": [feature]}));
        self.browser.loaded = false;
        self.call("Page.navigate", json!({"url": address}));
        while !self.browser.loaded {
            self.browser.read();
        }
    }

    /// The value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let ask = json!({"expression": expression, "returnByValue": true});
        let mut answer = self.call("Runtime.evaluate", ask);
        assert!(answer["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["value"].take()
    }

    pub(crate) fn move_mouse(&mut self, x: &Value, y: &Value) {
        let event = json!({"type": "mouseMoved", "x": x, "y": y});
        self.call("Input.dispatchMouseEvent", event);
    }

    pub(crate) fn touch(&mut self, x: &Value, y: &Value) {
        let start = json!({"type": "touchStart", "touchPoints": [{"x": x, "y": y}]});
        self.call("Input.dispatchTouchEvent", start);
        let end = json!({"type": "touchEnd", "touchPoints": []});
        self.call("Input.dispatchTouchEvent", end);
    }

    pub(crate) fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Escape" => 27,
            "End" => 35,
            "Home" => 36,
            "ArrowLeft" => 37,
            "ArrowRight" => 39,
            other => panic!("no code for {other}"),
        };
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code,
            });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Everything the pages wrote to the console, and every exception.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.browser.complaints.clone()
    }
}
