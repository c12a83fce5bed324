//! A tensor as blocks, and the cosine transforms of its blocks.

use gradwire_bits::DecodeError;

use crate::numeric::cosine::{Basis, MAX_SIDE, Transform};
use crate::numeric::matrix;

/// A tensor as blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    rows: usize,
    columns: usize,
    high: usize,
    wide: usize,
}

impl Blocks {
    /// The blocks of a non-empty tensor.
    pub(super) fn of(shape: &[usize], elements: usize) -> Self {
        let [rows, columns] = matrix::dimensions(shape).unwrap_or([1, elements]);
        Self { rows, columns, high: side(rows), wide: side(columns) }
    }

    /// The number of elements of a block.
    pub(super) fn size(&self) -> usize {
        self.high * self.wide
    }

    /// The fewest consecutive elements that are whole blocks: a row of blocks, or one block if the
    /// tensor is a single row.
    pub(super) fn unit(&self) -> usize {
        if self.rows == 1 { self.wide } else { self.high * self.columns }
    }

    /// The blocks of a part with this many elements, a multiple of the [unit](Self::unit).
    pub(super) fn of_part(self, elements: usize) -> Self {
        if self.rows == 1 {
            Self { columns: elements, ..self }
        } else {
            Self { rows: elements / self.columns, ..self }
        }
    }

    /// The offset of each block in the row of blocks that begins with row `top`.
    pub(super) fn starts(&self, top: usize) -> impl Iterator<Item = usize> + use<> {
        let first = top * self.columns;
        (first..first + self.columns).step_by(self.wide)
    }

    /// The first row of each row of blocks.
    pub(super) fn tops(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.rows).step_by(self.high)
    }

    /// The position of an element of a block.
    pub(super) fn place(&self, start: usize, at: usize) -> usize {
        start + at / self.wide * self.columns + at % self.wide
    }

    /// Copies the block with the offset `start`.
    pub(super) fn read(&self, from: &[f32], start: usize, block: &mut [f32]) {
        for (row, block) in block.chunks_exact_mut(self.wide).enumerate() {
            block.copy_from_slice(&from[start + row * self.columns..][..self.wide]);
        }
    }

    /// Adds a block times a weight at the offset `start`.
    pub(super) fn add(&self, block: &[f32], weight: f32, start: usize, to: &mut [f32]) {
        for (row, block) in block.chunks_exact(self.wide).enumerate() {
            let to = &mut to[start + row * self.columns..][..self.wide];
            to.iter_mut().zip(block).for_each(|(to, x)| *to += weight * x);
        }
    }
}

/// The largest divisor of a dimension up to [`MAX_SIDE`].
fn side(dimension: usize) -> usize {
    (1..=MAX_SIDE).rev().find(|side| dimension.is_multiple_of(*side)).unwrap_or(1)
}

/// The elements or coefficients of the largest block.
pub(super) type SquareBlock = [f32; MAX_SIDE * MAX_SIDE];

/// The matrices of the transforms, for the sides used so far.
#[derive(Debug, Default)]
pub(super) struct Bases(Vec<Basis>);

impl Bases {
    /// Adds the missing matrices of a tensor's blocks.
    pub(super) fn prepare(&mut self, blocks: &Blocks) -> Result<(), DecodeError> {
        for side in [blocks.high, blocks.wide] {
            if !self.0.iter().any(|basis| basis.side() == side) {
                self.0.try_reserve(1)?;
                self.0.push(Basis::new(side)?);
            }
        }
        Ok(())
    }

    /// The transform of blocks whose matrices are [prepared](Self::prepare).
    pub(super) fn transform(&self, blocks: &Blocks) -> Transform<'_> {
        let basis = |side| self.0.iter().find(|basis| basis.side() == side).expect("it was added");
        Transform::new(basis(blocks.high), basis(blocks.wide))
    }
}
