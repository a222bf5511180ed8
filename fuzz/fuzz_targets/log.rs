//! Whatever the bytes of a file, it is refused and left as it is, or it is a log that can be written on.
#![no_main]

use std::fs;

use haltwise_log::Log;

const HEADER: &str = "{\"format\":\"fuzz\"}";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, bytes).unwrap();
    let mut records = Vec::new();
    let opened = Log::open(&path, HEADER, &mut |record| {
        records.push(record.to_owned());
        Ok(())
    });
    let Ok((mut log, _)) = opened else {
        return assert_eq!(fs::read(&path).unwrap(), bytes);
    };
    log.append(["one", "two"]).unwrap();
    log.sync().unwrap();
    drop(log);
    records.extend(["one", "two"].map(String::from));
    let mut again = Vec::new();
    let header = Log::read(&path, &mut |record| {
        again.push(record.to_owned());
        Ok(())
    });
    assert_eq!(header.unwrap(), HEADER);
    assert_eq!(again, records);
});
