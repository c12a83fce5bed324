//! Small generated data sets, one for each kind of task and size of images.

use gradwire::Rng;
use gradwire_models::data::{Content, Dataset, ImageSet, Images, Ratings, Text, Unit};
use gradwire_models::models::ModelKind;
use gradwire_models::tasks::TaskConfig;
use gradwire_models::{ModelSpec, TaskKind};

/// Data that a model can learn from; `None` for a model of another crate that learns from none of
/// gradwire's kinds of data.
pub(super) fn data_for(model: &ModelSpec, config: &TaskConfig) -> Option<Dataset> {
    let content = match model.learns() {
        TaskKind::Text => vec![Content::Text(text())],
        TaskKind::Ratings => vec![Content::Ratings(ratings())],
        TaskKind::Segmentation => vec![images([1, 32, 32], true)],
        TaskKind::Images => sizes(model).map(|shape| images(shape, false)).collect(),
        TaskKind::Other => {
            let images = [[1, 28, 28], [3, 32, 32]].map(|shape| images(shape, false));
            images.into_iter().chain([Content::Text(text()), Content::Ratings(ratings())]).collect()
        }
    };
    let named = |content| Dataset { name: "marks".to_owned(), checksum: String::new(), content };
    let fits = |data: &Dataset| {
        let task = model.task(data);
        task.is_ok_and(|task| task.check(config).is_ok() && task.replica(config, 0, None).is_ok())
    };
    content.into_iter().map(named).find(fits)
}

/// Sizes of images; a model takes the first that is large enough: MNIST's for LeNet-5 and networks
/// without convolutions, then CIFAR's and ImageNet's.
fn sizes(model: &ModelSpec) -> impl Iterator<Item = [usize; 3]> {
    let grey = matches!(model.own(), Some(ModelKind::Mlp { .. } | ModelKind::LeNet5 { .. }));
    let first = if grey { [1, 28, 28] } else { [3, 32, 32] };
    [first, [3, 64, 64], [3, 224, 224]].into_iter()
}

/// Images of ten classes, or with masks of two.
pub(super) fn images(shape: [usize; 3], masks: bool) -> Content {
    let some = |count, split| {
        let [channels, height, width] = shape;
        let mut rng = Rng::new(0, 0, split, 0, 1);
        let pixels = (0..count * channels * height * width).map(|_| rng.below(256) as u8).collect();
        let classes: usize = if masks { 2 } else { 10 };
        let labels = if masks { count * height * width } else { count };
        let labels = (0..labels).map(|at| (at % classes) as u16).collect();
        Images { channels, height, width, classes, pixels, labels }
    };
    Content::Images(ImageSet::new(some(40, 0), some(10, 1)))
}

/// A text of 60 symbols.
fn text() -> Text {
    let tokens = |count: usize, split| {
        let mut rng = Rng::new(0, 0, split, 0, 2);
        (0..count).map(|_| rng.below(60) as u32).collect()
    };
    Text {
        unit: Unit::Characters,
        vocabulary: (0..60).map(|symbol| symbol.to_string()).collect(),
        train: tokens(20_000, 0),
        test: tokens(1_000, 1),
    }
}

/// Ratings of 40 users, twelve each.
fn ratings() -> Ratings {
    let mut rng = Rng::new(0, 0, 0, 0, 3);
    let lines: Vec<_> =
        (0..480).map(|at| (at % 40, rng.below(300) as u32, u64::from(at))).collect();
    Ratings::new(&lines)
}
