//! The haltwise command.
fn main() {}
