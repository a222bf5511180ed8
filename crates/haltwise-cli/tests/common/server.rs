//! A server in the test's own process that answers as the test wants it to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use serde_json::{Value, json};

/// What came in.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub head: String,
    pub body: Value,
}

impl Request {
    /// The prompt of a completion, whichever way it was asked for.
    pub fn prompt(&self) -> &str {
        let messages = self.body["messages"].as_array();
        let last = messages.and_then(|all| all.last()?["content"].as_str());
        self.body["prompt"].as_str().or(last).unwrap_or_default()
    }
}

/// What goes out.
pub enum Response {
    /// A body with a status and more lines of the head.
    Body(u16, &'static str, String),
    /// A part of a body, then nothing.
    Cut(String),
    /// A body of unknown length, piece by piece.
    Pieces(Box<dyn Iterator<Item = String> + Send>),
    /// Nothing, until the other side has had enough.
    Silence,
    /// The same, and that is told.
    Watched(mpsc::Sender<()>),
}

impl Response {
    pub fn ok(body: Value) -> Self {
        Self::Body(200, "", body.to_string())
    }
}

/// The shapes in which servers return log-probabilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// llama.cpp's.
    List,
    /// vLLM's and SGLang's.
    Table,
}

pub struct Server {
    pub url: String,
    asked: Arc<Mutex<Vec<Request>>>,
}

type Behaviour = dyn Fn(usize, &Request) -> Response + Send + Sync;

impl Server {
    /// Serves until the test ends. The behaviour is told how many prompts came
    /// before this one.
    pub fn start(
        owner: &'static str,
        behave: impl Fn(usize, &Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, behave): (_, Arc<Behaviour>) = (Arc::clone(&asked), Arc::new(behave));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (log, behave) = (Arc::clone(&log), Arc::clone(&behave));
                thread::spawn(move || serve(&stream, owner, &log, &*behave));
            }
        });
        Self { url, asked }
    }

    /// A model that answers when it has read what was asked for, and else is
    /// undecided.
    pub fn clever(owner: &'static str, shape: Shape) -> Self {
        Self::start(owner, move |_, request| clever(request, shape))
    }

    /// Every prompt, in the order they came.
    pub fn prompts(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|r| r.prompt().to_owned()).collect()
    }

    pub fn requests(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(
    stream: &TcpStream,
    owner: &str,
    log: &Mutex<Vec<Request>>,
    behave: &Behaviour,
) -> Option<()> {
    let request = receive(stream)?;
    let response = match request.path.as_str() {
        "/v1/models" => Response::ok(json!({"data": [{"id": "m", "owned_by": owner}]})),
        "/version" => Response::ok(json!({"version": "0.12.0"})),
        "/props" => Response::ok(json!({"build_info": "b1"})),
        "/get_server_info" => Response::ok(json!({"version": "0.5.0"})),
        _ => {
            let number = {
                let mut log = log.lock().unwrap();
                log.push(request.clone());
                log.len() - 1
            };
            behave(number, &request)
        }
    };
    send(stream, response)
}

fn receive(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        path: head.split(' ').nth(1)?.to_owned(),
        head,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}

fn send(mut stream: &TcpStream, response: Response) -> Option<()> {
    let (status, more, body, length) = match response {
        Response::Body(status, more, body) => (status, more, body.clone(), body.len()),
        Response::Cut(body) => (200, "", body.clone(), 2 * body.len()),
        Response::Pieces(pieces) => {
            let head =
                "HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).ok()?;
            for piece in pieces {
                stream.write_all(piece.as_bytes()).ok()?;
            }
            return Some(());
        }
        Response::Silence => {
            // Until the client hangs up.
            let _ = stream.read(&mut [0]);
            return None;
        }
        Response::Watched(gone) => {
            let _ = stream.read(&mut [0]);
            return gone.send(()).ok();
        }
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n{more}\r\n"
    );
    stream.write_all((head + &body).as_bytes()).ok()
}

/// The answer of a model that looks for "NAME is VALUE" for a question "What is
/// NAME?", and knows the value once it has read it.
pub fn clever(request: &Request, shape: Shape) -> Response {
    let prompt = request.prompt();
    let name = between(prompt, "What is ", "?");
    let options = prompt.split("?\n").last().unwrap_or_default();
    let known = between(prompt, &format!("{name} is "), ".");
    let letter = |line: &str| {
        let (letter, text) = line.split_once(". ")?;
        Some((letter.to_owned(), text == known))
    };
    let tokens: Vec<(String, f64)> = options
        .lines()
        .filter_map(letter)
        .map(|(letter, right)| match (right, known.is_empty()) {
            (true, _) => (letter, 0.9_f64.ln()),
            (false, false) => (letter, 0.02_f64.ln()),
            (false, true) => (format!(" {letter}"), 0.25_f64.ln()),
        })
        .collect();
    Response::ok(reply(&tokens, shape, prompt.len() / 4))
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let rest = text.split_once(start).map_or("", |(_, rest)| rest);
    rest.split_once(end).map_or("", |(found, _)| found)
}

/// A whole answer in one of the shapes.
pub fn reply(tokens: &[(String, f64)], shape: Shape, sent: usize) -> Value {
    let logprobs = match shape {
        Shape::List => {
            let item =
                |(token, logprob): &(String, f64)| json!({"token": token, "logprob": logprob});
            let list: Vec<Value> = tokens.iter().map(item).collect();
            json!({"content": [{"token": "A", "logprob": -0.1, "top_logprobs": list}]})
        }
        Shape::Table => {
            let pair = |(token, logprob): &(String, f64)| (token.clone(), Value::from(*logprob));
            let table: serde_json::Map<_, _> = tokens.iter().map(pair).collect();
            json!({
                "text_offset": [0], "token_logprobs": [-0.1], "tokens": ["A"],
                "top_logprobs": [table],
            })
        }
    };
    json!({
        "object": "text_completion", "model": "m",
        "choices": [{"index": 0, "text": "A", "finish_reason": "length", "logprobs": logprobs}],
        "usage": {
            "prompt_tokens": sent, "completion_tokens": 1, "total_tokens": sent + 1,
            "prompt_tokens_details": {"cached_tokens": sent / 2},
        },
    })
}
