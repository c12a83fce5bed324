//! `atomo`: sends randomly drawn atoms of the tensor; unbiased, with little variance for their
//! expected number.
//!
//! - **Atoms** (`atoms=spectral`): singular value decomposition writes the tensor, an m × n matrix
//!   (the first dimension by the product of the others), as the sum of σᵢ·uᵢ·vᵢᵀ. With
//!   `atoms=entries` atoms are single elements.
//! - **Probabilities** (Algorithm 1): the budget s is the expected number of atoms, and pᵢ = s·σᵢ /
//!   Σσ if none is above 1. Otherwise the largest atom is always sent, and the rule is repeated for
//!   the rest with s − 1. A drawn atom is sent with σᵢ / pᵢ. `budget=l2` and `budget=max` set s to
//!   Σσ / ‖σ‖₂ and Σσ / max σ: for entries these are the probabilities of QSGD with one level, |c|
//!   / ‖c‖₂, and of TernGrad, |c| / max |c|.
//! - **Rank**: a randomised method finds the k largest singular values and their vectors, with k =
//!   `rank`, or fewer if the matrix has fewer; with rank ≥ min(m, n) it finds all, exactly. The
//!   rest of the matrix, of norm ρ, is the sum of d·(Mᵀd)ᵀ over n′ = min(m, n) − k random
//!   orthonormal directions d, which are orthogonal to the found vectors. Each of these terms is an
//!   atom with σ = ρ/√n′.
//! - **Message** of spectral atoms: a byte 0, their number as varint, and for each (σ / p)·u as m ×
//!   f32 and v as n × f32. Uncompressed tensors (below) have a byte 1 and all elements as f32.
//!   Entries are sent as in `adaptive`, which has the probabilities of a budget k. An empty tensor
//!   has an empty message.
//! - **Uncompressed**: tensors of one dimension, tensors whose expected atoms are no shorter than
//!   the matrix, and tensors with elements of 2⁶⁴ or more, as products might overflow. This does
//!   not depend on the drawn atoms.
//! - **Draws**: atom i (in decreasing order) uses the upper 24 bits of word i of the sender's
//!   stream for the tensor and step; its probability is rounded up to a multiple of 2⁻²⁴. Element i
//!   uses word i [for rounding](crate::Rng::fill_rounding), or, if few are drawn, word i of the
//!   stream itself, as in `adaptive`. The random start of the decomposition and the random
//!   directions have a stream each.
//! - **Range**: s from 0.01 to 10⁹; up to 2³² − 1 elements. The total variance of spectral atoms is
//!   Σσ²·(1 / p − 1), plus the rounding of products in f32. It is the least possible if all
//!   singular vectors are found, or all others have equal singular values.
//! - **Error feedback**: off; the message is unbiased. With `ef=on` residuals grow from step to
//!   step if few of many atoms are sent: the variance of the message is larger than the tensor
//!   itself.
//! - **Cost**: the matrix is copied once and multiplied four times by a matrix of `rank` columns.
//!   Eigenvectors of rank × rank numbers are computed seven times, or once for min(m, n) if all
//!   vectors are found. This takes 0.3 ms for 64, 0.1 s for 512 and about a minute for 4096, and
//!   allocates memory. Entries have the speed of `adaptive`, vectors a third of copy bandwidth.
//!   Decoding takes 2·m·n operations per atom. The slices of a scatter-reduce are vectors.
//! - **Deviations**: σ / p is multiplied into u; the paper sends it separately. The paper
//!   decomposes the whole matrix; `rank=4096` does so if a side has at most 4096 elements.
//!
//! Reference: Wang, Sievert, Liu, Charles, Papailiopoulos, Wright: "ATOMO: Communication-efficient
//! Learning via Atomic Sparsification", NeurIPS 2018.

use std::ops::Bound::Included;

use gradwire_bits::{DecodeError, kernels, varint};

use crate::compressors::sparsification::drawn;
use crate::numeric::svd::{Matrix, Svd};
use crate::parameters::{Choice, choice, either, real, whole};
use crate::wire::fields;
use crate::wire::levels::Norm;
use crate::{
    BLOCK, Compressor, Context, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee,
    Helpers, Passes, Source, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "atomo",
    summary: "random singular vectors or entries: unbiased, with little variance",
    formula: "Ĉ = Σ tᵢ·σᵢ/pᵢ·uᵢvᵢᵀ, tᵢ ~ Bernoulli(pᵢ), Σpᵢ = s",
    family: Family::LowRank,
    examples: &[
        "atoms=entries,budget=l2",
        "atoms=entries,s=100,ef=on",
        "s=12",
        "rank=2",
        "atoms=entries,s=100",
        "atoms=entries,budget=max,ef=on",
        "budget=l2",
    ],
    reference: "Wang et al., NeurIPS 2018",
    payload: "tag u8, count varint, count × (m + n) f32; or tag u8, d × f32; entries as adaptive",
    passes: Passes { after: 1, ..Passes::ONE },
    ..Entry::of::<Atomo>(|_| Guarantee::Unbiased)
};

