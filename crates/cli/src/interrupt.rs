//! Ctrl-C, or a termination signal: the first requests a clean stop, the second ends the process.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::output;

static ASKED: AtomicBool = AtomicBool::new(false);

/// Installs the signal handler. If that fails, Ctrl-C still ends the process.
pub(crate) fn listen() {
    let handler = || {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        output::note("\nstopping as soon as possible; press Ctrl-C again to stop at once");
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        output::note(format!("warning: Ctrl-C will not stop cleanly: {error}"));
    }
}

/// Whether a stop was requested.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}
