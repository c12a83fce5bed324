//! A throttled transport is never faster than its link. Only lower bounds: a machine may be slow.

use std::thread;
use std::time::{Duration, Instant};

use gradwire_exchange::{Link, Operation, Phase, Transport, in_process};

const GATHER: Phase = Phase::Gather;

/// A megabyte a second.
fn options(latency: Duration) -> in_process::Options {
    in_process::Options {
        link: Some(Link { latency, ..Link::mbit(8.0) }),
        ..in_process::Options::default()
    }
}

#[test]
fn bytes_follow_one_another_at_the_links_rate() {
    let mut ranks = in_process::connect(2, options(Duration::from_millis(30)));
    let (mut b, mut a) = (ranks.pop().unwrap(), ranks.pop().unwrap());
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            for step in 0..10 {
                a.send(1, Operation::whole(GATHER, step), &[7; 5000 - 12]).unwrap();
            }
            assert_eq!(a.traffic().bytes_up, 50_000);
        });
        let mut message = Vec::new();
        for step in 0..10 {
            b.recv(0, Operation::whole(GATHER, step), &mut message).unwrap();
            // By now, all bytes so far have passed both ends, after one latency.
            let least = Duration::from_millis(30 + 5 * (step + 1));
            assert!(start.elapsed() >= least, "message {step} after {:?}", start.elapsed());
        }
    });
    assert_eq!(b.traffic().bytes_down, 50_000);
}

#[test]
fn a_receiver_takes_no_more_than_its_link_from_many_senders() {
    let mut ranks = in_process::connect(4, options(Duration::ZERO));
    let start = Instant::now();
    let mut receiver = ranks.remove(0);
    thread::scope(|scope| {
        for mut sender in ranks {
            scope.spawn(move || {
                sender.send(0, Operation::whole(GATHER, 0), &[1; 20_000 - 12]).unwrap();
            });
        }
        let mut message = Vec::new();
        for from in 1..4 {
            receiver.recv(from, Operation::whole(GATHER, 0), &mut message).unwrap();
        }
        assert!(start.elapsed() >= Duration::from_millis(60));
    });
}
