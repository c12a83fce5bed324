//! A transport over TCP: a connection between any two ranks, with a thread that reads and a thread
//! that writes at each end.
//!
//! On a connection each message is a byte, 0, then the header and the payload. A byte 1 and a rank
//! say that this rank has aborted the run. The end of the stream says that the other rank has left.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gradwire_exchange::{
    Endpoint, ExchangeError, HEADER_BYTES, Header, Operation, Result, Transport,
};

const MESSAGE: u8 = 0;
const ABORT: u8 = 1;

/// One rank's end.
pub(crate) struct Tcp {
    endpoint: Endpoint,
    inbox: Arc<Inbox>,
    /// The queue of each other rank; `None` at this rank's place.
    queues: Vec<Option<Sender<Vec<u8>>>>,
    writers: Vec<JoinHandle<()>>,
}

/// What has arrived from all ranks.
#[derive(Default)]
struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    messages: VecDeque<(usize, [u8; HEADER_BYTES], Vec<u8>)>,
    left: Vec<usize>,
    culprit: Option<usize>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

impl Tcp {
    /// Connects this rank, which accepts connections of higher ranks with `listener`, to all
    /// others. Waits for them until the deadline, which is also the deadline of messages.
    pub(crate) fn connect(
        listener: TcpListener,
        rank: usize,
        addresses: &[SocketAddr],
        deadline: Duration,
    ) -> io::Result<Self> {
        let (size, until) = (addresses.len(), Instant::now() + deadline);
        let mut transport = Self {
            endpoint: Endpoint::new(rank, size, deadline),
            inbox: Arc::default(),
            queues: (0..size).map(|_| None).collect(),
            writers: Vec::new(),
        };
        for (peer, address) in addresses.iter().enumerate().take(rank) {
            let mut stream = reach(address, until)?;
            stream.write_all(&(rank as u32).to_le_bytes())?;
            transport.join(peer, stream)?;
        }
        for _ in rank + 1..size {
            let (mut stream, _) = listener.accept()?;
            let mut peer = [0; 4];
            stream.read_exact(&mut peer)?;
            transport.join(u32::from_le_bytes(peer) as usize, stream)?;
        }
        Ok(transport)
    }

    /// Starts the threads of a connection.
    fn join(&mut self, peer: usize, stream: TcpStream) -> io::Result<()> {
        let free = self.queues.get_mut(peer).filter(|queue| queue.is_none());
        let queue = free.ok_or_else(|| io::Error::other(format!("rank {peer} connects twice")))?;
        stream.set_nodelay(true)?;
        let (sender, queued) = mpsc::channel();
        *queue = Some(sender);
        let (reading, inbox) = (stream.try_clone()?, Arc::clone(&self.inbox));
        thread::spawn(move || {
            let _ = read(peer, reading, &inbox);
            inbox.change(|state| state.left.push(peer));
        });
        self.writers.push(thread::spawn(move || write(stream, &queued)));
        Ok(())
    }

    /// Queues bytes for a rank; false if it has left.
    fn post(&self, to: usize, bytes: Vec<u8>) -> bool {
        let gone = self.inbox.lock().left.contains(&to);
        !gone && self.queues[to].as_ref().is_some_and(|queue| queue.send(bytes).is_ok())
    }
}

/// Connects to a rank, which may not have begun yet.
fn reach(address: &SocketAddr, until: Instant) -> io::Result<TcpStream> {
    loop {
        match TcpStream::connect(address) {
            Err(_) if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
            result => return result,
        }
    }
}

/// Reads messages until the stream ends.
fn read(peer: usize, mut stream: TcpStream, inbox: &Inbox) -> io::Result<()> {
    loop {
        let (mut kind, mut header) = ([0], [0; HEADER_BYTES]);
        stream.read_exact(&mut kind)?;
        if kind == [ABORT] {
            let mut rank = [0; 4];
            stream.read_exact(&mut rank)?;
            inbox
                .change(|state| _ = state.culprit.get_or_insert(u32::from_le_bytes(rank) as usize));
            continue;
        }
        stream.read_exact(&mut header)?;
        let length = Header::from_bytes(header).map_or(0, |header| header.length as usize);
        // Grows as bytes arrive: a damaged length reserves nothing.
        let mut payload = Vec::new();
        (&mut stream).take(length as u64).read_to_end(&mut payload)?;
        inbox.change(|state| state.messages.push_back((peer, header, payload)));
    }
}

/// Writes what is queued until the queue ends, then ends the stream.
fn write(mut stream: TcpStream, queued: &Receiver<Vec<u8>>) {
    while let Ok(bytes) = queued.recv() {
        if stream.write_all(&bytes).is_err() {
            return;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
}

impl Transport for Tcp {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn send(&mut self, to: usize, operation: Operation<'_>, payload: &[u8]) -> Result<()> {
        let header = self.endpoint.header(to, operation, payload.len(), u32::MAX as usize)?;
        let bytes = [&[MESSAGE][..], &header.to_bytes(), payload].concat();
        if !self.post(to, bytes) {
            let culprit = self.inbox.lock().culprit.unwrap_or(to);
            return Err(ExchangeError::lost(culprit, operation));
        }
        self.endpoint.count_sent(payload.len());
        Ok(())
    }

    fn recv_any(
        &mut self,
        from: &[usize],
        during: Operation<'_>,
        until: Instant,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header)> {
        let (start, inbox) = (Instant::now(), Arc::clone(&self.inbox));
        let mut state = inbox.lock();
        loop {
            if let Some(at) = state.messages.iter().position(|(peer, ..)| from.contains(peer)) {
                let (peer, bytes, payload) = state.messages.remove(at).expect("it was just found");
                self.endpoint.count_received(payload.len());
                let header = Header::from_bytes(bytes)
                    .filter(|header| header.length as usize == payload.len())
                    .ok_or_else(|| ExchangeError::protocol(peer, during, format!("{bytes:?}")))?;
                *into = payload;
                return Ok((peer, header));
            }
            if let Some(culprit) = state.culprit {
                return Err(ExchangeError::lost(culprit, during));
            }
            if let Some(&peer) = from.iter().find(|peer| state.left.contains(peer)) {
                return Err(ExchangeError::lost(peer, during));
            }
            let now = Instant::now();
            if now >= until {
                let waited = until.saturating_duration_since(start);
                return Err(ExchangeError::late(from[0], during, waited));
            }
            let waited = inbox.changed.wait_timeout(state, until - now);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn abort(&mut self, culprit: usize) {
        self.inbox.change(|state| _ = state.culprit.get_or_insert(culprit));
        for to in self.endpoint.others() {
            let rank = (culprit as u32).to_le_bytes();
            self.post(to, [&[ABORT][..], &rank].concat());
        }
    }
}

/// What was sent leaves before this rank does. A rank that panics stops the others.
impl Drop for Tcp {
    fn drop(&mut self) {
        if thread::panicking() {
            self.abort(self.endpoint.rank);
        }
        self.queues.clear();
        for writer in self.writers.drain(..) {
            let _ = writer.join();
        }
    }
}
