//! The quantizer of least squared error for normally distributed values.
//!
//! Lloyd (1982) and Max (1960): each level is the mean of the values nearest to it. The table comes
//! from Newton's method in double precision.

/// The positive levels of 1 to 8 bits, for a variance of 1; the others are their negatives.
pub static LEVELS: [&[f32]; 8] = [
    &[0.7978846],
    &[0.45278004, 1.5104176],
    &[0.24509418, 0.7560053, 1.3439093, 2.1519456],
    &[0.12839504, 0.3880483, 0.65675914, 0.94234043, 1.2562312, 1.6180464, 2.0690172, 2.7325895],
    &[
        0.06588966, 0.19805183, 0.3313783, 0.4666995, 0.6049336, 0.7471357, 0.8945651, 1.0487833,
        1.2118044, 1.3863404, 1.576228, 1.7872332, 2.0287285, 2.3177395, 2.6911197, 3.2607324,
    ],
    &[
        0.033409506,
        0.10027829,
        0.1672969,
        0.23456699,
        0.30219284,
        0.37028265,
        0.43894967,
        0.5083138,
        0.578503,
        0.6496556,
        0.7219219,
        0.7954677,
        0.8704766,
        0.94715494,
        1.0257363,
        1.1064882,
        1.1897202,
        1.2757945,
        1.365141,
        1.4582764,
        1.5558312,
        1.6585889,
        1.7675419,
        1.8839773,
        2.0096111,
        2.1468103,
        2.2989812,
        2.471305,
        2.6722739,
        2.9174068,
        3.240437,
        3.7441013,
    ],
    &[
        0.01682817,
        0.050490864,
        0.08417264,
        0.11788628,
        0.15164465,
        0.18546072,
        0.21934764,
        0.25331873,
        0.28738755,
        0.32156795,
        0.35587403,
        0.3903203,
        0.42492166,
        0.45969343,
        0.49465147,
        0.5298122,
        0.56519264,
        0.6008105,
        0.6366843,
        0.6728333,
        0.70927787,
        0.74603915,
        0.78313965,
        0.82060295,
        0.8584542,
        0.89671993,
        0.9354285,
        0.97461,
        1.0142967,
        1.0545232,
        1.0953267,
        1.1367474,
        1.1788286,
        1.2216175,
        1.2651651,
        1.3095276,
        1.3547662,
        1.4009485,
        1.448149,
        1.49645,
        1.5459437,
        1.5967331,
        1.6489339,
        1.702677,
        1.7581115,
        1.8154078,
        1.8747625,
        1.9364046,
        2.0006018,
        2.0676715,
        2.1379933,
        2.2120275,
        2.2903392,
        2.3736343,
        2.4628115,
        2.5590405,
        2.6638865,
        2.7795143,
        2.9090471,
        3.0572462,
        3.231933,
        3.4474304,
        3.7349367,
        4.189694,
    ],
    &[
        0.008446193,
        0.025339384,
        0.042234983,
        0.059134603,
        0.07603986,
        0.092952356,
        0.10987372,
        0.12680559,
        0.14374956,
        0.16070732,
        0.17768049,
        0.19467075,
        0.21167976,
        0.2287092,
        0.24576078,
        0.26283622,
        0.27993724,
        0.2970656,
        0.31422305,
        0.3314114,
        0.34863243,
        0.365888,
        0.38317996,
        0.40051022,
        0.41788065,
        0.4352932,
        0.45274988,
        0.47025266,
        0.4878036,
        0.5054048,
        0.5230583,
        0.5407663,
        0.55853105,
        0.5763547,
        0.5942396,
        0.6121881,
        0.6302026,
        0.6482855,
        0.6664394,
        0.68466675,
        0.70297027,
        0.72135264,
        0.7398166,
        0.75836504,
        0.77700084,
        0.795727,
        0.8145467,
        0.833463,
        0.8524793,
        0.8715989,
        0.8908253,
        0.91016203,
        0.92961293,
        0.9491818,
        0.9688726,
        0.98868936,
        1.0086365,
        1.0287182,
        1.0489392,
        1.0693042,
        1.0898181,
        1.110486,
        1.1313132,
        1.1523054,
        1.1734682,
        1.1948076,
        1.2163299,
        1.2380418,
        1.2599499,
        1.2820615,
        1.304384,
        1.3269253,
        1.3496937,
        1.3726976,
        1.3959464,
        1.4194493,
        1.4432166,
        1.4672587,
        1.491587,
        1.5162132,
        1.5411496,
        1.5664098,
        1.5920075,
        1.6179578,
        1.6442765,
        1.6709803,
        1.6980875,
        1.7256169,
        1.7535894,
        1.7820269,
        1.8109531,
        1.8403933,
        1.8703752,
        1.900928,
        1.9320842,
        1.9638784,
        1.9963485,
        2.0295358,
        2.0634851,
        2.0982466,
        2.1338742,
        2.1704283,
        2.2079754,
        2.24659,
        2.2863545,
        2.3273618,
        2.3697171,
        2.4135387,
        2.4589622,
        2.5061426,
        2.5552595,
        2.6065214,
        2.660174,
        2.7165077,
        2.7758706,
        2.8386858,
        2.905473,
        2.9768822,
        3.053742,
        3.1371326,
        3.2285001,
        3.3298485,
        3.4440718,
        3.575588,
        3.7316663,
        3.9256377,
        4.1865954,
        4.6035357,
    ],
];

