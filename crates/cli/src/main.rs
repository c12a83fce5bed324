//! The `gradwire` program.

use std::process::ExitCode;

/// Training allocates and frees large tensors all the time. The system's allocator would return
/// their memory, and the kernel clear each page again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    gradwire_cli::main_with(&[])
}
