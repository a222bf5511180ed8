#![no_main]

use haltwise_io::Format;
use libfuzzer_sys::fuzz_target;

#[path = "../sound.rs"]
mod sound;

fuzz_target!(|bytes: &[u8]| sound::check(Format::Csv, bytes));