/// The norm of the weights in the budget Σ / norm; `None` for the budget `s`.
impl Choice for Option<Norm> {
    const WORDS: &'static [&'static str] = &["s", "l2", "max"];
    const VALUES: &'static [Self] = &[None, Some(Norm::Euclidean), Some(Norm::Max)];
}

crate::parameters! {
    /// Atomic sparsification.
    pub struct Atomo {
        /// atoms are the singular vectors of the tensor as a matrix, or its elements
        entries("atoms"): bool = either(&["spectral", "entries"]),
        /// expected number of atoms to send
        s: f64 = real(3.0, Included(0.01), Included(1e9)),
        /// expected number of atoms. `s`: as given; `l2`: Σσ/‖σ‖₂; `max`: Σσ/max σ, with σ the
        /// singular values (or absolute values of elements)
        norm("budget"): Option<Norm> = choice::<Option<Norm>>(),
        /// singular vectors to find; the rest of the matrix is drawn along random directions
        rank: usize = whole(32, 1..=4096),
    }
}

/// The rule for the expected number of atoms.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Budget {
    Atoms(f64),
    Norm,
    Largest,
}

const ATOMS: u8 = 0;
const PLAIN: u8 = 1;
/// Products of elements of this magnitude or more might overflow.
const HUGE: f32 = (1u128 << 64) as f32;

impl Budget {
    /// The budget for weights with this sum, sum of squares, and largest weight.
    fn of(self, sum: f64, squares: f64, largest: f64) -> f64 {
        match self {
            Budget::Atoms(s) => s,
            Budget::Norm => sum / squares.sqrt(),
            Budget::Largest => sum / largest,
        }
    }

    /// The most of `atoms` atoms that can be above the level.
    fn most_above(self, atoms: usize) -> usize {
        match self {
            Budget::Atoms(s) => atoms.min(s as usize),
            Budget::Norm | Budget::Largest => 0,
        }
    }

    /// The largest expected number of drawn atoms, of `atoms`.
    fn expected(self, atoms: usize) -> usize {
        match self {
            Budget::Atoms(s) => atoms.min(s.ceil() as usize),
            Budget::Norm => atoms.isqrt() + 1,
            Budget::Largest => atoms,
        }
    }
}

/// The probability of each weight: the budget times its share of the sum. A weight whose
/// probability would exceed 1 gets 1, and is removed from the sum with 1 of the budget.
fn probabilities(weights: &[f32], mut budget: f64, found: &mut Vec<f64>) {
    found.clear();
    found.resize(weights.len(), 0.0);
    let sum = loop {
        let open = found.iter_mut().zip(weights).filter(|(p, _)| **p < 1.0);
        let mut open: Vec<_> = open.map(|(p, &weight)| (p, f64::from(weight))).collect();
        let sum: f64 = open.iter().map(|(_, weight)| weight).sum();
        let whole = budget;
        for (p, weight) in &mut open {
            if *weight * whole > sum && budget > 1.0 {
                **p = 1.0;
                budget -= 1.0;
            }
        }
        if budget == whole {
            break sum;
        }
    };
    for (p, &weight) in found.iter_mut().zip(weights).filter(|(p, _)| **p < 1.0) {
        *p = if weight > 0.0 { (f64::from(weight) * budget / sum).min(1.0) } else { 0.0 };
    }
}

/// The upper bits of a word that are compared with a probability.
const DRAWN_BITS: u32 = 24;

/// How many of 2²⁴ draws select an atom with this probability, rounded up.
fn chances(p: f64) -> u32 {
    (p * f64::from(1u32 << DRAWN_BITS)).ceil() as u32
}

/// The sides of the matrix.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sides {
    rows: usize,
    columns: usize,
}

impl Sides {
    /// The sides of the matrix of a non-empty tensor; `None` for a vector.
    fn of(shape: &[usize], elements: usize) -> Option<Self> {
        let rows = *shape.first().filter(|_| shape.len() > 1)?;
        Some(Self { rows, columns: elements / rows })
    }

    fn shorter(self) -> usize {
        self.rows.min(self.columns)
    }

    /// Numbers in an atom.
    fn atom(self) -> usize {
        self.rows + self.columns
    }

    /// Whether this number of atoms is shorter than the matrix.
    fn pays(self, atoms: f64) -> bool {
        atoms * (self.atom() as f64) < self.rows as f64 * self.columns as f64
    }

