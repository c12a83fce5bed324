//! The link model: how long measured bytes would take on a network.
//!
//! Every rank is connected to the network by one full-duplex link; the network between the links is
//! never the bottleneck. A phase takes as long as the busiest direction of the busiest link, and a
//! phase that waits for the result of another adds one latency.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Exchange, ExchangeError};

/// A full-duplex link between one rank and the network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Bandwidth in each direction, in bits per second.
    pub bits_per_second: f64,
    /// Time from the last bit sent to its arrival.
    pub latency: Duration,
}

/// The bytes that one step moves over the links, as a transport counted them. For parameter servers
/// and sparse all-reduce, the mean over workers; for other exchanges, the bytes of the busiest
/// worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepBytes {
    /// Bytes a worker sends, headers included.
    pub up: f64,
    /// Bytes a worker receives, headers included.
    pub down: f64,
    /// The share of the largest tensor in these bytes, 0 to 1. Only a parameter server's time
    /// depends on it. If the bytes per tensor are not known, give its share of the elements.
    pub largest_share: f64,
    /// The bytes of all tensors in `f32`, as the members of a node exchange them with their leader.
    /// Only the time of a hierarchical exchange depends on it.
    pub uncompressed: f64,
}

impl Link {
    /// A link of this bandwidth without latency.
    pub fn mbit(megabits_per_second: f64) -> Self {
        Self { bits_per_second: megabits_per_second * 1e6, latency: Duration::ZERO }
    }

    /// How long `bytes` occupy one direction, latency not included.
    pub fn occupancy(&self, bytes: u64) -> Duration {
        self.seconds(bytes as f64)
    }

    /// The time one step's bytes need over such links, computation not included.
    ///
    /// - all-gather: one phase.
    /// - all-reduce and scatter-reduce: two phases; the second waits for the first.
    /// - sparse all-reduce: a phase for each doubling, and two more if the number of workers is not
    ///   a power of two. Give the mean bytes over all workers. All messages are assumed to have the
    ///   same length.
    /// - hierarchical: three phases; two if there is one node, one if nodes have one rank. Give a
    ///   leader's bytes, which are the most. Its members' values arrive before it sends its own
    ///   messages, so they take additional time.
    /// - parameter server: the servers' links carry the bytes of all `workers`. Push and pull run
    ///   in opposite directions at the same time, but a tensor is pulled only after it was pushed.
    ///   With tensors as jobs this is a flow shop of two machines. It takes at most the longer
    ///   direction plus the largest tensor's share of the shorter one; a model of one tensor takes
    ///   exactly this time. With several servers the one that holds the most (the mean, or the
    ///   largest tensor) decides.
    ///
    /// In exchanges without servers, a single worker needs no network: the time is zero.
    pub fn step_time(&self, exchange: Exchange, workers: usize, bytes: StepBytes) -> Duration {
        let (busiest, phases) = (bytes.up.max(bytes.down), exchange.phases(workers));
        let on_the_way = match exchange {
            Exchange::ParameterServer { servers, .. } => self.server_time(servers, workers, bytes),
            _ if workers == 1 => return Duration::ZERO,
            Exchange::SparseAllReduce => {
                let doublings = workers.ilog2();
                let folded = workers - (1 << doublings);
                // First and last phase use few links, doublings a power of two of them; the bytes
                // are a mean over all links.
                let messages = (workers - folded) * doublings as usize + 2 * folded;
                let uneven = (workers * phases as usize) as f64 / messages as f64;
                self.seconds(busiest * uneven)
            }
            Exchange::Hierarchical { node } => {
                let members = node.min(workers).saturating_sub(1) as f64;
                self.seconds(busiest + members * bytes.uncompressed)
            }
            _ => self.seconds(busiest),
        };
        on_the_way + phases * self.latency
    }

    fn server_time(&self, servers: usize, workers: usize, bytes: StepBytes) -> Duration {
        let largest = bytes.largest_share.clamp(0.0, 1.0);
        let held = largest.max(1.0 / servers.max(1) as f64);
        // The busiest link is a server's, unless many servers share one worker's bytes.
        let push = bytes.up.max(bytes.up * held * workers as f64);
        let pull = bytes.down.max(bytes.down * held * workers as f64);
        let tail = largest / held * push.min(pull);
        self.seconds(push.max(pull) + tail)
    }

    fn seconds(&self, bytes: f64) -> Duration {
        Duration::from_secs_f64(bytes * 8.0 / self.bits_per_second)
    }
}

/// Prefixes of units of bandwidth, the largest first.
const PREFIXES: [(&str, f64); 3] = [("g", 1e9), ("m", 1e6), ("k", 1e3)];

