use super::image_set;
use crate::data::{Dataset, Images, embedded, embedded_sized, normalise};

#[test]
fn the_bytes_never_change() {
    // Frozen: results name this checksum as their data.
    assert_eq!(
        embedded(0).checksum,
        "d10514fedfa7a683202bf04cef90d9046eba9151fb535d8c13695061ab1e479d"
    );
    assert_ne!(embedded_sized(1, 20, 10).checksum, embedded_sized(0, 20, 10).checksum);
}

#[test]
fn classes_are_balanced_and_splits_differ() {
    let data = embedded(3);
    assert_eq!((image_set(&data).train.len(), image_set(&data).test.len()), (12_000, 2_000));
    for class in 0..10 {
        let count = |images: &Images| images.labels.iter().filter(|&&label| label == class).count();
        assert_eq!((count(&image_set(&data).train), count(&image_set(&data).test)), (1_200, 200));
    }
    assert_ne!(image_set(&data).train.image(0), image_set(&data).test.image(0));
    assert_ne!(image_set(&data).train.image(0), image_set(&data).train.image(10));
}

#[test]
fn fewer_images_are_the_first_of_more() {
    let (few, more) = (embedded_sized(5, 7, 3), embedded_sized(5, 30, 3));
    assert_eq!(image_set(&few).train.pixels, image_set(&more).train.pixels[..7 * 784]);
    assert_eq!(image_set(&few).test, image_set(&more).test);
}

#[test]
fn a_linear_model_learns_some_of_it_but_not_all() {
    let data = embedded_sized(0, 6_000, 2_000);
    let accuracy = softmax_regression(&data, 4);
    assert!((0.5..0.9).contains(&accuracy), "{accuracy}");
}

/// The test accuracy of softmax regression, trained by plain SGD on one image per step.
fn softmax_regression(data: &Dataset, epochs: usize) -> f32 {
    let set = image_set(data);
    let mut weights = vec![[0.0f32; 784]; 10];
    let mut x = [0.0; 784];
    let scores = |weights: &[[f32; 784]], x: &[f32; 784]| -> Vec<f32> {
        let dot = |row: &[f32; 784]| row.iter().zip(x).map(|(w, x)| w * x).sum();
        weights.iter().map(dot).collect()
    };
    for epoch in 0..epochs {
        let rate = 1e-3 / (1 + epoch) as f32;
        for (index, &label) in set.train.labels.iter().enumerate() {
            normalise(set.train.image(index), &set.mean, &set.std, &mut x);
            let scores = scores(&weights, &x);
            let top = scores.iter().copied().fold(f32::MIN, f32::max);
            let total: f32 = scores.iter().map(|score| (score - top).exp()).sum();
            for (class, row) in weights.iter_mut().enumerate() {
                let target = f32::from(u8::from(class == usize::from(label)));
                let error = (scores[class] - top).exp() / total - target;
                row.iter_mut().zip(&x).for_each(|(w, x)| *w -= rate * error * x);
            }
        }
    }
    let right = |index: &usize| {
        normalise(set.test.image(*index), &set.mean, &set.std, &mut x);
        let scores = scores(&weights, &x);
        let best = (0..10).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        best == Some(usize::from(set.test.labels[*index]))
    };
    (0..set.test.len()).filter(right).count() as f32 / set.test.len() as f32
}
