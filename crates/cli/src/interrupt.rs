//! Ctrl-C: the first asks for a clean stop, the second ends the process.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Starts to listen. Without a signal handler Ctrl-C still ends the process.
pub(crate) fn listen() {
    let handler = || {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("\nstopping after this step; press Ctrl-C again to stop at once");
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        eprintln!("warning: Ctrl-C will not stop cleanly: {error}");
    }
}

/// Whether a stop was asked for.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}
