//! The `gradwire` program.

use std::process::ExitCode;

/// Training allocates and frees large tensors all the time; the system's allocator returns their
/// memory, and the kernel clears each page again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(gradwire_cli::run(std::env::args_os()))
}