    /// Writes the elements of the sum of atoms from index `start` on.
    fn product(self, atoms: &[f32], start: usize, out: &mut [f32]) {
        out.fill(0.0);
        for atom in atoms.chunks(self.atom()) {
            let (left, right) = atom.split_at(self.rows);
            let mut done = 0;
            while done < out.len() {
                let (row, column) = ((start + done) / self.columns, (start + done) % self.columns);
                let here = (self.columns - column).min(out.len() - done);
                kernels::add_scaled(&mut out[done..done + here], &right[column..], left[row]);
                done += here;
            }
        }
    }
}

impl Atomo {
    fn budget(&self) -> Budget {
        match self.norm {
            None => Budget::Atoms(self.s),
            Some(Norm::Euclidean) => Budget::Norm,
            Some(Norm::Max) => Budget::Largest,
        }
    }

    /// The level from which entries are sent for certain.
    fn level(&self, source: &mut Source<'_>, helpers: &mut Helpers) -> f32 {
        match self.budget() {
            Budget::Atoms(s) => drawn::level(source, s, helpers),
            Budget::Norm => {
                let mut squares = 0f64;
                source.peek_blocks(|_, block| {
                    squares += block.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
                });
                drawn::rounded_up(squares.sqrt())
            }
            Budget::Largest => source.abs_max(),
        }
    }

    /// The matrix, if atoms may be shorter and none can overflow.
    fn sides(&self, source: &Source<'_>, shape: &[usize]) -> Option<Sides> {
        let least = if let Budget::Atoms(s) = self.budget() { s } else { 1.0 };
        Sides::of(shape, source.len())
            .filter(|sides| sides.pays(least.min(sides.shorter() as f64)))
            .filter(|_| source.abs_max() < HUGE)
    }

    /// Decomposes and draws: writes the atoms to send to the workspace's [`Atoms`]. Returns false
    /// if the tensor must be sent uncompressed.
    fn draw(
        &self,
        source: &mut Source<'_>,
        sides: Sides,
        context: &Context<'_>,
        workspace: &mut Workspace,
    ) -> bool {
        let Workspace { random, own, helpers, .. } = workspace;
        let Atoms { numbers, matrix, svd, probabilities: found, short, long } = own.get();
        numbers.clear();
        if source.abs_max() == 0.0 {
            return true;
        }
        // Scales by a power of two: the largest gets between 1 and 2.
        let exponent = (f64::from(source.abs_max()).to_bits() >> 52) as i32 - 1023;
        let power = |exponent: i32| f64::from_bits(((1023 + exponent) as u64) << 52);
        let down = power(-exponent);
        let scaled = |&x: &f32| (f64::from(x) * down) as f32;
        matrix.clear();
        source.peek_blocks(|_, block| matrix.extend(block.iter().map(scaled)));
        let matrix = Matrix { values: matrix, rows: sides.rows, columns: sides.columns };
        if !svd.decompose(matrix, self.rank, &mut context.rng(1), helpers) {
            return false;
        }
        self.find_probabilities(svd, sides, found);
        if !sides.pays(found.iter().sum()) {
            return false;
        }
        random.clear();
        random.resize(sides.shorter(), 0);
        context.rng(0).fill_from(0, random);
        let is_drawn = |at: usize| random[at] >> (32 - DRAWN_BITS) < chances(found[at]);
        let drawn = || (0..sides.shorter()).filter(|&at| is_drawn(at));
        short.clear();
        long.clear();
        let singular = svd.values.len();
        drawn().take_while(|&at| at < singular).for_each(|at| svd.vectors(at, matrix, short, long));
        let others = drawn().filter(|&at| at >= singular).count();
        svd.directions(others, matrix, &mut context.rng(2), (&mut *short, &mut *long), helpers);
        let pairs =
            short.chunks_exact_mut(matrix.short()).zip(long.chunks_exact_mut(matrix.long()));
        for (at, (short, long)) in drawn().zip(pairs) {
            // The product has the length of the atom; a right vector has length 1.
            let (left, right) =
                if sides.rows <= sides.columns { (short, long) } else { (long, short) };
            let length = kernels::sum_of_squares(right).sqrt();
            // Divides by the probability of being drawn.
            let p = f64::from(chances(found[at])) / f64::from(1u32 << DRAWN_BITS);
            let along = length / p * power(exponent);
            numbers.extend(left.iter().map(|&u| (along * f64::from(u)) as f32));
            let inverse = if length > 0.0 { 1.0 / length } else { 0.0 };
            numbers.extend(right.iter().map(|&v| (inverse * f64::from(v)) as f32));
        }
        true
    }

