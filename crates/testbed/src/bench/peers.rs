//! Speed of compressors beside PyTorch's own operations.
//!
//! PyTorch runs in a process of its own, on one thread. Both sides take turns, so noise affects
//! both, and the best of several repetitions counts. Buffers are reused, except that PyTorch's
//! quantization allocates its results; with glibc their memory stays with the process. PyTorch's
//! times include the calls from Python, which take a few microseconds. Pin both to one core with
//! `taskset`.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use gradwire::{Error, Spec};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::operations::Bench;
use super::{Effort, seconds};
use crate::format::significant;
use crate::table::Table;

/// The script that PyTorch runs.
const SCRIPT: &str = include_str!("peers.py");

/// Compressors with an equivalent PyTorch operation, the operation's name in the script, and its
/// description.
const PEERS: [(&str, &str, &str); 4] = [
    ("none", "float32", "copy_"),
    ("fp16", "float16", "copy_ to float16"),
    ("bf16", "bfloat16", "copy_ to bfloat16"),
    ("int8:ef=off", "qint8", "aminmax, quantize_per_tensor to qint8"),
];

/// One compressor beside its peer on one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The spec.
    pub compressor: String,
    /// Elements of the tensor.
    pub elements: usize,
    /// PyTorch's compressing operation. `add_` adds its result.
    pub peer: String,
    /// Compression speed, in GB/s of input.
    pub compress_gbps: f64,
    /// The same for the peer.
    pub peer_compress_gbps: f64,
    /// Decompression speed, in GB/s of output decoded and added.
    pub decompress_gbps: f64,
    /// The same for the peer.
    pub peer_decompress_gbps: f64,
}

/// Why there are no measurements.
#[derive(Debug, Error)]
pub enum PeerError {
    /// A compressor without a peer.
    #[error("PyTorch has no operation equivalent to {0}; compressors with an equivalent: {known}", known = known())]
    NoPeer(String),
    /// Python or PyTorch is missing.
    #[error(
        "python3 could not import torch and run it ({0}); install PyTorch, or activate the environment that has it"
    )]
    Torch(String),
    /// PyTorch's process failed after it had started.
    #[error(
        "the process that runs PyTorch failed at {request:?} ({reason}); its own message is above"
    )]
    Ended {
        /// The question.
        request: String,
        /// The fault of the answer.
        reason: String,
    },
    /// The compressor refuses the tensor.
    #[error(transparent)]
    Compressor(#[from] Error),
}

impl From<io::Error> for PeerError {
    fn from(error: io::Error) -> Self {
        Self::Torch(error.to_string())
    }
}

/// The compressors that have a peer.
pub fn specs() -> Vec<Spec> {
    PEERS.iter().filter_map(|(spec, ..)| spec.parse().ok()).collect()
}

fn known() -> String {
    PEERS.map(|(spec, ..)| spec).join(", ")
}