/// The limits between the positive levels of this many bits: the midpoints, one fewer than the
/// levels; zeros follow.
pub fn limits(bits: u32) -> [f32; 127] {
    let mut limits = [0.0; 127];
    for (limit, pair) in limits.iter_mut().zip(LEVELS[bits as usize - 1].windows(2)) {
        *limit = ((f64::from(pair[0]) + f64::from(pair[1])) / 2.0) as f32;
    }
    limits
}

/// The value of each number of `bits` bits: the positive levels, then the negative ones.
pub fn numbers(bits: u32) -> [f32; 256] {
    let levels = LEVELS[bits as usize - 1];
    let mut numbers = [0.0; 256];
    for (at, &level) in levels.iter().enumerate() {
        (numbers[at], numbers[levels.len() + at]) = (level, -level);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The integrals of x^power times the density of the standard normal distribution, by Simpson's
    /// rule.
    fn integral(power: i32, from: f64, to: f64) -> f64 {
        let steps = 2000;
        let width = (to - from) / f64::from(steps);
        let density = |x: f64| x.powi(power) * (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
        let weight = |at: i32| match at {
            0 => 1.0,
            _ if at == steps => 1.0,
            _ => 2.0 + 2.0 * f64::from(at % 2),
        };
        let sum: f64 =
            (0..=steps).map(|at| weight(at) * density(from + f64::from(at) * width)).sum();
        sum * width / 3.0
    }

    #[test]
    fn levels_are_the_means_of_what_is_nearest() {
        // The errors of the unbiased quantizer that Vargaftik et al. state.
        let stated = [0.571, 0.133, 0.0358, 0.00959];
        for bits in 1..=8 {
            let (levels, limits) = (LEVELS[bits - 1], limits(bits as u32));
            assert_eq!(levels.len(), 1 << (bits - 1));
            let mut captured = 0.0;
            for (at, &level) in levels.iter().enumerate() {
                let from = if at == 0 { 0.0 } else { f64::from(limits[at - 1]) };
                let last = at + 1 == levels.len();
                let to = if last { 12.0 } else { f64::from(limits[at]) };
                let mass = integral(0, from, to);
                let mean = integral(1, from, to) / mass;
                assert!((mean - f64::from(level)).abs() < 1e-6, "{bits} bits: {level} for {mean}");
                captured += 2.0 * mass * mean * mean;
            }
            if let Some(stated) = stated.get(bits - 1) {
                let error: f64 = 1.0 / captured - 1.0;
                assert!((error / stated - 1.0).abs() < 0.002, "{bits} bits: {error}");
            }
        }
    }

    #[test]
    fn numbers_are_levels_of_both_signs() {
        assert_eq!(numbers(1)[..3], [0.797_884_6, -0.797_884_6, 0.0]);
        assert_eq!(numbers(2)[..4], [0.452_780_04, 1.510_417_6, -0.452_780_04, -1.510_417_6]);
        assert_eq!(limits(1)[0], 0.0);
        assert_eq!(limits(2)[..2], [0.981_598_8, 0.0]);
    }
}
