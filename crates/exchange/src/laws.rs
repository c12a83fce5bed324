//! The laws of transports: what the exchanges rely on, for the tests of a [`Transport`] of your
//! own.
//!
//! ```
//! use gradwire_exchange::{in_process, laws};
//!
//! laws::check_transport(|ranks, deadline| {
//!     in_process::connect(ranks, in_process::Options { deadline, link: None })
//! });
//! ```

use std::thread;
use std::time::{Duration, Instant};

use crate::{
    Arrival, ExchangeError, HEADER_BYTES, Incoming, Operation, Outgoing, Phase, Transport,
};

/// A law: runs as every rank at the same time, and panics if the transport breaks it.
pub type Law = fn(&mut dyn Transport);

/// The laws of ranks of which none fails. Afterwards all are still connected. A process that is one
/// rank, such as a rank of an MPI job, calls each with its own end.
pub const LAWS: &[(&str, Law)] = &[
    ("ranks are numbered from 0, and none sends to itself", ranks_are_numbered),
    ("messages of any length arrive whole, in order, while many are on their way", arrive_in_order),
    ("messages of other ranks stay in the queue", others_stay_in_the_queue),
    ("broadcasts, gathers and barriers include every rank", include_every_rank),
    ("all-to-all messages arrive whole, in pieces of whole words", all_to_all_arrives),
    ("every byte is counted", bytes_are_counted),
];

/// The law of ranks of which the last one leaves. Afterwards the ranks are no longer connected.
pub const LAW_OF_LOSSES: (&str, Law) =
    ("messages of a rank that has left arrive, then its loss is named", loss_is_named);

/// The law of ranks of which the last one aborts. Afterwards the ranks are no longer connected. No
/// rank may leave before all have their error.
pub const LAW_OF_ABORTS: (&str, Law) =
    ("an abort wakes all ranks, and names the culprit", abort_wakes_all);

/// The law of ranks of which the last one is silent for three deadlines.
pub const LAW_OF_DEADLINES: (&str, Law) =
    ("a silent rank is named after the deadline", silence_is_named);

/// A deadline that no rank reaches.
const LONG: Duration = Duration::from_secs(60);
/// The deadline of [`LAW_OF_DEADLINES`].
const SHORT: Duration = Duration::from_millis(500);

/// Checks all laws, with ranks as threads. `connect` makes the ends of this many ranks, in rank
/// order, with this deadline. Takes seconds.
///
/// # Panics
/// If the transport breaks a law; the law, the rank and the number of ranks are printed.
pub fn check_transport<T: Transport>(connect: impl Fn(usize, Duration) -> Vec<T>) {
    let connect = |ranks, deadline| {
        let ends = connect(ranks, deadline);
        assert_eq!(ends.len(), ranks, "the number of ends");
        ends
    };
    for ranks in [1, 2, 3, 5] {
        LAWS.iter().for_each(|&law| each(law, connect(ranks, LONG), true));
    }
    for ranks in [2, 3] {
        each(LAW_OF_LOSSES, connect(ranks, LONG), false);
        each(LAW_OF_ABORTS, connect(ranks, LONG), true);
        each(LAW_OF_DEADLINES, connect(ranks, SHORT), false);
    }
}

/// Runs a law as every rank. If a rank `stays`, it leaves when all are done: what others get from
/// it after it has left is not the law's matter.
fn each<T: Transport>((name, law): (&str, Law), transports: Vec<T>, stays: bool) {
    let ranks = transports.len();
    thread::scope(|scope| {
        let obey = |(rank, mut transport): (usize, T)| {
            scope.spawn(move || {
                let _named = Named { name, rank, ranks };
                assert_eq!(transport.rank(), rank, "ends are in rank order");
                law(&mut transport);
                stays.then_some(transport)
            })
        };
        let running: Vec<_> = transports.into_iter().enumerate().map(obey).collect();
        let ended: Vec<_> = running.into_iter().map(|rank| rank.join()).collect();
        assert!(ended.iter().all(Result::is_ok), "a law is broken: {name}");
    });
}

/// Prints the broken law when its check panics.
struct Named<'a> {
    name: &'a str,
    rank: usize,
    ranks: usize,
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("rank {} of {}: a law is broken: {}", self.rank, self.ranks, self.name);
        }
    }
}

