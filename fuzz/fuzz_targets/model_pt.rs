#![no_main]

use haltwise_lstm::Model;
use libfuzzer_sys::fuzz_target;

// Bytes are refused, or are a model that reads back equal once it is written.
fuzz_target!(|bytes: &[u8]| {
    if let Ok(model) = Model::from_pt_bytes(bytes) {
        let written = model.to_safetensors_bytes().unwrap();
        assert_eq!(Model::from_safetensors_bytes(&written).unwrap(), model);
    }
});
