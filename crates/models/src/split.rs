//! The split of the training set among workers.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use gradwire::Rng;
use rand_core::TryRng;
use rand_distr::{Distribution, Gamma};

use crate::options::{Options, OptionsError, Printer};

/// The random stream of shards.
const STREAM: u32 = 0x7370_6c69;

/// The division of training examples among workers.
///
/// Strings: `shared`, `shards`, `shards:sizes=4+2+1+1`, `classes:per=2`, `dirichlet:alpha=0.5`.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Split {
    /// All workers share all examples: each step distributes the next examples of a common order.
    #[default]
    Shared,
    /// Each worker has a random subset.
    Shards {
        /// The parts' relative sizes, one for each worker; `None` for equal ones.
        sizes: Option<Vec<f64>>,
    },
    /// Each worker has few classes (McMahan et al. 2017, section 3): the examples, sorted by class,
    /// are cut into `per` pieces per worker, which are dealt out at random.
    Classes {
        /// Pieces for each worker.
        per: usize,
    },
    /// Each worker has different proportions of the classes, and shards differ in size (Yurochkin
    /// et al. 2019, section 4): the workers' parts of each class are drawn from a symmetric
    /// Dirichlet distribution.
    Dirichlet {
        /// Concentration α: the smaller, the more unequal.
        alpha: f64,
    },
}

const FORMS: [&str; 4] =
    ["shared", "shards[:sizes=4+2+1+1]", "classes[:per=2]", "dirichlet[:alpha=0.5]"];

const PER: usize = 2;
const ALPHA: f64 = 0.5;

impl Split {
    /// Whether it sorts examples by class.
    pub fn is_by_class(&self) -> bool {
        matches!(self, Split::Classes { .. } | Split::Dirichlet { .. })
    }

    /// The examples of each worker from a training set with these labels; `None` if all workers
    /// share all examples. A pure function of the seed.
    ///
    /// # Errors
    /// If the numbers of sizes and workers differ, or a shard is empty; with the remedy.
    pub fn shards(
        &self,
        labels: &[u16],
        workers: usize,
        seed: u64,
    ) -> Result<Option<Vec<Vec<u32>>>, String> {
        let mut rng = Rng::new(seed, 0, 0, 0, STREAM);
        let shards = match self {
            Split::Shared => return Ok(None),
            Split::Shards { sizes: Some(sizes) } if sizes.len() != workers => {
                return Err(format!(
                    "the split '{self}' has {} sizes for {workers} workers; give one size per worker",
                    sizes.len()
                ));
            }
            Split::Shards { sizes } => {
                let sizes = sizes.clone().unwrap_or_else(|| vec![1.0; workers]);
                cut(&shuffled(labels.len(), &mut rng), &sizes)
            }
            Split::Classes { per } => by_pieces(labels, workers, *per, &mut rng),
            Split::Dirichlet { alpha } => by_proportions(labels, workers, *alpha, &mut rng),
        };
        match shards.iter().position(Vec::is_empty) {
            Some(worker) => Err(format!(
                "the split '{self}' leaves worker {worker} without examples: there are {} for \
                 {workers} workers; use fewer workers, another seed or a more even split",
                labels.len()
            )),
            None => Ok(Some(shards)),
        }
    }
}

fn shuffled(count: usize, rng: &mut Rng) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    for last in (1..count).rev() {
        order.swap(last, rng.below(last as u64 + 1) as usize);
    }
    order
}

/// Consecutive parts of these relative sizes.
fn cut(examples: &[u32], sizes: &[f64]) -> Vec<Vec<u32>> {
    let total: f64 = sizes.iter().sum();
    let (mut before, mut start) = (0.0, 0);
    let part = |size: &f64| {
        before += size;
        let end = ((before / total * examples.len() as f64).round() as usize).min(examples.len());
        let part = examples[start..end.max(start)].to_vec();
        start = end.max(start);
        part
    };
    sizes.iter().map(part).collect()
}

fn by_pieces(labels: &[u16], workers: usize, per: usize, rng: &mut Rng) -> Vec<Vec<u32>> {
    let mut sorted = shuffled(labels.len(), rng);
    sorted.sort_by_key(|&example| labels[example as usize]);
    let pieces = cut(&sorted, &vec![1.0; workers * per]);
    let deal = shuffled(pieces.len(), rng);
    deal.chunks_exact(per)
        .map(|hand| hand.iter().flat_map(|&piece| pieces[piece as usize].clone()).collect())
        .collect()
}

fn by_proportions(labels: &[u16], workers: usize, alpha: f64, rng: &mut Rng) -> Vec<Vec<u32>> {
    let mut classes =
        vec![Vec::new(); labels.iter().max().map_or(0, |&most| usize::from(most) + 1)];
    for example in shuffled(labels.len(), rng) {
        classes[usize::from(labels[example as usize])].push(example);
    }
    let gamma = Gamma::new(alpha + 1.0, 1.0).expect("the concentration is positive");
    let mut shards = vec![Vec::new(); workers];
    for examples in classes {
        // Gamma draws divided by their sum are a Dirichlet draw. Draws of a small concentration
        // underflow: their logarithms come from draws with α + 1 and a uniform u to the power 1/α.
        let mut logarithm = || {
            let draw = gamma.sample(&mut Words(rng)).ln();
            draw + (1.0 - f64::from(rng.uniform())).ln() / alpha
        };
        let logarithms: Vec<f64> = (0..workers).map(|_| logarithm()).collect();
        let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let parts: Vec<f64> = logarithms.iter().map(|x| (x - most).exp()).collect();
        for (shard, part) in shards.iter_mut().zip(cut(&examples, &parts)) {
            shard.extend(part);
        }
    }
    shards
}