/// The possible bandwidths: from a bit a second to a petabit.
const BANDWIDTHS: std::ops::RangeInclusive<f64> = 1.0..=1e15;

/// The longest latency in seconds: twelve days.
const LONGEST_LATENCY: f64 = 1e6;

/// Prints the text that parses to the same link: `100mbit`, or `100mbit/20ms` with a latency.
impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reached = PREFIXES.iter().find(|(_, size)| self.bits_per_second >= *size);
        let (prefix, size) = reached.copied().unwrap_or(("k", 1e3));
        write!(f, "{}{prefix}bit", self.bits_per_second / size)?;
        match self.latency.as_nanos() as f64 {
            0.0 => Ok(()),
            nanos @ 1e9.. => write!(f, "/{}s", nanos / 1e9),
            nanos @ 1e6.. => write!(f, "/{}ms", nanos / 1e6),
            nanos => write!(f, "/{}us", nanos / 1e3),
        }
    }
}

/// Reads a bandwidth and perhaps a latency: `100mbit`, `1.5gbit/20ms`. The units `gbit`, `gbit/s`,
/// `gbps` and `Gb/s` are the same; a bandwidth without a unit is in Mbit/s.
impl FromStr for Link {
    type Err = ExchangeError;

    fn from_str(text: &str) -> Result<Self, ExchangeError> {
        let mut parts: Vec<&str> = text.split('/').map(str::trim).collect();
        // The second of `1gbit/s`.
        if parts.len() > 1 && parts[1].eq_ignore_ascii_case("s") {
            parts.remove(1);
        }
        let (bandwidth, latency) = match parts[..] {
            [bandwidth] => (bandwidth, Some(0.0)),
            [bandwidth, latency] => (bandwidth, seconds(latency)),
            _ => ("", None),
        };
        let has_bytes = ["B", "Bps", "byte", "bytes", "Byte", "Bytes"];
        if has_bytes.iter().any(|unit| bandwidth.ends_with(unit)) {
            return Err(ExchangeError::config(format!(
                "'{text}' has bytes; links have bits per second, as in 100mbit: eight times the bytes"
            )));
        }
        match (bits_per_second(bandwidth), latency) {
            (Some(bits_per_second), Some(latency)) => {
                Ok(Self { bits_per_second, latency: Duration::from_secs_f64(latency) })
            }
            _ => Err(ExchangeError::config(format!(
                "'{text}' is not a link; give a bandwidth in kbit, mbit or gbit (or kbps, mbps, gbps), \
                 optionally with a latency, as in 100mbit/20ms"
            ))),
        }
    }
}

/// The number before a unit, at least 0.
fn before(text: &str, unit: &str) -> Option<f64> {
    let value = text.strip_suffix(unit)?.trim().parse::<f64>().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value)
}

fn bits_per_second(text: &str) -> Option<f64> {
    let text = text.to_lowercase();
    // Without `bit`, `b` or `bps`, so that the prefix is at the end.
    let short = ["bit", "bps", "b"].iter().find_map(|unit| text.strip_suffix(unit));
    let value = match short {
        Some(rest) => PREFIXES.iter().find_map(|(prefix, size)| Some(before(rest, prefix)? * size)),
        None => before(&text, "").map(|mbit| mbit * 1e6),
    };
    value.filter(|value| BANDWIDTHS.contains(value))
}