    /// The probability of each atom: the found singular vectors, then directions of the rest, with
    /// equal shares of its norm.
    fn find_probabilities(&self, svd: &mut Svd, sides: Sides, found: &mut Vec<f64>) {
        let singular = svd.values.len();
        let share = svd.rest / ((sides.shorter() - singular).max(1) as f64).sqrt();
        svd.values.resize(sides.shorter(), share as f32);
        let sigma = |f: fn(f64) -> f64| svd.values.iter().map(|&x| f(f64::from(x))).sum::<f64>();
        let largest = svd.values.iter().copied().fold(0.0, f32::max);
        let budget = self.budget().of(sigma(|x| x), sigma(|x| x * x), f64::from(largest));
        probabilities(&svd.values, budget, found);
        svd.values.truncate(singular);
    }
}

/// Appends the atoms, and subtracts their sum from the tensor.
fn put_atoms(source: &mut Source<'_>, sides: Sides, atoms: &[f32], message: &mut Vec<u8>) {
    message.push(ATOMS);
    varint::write((atoms.len() / sides.atom()) as u64, message);
    fields::put_f32s(atoms, message);
    if source.keeps_residual() {
        let mut sent = [0.0; BLOCK];
        source.take_blocks(|offset, block| {
            let sent = &mut sent[..block.len()];
            sides.product(atoms, offset, sent);
            block.iter_mut().zip(sent).for_each(|(x, sent)| *x -= *sent);
        });
    }
}

/// Appends the uncompressed elements.
fn put_plain(source: &mut Source<'_>, message: &mut Vec<u8>) {
    message.push(PLAIN);
    source.take_blocks(|_, block| {
        fields::put_f32s(block, message);
        block.fill(0.0);
    });
}

/// The buffers of a draw.
#[derive(Debug, Default)]
struct Atoms {
    /// The atoms to send, each a left vector times its coefficient and a right one.
    numbers: Vec<f32>,
    /// The scaled matrix.
    matrix: Vec<f32>,
    svd: Svd,
    /// The probability of each atom.
    probabilities: Vec<f64>,
    /// The drawn vectors of the shorter side, and their products with the matrix.
    short: Vec<f32>,
    long: Vec<f32>,
}

impl Compressor for Atomo {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        let elements = source.len();
        workspace.positions.clear();
        if elements == 0 {
            return Coverage::All;
        }
        if self.entries {
            let (level, expected) =
                (self.level(source, &mut workspace.helpers), self.budget().expected(elements));
            drawn::encode(source, context, level, expected, workspace, message);
            return Coverage::Positions;
        }
        match self.sides(source, context.shape) {
            Some(sides) if self.draw(source, sides, context, workspace) => {
                put_atoms(source, sides, &workspace.own::<Atoms>().numbers, message);
            }
            _ => put_plain(source, message),
        }
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, context, weight, workspace, out } = args;
        let elements = out.len();
        if elements == 0 {
            return fields::expect_len(message, 0);
        }
        if self.entries {
            let [most, expected] =
                [self.budget().most_above(elements), self.budget().expected(elements)];
            return drawn::decode_add(message, most, expected, weight, workspace, out);
        }
        let sides = Sides::of(context.shape, elements);
        let (sides, count) = match (fields::take(&mut message, 1)?[0], sides) {
            (ATOMS, Some(sides)) => (sides, varint::read(&mut message)?),
            (PLAIN, _) => {
                fields::expect_len(message, 4 * elements)?;
                kernels::f32_add(message, weight, out);
                return Ok(());
            }
            _ => {
                return Err(DecodeError::Corrupt(
                    "the tag is unknown, or does not fit the tensor's shape",
                ));
            }
        };
        if count > sides.shorter() as u64 {
            return Err(DecodeError::Corrupt("there are more atoms than singular vectors"));
        }
        fields::expect_len(message, 4 * count as usize * sides.atom())?;
        let Atoms { numbers: atoms, .. } = workspace.own();
        atoms.clear();
        atoms.try_reserve(message.len() / 4)?;
        atoms.extend(message.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        if !atoms.iter().all(|x| x.is_finite()) {
            return Err(DecodeError::Corrupt("an atom is not finite"));
        }
        let mut sum = [0.0; BLOCK];
        for (at, out) in out.chunks_mut(BLOCK).enumerate() {
            let sum = &mut sum[..out.len()];
            sides.product(atoms, at * BLOCK, sum);
            kernels::add_scaled(out, sum, weight);
        }
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        if self.entries {
            return drawn::max_len(self.budget().most_above(elements), elements);
        }
        // All atoms of m × n are min(m, n)·(m + n) numbers, at most 2·m·n.
        1 + varint::len(elements as u64) + elements.saturating_mul(8)
    }
}

#[cfg(test)]
mod tests;