/// An adapter from the counter-based generator to the trait of distributions.
struct Words<'a>(&'a mut Rng);

impl TryRng for Words<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.0.next_u64() as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.next_u64().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

impl FromStr for Split {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<Self, OptionsError> {
        let mut options = Options::parse(text)?;
        let split = match options.id() {
            "shared" => Split::Shared,
            "shards" => Split::Shards {
                sizes: options.take("sizes", None, "positive numbers, joined by +", |text| {
                    sizes(text).map(Some)
                })?,
            },
            "classes" => Split::Classes {
                per: options.take("per", PER, "a whole number from 1 to 1000", |text| {
                    text.parse().ok().filter(|per| (1..=1000).contains(per))
                })?,
            },
            "dirichlet" => Split::Dirichlet {
                alpha: options.number("alpha", ALPHA, "a number in [0.001, 1000]", |alpha| {
                    (0.001..=1000.0).contains(&alpha)
                })?,
            },
            unknown => {
                return Err(OptionsError::unknown("split", unknown, &FORMS));
            }
        };
        options.finish()?;
        Ok(split)
    }
}

fn sizes(text: &str) -> Option<Vec<f64>> {
    let size = |part: &str| part.trim().parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0);
    text.split('+').map(size).collect()
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Split::Shared => f.write_str("shared"),
            Split::Shards { sizes: None } => f.write_str("shards"),
            Split::Shards { sizes: Some(sizes) } => {
                let sizes: Vec<String> = sizes.iter().map(f64::to_string).collect();
                write!(f, "shards:sizes={}", sizes.join("+"))
            }
            Split::Classes { per } => Printer::new(f, "classes")?.unless("per", *per, PER),
            Split::Dirichlet { alpha } => {
                Printer::new(f, "dirichlet")?.unless("alpha", *alpha, ALPHA)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1000 examples of 10 classes, not sorted.
    fn labels() -> Vec<u16> {
        (0..1000).map(|example| (example * 7 % 10) as u16).collect()
    }

    fn shards(split: &str, workers: usize, seed: u64) -> Vec<Vec<u32>> {
        split.parse::<Split>().unwrap().shards(&labels(), workers, seed).unwrap().unwrap()
    }

    fn classes(shard: &[u32]) -> Vec<usize> {
        let mut counts = vec![0; 10];
        shard.iter().for_each(|&example| counts[usize::from(labels()[example as usize])] += 1);
        counts
    }

    #[test]
    fn every_example_has_one_worker() {
        for split in ["shards", "shards:sizes=1+2+4+3", "classes", "classes:per=1", "dirichlet"] {
            let mut all: Vec<u32> = shards(split, 4, 3).concat();
            all.sort_unstable();
            assert_eq!(all, (0..1000).collect::<Vec<_>>(), "{split}");
            assert_eq!(shards(split, 4, 3), shards(split, 4, 3), "{split}");
            assert_ne!(shards(split, 4, 3), shards(split, 4, 4), "{split}");
        }
        assert_eq!(Split::Shared.shards(&labels(), 4, 0), Ok(None));
    }

    #[test]
    fn shards_have_their_sizes_and_all_classes() {
        let found = shards("shards:sizes=1+2+4+3", 4, 0);
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [100, 200, 400, 300]);
        // 40 of each class in the third, give or take five deviations of 5.
        assert!(classes(&found[2]).iter().all(|count| (15..65).contains(count)));
    }

    #[test]
    fn pieces_hold_few_classes() {
        // Five workers with two pieces of one class each.
        for shard in shards("classes:per=2", 5, 1) {
            assert_eq!(shard.len(), 200);
            assert!(classes(&shard).iter().filter(|&&count| count > 0).count() <= 2);
        }
    }

    #[test]
    fn a_small_concentration_is_uneven_and_a_large_one_even() {
        let spread = |split: &str| {
            let counts: Vec<usize> =
                shards(split, 4, 2).iter().flat_map(|shard| classes(shard)).collect();
            (counts.iter().min().copied().unwrap(), counts.iter().max().copied().unwrap())
        };
        let (least, most) = spread("dirichlet:alpha=0.1");
        assert!(least < 3 && most > 80, "{least} to {most}");
        let (least, most) = spread("dirichlet:alpha=1000");
        assert!(least > 20 && most < 30, "{least} to {most}");
    }

    #[test]
    fn what_cannot_be_split_is_refused() {
        let refused = |split: &str, labels: &[u16], workers| {
            split.parse::<Split>().unwrap().shards(labels, workers, 0).unwrap_err()
        };
        assert!(refused("shards:sizes=1+2", &labels(), 3).contains("2 sizes for 3 workers"));
        assert!(refused("shards", &[0, 1], 3).contains("leaves worker"));
        assert!(refused("shards:sizes=1+1000000", &labels(), 2).contains("worker 0 without"));
    }

    #[test]
    fn strings_go_both_ways_and_bad_ones_are_refused() {
        for text in [
            "shared",
            "shards",
            "shards:sizes=4+2+0.5",
            "classes",
            "classes:per=3",
            "dirichlet:alpha=1",
        ] {
            assert_eq!(text.parse::<Split>().unwrap().to_string(), text);
        }
        for (text, says) in [
            ("halves", "unknown split"),
            ("shards:sizes=1+0", "positive numbers"),
            ("classes:per=0", "from 1"),
            ("dirichlet:alpha=0", "[0.001, 1000]"),
            ("dirichlet:beta=1", "it has: alpha"),
        ] {
            let error = text.parse::<Split>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