/// PyTorch in a process of its own, which ends when this is dropped.
#[derive(Debug)]
pub struct Torch {
    process: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Torch {
    /// Starts `python3`, and waits until it has imported PyTorch.
    ///
    /// # Errors
    /// If `python3` or PyTorch is missing.
    pub fn start() -> Result<Self, PeerError> {
        Self::start_with("python3", SCRIPT)
    }

    fn start_with(program: &str, script: &str) -> Result<Self, PeerError> {
        let mut command = Command::new(program);
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Memory that PyTorch frees stays with the process, so its results are as warm as ours.
        command.env("MALLOC_MMAP_THRESHOLD_", "4294967296");
        command.env("MALLOC_TRIM_THRESHOLD_", "4294967296");
        let mut process = command.spawn()?;
        let (requests, answers) = (process.stdin.take(), process.stdout.take());
        let answers = BufReader::new(answers.expect("standard output is a pipe"));
        let mut torch = Self { process, requests, answers };
        match torch.answer()?.as_str() {
            "ready" => Ok(torch),
            "" => Err(PeerError::Torch("it ended".to_owned())),
            other => Err(PeerError::Torch(format!("it printed {other:?}"))),
        }
    }

    /// Sends a request, and reads the answer that `read` understands.
    fn ask<T>(
        &mut self,
        request: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, PeerError> {
        let ended = |reason| PeerError::Ended { request: request.to_owned(), reason };
        let requests = self.requests.as_mut().expect("it is open until the end");
        writeln!(requests, "{request}").map_err(|error| ended(error.to_string()))?;
        let answer = self.answer().map_err(|error| ended(error.to_string()))?;
        read(&answer).ok_or_else(|| ended(format!("it answered {answer:?}")))
    }

    /// A line; empty at the end.
    fn answer(&mut self) -> io::Result<String> {
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim_end().to_owned())
    }

    fn seconds(&mut self, operation: &str) -> Result<f64, PeerError> {
        self.ask(operation, |answer| answer.parse().ok())
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        // The process ends at the end of its input.
        self.requests = None;
        let _ = self.process.wait();
    }
}

/// Measures one compressor and its peer, in turn, on a tensor of `elements` normal variates.
///
/// # Errors
/// If it has no peer, or PyTorch fails.
pub fn measure(
    torch: &mut Torch,
    spec: &Spec,
    elements: usize,
    effort: Effort,
) -> Result<Measurement, PeerError> {
    let text = spec.to_string();
    let peer = PEERS.iter().find(|(known, ..)| *known == text);
    let &(_, name, peer) = peer.ok_or_else(|| PeerError::NoPeer(text.clone()))?;
    torch.ask(&format!("prepare {name} {elements}"), |answer| (answer == "ready").then_some(()))?;
    let mut bench = Bench::new(spec, elements);
    bench.warm()?;
    let mut best = [f64::INFINITY; 4];
    let start = Instant::now();
    let mut repetitions = 0;
    while repetitions < effort.repetitions || start.elapsed() < effort.time {
        let times = [
            seconds(|| bench.encode().map(drop))?,
            torch.seconds("compress")?,
            seconds(|| bench.decode())?,
            torch.seconds("add")?,
        ];
        best.iter_mut().zip(times).for_each(|(best, time)| *best = best.min(time));
        repetitions += 1;
    }
    let [compress, peer_compress, decompress, peer_decompress] =
        best.map(|time| 4e-9 * elements as f64 / time);
    Ok(Measurement {
        compressor: text,
        elements,
        peer: peer.to_owned(),
        compress_gbps: compress,
        peer_compress_gbps: peer_compress,
        decompress_gbps: decompress,
        peer_decompress_gbps: peer_decompress,
    })
}

/// Measurements as a table, each with its ratio to the peer's.
pub fn table(measurements: &[Measurement]) -> Table {
    let gbps = |x: f64| format!("{} GB/s", significant(x));
    let ratio = |ours: f64, theirs: f64| format!("{:.2}×", ours / theirs);
    Table::of(measurements)
        .column("compressor", |m| &m.compressor)
        .column("elements", |m| m.elements)
        .column("compress", |m| gbps(m.compress_gbps))
        .column("PyTorch", |m| gbps(m.peer_compress_gbps))
        .column("ratio", |m| ratio(m.compress_gbps, m.peer_compress_gbps))
        .column("decompress", |m| gbps(m.decompress_gbps))
        .column("PyTorch", |m| gbps(m.peer_decompress_gbps))
        .column("ratio", |m| ratio(m.decompress_gbps, m.peer_decompress_gbps))
        .column("PyTorch compresses with", |m| &m.peer)
        .table()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_a_spec_as_it_is_printed() {
        let printed: Vec<_> = specs().iter().map(ToString::to_string).collect();
        assert_eq!(printed, PEERS.map(|(spec, ..)| spec));
    }

    #[test]
    fn without_python_or_pytorch_the_error_says_what_is_missing() {
        for python in ["no-such-python", "false"] {
            let error = Torch::start_with(python, SCRIPT).unwrap_err().to_string();
            assert!(error.contains("install PyTorch"), "{error}");
        }
    }

    /// A process that answers with a shell script.
    fn stub(script: &str) -> Result<Torch, PeerError> {
        Torch::start_with("sh", script)
    }

    #[test]
    fn the_peers_seconds_are_those_it_answers() {
        // 2⁻¹⁰ seconds for 1000 elements, whatever the request: 4.096 MB/s.
        let answers =
            "echo ready; read line; echo ready; while read line; do echo 0.0009765625; done";
        let mut torch = stub(answers).unwrap();
        let effort = Effort { repetitions: 1, time: std::time::Duration::ZERO };
        let row = measure(&mut torch, &specs()[0], 1000, effort).unwrap();
        for gbps in [row.peer_compress_gbps, row.peer_decompress_gbps] {
            assert!((gbps - 0.004096).abs() < 1e-9, "{gbps}");
        }
        let none = measure(&mut torch, &"topk".parse().unwrap(), 1000, effort).unwrap_err();
        assert!(none.to_string().contains("none, fp16, bf16, int8:ef=off"), "{none}");
    }

    #[test]
    fn a_process_that_ends_or_answers_nonsense_is_an_error_that_says_so() {
        let effort = Effort { repetitions: 1, time: std::time::Duration::ZERO };
        for (lines, reason) in [
            ("echo hello", "it printed \"hello\""),
            ("echo ready; read line", "failed at \"prepare float32 1000\""),
            ("echo ready; read line; echo ready; read line; echo soon", "it answered \"soon\""),
        ] {
            let done =
                stub(lines).and_then(|mut torch| measure(&mut torch, &specs()[0], 1000, effort));
            let error = done.unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn ratios_by_hand() {
        let row = Measurement {
            compressor: "none".to_owned(),
            elements: 1000,
            peer: "copy_".to_owned(),
            compress_gbps: 3.0,
            peer_compress_gbps: 2.0,
            decompress_gbps: 1.0,
            peer_decompress_gbps: 4.0,
        };
        let text = table(&[row]).markdown();
        assert!(text.contains("| 1.50× |") && text.contains("| 0.25× |"), "{text}");
    }
}
