//! The link model: how long measured bytes would take on a network.
//!
//! Every rank is connected to the network by one full-duplex link; the network between the links is
//! never the bottleneck. A phase takes as long as the busiest direction of the busiest link, and a
//! phase that waits for the result of another adds one latency.

use std::time::Duration;

use crate::Exchange;

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
