//! Running the binary in a folder of its own.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of this one")]

pub mod processes;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Flags of a run that takes a moment, on the [images](Bench::with_images).
pub const TINY: &str = "--model mlp --data images --workers 2 --batch 8 --evaluations 2";

/// The rows that a command prints; those of the runs of a comparison.
pub fn rows(bench: &Bench, line: &str) -> Vec<Value> {
    match serde_json::from_str(&bench.ok(&format!("{line} --json"))).unwrap() {
        Value::Array(rows) => rows,
        mut comparison => comparison["runs"].as_array_mut().unwrap().split_off(0),
    }
}

/// Writes that a test is skipped to standard output itself: the test runner hides what a test
/// prints that passes.
pub fn skipped(reason: &str) {
    let _ = writeln!(io::stdout(), "skipped: {reason}");
}

/// A temporary folder in which `gradwire` runs, with no data but what a test puts there.
pub struct Bench(tempfile::TempDir);

impl Bench {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A folder with `images`.
    pub fn with_images() -> Self {
        let bench = Self::new();
        bench.images("images");
        bench
    }

    /// A command line, split at spaces, that prints wide tables.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradwire"));
        command.args(line.split_whitespace());
        command.current_dir(self.0.path()).env_remove("GRADWIRE_DATA").env("COLUMNS", "200");
        command
    }

    /// Runs a command line to its end.
    pub fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs a command with bytes on its standard input.
    pub fn piped(&self, line: &str, input: &[u8]) -> Output {
        let mut command = self.command(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that refuses its input closes it early.
        let _ = stdin.write_all(input);
        drop(stdin);
        child.wait_with_output().unwrap()
    }

    /// Runs a command that succeeds; its standard output.
    pub fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "gradwire {line}\n{errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that is refused with exit code 2 and nothing on standard output; its error.
    pub fn refused(&self, line: &str) -> String {
        let output = self.run(line);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "gradwire {line}\n{error}");
        assert!(output.stdout.is_empty(), "gradwire {line} printed a result");
        assert!(error.contains("error: "), "{error}");
        assert!(!error.contains("panicked"), "{error}");
        error
    }

    /// Runs commands that are refused, each with an error that says something, and write nothing.
    pub fn refuses(&self, commands: &[(&str, &str)]) {
        let before = self.names();
        for (line, says) in commands {
            let error = self.refused(line);
            assert!(error.contains(says), "{line}: {error}");
        }
        assert_eq!(self.names(), before);
    }

    /// The names in the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub fn read_text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Writes 96 training and 32 test images of 28×28 as idx files into the folder `name`: class c
    /// is a bright band of rows, which any model learns at once.
    pub fn images(&self, name: &str) {
        let dir = self.path(name);
        fs::create_dir(&dir).unwrap();
        split(&dir, "train", 96);
        split(&dir, "t10k", 32);
    }

    /// Writes a text, repeated `times` times, into `input.txt` in the folder `name`.
    pub fn text(&self, name: &str, text: &str, times: usize) {
        fs::create_dir(self.path(name)).unwrap();
        self.write(&format!("{name}/input.txt"), text.repeat(times).as_bytes());
    }

    /// Writes a `.npy` file of one dimension.
    pub fn npy(&self, name: &str, descr: &str, elements: usize, data: &[u8]) {
        self.npy_of_shape(name, descr, &[elements], data);
    }

    /// Writes a `.npy` file of several dimensions.
    pub fn npy_of_shape(&self, name: &str, descr: &str, shape: &[usize], data: &[u8]) {
        let shape: String = shape.iter().map(|n| format!("{n},")).collect();
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(header.len() as u16 + 1).to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.push(b'\n');
        bytes.extend_from_slice(data);
        self.write(name, &bytes);
    }

    /// Writes a `.npy` file of floats.
    pub fn floats(&self, name: &str, values: &[f32]) {
        let data: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.npy(name, "<f4", values.len(), &data);
    }
}

fn split(dir: &Path, name: &str, count: u32) {
    let mut images = [2051u32, count, 28, 28].map(u32::to_be_bytes).concat();
    let mut labels = [2049u32, count].map(u32::to_be_bytes).concat();
    for at in 0..count {
        let class = (at % 10) as usize;
        labels.push(class as u8);
        let noise = |pixel: usize| (pixel * 7 + at as usize * 13) % 40;
        let band = |pixel: usize| if pixel / 28 / 3 == class { 200 } else { 0 };
        images.extend((0..784).map(|pixel| (noise(pixel) + band(pixel)) as u8));
    }
    fs::write(dir.join(format!("{name}-images-idx3-ubyte")), images).unwrap();
    fs::write(dir.join(format!("{name}-labels-idx1-ubyte")), labels).unwrap();
}

/// How many runs a test of interruptions makes: `GRADWIRE_KILLS`, or a few.
pub fn kills(few: usize) -> usize {
    match std::env::var("GRADWIRE_KILLS") {
        Ok(text) => text.parse().expect("GRADWIRE_KILLS is a number of runs"),
        Err(_) => few,
    }
}

/// A random number below `bound`: what moment, or which signal.
pub fn below(bound: u64, draws: &mut gradwire::Rng) -> u64 {
    let mut word = [0];
    draws.fill(&mut word);
    u64::from(word[0]) % bound.max(1)
}
