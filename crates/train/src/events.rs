//! Messages from workers to the thread that keeps the record.

use std::sync::mpsc::{self, Receiver, Sender, SyncSender};

use gradwire::State;
use gradwire_models::models::Score;

use crate::diagnosis::Diagnosis;
use crate::error::TrainError;
use crate::record::Sample;

/// Something that happened at a worker.
pub(crate) enum Event {
    /// The worker has done a step; the number is its next step.
    Step(Sample, u64),
    /// The evaluation after this number of steps is complete.
    Evaluated(u64, Score),
    /// The digest of the first worker's parameters after this number of steps.
    Digested(u64, String),
    /// The first worker has diagnosed its gradients and residuals.
    Diagnosed(Box<Diagnosis>),
    /// The run cannot go on with the number of workers that the observer has asked for.
    Refused(usize, TrainError),
    /// The worker's state.
    Saved(SavePoint, Box<State>),
}

/// A point of a run at which workers save their states. At the same step, the point in memory comes
/// first: workers may save there, and then, at a stop, for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SavePoint {
    /// Steps done.
    pub(crate) step: u64,
    /// Whether the state belongs in a file.
    pub(crate) to_file: bool,
}

/// The number of each worker's states that may wait for the thread that keeps the record: a run
/// that saves faster than the disk writes must not fill the memory.
const STATES: usize = 2;

/// A worker's channel to the thread that keeps the record.
#[derive(Clone)]
pub(crate) struct Events {
    sender: Sender<(usize, Event)>,
    /// Holds an entry for each state on its way.
    states: SyncSender<()>,
}

/// The other end of all workers' channels.
pub(crate) struct Received {
    events: Receiver<(usize, Event)>,
    states: Receiver<()>,
}

/// The channel of a run of this number of workers.
pub(crate) fn channel(workers: usize) -> (Events, Received) {
    let (sender, events) = mpsc::channel();
    let (room, states) = mpsc::sync_channel(STATES * workers);
    (Events { sender, states: room }, Received { events, states })
}

impl Events {
    /// Sends an event of worker `rank`. Waits if too many states are on their way.
    pub(crate) fn tell(&self, rank: usize, event: Event) {
        // The receiver is gone only if the run has already failed.
        if matches!(event, Event::Saved(..)) {
            let _ = self.states.send(());
        }
        let _ = self.sender.send((rank, event));
    }
}

impl Iterator for Received {
    type Item = (usize, Event);

    /// The next event; `None` after the last worker has ended. It never waits for a worker that
    /// waits for it.
    fn next(&mut self) -> Option<Self::Item> {
        let (rank, event) = self.events.recv().ok()?;
        if matches!(event, Event::Saved(..)) {
            let _ = self.states.try_recv();
        }
        Some((rank, event))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn few_states_wait_at_a_time_and_any_number_of_steps() {
        let (events, received) = channel(2);
        let told = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let events = events;
                (0..1000).for_each(|step| events.tell(0, Event::Step(Sample::default(), step)));
                for step in 0..20 {
                    let point = SavePoint { step, to_file: true };
                    events.tell(0, Event::Saved(point, Box::default()));
                    told.fetch_add(1, Ordering::SeqCst);
                }
            });
            // If the worker did not wait, it would send all events meanwhile.
            std::thread::sleep(Duration::from_millis(50));
            let states = received.filter(|(_, event)| matches!(event, Event::Saved(..)));
            for (taken, _) in states.enumerate() {
                let told = told.load(Ordering::SeqCst);
                assert!(told <= taken + 1 + 2 * STATES, "{told} told, {taken} taken before");
            }
        });
        assert_eq!(told.into_inner(), 20);
    }
}
