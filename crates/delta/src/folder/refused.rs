//! Streams of a folder that receivers have refused.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::contents::Item;

/// Streams that are left out of ways to the newest weights, with the reasons. A file that was
/// written again is another stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Refused(Arc<Mutex<Vec<(Item, String)>>>);

impl Refused {
    pub(super) fn add(&self, item: Item, reason: String) {
        self.all().push((item, reason));
    }

    /// Forgets streams that are not among these any more: they were removed or replaced.
    pub(super) fn keep(&self, there: &[Item]) {
        self.all().retain(|(refused, _)| there.contains(refused));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    pub(super) fn has(&self, item: &Item) -> bool {
        self.all().iter().any(|(refused, _)| refused == item)
    }

    /// Forgets all: they may have been mended. Returns whether there were some.
    pub(super) fn clear(&self) -> bool {
        let mut all = self.all();
        let any = !all.is_empty();
        all.clear();
        any
    }

    pub(super) fn reasons(&self) -> Vec<String> {
        self.all().iter().map(|(_, reason)| reason.clone()).collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<(Item, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
