//! Measured speeds of compression, on a GPU and on a core.

use gradwire::Spec;

/// The speed of a kernel, or of the kernels of one job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Kernel {
    /// Seconds of a million elements, which launches take.
    pub(crate) launch: f64,
    /// Bytes of float32 elements per second, with 250 million elements.
    pub(crate) rate: f64,
}

impl Kernel {
    const fn of(microseconds: f64, gigabytes: f64) -> Self {
        Self { launch: 1e-6 * microseconds, rate: 1e9 * gigabytes }
    }

    /// The seconds for which it keeps an H200 busy.
    pub(crate) fn busy(self, elements: f64) -> f64 {
        4.0 * elements / self.rate
    }
}

/// The kernels of a compressor, of tensors as a whole. Kernels of slices have not been measured;
/// one launch for all slices of a bucket is assumed to be as fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Kernels {
    pub(crate) compress: Kernel,
    pub(crate) add: Kernel,
}

/// Kernels on an H200, `results/gpu/h200.json`: µs of 2²⁰ elements and GB/s of 250 million
/// elements, compressing and adding.
const H200: [(&str, [f64; 4]); 13] = [
    ("fp16", [156.0, 1227.0, 58.0, 1261.0]),
    ("bf16", [161.0, 1340.0, 54.0, 1431.0]),
    ("int8", [219.0, 700.0, 55.0, 1413.0]),
    ("8bit", [196.0, 469.0, 55.0, 1502.0]),
    ("qsgd:s=7", [275.0, 637.0, 66.0, 1310.0]),
    ("natural", [185.0, 574.0, 54.0, 1087.0]),
    ("terngrad", [1059.0, 514.0, 64.0, 1289.0]),
    ("signsgd", [191.0, 1565.0, 60.0, 1527.0]),
    ("efsignsgd", [361.0, 495.0, 51.0, 1552.0]),
    ("onebit", [312.0, 494.0, 35.0, 1542.0]),
    ("3lc", [186.0, 619.0, 49.0, 1282.0]),
    ("eden", [127.0, 325.0, 74.0, 349.0]),
    ("eden:bits=4", [144.0, 300.0, 52.0, 361.0]),
];

/// One core of an AMD Zen 5, `results/bench/zen5-one-core.json`: GB/s of 21 million elements,
/// compressing and adding, with default parameters.
const ZEN5: [(&str, [f64; 2]); 14] = [
    ("none", [24.3, 20.4]),
    ("fp16", [31.3, 26.5]),
    ("bf16", [30.8, 26.6]),
    ("int8", [9.9, 24.5]),
    ("int4", [7.2, 22.6]),
    ("8bit", [3.2, 13.0]),
    ("qsgd", [9.6, 24.0]),
    ("natural", [6.0, 21.8]),
    ("terngrad", [10.3, 29.7]),
    ("signsgd", [41.8, 34.2]),
    ("efsignsgd", [9.1, 32.5]),
    ("onebit", [9.2, 33.3]),
    ("3lc", [8.8, 22.0]),
    ("eden", [6.2, 10.4]),
];

/// The measured kernels of a compressor: those of its parameters, otherwise those of the same
/// compressor with other parameters. `int4` has not been measured: with the transform it is assumed
/// to be as fast as `eden:bits=4`, without it as `int8`.
pub(crate) fn kernels(spec: &Spec) -> Option<Kernels> {
    let text = spec.clone().with_every(1).to_string();
    let stand_in = match (spec.entry().id, text.contains("hadamard=on")) {
        ("int4", true) => "eden:bits=4",
        ("int4", false) => "int8",
        _ => &text,
    };
    let id = |known: &&(&str, _)| known.0.split(':').next() == Some(spec.entry().id);
    let exact = H200.iter().find(|known| known.0 == stand_in);
    let (_, [launch, compress, adding, add]) = exact.or_else(|| H200.iter().find(id))?;
    Some(Kernels { compress: Kernel::of(*launch, *compress), add: Kernel::of(*adding, *add) })
}

/// The seconds per element of compressing and adding on a core.
pub(crate) fn core(spec: &Spec) -> Option<[f64; 2]> {
    let (_, rates) = ZEN5.iter().find(|(id, _)| *id == spec.entry().id)?;
    Some(rates.map(|gigabytes| 4e-9 / gigabytes))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use super::*;

    fn committed(file: &str) -> Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results").join(file);
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    /// A figure of the row with these two values.
    fn figure(rows: &Value, keys: [(&str, Value); 2], name: &str) -> f64 {
        let is = |row: &&Value| keys.iter().all(|(key, value)| row[key] == *value);
        rows.as_array().unwrap().iter().find(is).unwrap()[name].as_f64().unwrap()
    }

    fn near(stated: f64, measured: f64) {
        assert!((stated / measured - 1.0).abs() < 0.02, "{stated} {measured}");
    }

    #[test]
    fn speeds_are_those_of_the_committed_results() {
        let measured = committed("gpu/h200.json");
        for (spec, [launch, compress, adding, add]) in H200 {
            let of = |elements: u64, name: &str| {
                let keys = [("spec", spec.into()), ("elements", elements.into())];
                figure(&measured["speed"], keys, name)
            };
            let micros = |name| 4e-3 * 1_048_576.0 / of(1_048_576, name);
            near(launch, micros("encode_gb_per_s"));
            near(adding, micros("add_gb_per_s"));
            near(compress, of(250_000_000, "encode_gb_per_s"));
            near(add, of(250_000_000, "add_gb_per_s"));
        }
        let measured = committed("bench/zen5-one-core.json");
        for (id, [compress, add]) in ZEN5 {
            let keys = || [("compressor", id.into()), ("elements", 20_971_520_u64.into())];
            near(compress, figure(&measured, keys(), "compress_gbps"));
            near(add, figure(&measured, keys(), "decompress_gbps"));
        }
    }

    #[test]
    fn kernels_are_those_of_the_parameters_or_of_the_nearest_ones() {
        let rate = |spec: &str| kernels(&spec.parse().unwrap()).map(|one| one.compress.rate / 1e9);
        assert_eq!(
            (rate("eden"), rate("eden:bits=4"), rate("eden:bits=2")),
            (Some(325.0), Some(300.0), Some(325.0))
        );
        assert_eq!((rate("int4:hadamard=on"), rate("int4")), (Some(300.0), Some(700.0)));
        assert_eq!(
            (rate("eden:every=50"), rate("none"), rate("powersgd")),
            (Some(325.0), None, None)
        );
    }
}