fn seconds(text: &str) -> Option<f64> {
    let units = [("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("s", 1.0)];
    let text = text.to_lowercase();
    let value = units.iter().find_map(|(unit, size)| Some(before(&text, unit)? * size));
    value.filter(|value| *value <= LONGEST_LATENCY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(up: f64, down: f64, largest_share: f64) -> StepBytes {
        StepBytes { up, down, largest_share, uncompressed: 0.0 }
    }

    #[test]
    fn a_megabyte_occupies_a_ten_megabit_link_for_800_ms() {
        assert_eq!(Link::mbit(10.0).occupancy(1_000_000), Duration::from_millis(800));
    }

    #[test]
    fn links_are_read() {
        let read = |text: &str| text.parse::<Link>();
        let link = read("1.5gbit/20ms").unwrap();
        assert_eq!((link.bits_per_second, link.latency), (1.5e9, Duration::from_millis(20)));
        for text in [" 100 Mbit", "100", "100mbps", "100Mb/s", "0.1gbit/s", "100 mbit/s"] {
            assert_eq!(read(text).unwrap(), Link::mbit(100.0), "{text}");
        }
        let latency = |text: &str| read(text).unwrap().latency;
        assert_eq!(latency("1gbps/250us"), Duration::from_micros(250));
        assert_eq!(latency("1Gb/s/2 ms"), Duration::from_millis(2));
        for wrong in [
            "",
            "fast",
            "0",
            "-1",
            "-1mbit",
            "nanmbit",
            "0mbit",
            "1gbit/",
            "1gbit/x",
            "1gbit/1ms/1ms",
            "/",
            "bit",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        // Finite numbers, but too many bits per second or too long.
        for wrong in ["1e300gbit", "1e305mbit", "1e303", "1e10", "1gbit/1e9s"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        for bytes in ["1GB/s", "100MBps", "100 Mbytes", "1Gbyte/s"] {
            let error = read(bytes).unwrap_err().to_string();
            assert!(error.contains("bits per second"), "{error}");
        }
    }

    #[test]
    fn links_go_through_text_and_back() {
        for (text, shown) in [
            ("100", "100mbit"),
            ("1000", "1gbit"),
            ("25gbps/3us", "25gbit/3us"),
            ("0.001/1.5s", "1kbit/1.5s"),
            ("0.0005", "0.5kbit"),
            ("12.5mbit/20ms", "12.5mbit/20ms"),
        ] {
            let link: Link = text.parse().unwrap();
            assert_eq!(link.to_string(), shown);
            assert_eq!(shown.parse::<Link>().unwrap(), link);
        }
    }

    #[test]
    fn collectives_take_the_busier_direction_and_a_latency_for_each_phase() {
        let link = Link { latency: Duration::from_millis(5), ..Link::mbit(8.0) };
        let step = bytes(1e6, 3e6, 1.0);
        let ms = Duration::from_millis;
        assert_eq!(link.step_time(Exchange::AllGather, 4, step), ms(3005));
        assert_eq!(link.step_time(Exchange::AllReduce, 4, step), ms(3010));
        assert_eq!(link.step_time(Exchange::ScatterReduce, 4, step), ms(3010));
        assert_eq!(link.step_time(Exchange::AllReduce, 1, bytes(0.0, 0.0, 1.0)), Duration::ZERO);
        // Two doublings of 1 MB; with a fifth worker 1 MB before and after them, of 10 MB in all.
        let sparse = |workers, mean| {
            link.step_time(Exchange::SparseAllReduce, workers, bytes(mean, mean, 1.0))
        };
        assert_eq!(sparse(4, 2e6), ms(2010));
        assert_eq!(sparse(5, 10e6 / 5.0), ms(4020));
    }

    #[test]
    fn a_leader_receives_from_its_members_before_it_sends() {
        let link = Link { latency: Duration::from_millis(5), ..Link::mbit(8.0) };
        let ms = Duration::from_millis;
        let time = |exchange: &str, workers, leader| {
            let step = StepBytes { uncompressed: 1e6, ..bytes(leader, leader, 1.0) };
            link.step_time(exchange.parse().unwrap(), workers, step)
        };
        // Two members send a megabyte each, leaders send a quarter to each of two others, then two
        // to members.
        assert_eq!(time("hierarchical:node=3", 9, 2.5e6), ms(2000 + 500 + 2000 + 15));
        // One node of four ranks: three megabytes to the leader, three back.
        assert_eq!(time("hierarchical:node=8", 4, 3e6), ms(6010));
        assert_eq!(time("hierarchical:node=1", 4, 3e6), ms(3005));
    }

    #[test]
    fn the_servers_link_is_the_bottleneck() {
        let link = Link::mbit(8.0);
        let seconds = Duration::from_secs_f64;
        // Ten workers, 1 MB up and 0.5 MB down: 10 s of pushes, 5 s of pulls meanwhile.
        assert_eq!(link.step_time(Exchange::default(), 10, bytes(1e6, 5e5, 0.0)), seconds(10.0));
        // A model of one tensor: nothing overlaps.
        assert_eq!(link.step_time(Exchange::default(), 10, bytes(1e6, 5e5, 1.0)), seconds(15.0));
        // A fifth of the bytes in one tensor: its pull comes after all pushes.
        assert_eq!(link.step_time(Exchange::default(), 10, bytes(1e6, 5e5, 0.2)), seconds(11.0));
        // Two servers halve it; four do no better than the largest tensor's holder: 0.5 of all.
        let [two, four] =
            ["server:servers=2", "server:servers=4"].map(|name| name.parse().unwrap());
        assert_eq!(link.step_time(two, 10, bytes(1e6, 5e5, 0.0)), seconds(5.0));
        assert_eq!(link.step_time(four, 10, bytes(1e6, 5e5, 0.5)), seconds(7.5));
    }
}
