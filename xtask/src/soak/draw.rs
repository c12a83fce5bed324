//! Random settings, specs, tensors and damage.

use std::path::Path;
use std::process::Command;

use fastrand::Rng;
use serde_json::Value;

/// Flags for some runs: one of each row. Incompatible settings are refused and drawn again.
const FLAGS: [&[&str]; 12] = [
    &["--overlap on"],
    &["--send updates", "--send weights"],
    &["--optimizer sgd", "--optimizer adam", "--optimizer rmsprop:m=0.5", "--optimizer adagrad"],
    &["--split shards", "--split classes", "--split dirichlet"],
    &["--participation 0.6"],
    &["--dropout 0.2"],
    &["--svrg 7"],
    &["--clip 0.5"],
    &["--mask off"],
    &["--raw-below 0", "--raw-vectors off", "--rule *.bias->topk", "--rule matrices->qsgd"],
    &["--diagnose"],
    &["--lr cosine:from=0.1,to=0.001", "--weight-decay 0.01", "--l1 0.001"],
];

/// Parameters common to all compressors.
const COMMON: [(&str, &str); 5] = [
    ("ef", "on or off or ef21"),
    ("beta", "a number in [0, 1]"),
    ("gamma", "a number in [0.5, 2]"),
    ("momentum", "a number in [0, 0.9]"),
    ("every", "a whole number from 1 to 5"),
];

/// A compressor: its id, and key and values of each parameter.
type Entry = (String, Vec<(String, String)>);

/// The choices that the command line lists.
pub(super) struct Catalogue {
    compressors: Vec<Entry>,
    exchanges: Vec<String>,
}

impl Catalogue {
    /// Asks `gradwire` for its compressors and exchanges.
    pub(super) fn read(gradwire: &Path) -> Result<Self, String> {
        let output = |arguments: [&str; 2]| {
            let output = Command::new(gradwire).args(arguments).output();
            output.map_err(|error| format!("{}: {error}", gradwire.display()))
        };
        let rows: Value = serde_json::from_slice(&output(["list", "--json"])?.stdout)
            .map_err(|error| format!("gradwire list --json: {error}"))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let entry = |row: &Value| {
            let parameters = row["parameters"].as_array().into_iter().flatten();
            (text(&row["id"]), parameters.map(|p| (text(&p["key"]), text(&p["values"]))).collect())
        };
        let compressors: Vec<Entry> = rows.as_array().into_iter().flatten().map(entry).collect();
        let help = String::from_utf8_lossy(&output(["train", "--help"])?.stdout).into_owned();
        let line = help
            .lines()
            .find_map(|line| line.trim().strip_prefix("How workers exchange tensors: "));
        let names = line.unwrap_or_default().split(", ").filter_map(|item| item.split('[').next());
        let exchanges: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
        if compressors.is_empty() || exchanges.len() < 2 {
            return Err("gradwire lists no compressors or exchanges".to_owned());
        }
        Ok(Self { compressors, exchanges })
    }

    /// The spec of a random compressor, with some parameters.
    pub(super) fn spec(&self, rng: &mut Rng) -> String {
        let (id, own) = &self.compressors[rng.usize(..self.compressors.len())];
        let common = COMMON.iter().filter(|_| rng.u8(..4) == 0).copied().collect::<Vec<_>>();
        let own = own.iter().map(|(key, values)| (key.as_str(), values.as_str()));
        let chosen: Vec<_> = own.filter(|_| rng.bool()).chain(common).collect();
        let items = chosen.iter().map(|(key, values)| format!("{key}={}", value(values, rng)));
        let items = items.collect::<Vec<_>>().join(",");
        if items.is_empty() { id.clone() } else { format!("{id}:{items}") }
    }

