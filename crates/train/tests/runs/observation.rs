//! What an observer sees of a run: diagnoses and warnings.

use std::sync::Mutex;

use super::*;

#[test]
fn diagnoses_cover_every_layer_and_continue_after_a_resumption() {
    let (_folder, path) = checkpoint();
    let config = config("topk", "server").with(|c| (c.diagnose_every, c.steps) = (3, 10));
    let whole = train(&config);
    let steps: Vec<u64> = whole.diagnoses.iter().map(|diagnosis| diagnosis.step).collect();
    assert_eq!(steps, [3, 6, 9, 10]);
    assert_eq!((whole.layers.len(), whole.layers[0].name.as_str()), (6, "fc1.weight"));
    // 2352 values of four bytes with their positions, three times.
    let layer = &whole.diagnoses[0].layers[0];
    assert!((3 * 2352 * 5 - 300..3 * 2352 * 6).contains(&layer.bytes), "{}", layer.bytes);
    assert!(layer.residual > 0.0 && layer.gradient > 0.0 && layer.histogram.is_some());
    // The last bias is sent uncompressed and has no residual.
    let raw = &whole.diagnoses[0].layers[5];
    assert_eq!((raw.residual, raw.bytes, &raw.histogram), (0.0, 3 * 40, &None));
    stop(&config, 5, &path);
    assert_eq!(resume(&config, &path).unwrap().diagnoses, whole.diagnoses);
}

/// Keeps its warnings.
#[derive(Default)]
struct Warned(Mutex<Vec<String>>);

impl Observer for Warned {
    fn warned(&self, warning: &str) {
        self.0.lock().unwrap().push(warning.to_owned());
    }
}

#[test]
fn momentum_in_both_memory_and_optimizer_gives_a_warning() {
    let warnings = |compressor: &str, optimizer: &str| {
        let config = config(compressor, "server")
            .with(|c| (c.optimizer, c.steps) = (optimizer.parse().unwrap(), 2));
        let warned = Warned::default();
        run(&config, &warned, &RunOptions::default()).unwrap();
        warned.0.into_inner().unwrap()
    };
    assert!(warnings("dgc", "momentum")[0].contains("momentum in its memory"));
    for (compressor, optimizer) in
        [("dgc", "sgd"), ("dgc:momentum=0", "momentum"), ("topk", "momentum")]
    {
        assert!(warnings(compressor, optimizer).is_empty(), "{compressor}, {optimizer}");
    }
}
