//! The header is what cbindgen makes of the code.

use std::path::Path;

#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_src(root.join("src/lib.rs"))
        .with_config(config)
        .generate()
        .unwrap()
        .write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = root.join("include/haltwise.h");
    if std::env::var_os("HALTWISE_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(path).unwrap_or_default(),
        made,
        "run this test with HALTWISE_WRITE_HEADER=1 to write it again"
    );
}