fn others(transport: &dyn Transport) -> Vec<usize> {
    (0..transport.size()).filter(|&rank| rank != transport.rank()).collect()
}

fn report(step: u64) -> Operation<'static> {
    Operation::whole(Phase::Gather, step)
}

/// The payload from a rank to another.
fn payload(from: usize, to: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (31 * from + 17 * to + at + at / 251) as u8).collect()
}

fn ranks_are_numbered(transport: &mut dyn Transport) {
    let (rank, size) = (transport.rank(), transport.size());
    assert!(rank < size, "rank {rank} of {size}");
    for to in [rank, size] {
        let sent = transport.send(to, report(0), b"x");
        assert!(matches!(sent, Err(ExchangeError::Config(_))), "a message to rank {to}: {sent:?}");
    }
    assert_eq!(transport.traffic().messages_up, 0, "a refused message is counted");
}

/// Lengths at the edges of words, pages and buffers.
const LENGTHS: [usize; 13] = [0, 1, 2, 3, 7, 8, 11, 13, 4095, 4097, 65_535, 65_537, 1_000_003];

fn arrive_in_order(transport: &mut dyn Transport) {
    let (rank, others) = (transport.rank(), others(transport));
    // A send does not wait for the receiver, so all ranks may send first.
    for (step, length) in (0..).zip(LENGTHS) {
        for &to in &others {
            transport.send(to, report(step), &payload(rank, to, length)).unwrap();
        }
    }
    let mut found = vec![9; 5];
    for (step, length) in (0..).zip(LENGTHS) {
        for &from in others.iter().rev() {
            transport.recv(from, report(step), &mut found).unwrap();
            assert!(found == payload(from, rank, length), "{length} bytes from rank {from}");
        }
    }
    transport.flush().unwrap();
}

fn others_stay_in_the_queue(transport: &mut dyn Transport) {
    let (rank, others) = (transport.rank(), others(transport));
    for &to in &others {
        transport.send(to, report(1), &payload(rank, to, 10)).unwrap();
        transport.send(to, report(2), &payload(rank, to, 20)).unwrap();
    }
    let mut into = Vec::new();
    // The last rank's messages first, then the others' as they come.
    let Some((&last, rest)) = others.split_last() else { return };
    for (step, length) in [(1, 10), (2, 20)] {
        transport.recv(last, report(step), &mut into).unwrap();
        assert!(into == payload(last, rank, length));
    }
    let mut steps = vec![1; transport.size()];
    for _ in 0..2 * rest.len() {
        let until = Instant::now() + transport.deadline();
        let (from, header) = transport.recv_any(rest, report(0), until, &mut into).unwrap();
        assert!(rest.contains(&from), "a message of rank {from}, which was not asked for");
        assert_eq!(header.step, steps[from], "the order of the messages of rank {from}");
        steps[from] += 1;
        assert!(into == payload(from, rank, 10 * header.step as usize));
    }
}

fn include_every_rank(transport: &mut dyn Transport) {
    let (rank, size) = (transport.rank(), transport.size());
    for step in 0..3 {
        let mut messages = vec![Vec::new(); size];
        messages[rank] = payload(rank, 0, 100 * rank + 1);
        transport.all_gather_v(report(step), &mut messages).unwrap();
        for (from, message) in messages.iter().enumerate() {
            assert!(*message == payload(from, 0, 100 * from + 1), "the message of rank {from}");
        }
        for root in 0..size {
            let mut message = if rank == root { payload(root, 0, 70_001) } else { vec![1] };
            transport.broadcast(root, report(step), &mut message).unwrap();
            assert!(message == payload(root, 0, 70_001), "the broadcast of rank {root}");
        }
        transport.barrier().unwrap();
    }
}

