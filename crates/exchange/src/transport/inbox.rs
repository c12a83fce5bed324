//! A rank's mailbox: letters in the order of their arrival, and the ingress side of its link.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::HEADER_BYTES;

/// A message between being sent and being received.
pub(super) struct Letter {
    pub(super) from: usize,
    pub(super) header: [u8; HEADER_BYTES],
    pub(super) payload: Vec<u8>,
    /// When its last bit is here.
    pub(super) arrives: Instant,
}

/// What has been sent to one rank and not been received yet.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) letters: VecDeque<Letter>,
    pub(super) ingress: Pacer,
}

/// One direction of a throttled link: a token bucket that holds no tokens, so that bytes follow
/// one another at the link's rate and no burst is faster.
#[derive(Default)]
pub(super) struct Pacer {
    free: Option<Instant>,
}

impl Pacer {
    /// Lets something pass that is `ready` at that time and occupies the link for so long; says
    /// when its passing starts.
    pub(super) fn pass(&mut self, ready: Instant, occupancy: Duration) -> Instant {
        let start = self.free.map_or(ready, |free| free.max(ready));
        self.free = Some(start + occupancy);
        start
    }
}

/// An inbox that its owner can wait on.
#[derive(Default)]
pub(super) struct Mailbox {
    inbox: Mutex<Inbox>,
    news: Condvar,
}

impl Mailbox {
    /// The inbox. A rank that panicked while it held the lock leaves nothing half-done in it.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the owner, who may be about to fall asleep: the lock orders the two.
    pub(super) fn wake(&self) {
        drop(self.lock());
        self.news.notify_all();
    }

    /// Puts a letter in and wakes the owner.
    pub(super) fn deliver(&self, post: impl FnOnce(&mut Pacer) -> Letter) {
        let mut inbox = self.lock();
        let letter = post(&mut inbox.ingress);
        inbox.letters.push_back(letter);
        drop(inbox);
        self.news.notify_all();
    }

    /// Waits for news, or until that time.
    pub(super) fn wait<'a>(
        &self,
        inbox: MutexGuard<'a, Inbox>,
        until: Instant,
    ) -> MutexGuard<'a, Inbox> {
        let timeout = until.saturating_duration_since(Instant::now());
        self.news.wait_timeout(inbox, timeout).unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pacer_lets_things_pass_one_after_another() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut pacer = Pacer::default();
        assert_eq!(pacer.pass(start, ms(10)), start);
        assert_eq!(pacer.pass(start + ms(4), ms(10)), start + ms(10));
        assert_eq!(pacer.pass(start + ms(50), ms(10)), start + ms(50));
        assert_eq!(pacer.pass(start, ms(1)), start + ms(60));
    }
}