    /// The arguments of a short random run, and the number of its servers.
    pub(super) fn run(&self, rng: &mut Rng) -> (Vec<String>, usize) {
        let mut exchange = self.exchanges[rng.usize(..self.exchanges.len())].clone();
        let mut servers = 0;
        match exchange.as_str() {
            "hierarchical" => exchange += &format!(":node={}", rng.u8(1..4)),
            "server" => {
                servers = rng.usize(1..4);
                exchange += &format!(":servers={servers}");
            }
            _ => {}
        }
        let mut line = format!(
            "train --model mlp:16 --workers {} --batch {} --steps {} --evaluations {} --seed {} --exchange {exchange}",
            rng.u8(2..=5),
            rng.u8(1..=4),
            rng.u8(20..=120),
            rng.u8(1..=5),
            rng.u32(..),
        );
        for row in FLAGS.iter().filter(|_| rng.u8(..8) == 0).collect::<Vec<_>>() {
            line += &format!(" {}", row[rng.usize(..row.len())]);
        }
        let mut compressor = self.spec(rng);
        if rng.u8(..6) == 0 {
            compressor += &format!(" until 0.{} then {}", rng.u8(1..10), self.spec(rng));
        }
        let words = line.split(' ').map(str::to_owned);
        (words.chain(["--compressor".to_owned(), compressor]).collect(), servers)
    }
}

/// A value of a parameter, from the list's description of its values.
fn value(values: &str, rng: &mut Rng) -> String {
    let ends = |range: &str, between: &str| -> Option<(f64, f64)> {
        let (least, most) = range.trim_matches(['[', ']', '(', ')']).split_once(between)?;
        Some((least.parse().ok()?, most.parse().ok()?))
    };
    // Small values are as likely as large ones.
    let between = |(least, most): (f64, f64), rng: &mut Rng| {
        least + (most.min(least + 1e6) - least) * 10f64.powf(-6.0 * rng.f64())
    };
    if let Some(range) = values.strip_prefix("a whole number from ") {
        let number = ends(range, " to ").map(|ends| between(ends, rng).round());
        return number.unwrap_or(1.0).to_string();
    }
    if let Some(range) = values.strip_prefix("a number in ") {
        let number = ends(range, ", ").map(|ends| between(ends, rng));
        return number.unwrap_or(1.0).to_string();
    }
    let words: Vec<&str> = values.split(" or ").collect();
    words[rng.usize(..words.len())].to_owned()
}

/// A safetensors file of one to four random tensors, and their number.
pub(super) fn tensors(rng: &mut Rng) -> (Vec<u8>, usize) {
    let (count, mut header, mut data) = (rng.usize(1..=4), Vec::new(), Vec::new());
    for at in 0..count {
        let shape: Vec<usize> = (0..rng.usize(..4)).map(|_| rng.usize(1..20)).collect();
        let scale = 10f32.powi(rng.i32(-6..5));
        let (dtype, zeros, start) = (["F32", "F16", "BF16"][rng.usize(..3)], rng.f32(), data.len());
        for _ in 0..shape.iter().product() {
            let x = if rng.f32() < zeros { 0.0 } else { scale * (rng.f32() - 0.5) };
            match dtype {
                "F32" => data.extend_from_slice(&x.to_le_bytes()),
                // At most half of the largest exponent, so the value is finite in either format.
                _ => data.extend_from_slice(&(rng.u16(..) & 0xbfff).to_le_bytes()),
            }
        }
        let end = data.len();
        header.push(format!(
            r#""t{at}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#
        ));
    }
    let header = format!("{{{}}}", header.join(","));
    ([&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat(), count)
}

/// Damages bytes: flips bits, cuts, repeats, replaces or removes a part.
pub(super) fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let part = |rng: &mut Rng, len: usize| {
        let start = rng.usize(..=len);
        start..rng.usize(start..=len.min(start + 64))
    };
    let len = bytes.len();
    match rng.u8(..5) {
        0 => bytes.truncate(rng.usize(..=len)),
        1 => drop(bytes.drain(part(rng, len))),
        2 => {
            let copy = bytes[part(rng, len)].to_vec();
            let at = rng.usize(..=len);
            bytes.splice(at..at, copy);
        }
        3 => {
            let copy = bytes[part(rng, len)].to_vec();
            bytes.splice(part(rng, len), copy);
        }
        _ => flip(bytes, rng),
    }
}

/// Flips some bits.
pub(super) fn flip(bytes: &mut [u8], rng: &mut Rng) {
    let len = bytes.len();
    for _ in (0..rng.u8(1..5)).filter(|_| len > 0) {
        bytes[rng.usize(..len)] ^= 1 << rng.u8(..8);
    }
}
