//! The data: points on the arms of a spiral, with noise.

use std::f32::consts::TAU;

use gradwire::Rng;
use gradwire_models::data::{Dataset, Known};

/// The arms, which are the classes.
pub const ARMS: usize = 3;

/// The entry that gradwire's catalogue of data sets takes.
pub static POINTS: Known = Known::generated(
    "spirals/points",
    "points on three arms of a spiral, 3000 + 600; generated, needs no files",
    || {
        let points = points();
        let numbers = [&points.train, &points.test].into_iter().flatten();
        let bytes: Vec<u8> = numbers
            .flat_map(|(point, arm)| [point[0].to_bits(), point[1].to_bits(), *arm])
            .flat_map(u32::to_le_bytes)
            .collect();
        Ok(Dataset::of_crate("spirals/points", &bytes, points))
    },
);

/// Points, each with its arm.
#[derive(Debug)]
pub struct Points {
    /// For training.
    pub train: Vec<([f32; 2], u32)>,
    /// For testing.
    pub test: Vec<([f32; 2], u32)>,
}

/// The points, always the same.
pub fn points() -> Points {
    Points { train: some(3000, 0), test: some(600, 1) }
}

fn some(count: usize, split: u32) -> Vec<([f32; 2], u32)> {
    let mut rng = Rng::new(0, 0, split, 0, 0);
    let mut point = |at: usize| {
        let arm = at % ARMS;
        let radius = 0.1 + 0.9 * rng.uniform();
        let angle = TAU * (radius + arm as f32 / ARMS as f32) + 0.1 * rng.normal();
        ([radius * angle.cos(), radius * angle.sin()], arm as u32)
    };
    (0..count).map(&mut point).collect()
}
