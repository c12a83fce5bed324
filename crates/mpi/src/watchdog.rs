//! Ends a process that is stuck inside MPI.
//!
//! A rank looks at the clock between calls of MPI, and no call should wait. But a call may spin
//! forever on a process that died, as `MPI_Init` and `MPI_Finalize` do. So a separate thread,
//! started before MPI, watches how long the rank stays in each section of the code that calls MPI.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::call;

/// The exit status of a process that the watchdog ends; the command `timeout` uses it, too.
pub const STUCK_STATUS: i32 = 124;

/// How long a rank may run past its deadline before it counts as stuck.
const LATE: Duration = Duration::from_secs(1);
/// Time between two checks.
const LOOK: Duration = Duration::from_millis(100);
/// The time limit of the last message, which may have no reader.
const LAST_WORD: Duration = Duration::from_millis(200);

/// Watches one rank.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<Watched>);

#[derive(Debug, Default)]
struct Watched {
    /// `None` until the process knows its rank.
    rank: Option<usize>,
    /// The section in progress.
    section: Option<Section>,
}

/// A section of the code that calls MPI.
#[derive(Debug, Clone, Copy)]
struct Section {
    /// Its name in the error message.
    name: &'static str,
    since: Instant,
    deadline: Duration,
}

impl Watch {
    /// A watch with its thread, which ends when the watch is dropped.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start() -> std::io::Result<Arc<Self>> {
        let watch = Arc::new(Self::default());
        watch.lock().rank = launched_as();
        let watched = Arc::downgrade(&watch);
        thread::Builder::new().name("mpi watchdog".to_owned()).spawn(move || {
            while let Some(watch) = watched.upgrade() {
                if let Some(line) = watch.stuck(Instant::now()) {
                    end(line);
                }
                drop(watch);
                thread::sleep(LOOK);
            }
        })?;
        Ok(watch)
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the rank of this process.
    pub(crate) fn set_rank(&self, rank: usize) {
        self.lock().rank = Some(rank);
    }

    /// Begins a section that should end within `deadline`; it ends with the guard.
    pub(crate) fn busy(self: &Arc<Self>, name: &'static str, deadline: Duration) -> Busy {
        self.lock().section = Some(Section { name, since: Instant::now(), deadline });
        Busy(Arc::clone(self))
    }

    /// The message about this rank, if it is past its deadline at `now`.
    fn stuck(&self, now: Instant) -> Option<String> {
        let Watched { rank, section } = *self.lock();
        let Section { name, since, deadline } = section?;
        let spent = now.saturating_duration_since(since);
        if spent < deadline.saturating_add(LATE) {
            return None;
        }
        let who = rank.map_or_else(|| "a rank".to_owned(), |rank| format!("rank {rank}"));
        Some(format!(
            "gradwire: {who} has been stuck in \"{name}\" for {:.1} s, past its deadline of {:.1} s; ending the process: \
             see which rank was lost, and start the job again from its last checkpoint, or with a longer deadline\n",
            spent.as_secs_f64(),
            deadline.as_secs_f64(),
        ))
    }
}

/// While it lives, the rank is in a section.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Watch>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.lock().section = None;
    }
}

/// The rank of this process in the environment variables of Open MPI, MPICH and PMIx.
fn launched_as() -> Option<usize> {
    let names = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"];
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// Writes a line and ends the process. It calls nothing that might call MPI or wait for the thread
/// that is stuck.
fn end(line: String) -> ! {
    let (said, heard) = mpsc::channel();
    let speaker = thread::Builder::new().spawn(move || {
        let _ = std::io::stderr().write_all(line.as_bytes());
        let _ = said.send(());
    });
    if speaker.is_ok() {
        let _ = heard.recv_timeout(LAST_WORD);
    }
    call::exit_at_once(STUCK_STATUS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_stuck_a_second_after_its_deadline_and_only_in_a_section() {
        let watch = Arc::new(Watch::default());
        let late = Instant::now() + Duration::from_secs(1000);
        assert_eq!(watch.stuck(late), None);
        watch.set_rank(2);
        let busy = watch.busy("getting its messages out", Duration::from_secs(3));
        let since = watch.lock().section.unwrap().since;
        assert_eq!(watch.stuck(since), None);
        assert_eq!(watch.stuck(since + Duration::from_millis(3999)), None);
        let line = watch.stuck(since + Duration::from_millis(4000)).unwrap();
        for part in ["rank 2 ", "getting its messages out", "for 4.0 s", "deadline of 3.0 s"] {
            assert!(line.contains(part), "{line}");
        }
        drop(busy);
        assert_eq!(watch.stuck(late), None);
        // A section without end.
        let _busy = watch.busy("a receive", Duration::MAX);
        assert_eq!(watch.stuck(late), None);
    }
}
