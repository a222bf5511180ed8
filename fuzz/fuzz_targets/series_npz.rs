#![no_main]

use haltwise_io::series::Format;
use libfuzzer_sys::fuzz_target;

#[path = "../sound_set.rs"]
mod sound_set;

fuzz_target!(|bytes: &[u8]| sound_set::check(Format::Npz, bytes));
