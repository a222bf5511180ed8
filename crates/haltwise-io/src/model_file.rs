//! Texts in a model file. Safetensors hold a JSON object of texts beside the tensors. With the text of a
//! rule among them, one file is an early classifier.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::Result;
use crate::problem::Problem;

/// The texts of a model file, by name.
pub type ModelTexts = BTreeMap<String, String>;

/// The longest header that safetensors allow.
const LONGEST: u64 = 100_000_000;
/// The bytes that say how long the header is.
const PREFIX: usize = 8;
/// The entry of the header that holds the texts.
const TEXTS: &str = "__metadata__";

/// The length of the header if a safetensors file begins like this. No text does: it would have zeros.
fn header_length(start: &[u8]) -> Option<u64> {
    let length = u64::from_le_bytes(start.get(..PREFIX)?.try_into().ok()?);
    (start.get(PREFIX) == Some(&b'{') && length <= LONGEST).then_some(length)
}

/// The texts of a header, which must be whole.
fn texts_of(header: &[u8]) -> Option<ModelTexts> {
    #[derive(Deserialize)]
    struct Header {
        #[serde(default, rename = "__metadata__")]
        texts: ModelTexts,
    }
    let header: Header = serde_json::from_slice(header).ok()?;
    Some(header.texts)
}

/// The texts of a model in memory; `None` if it is not safetensors.
pub fn model_texts(bytes: &[u8]) -> Option<ModelTexts> {
    let end = PREFIX + header_length(bytes)? as usize;
    texts_of(bytes.get(PREFIX..end)?)
}

/// The same for a file, of which only the header is read.
pub fn read_model_texts(path: &Path) -> Result<Option<ModelTexts>> {
    let read = || {
        let mut file = File::open(path)?;
        let mut start = Vec::new();
        file.by_ref()
            .take(PREFIX as u64 + 1)
            .read_to_end(&mut start)?;
        header_texts(&mut start, file)
    };
    read().map_err(|e| Problem::unreadable(e).in_file(path))
}

/// Reads on where `bytes` is the start of a safetensors file, up to the end of its header.
pub(crate) fn header_texts(bytes: &mut Vec<u8>, rest: impl Read) -> io::Result<Option<ModelTexts>> {
    let Some(length) = header_length(bytes) else {
        return Ok(None);
    };
    let end = PREFIX as u64 + length;
    let missing = end.saturating_sub(bytes.len() as u64);
    rest.take(missing).read_to_end(bytes)?;
    Ok(model_texts(bytes))
}

/// The same model with further texts; `None` if it is not safetensors.
///
/// ```
/// use haltwise_io::{model_texts, with_model_texts};
///
/// let model = b"\x02\0\0\0\0\0\0\0{}";
/// let both = with_model_texts(model, [("haltwise-rule".into(), "{}".into())].into()).unwrap();
/// assert_eq!(model_texts(&both).unwrap()["haltwise-rule"], "{}");
/// ```
pub fn with_model_texts(model: &[u8], texts: ModelTexts) -> Option<Vec<u8>> {
    let end = PREFIX + header_length(model)? as usize;
    let mut header: Map<String, Value> = serde_json::from_slice(model.get(PREFIX..end)?).ok()?;
    let mut all = model_texts(model)?;
    all.extend(texts);
    header.insert(TEXTS.into(), serde_json::to_value(all).ok()?);
    let mut text = serde_json::to_vec(&header).ok()?;
    // The tensors behind it stay aligned, and their places are counted from its end.
    text.resize(text.len().next_multiple_of(8), b' ');
    if text.len() as u64 > LONGEST {
        return None;
    }
    let mut whole = (text.len() as u64).to_le_bytes().to_vec();
    whole.extend(text);
    whole.extend_from_slice(&model[end..]);
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        bytes.extend([1, 2, 3, 4]);
        bytes
    }

    const TENSOR: &str = r#""w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;

    #[test]
    fn texts_are_added_and_tensors_keep_their_places() {
        let model = file(&format!(r#"{{"__metadata__":{{"a":"1"}},{TENSOR}}}"#));
        let more = ModelTexts::from([("b".into(), "\u{e9}\"".into())]);
        let both = with_model_texts(&model, more).unwrap();
        let texts = model_texts(&both).unwrap();
        assert_eq!((texts["a"].as_str(), texts["b"].as_str()), ("1", "é\""));
        assert_eq!((both.len() % 8, both.ends_with(&[1, 2, 3, 4])), (4, true));
        let end = both.len() - 4;
        let header: Value = serde_json::from_slice(&both[8..end]).unwrap();
        assert_eq!(header["w"]["data_offsets"], serde_json::json!([0, 4]));
    }

    #[test]
    fn other_files_have_no_texts() {
        let cut = &file(r#"{"__metadata__":{"a":"1"}}"#)[..20];
        let numbers = file(r#"{"__metadata__":{"a":1}}"#);
        for bytes in [
            b"".as_slice(),
            b"PK",
            b"{\"format\": \"haltwise-rule\"}",
            cut,
            &numbers,
        ] {
            assert_eq!(model_texts(bytes), None);
            assert_eq!(with_model_texts(bytes, ModelTexts::new()), None);
        }
        assert_eq!(model_texts(&file("{}")), Some(ModelTexts::new()));
    }

    #[test]
    fn of_a_file_only_the_header_is_read() {
        let model = file(&format!(
            r#"{{"__metadata__":{{"a":"{}"}}}}"#,
            "x".repeat(900)
        ));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.safetensors");
        std::fs::write(&path, &model).unwrap();
        assert_eq!(read_model_texts(&path).unwrap().unwrap()["a"].len(), 900);
        let mut start = model[..100].to_vec();
        header_texts(&mut start, &model[100..]).unwrap();
        assert_eq!(start.len(), model.len() - 4);
        let absent = read_model_texts(&folder.path().join("none")).unwrap_err();
        assert_eq!(absent.kind(), crate::ErrorKind::NotFound);
    }
}
