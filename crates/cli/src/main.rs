//! The `gradwire` command line.
fn main() {}
