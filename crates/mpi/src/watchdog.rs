//! What ends a rank that is stuck inside MPI.
//!
//! A rank looks at the clock between calls of MPI, and no call should wait; but one may spin for ever on a process that
//! died, as `MPI_Init` and `MPI_Finalize` do. A thread of its own, started before MPI, therefore watches until when the
//! rank may be busy with MPI. Saying so costs the rank a look at the clock and two stores.

use std::io::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::call;

/// The exit status of a process that the watchdog ends, as that of `timeout`.
pub const STUCK_STATUS: i32 = 124;

/// How long after its deadline a rank may still come to its own end.
const LATE: Duration = Duration::from_secs(1);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// How long the last word may take: nobody may be reading it.
const LAST_WORD: Duration = Duration::from_millis(200);
/// The rank of a process that does not know it yet.
const UNKNOWN: usize = usize::MAX;

/// What a rank is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Section {
    Init,
    Send,
    Receive,
    Flush,
    Leave,
    Finish,
    Finalize,
}

impl Section {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Init, "MPI_Init"),
        (Self::Send, "a send"),
        (Self::Receive, "a receive"),
        (Self::Flush, "getting its messages out"),
        (Self::Leave, "leaving a run"),
        (Self::Finish, "waiting for all to leave"),
        (Self::Finalize, "MPI_Finalize"),
    ];
}

/// Until when the rank may be busy with MPI.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Times are milliseconds since then.
    start: Instant,
    rank: AtomicUsize,
    since: AtomicU64,
    /// The end of the section, and below it, in eight bits, which one it is; 0 outside of any.
    until: AtomicU64,
}

/// A rank that is past its deadline in a section.
#[derive(Debug, PartialEq, Eq)]
struct Stuck {
    section: &'static str,
    millis: u64,
    deadline_millis: u64,
}

impl Watch {
    /// A watch with its thread, which ends when nobody holds the watch any more.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub(crate) fn start() -> std::io::Result<Arc<Self>> {
        let watch = Arc::new(Self::new());
        let watched = Arc::downgrade(&watch);
        thread::Builder::new().name("mpi watchdog".to_owned()).spawn(move || {
            while let Some(watch) = watched.upgrade() {
                if let Some(stuck) = watch.stuck(watch.now()) {
                    end(watch.rank.load(Ordering::Relaxed), &stuck);
                }
                drop(watch);
                thread::sleep(LOOK);
            }
        })?;
        Ok(watch)
    }

    /// A watch that nobody looks at.
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            rank: AtomicUsize::new(launched_as().unwrap_or(UNKNOWN)),
            since: AtomicU64::new(0),
            until: AtomicU64::new(0),
        }
    }

    /// Whose process it is.
    pub(crate) fn set_rank(&self, rank: usize) {
        self.rank.store(rank, Ordering::Relaxed);
    }

    /// Begins a section that is over by the end of `deadline`, or with the guard.
    pub(crate) fn busy(self: &Arc<Self>, section: Section, deadline: Duration) -> Busy {
        let now = self.now();
        let until = now.saturating_add(millis(deadline)).min(u64::MAX >> 8);
        self.since.store(now, Ordering::Relaxed);
        self.until.store(until << 8 | (section as u64 + 1), Ordering::Release);
        Busy(Arc::clone(self))
    }

    fn now(&self) -> u64 {
        millis(self.start.elapsed())
    }

    /// Whether the rank is past its deadline at a time.
    fn stuck(&self, now: u64) -> Option<Stuck> {
        let entry = self.until.load(Ordering::Acquire);
        let since = self.since.load(Ordering::Relaxed);
        let (until, section) = (entry >> 8, (entry & 0xff).checked_sub(1)?);
        // Had another section begun meanwhile, `since` might be of that one.
        if now < until.saturating_add(millis(LATE)) || self.until.load(Ordering::Acquire) != entry {
            return None;
        }
        let (_, section) = *Section::ALL.get(section as usize)?;
        let deadline_millis = until.saturating_sub(since);
        Some(Stuck { section, millis: now.saturating_sub(since), deadline_millis })
    }
}

/// While it lives, the rank is busy with MPI.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Watch>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.until.store(0, Ordering::Release);
    }
}

/// The rank that the launchers of Open MPI, MPICH and their kin gave this process.
fn launched_as() -> Option<usize> {
    let names = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"];
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Says why and ends the process, without anything that might call MPI or wait for the thread that is stuck.
fn end(rank: usize, stuck: &Stuck) -> ! {
    let line = line(rank, stuck);
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

fn line(rank: usize, stuck: &Stuck) -> String {
    let who = if rank == UNKNOWN { "a rank".to_owned() } else { format!("rank {rank}") };
    let seconds = |millis: u64| Duration::from_millis(millis).as_secs_f64();
    format!(
        "gradwire: {who} has been stuck in \"{}\" for {:.1} s, past its deadline of {:.1} s; ending the process: see \
         which rank was lost, and start the job again from its last checkpoint, or with a longer deadline\n",
        stuck.section,
        seconds(stuck.millis),
        seconds(stuck.deadline_millis),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_stuck_a_second_after_its_deadline_and_only_in_a_section() {
        let watch = Arc::new(Watch::new());
        assert_eq!(watch.stuck(u64::MAX), None);
        let busy = watch.busy(Section::Flush, Duration::from_secs(3));
        let since = watch.since.load(Ordering::Relaxed);
        assert_eq!(watch.stuck(since), None);
        assert_eq!(watch.stuck(since + 3999), None);
        let stuck = watch.stuck(since + 4000).unwrap();
        assert_eq!((stuck.millis, stuck.deadline_millis), (4000, 3000));
        let line = line(2, &stuck);
        for part in ["rank 2 ", "getting its messages out", "for 4.0 s", "deadline of 3.0 s"] {
            assert!(line.contains(part), "{line}");
        }
        drop(busy);
        assert_eq!(watch.stuck(u64::MAX), None);
        // One that never ends.
        let _busy = watch.busy(Section::Receive, Duration::MAX);
        assert_eq!(watch.stuck(u64::MAX >> 9), None);
    }

    #[test]
    fn every_section_has_its_name() {
        for (at, (section, _)) in Section::ALL.into_iter().enumerate() {
            assert_eq!(section as usize, at);
        }
    }
}
