//! The laws of transports: the transport between threads obeys them, and mistakes are found.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use gradwire_exchange::in_process::{InProcess, Options};
use gradwire_exchange::{Endpoint, Header, Link, Operation, Result, Transport, in_process, laws};

#[test]
fn threads_obey_the_laws() {
    for link in [None, Some(Link::mbit(10_000.0))] {
        laws::check_transport(|ranks, deadline| {
            in_process::connect(ranks, Options { deadline, link })
        });
    }
}

/// A mistake of a transport.
#[derive(Clone, Copy, Debug)]
enum Mistake {
    /// A receive takes the next message of any rank.
    TakesAny,
    /// A payload arrives without its last byte if it is long.
    Cuts,
    /// An abort wakes nobody.
    AbortsAlone,
}

/// A transport with a mistake.
struct Wrong(InProcess, Mistake);

impl Transport for Wrong {
    fn endpoint(&self) -> &Endpoint {
        self.0.endpoint()
    }

    fn send(&mut self, to: usize, operation: Operation<'_>, payload: &[u8]) -> Result<()> {
        self.0.send(to, operation, payload)
    }

    fn recv_any(
        &mut self,
        from: &[usize],
        during: Operation<'_>,
        until: Instant,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header)> {
        let others: Vec<_> = self.endpoint().others().collect();
        let any = matches!(self.1, Mistake::TakesAny);
        let found = self.0.recv_any(if any { &others } else { from }, during, until, into);
        if matches!(self.1, Mistake::Cuts) && into.len() > 65_536 {
            into.pop();
        }
        found
    }

    fn abort(&mut self, culprit: usize) {
        if !matches!(self.1, Mistake::AbortsAlone) {
            self.0.abort(culprit);
        }
    }
}

#[test]
fn mistakes_of_transports_are_found() {
    for mistake in [Mistake::TakesAny, Mistake::Cuts, Mistake::AbortsAlone] {
        let connect = |ranks, deadline: Duration| -> Vec<Wrong> {
            // An abort that wakes nobody ends at the deadline.
            let options = Options { deadline: deadline.min(Duration::from_secs(1)), link: None };
            in_process::connect(ranks, options).into_iter().map(|one| Wrong(one, mistake)).collect()
        };
        let found = catch_unwind(AssertUnwindSafe(|| laws::check_transport(connect)));
        assert!(found.is_err(), "{mistake:?} obeys the laws");
    }
}
