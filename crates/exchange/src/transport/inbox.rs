//! A rank's mailbox: letters in the order of their arrival, and the ingress side of its link.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::HEADER_BYTES;

/// A message between being sent and being received.
pub(super) struct Letter {
    pub(super) from: usize,
    pub(super) header: [u8; HEADER_BYTES],
    /// Shared by the letters that carry it to several ranks.
    pub(super) payload: Arc<Vec<u8>>,
    /// When its last bit arrives.
    pub(super) arrives: Instant,
}

/// The letters sent to one rank and not yet received.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) letters: VecDeque<Letter>,
    pub(super) ingress: Ingress,
}

impl Inbox {
    /// The letter from these ranks that arrives first.
    pub(super) fn first(&self, from: &[usize]) -> Option<usize> {
        let letters = self.letters.iter().enumerate();
        let wanted = letters.filter(|(_, letter)| from.contains(&letter.from));
        wanted.min_by_key(|(_, letter)| letter.arrives).map(|(at, _)| at)
    }
}

/// One direction of a throttled link: a token bucket without tokens, so no burst is faster than the
/// link.
#[derive(Default)]
pub(super) struct Pacer {
    free: Option<Instant>,
}

impl Pacer {
    /// Lets a letter pass that is ready at `ready` and takes `occupancy` to pass; returns its start
    /// time.
    pub(super) fn pass(&mut self, ready: Instant, occupancy: Duration) -> Instant {
        let start = self.free.map_or(ready, |free| free.max(ready));
        self.free = Some(start + occupancy);
        start
    }
}

/// The receiving direction of a throttled link. Letters are announced before they arrive, in the
/// order in which the senders' threads run. Each takes the first gap that is long enough, but none
/// overtakes an earlier letter of the same sender.
#[derive(Default)]
pub(super) struct Ingress {
    /// The intervals when the link is busy, in order, without overlap.
    busy: Vec<(Instant, Instant)>,
    /// For each sender, the time at which its last letter has passed.
    passed: Vec<(usize, Instant)>,
}

impl Ingress {
    /// Lets a letter pass that is ready at `ready` and takes `occupancy` to pass; returns the time
    /// at which it has passed. Nothing is ready before `now`.
    pub(super) fn pass(
        &mut self,
        from: usize,
        now: Instant,
        ready: Instant,
        occupancy: Duration,
    ) -> Instant {
        self.busy.retain(|&(_, end)| end > now);
        let known = self.passed.iter().position(|(sender, _)| *sender == from);
        let mut start = known.map_or(ready, |at| ready.max(self.passed[at].1));
        let mut place = 0;
        for &(taken, free) in &self.busy {
            if start + occupancy <= taken {
                break;
            }
            start = start.max(free);
            place += 1;
        }
        let end = start + occupancy;
        self.busy.insert(place, (start, end));
        match known {
            Some(at) => self.passed[at].1 = end,
            None => self.passed.push((from, end)),
        }
        end
    }
}

/// An inbox that its owner can wait on.
#[derive(Default)]
pub(super) struct Mailbox {
    inbox: Mutex<Inbox>,
    news: Condvar,
}

impl Mailbox {
    /// The inbox. A rank that panics while it holds the lock leaves the inbox intact.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the owner. The lock is taken first, so an owner that is about to sleep does not miss
    /// it.
    pub(super) fn wake(&self) {
        drop(self.lock());
        self.news.notify_all();
    }

    /// Puts a letter in and wakes the owner.
    pub(super) fn deliver(&self, post: impl FnOnce(&mut Ingress) -> Letter) {
        let mut inbox = self.lock();
        let letter = post(&mut inbox.ingress);
        inbox.letters.push_back(letter);
        drop(inbox);
        self.news.notify_all();
    }

    /// Waits for a change, or until that time.
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
    fn an_ingress_fills_its_gaps_but_keeps_a_senders_order() {
        let now = Instant::now();
        let ms = Duration::from_millis;
        let mut ingress = Ingress::default();
        let mut pass = |from, ready, long| {
            ingress.pass(from, now, now + ms(ready), ms(long)).duration_since(now).as_millis()
        };
        // One sender's letters are all announced before another's that is ready at once.
        assert_eq!([pass(1, 10, 10), pass(1, 30, 10)], [20, 40]);
        assert_eq!(pass(2, 0, 10), 10);
        assert_eq!(pass(2, 10, 10), 30);
        // Too long for the gap before 10, then for none.
        assert_eq!(pass(3, 0, 15), 55);
        // Short, but behind its sender's long one.
        assert_eq!(pass(3, 0, 1), 56);
    }

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
