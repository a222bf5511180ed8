#![no_main]

use haltwise_io::Format;
use libfuzzer_sys::fuzz_target;

#[path = "../sound.rs"]
mod sound;

// The reader turns a panic in the decoder underneath into an error. The
// fuzzer's own hook would end the run before it can.
fuzz_target!(
    init: std::panic::set_hook(Box::new(|_| ())),
    |bytes: &[u8]| sound::check(Format::Arrow, bytes)
);
