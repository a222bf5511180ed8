//! What a proxy can be asked for, as `/openapi.json` says it.

use haltwise_serve::OPENAPI;
use serde_json::{Map, Value, json};

use crate::settings::ProxyError;

/// What `haltwise serve` takes, and a proxy does not: the votes are its streams.
const OF_STREAMS: [&str; 3] = ["/{name}/streams", "/{name}/ws", "/{name}/observe"];

/// What takes a store.
const OF_A_STORE: [&str; 1] = ["/{name}/rotate"];

/// The description of `haltwise serve` without what a proxy does not do, and with what only
/// it does.
pub(crate) fn openapi(is_stored: bool) -> Result<String, ProxyError> {
    let mut described: Value = serde_json::from_str(OPENAPI)
        .map_err(|e| ProxyError::Rule(format!("it cannot be described: {e}")))?;
    described["info"] = json!({
        "title": "haltwise proxy",
        "version": "1",
        "description": "Asks a language model as often as a certified rule wants. Everything under \
            /v1 is as OpenAI describes it, and its mistakes have OpenAI's form. Other mistakes are \
            answered by {\"error\", \"remedy\"}.",
    });
    let Some(paths) = described.get_mut("paths").and_then(Value::as_object_mut) else {
        return Ok(described.to_string());
    };
    for path in OF_STREAMS {
        paths.remove(path);
    }
    if !is_stored {
        for path in OF_A_STORE {
            paths.remove(path);
        }
    }
    describe_v1(paths);
    Ok(described.to_string())
}

fn describe_v1(paths: &mut Map<String, Value>) {
    let key = json!([{"key": []}, {}]);
    let answers = json!({
        "200": {"description": "A completion, with \"haltwise\" beside it if it was voted on or thought about"},
        "401": {"description": "The request has no key of the proxy"},
        "413": {"description": "The body is longer than 16 MiB"},
        "502": {"description": "The model's server cannot be reached, or answers nonsense"},
        "503": {"description": "The proxy has no room, or its store cannot be written"},
        "504": {"description": "The model's server takes too long"},
    });
    let chat = json!({"post": {
        "summary": "A chat completion, by as many votes or as much thought as the rule asks for",
        "security": key.clone(),
        "responses": answers,
    }});
    paths.insert("/v1/chat/completions".into(), chat);
    let passed = json!({
        "parameters": [{"name": "path", "in": "path", "required": true,
            "schema": {"type": "string"}, "description": "It may have slashes."}],
        "get": {
            "summary": "Passed on to the model's server, as are the other methods",
            "security": key,
            "responses": {"default": {"description": "The server's answer"}},
        },
    });
    paths.insert("/v1/{path}".into(), passed);
}
