//! Threads that share the parts of a batch, and their working memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::part::Coder;
use crate::{Buffer, Error};

/// The working memory of the threads that encode and decode, kept between calls. Any number of
/// threads gives the same bytes.
#[derive(Debug)]
pub struct Workers {
    pub(crate) all: Vec<Worker>,
}

/// The working memory of one thread.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) coder: Coder,
    pub(crate) base: Buffer,
    pub(crate) new: Buffer,
    pub(crate) out: Vec<u8>,
}

impl Workers {
    /// As many threads as given, at least one.
    pub fn new(threads: usize) -> Self {
        Self { all: (0..threads.max(1)).map(|_| Worker::default()).collect() }
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.all.len()
    }
}

/// Runs all jobs, each on one of the states, as many at once as there are states; returns the
/// results in order of jobs. After an error the first job that failed tells the reason, whatever
/// the number of threads.
pub(crate) fn run<S: Send, J: Sync, R: Send>(
    states: &mut [S],
    jobs: &[J],
    work: impl Fn(&mut S, &J) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    if states.len() == 1 || jobs.len() <= 1 {
        let state = states.first_mut().expect("there is a worker");
        return jobs.iter().map(|job| work(state, job)).collect();
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done = Mutex::new(Vec::with_capacity(jobs.len()));
    std::thread::scope(|scope| {
        for state in states.iter_mut().take(jobs.len()) {
            scope.spawn(|| {
                let mut own = Vec::new();
                while !failed.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { break };
                    let result = work(state, job);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    own.push((index, result));
                }
                done.lock().expect("no thread panics while it holds the lock").append(&mut own);
            });
        }
    });
    let mut done = done.into_inner().expect("no thread panics while it holds the lock");
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_the_first_failure_counts() {
        let jobs: Vec<u64> = (0..1000).collect();
        for threads in 1..5 {
            let mut states = vec![0u64; threads];
            let work = |state: &mut u64, job: &u64| {
                *state += 1;
                Ok(job * job)
            };
            let squares = run(&mut states, &jobs, work).unwrap();
            assert!(squares.iter().zip(&jobs).all(|(square, job)| *square == job * job));
            assert_eq!(states.iter().sum::<u64>(), 1000);
            let work = |_: &mut u64, job: &u64| match job {
                300.. => Err(Error::TooLarge { limit: *job }),
                _ => Ok(()),
            };
            let error = run(&mut states, &jobs, work).unwrap_err();
            assert!(matches!(error, Error::TooLarge { limit: 300 }), "{error}");
        }
    }
}
