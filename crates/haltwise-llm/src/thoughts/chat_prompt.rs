//! A chat as the prompt of a plain completion. Only such a prompt lets a thought go on at any place:
//! servers differ in how they take up a message that was begun.

use serde_json::{Map, Value, json};

use crate::server::Server;

const NO_PROMPT: &str = "the server cannot write out a chat as a prompt, so write the chat format \
    yourself, with --endpoint completions and --chat-format or --template";

impl Server {
    /// The prompt that the server makes of a chat, up to where the answer begins. llama.cpp has a
    /// path for that. vLLM and SGLang count the tokens of a chat, and write them out.
    pub(super) fn chat_prompt(&self, fields: &Map<String, Value>) -> crate::Result<String> {
        let mut request = Value::Object(fields.clone());
        request["model"] = self.model().into();
        let made = if self.is_llama_cpp() {
            let made = self.post_json("/apply-template", &request);
            made.map(|made| made["prompt"].as_str().map(str::to_owned))
        } else {
            self.written_tokens(&request)
        };
        let made = made.map_err(|e| e.at(NO_PROMPT))?;
        made.ok_or_else(|| self.error(NO_PROMPT))
    }

    fn written_tokens(&self, chat: &Value) -> crate::Result<Option<String>> {
        let tokens = |request: &Value| -> crate::Result<Option<Vec<Value>>> {
            let answer = self.post_json("/tokenize", request)?;
            Ok(answer["tokens"].as_array().cloned())
        };
        let Some(all) = tokens(chat)? else {
            return Ok(None);
        };
        // The server puts the tokens that begin every text before the prompt once more.
        let begins = tokens(&json!({"model": self.model(), "prompt": ""}))?.unwrap_or_default();
        let rest = all.strip_prefix(begins.as_slice()).unwrap_or(&all);
        let request = json!({"model": self.model(), "tokens": rest, "skip_special_tokens": false});
        let written = self.post_json("/detokenize", &request)?;
        let text = written["prompt"].as_str().or(written["text"].as_str());
        Ok(text.map(str::to_owned))
    }
}
