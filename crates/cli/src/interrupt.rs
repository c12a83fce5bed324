//! Ctrl-C, or a request to terminate: the first asks for a clean stop, the second ends the process.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::output;

static ASKED: AtomicBool = AtomicBool::new(false);

/// Starts to listen. Without a signal handler Ctrl-C still ends the process.
pub(crate) fn listen() {
    let handler = || {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        output::note("\nstopping after this step; once more to stop at once");
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        output::note(format!("warning: Ctrl-C will not stop cleanly: {error}"));
    }
}

/// Whether a stop was asked for.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}
