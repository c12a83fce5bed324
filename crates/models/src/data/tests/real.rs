use super::image_set;
use crate::data::tests::real_data::real_data;
use crate::data::{Content, Verdict, catalogue, load};

fn near(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < tolerance, "{found} is not {expected}");
    }
}

fn per_class(labels: &[u16]) -> Vec<usize> {
    (0..10).map(|class| labels.iter().filter(|&&label| label == class).count()).collect()
}

fn all_match(name: &str, dir: &std::path::Path) {
    let known = catalogue().into_iter().find(|known| known.name == name).unwrap();
    let verdicts = known.verify(dir).unwrap();
    assert!(verdicts.iter().all(|(_, verdict)| *verdict == Verdict::Matches), "{verdicts:?}");
}

#[test]
fn mnist() {
    let Some(dir) = real_data("mnist") else { return };
    all_match("mnist", &dir);
    let data = load(&dir).unwrap();
    assert_eq!((image_set(&data).train.len(), image_set(&data).test.len()), (60_000, 10_000));
    assert_eq!((image_set(&data).train.shape(), image_set(&data).train.classes), ([1, 28, 28], 10));
    assert_eq!(image_set(&data).train.labels[..5], [5, 0, 4, 1, 9]);
    assert_eq!(image_set(&data).test.labels[..5], [7, 2, 1, 0, 4]);
    // The usual moments for normalising MNIST.
    near(&image_set(&data).mean, &[0.1307], 1e-4);
    near(&image_set(&data).std, &[0.3081], 1e-4);
}

#[test]
fn cifar10_from_jpeg_files() {
    let Some(dir) = real_data("cifar10-jpg") else { return };
    all_match("cifar10-jpg", &dir);
    let data = load(&dir).unwrap();
    assert_eq!((image_set(&data).train.len(), image_set(&data).test.len()), (50_000, 10_000));
    assert_eq!((image_set(&data).train.shape(), image_set(&data).train.classes), ([3, 32, 32], 10));
    assert_eq!(per_class(&image_set(&data).train.labels), [5_000; 10]);
    assert_eq!(per_class(&image_set(&data).test.labels), [1_000; 10]);
    assert_eq!(image_set(&data).test.labels[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    // CIFAR-10's usual moments; compression to JPEG moves them a little.
    near(&image_set(&data).mean, &[0.4914, 0.4822, 0.4465], 2e-3);
    near(&image_set(&data).std, &[0.2470, 0.2435, 0.2616], 3e-3);
}

fn sizes(name: &str) -> Option<(usize, usize, usize)> {
    let dir = real_data(name)?;
    all_match(name, &dir);
    let data = load(&dir).unwrap();
    let text = data.text().unwrap();
    assert!(text.train.iter().all(|&token| (token as usize) < text.vocabulary.len()));
    Some((text.train.len(), text.test.len(), text.vocabulary.len()))
}

#[test]
fn texts() {
    // The paper on sparse binary compression tests on the same number of characters of Shakespeare.
    for (name, expected) in [
        ("shakespeare-complete", (5_178_120, 105_675, 80)),
        ("tinyshakespeare", (1_093_087, 22_307, 65)),
        // 929589 and 82430 words are the usual numbers for the Penn Treebank.
        ("ptb", (929_589, 82_430, 10_000)),
    ] {
        assert!(sizes(name).is_none_or(|found| found == expected), "{name}");
    }
}

#[test]
fn movielens() {
    let Some(dir) = real_data("movielens-100k") else { return };
    all_match("movielens-100k", &dir);
    let data = load(&dir).unwrap();
    let Content::Ratings(ratings) = &data.content else { panic!("{:?}", data.content) };
    assert_eq!((ratings.users, ratings.items), (943, 1682));
    // All of the hundred thousand except one per user.
    assert_eq!((ratings.train.len(), ratings.test.len()), (100_000 - 943, 943));
    assert!(ratings.test.iter().all(|question| question.items.len() == 100));
}
