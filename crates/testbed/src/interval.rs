//! Confidence intervals of means.

use crate::summary::Spread;

/// The 97.5 % quantiles of Student's t distribution with 1 to 30 degrees of freedom.
const QUANTILES: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The 97.5 % quantile of Student's t distribution; `freedom` is at least 1.
fn quantile(freedom: usize) -> f64 {
    if let Some(quantile) = QUANTILES.get(freedom.saturating_sub(1)) {
        return *quantile;
    }
    // Cornish and Fisher's expansion about the normal quantile.
    let (z, n) = (1.959_964_f64, freedom as f64);
    z + (z.powi(3) + z) / (4.0 * n)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
}

impl Spread {
    /// The ends of the 95 % confidence interval of the mean, by Student's t with one degree of
    /// freedom less than there are values; `None` for one value.
    pub fn interval(&self) -> Option<(f64, f64)> {
        let freedom = self.count.checked_sub(1).filter(|freedom| *freedom > 0)?;
        let half = quantile(freedom) * self.sd / (self.count as f64).sqrt();
        Some((self.mean - half, self.mean + half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the table of the NIST/SEMATECH handbook of statistical methods, section 1.3.6.7.2.
    #[test]
    fn quantiles_are_those_of_a_printed_table() {
        for (freedom, expected) in
            [(1, 12.706), (2, 4.303), (9, 2.262), (30, 2.042), (40, 2.021), (60, 2.0), (100, 1.984)]
        {
            let found = quantile(freedom);
            assert!((found - expected).abs() < 6e-4, "{freedom}: {found}");
        }
    }

    #[test]
    fn an_interval_by_hand() {
        // Mean 2 and standard deviation 1: 2 ± 4.303 / √3.
        let (low, high) = Spread::of(&[1.0, 2.0, 3.0]).unwrap().interval().unwrap();
        assert!((low + 0.4843).abs() < 1e-3 && (high - 4.4843).abs() < 1e-3, "{low} {high}");
        assert_eq!(Spread::of(&[1.0]).unwrap().interval(), None);
    }
}
