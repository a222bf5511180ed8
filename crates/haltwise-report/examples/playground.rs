//! Writes the page of the playground, and its style and script, into a folder.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: playground FOLDER")?;
    let folder = PathBuf::from(folder);
    std::fs::create_dir_all(&folder)?;
    for (name, text) in haltwise_report::playground_page(env!("CARGO_PKG_VERSION")) {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}