fn all_to_all_arrives(transport: &mut dyn Transport) {
    let (rank, size) = (transport.rank(), transport.size());
    for (step, length) in (0..).zip(LENGTHS.into_iter().chain([3_000_001])) {
        for same in [false, true] {
            let mut own: Vec<_> = (0..size).map(|to| payload(rank, to, length + to)).collect();
            let each = |to: usize| own[to].as_slice();
            let outgoing = if same { Outgoing::Same(&own[0]) } else { Outgoing::Each(&each) };
            let expected = |from| {
                if same { payload(from, 0, length) } else { payload(from, rank, length + rank) }
            };
            let mut arrived = vec![Vec::new(); size];
            let mut take = |Arrival { from, at, bytes }: Arrival<'_>| {
                assert!(at == arrived[from].len() && at % 4 == 0, "byte {at} from rank {from}");
                assert!(arrived[from + 1..].iter().all(Vec::is_empty), "ranks are in order");
                arrived[from].extend_from_slice(bytes);
            };
            let incoming = Incoming {
                lengths: &|_| if same { length } else { length + rank },
                take: &mut take,
                memory: &mut Vec::new(),
            };
            transport.all_to_all(report(step), outgoing, incoming).unwrap();
            // The bytes are free now, also of ranks that have not yet received them.
            own.iter_mut().for_each(|bytes| bytes.fill(0xaa));
            for from in others(transport) {
                assert!(arrived[from] == expected(from), "{length} bytes from rank {from}");
            }
            assert!(arrived[rank].is_empty());
        }
    }
}

fn bytes_are_counted(transport: &mut dyn Transport) {
    let (rank, others) = (transport.rank(), others(transport));
    let before = transport.traffic();
    for &to in &others {
        transport.send(to, report(0), &payload(rank, to, 10 * rank + 1)).unwrap();
    }
    let (mut into, mut received) = (Vec::new(), 0);
    for &from in &others {
        transport.recv(from, report(0), &mut into).unwrap();
        received += HEADER_BYTES + 10 * from + 1;
    }
    let (after, sent) = (transport.traffic(), others.len() * (HEADER_BYTES + 10 * rank + 1));
    assert_eq!(after.bytes_up - before.bytes_up, sent as u64, "bytes sent, with headers");
    assert_eq!(after.bytes_down - before.bytes_down, received as u64, "bytes received");
    assert_eq!(after.messages_up - before.messages_up, others.len() as u64);
    assert_eq!(after.messages_down - before.messages_down, others.len() as u64);
    // All counts are read before a rank leaves.
    transport.barrier().unwrap();
}

/// Whether this rank is the one that fails.
fn fails(transport: &dyn Transport) -> bool {
    transport.rank() + 1 == transport.size()
}

fn silence_is_named(transport: &mut dyn Transport) {
    let last = transport.size() - 1;
    if fails(transport) {
        // It stays until the others have given up.
        return thread::sleep(3 * transport.deadline());
    }
    let start = Instant::now();
    let error = transport.recv(last, report(0), &mut Vec::new()).unwrap_err();
    assert!(start.elapsed() >= transport.deadline(), "{:?} is too early", start.elapsed());
    let named = matches!(error, ExchangeError::Deadline { peer, .. } if peer == last);
    assert!(named, "rank {last} is silent, but the error is: {error}");
}

fn loss_is_named(transport: &mut dyn Transport) {
    let (rank, last) = (transport.rank(), transport.size() - 1);
    if fails(transport) {
        transport.send_to_others(report(0), &payload(last, 0, 100_000)).unwrap();
        transport.flush().unwrap();
        // Dropped at the end of the law, as by a rank that ends.
        return;
    }
    let mut into = Vec::new();
    transport.recv(last, report(0), &mut into).unwrap();
    assert!(into == payload(last, 0, 100_000), "rank {rank}: the message of a rank that has left");
    let error = transport.recv(last, report(1), &mut into).unwrap_err();
    let named = matches!(error, ExchangeError::PeerLost { peer, .. } if peer == last);
    assert!(named, "rank {last} has left, but the error is: {error}");
}

fn abort_wakes_all(transport: &mut dyn Transport) {
    let last = transport.size() - 1;
    if fails(transport) {
        transport.abort(last);
    }
    // Rank 0 waits for a rank that is not the culprit, if there is one.
    let from = if transport.rank() == 0 { last.min(1) } else { 0 };
    let error = transport.recv(from, report(0), &mut Vec::new()).unwrap_err();
    let named = matches!(error, ExchangeError::PeerLost { peer, .. } if peer == last);
    assert!(named, "rank {last} has aborted the run, but the error is: {error}");
}
