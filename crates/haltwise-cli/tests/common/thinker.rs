//! A model that thinks, in the test's own process. One word is one token.

use serde_json::{Value, json};

use super::server::{Request, Response, Server};

/// The marks around a thought.
pub const MARKS: (&str, &str) = ("<think>", "</think>");

/// The number behind some words of a prompt.
fn number(prompt: &str, after: &str) -> u64 {
    let rest = prompt.split_once(after).unwrap().1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// How many words the whole thought about a question has.
pub fn length(i: u64) -> u64 {
    60 + 7 * (i % 11)
}

/// What the model says after so many words of thought: it changes its mind, and settles later on
/// harder questions.
fn answer(i: u64, difficulty: u64, words: u64) -> String {
    match words {
        w if w >= 10 + 6 * difficulty => (i + 3).to_string(),
        w if w < 10 => String::new(),
        w => (i + w).to_string(),
    }
}

fn completion(body: &Value, text: &str, tokens: u64, finish: &str) -> Response {
    let usage = json!({"prompt_tokens": 30, "completion_tokens": tokens});
    let choice =
        |text: &str, finish: &Value| json!([{"index": 0, "text": text, "finish_reason": finish}]);
    if body["stream"] != true {
        let choices = choice(text, &finish.into());
        return Response::ok(json!({"choices": choices, "usage": usage}));
    }
    let head = json!({"id": "c1", "created": 7, "model": "m"});
    let event = |choices: Value, usage: &Value| {
        let mut event = head.clone();
        (event["choices"], event["usage"]) = (choices, usage.clone());
        format!("data: {event}\n\n")
    };
    let words = text
        .split_inclusive(' ')
        .map(|word| event(choice(word, &Value::Null), &Value::Null));
    let mut events: String = words.collect();
    events += &event(choice("", &finish.into()), &Value::Null);
    events += &event(json!([]), &usage);
    Response::Body(200, "", events + "data: [DONE]\n\n")
}

/// The events of a streamed completion.
pub fn pieces(response: &Response) -> Vec<String> {
    let Response::Body(_, _, body) = response else {
        return Vec::new();
    };
    body.split_inclusive("\n\n").map(str::to_owned).collect()
}

/// The chat in the model's own format.
fn chat(messages: &Value) -> String {
    let turn = |m: &Value| {
        format!(
            "[{}]{}",
            m["role"].as_str().unwrap(),
            m["content"].as_str().unwrap()
        )
    };
    let turns: String = messages.as_array().unwrap().iter().map(turn).collect();
    turns + "[assistant]"
}

/// The answer of a server of this model.
pub fn thinks(request: &Request) -> Response {
    let body = &request.body;
    match request.path.as_str() {
        "/apply-template" => Response::ok(json!({"prompt": chat(&body["messages"])})),
        // A token is a byte. The first token begins every text, and is not to be sent.
        "/tokenize" => {
            let text = body["prompt"]
                .as_str()
                .map_or_else(|| chat(&body["messages"]), str::to_owned);
            let bytes = text.bytes().map(u32::from);
            let tokens: Vec<u32> = [1000].into_iter().chain(bytes).collect();
            Response::ok(json!({"tokens": tokens}))
        }
        "/detokenize" => {
            let byte = |token: &Value| u8::try_from(token.as_u64().unwrap()).unwrap();
            let bytes: Vec<u8> = body["tokens"]
                .as_array()
                .unwrap()
                .iter()
                .map(byte)
                .collect();
            Response::ok(json!({"prompt": String::from_utf8(bytes).unwrap()}))
        }
        _ => thinks_on(body),
    }
}

fn thinks_on(body: &Value) -> Response {
    let prompt = body["prompt"].as_str().unwrap();
    let (i, difficulty) = (number(prompt, "What is "), number(prompt, "difficulty "));
    let most = body["max_tokens"].as_u64().unwrap();
    let thought = prompt.split_once(MARKS.0).unwrap().1;
    let (thought, probe) = match thought.split_once(MARKS.1) {
        Some((thought, probe)) => (thought, Some(probe)),
        None => (thought, None),
    };
    let words = thought.split_whitespace().count() as u64;
    if probe == Some("\n\n") {
        let text = format!("So it is \\boxed{{{}}}.", answer(i, difficulty, words));
        return completion(body, &text, 4, "stop");
    }
    if let Some(begin) = probe {
        assert_eq!(begin, "\n\n**Final answer:** \\boxed{");
        assert_eq!(
            (&body["temperature"], &body["stop"]),
            (&json!(0.0), &json!(["\n"]))
        );
        return completion(
            body,
            &format!("{}}}.", answer(i, difficulty, words)),
            3,
            "stop",
        );
    }
    assert_eq!(body["stop"], json!([MARKS.1]));
    let seed = body["seed"].as_u64().unwrap();
    let said = length(i).saturating_sub(words).min(most);
    let text: String = (0..said)
        .map(|n| format!("w{} ", (seed + n) % 10))
        .collect();
    let is_over = words + said >= length(i) && said < most;
    completion(body, &text, said, if is_over { "stop" } else { "length" })
}

/// A server of this model.
pub fn thinker(owner: &'static str) -> Server {
    Server::start(owner, |_, request| thinks(request))
}

/// The tokens that the model generated, by its requests.
pub fn generated(requests: &[Request]) -> u64 {
    let completions = requests.iter().filter(|r| r.path == "/v1/completions");
    let tokens = completions.map(|request| match thinks(request) {
        Response::Body(_, _, body) => {
            let whole = body
                .lines()
                .rev()
                .find(|line| line.contains("completion_tokens"));
            let whole = whole.unwrap().trim_start_matches("data: ");
            let whole: Value = serde_json::from_str(whole).unwrap();
            whole["usage"]["completion_tokens"].as_u64().unwrap()
        }
        _ => 0,
    });
    tokens.sum()
}
