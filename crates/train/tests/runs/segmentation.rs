//! Whole runs on images with masks.

use super::*;
use gradwire_models::data::{ImageSet, Images, embedded_sized};

/// Noise with a bright square, whose pixels are marked.
fn squares(count: usize, seed: u64) -> Images {
    let mut rng = gradwire::Rng::new(seed, 0, 0, 0, 0);
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let [top, left] = [0; 2].map(|_| rng.below(9) as usize);
        for at in 0..256 {
            let inside =
                (top..top + 8).contains(&(at / 16)) && (left..left + 8).contains(&(at % 16));
            pixels.push((rng.below(100) + if inside { 150 } else { 0 }) as u8);
            labels.push(u16::from(inside));
        }
    }
    Images { channels: 1, height: 16, width: 16, classes: 2, pixels, labels }
}

fn data() -> Arc<Dataset> {
    let content = Content::Images(ImageSet::new(squares(20, 1), squares(6, 2)));
    let (name, checksum) = ("squares".to_owned(), "of squares".to_owned());
    Arc::new(Dataset { name, checksum, content })
}

fn config(model: &str, data: Arc<Dataset>) -> RunConfig {
    super::text::config("none").with(|c| {
        c.model = model.parse().unwrap();
        c.data = data;
        c.batch = 4;
        c.steps = 12;
        c.optimizer = "rmsprop".parse().unwrap();
        c.learning_rate = "0.001".parse().unwrap();
        c.clip = None;
        c.evaluate_every = 0;
    })
}

#[test]
fn a_model_learns_to_find_squares() {
    let record = train(&config("unet", data()));
    assert_eq!(record.metric, Metric::Iou);
    assert!(record.quality > 0.4, "IoU {}", record.quality);
    let evaluation = record.evaluations.last().unwrap();
    assert_eq!(evaluation.examples, 6 * 256);
    assert_eq!(Metric::Iou.show(record.quality), format!("{:.2} %", record.quality * 100.0));
}

#[test]
fn models_and_splits_that_do_not_fit_masks_are_refused() {
    let refused = |config: RunConfig, word: &str| refused(&config, &[word]);
    refused(config("lenet5", data()), "choose unet");
    refused(config("unet", Arc::new(embedded_sized(0, 40, 10))), "images by masks");
    refused(config("unet", data()).with(|c| c.augment = Some(true)), "not their masks");
    refused(config("unet", data()).with(|c| c.split = "classes".parse().unwrap()), "use shared");
}
