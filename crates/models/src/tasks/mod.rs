//! What models learn from a data set: which settings and splits fit it, and the [`Replica`] that a worker trains.

mod images;
mod metric;
mod order;
mod ratings;
mod replica;
mod sampler;
mod text;
mod text_batches;

use crate::data::{Content, Dataset};
use crate::models::{ModelError, ModelKind};
use crate::{Split, TaskKind};

pub use metric::Metric;
pub use replica::Replica;

/// The settings of a run that its task depends on.
#[derive(Debug, Clone, Copy)]
pub struct TaskConfig {
    /// The model to train.
    pub model: ModelKind,
    /// Number of workers, at least 1.
    pub workers: usize,
    /// Examples per worker and step; of text, streams that a worker reads side by side. At least 1.
    pub batch: usize,
    /// Whether training images are randomly cropped, flipped or shifted.
    pub augment: bool,
    /// Seeds the order of the examples and every other draw of the task.
    pub seed: u64,
}

/// Refuses a model that is for other data, settings the task cannot be trained with, and data too few to train or to
/// evaluate on.
///
/// # Errors
/// The reason, with what to change.
pub fn check(data: &Dataset, config: &TaskConfig) -> Result<(), String> {
    let (name, kind) = (&data.name, data.task());
    if config.model.task() != kind {
        let error = config.model.not_for(kind);
        return Err(format!("data set '{name}' holds {kind}, but {error}"));
    }
    match kind {
        TaskKind::Segmentation if config.augment => {
            Err("crops and flips would change images but not their masks; leave them off"
                .to_owned())
        }
        TaskKind::Text | TaskKind::Ratings if config.augment => {
            Err(format!("crops and flips are for images; leave them off for {kind}"))
        }
        _ => match &data.content {
            Content::Images(images) if images.train.is_empty() || images.test.is_empty() => {
                Err("the data set needs at least one training and one test image".to_owned())
            }
            Content::Text(text) => text_batches::check(name, text, config),
            _ => Ok(()),
        },
    }
}

/// What the quality of its models is measured in.
pub fn metric(data: &Dataset) -> Metric {
    match data.task() {
        TaskKind::Images => Metric::Accuracy,
        TaskKind::Segmentation => Metric::Iou,
        TaskKind::Text => Metric::Perplexity,
        TaskKind::Ratings => Metric::HitRate,
    }
}

/// The number of training examples: images, tokens or ratings.
fn examples(data: &Dataset) -> usize {
    match &data.content {
        Content::Images(images) => images.train.len(),
        Content::Text(text) => text.train.len(),
        Content::Ratings(ratings) => ratings.train.len(),
    }
}

/// Steps in which `workers` with batches of `batch` examples (streams, of text) see the training set once.
pub fn steps_per_epoch(data: &Dataset, workers: usize, batch: usize) -> f64 {
    match &data.content {
        Content::Text(text) => {
            text_batches::steps_per_epoch(text.train.len(), workers, batch).max(1) as f64
        }
        _ => examples(data) as f64 / (workers * batch) as f64,
    }
}

/// The examples of each worker; `None` where all workers share one sequence of examples.
///
/// # Errors
/// The reason, with what to change: the task has no such split, or a worker would get no example.
pub fn shards(
    data: &Dataset,
    split: &Split,
    workers: usize,
    seed: u64,
) -> Result<Option<Vec<Vec<u32>>>, String> {
    match &data.content {
        Content::Images(images) if !images.train.is_masked() => {
            split.shards(&images.train.labels, workers, seed)
        }
        Content::Text(_) => match split {
            Split::Shared | Split::Shards { sizes: None } => Ok(None),
            _ => Err(format!(
                "the split '{split}' is for images; a text is cut into equal consecutive parts: take shared or shards"
            )),
        },
        _ if split.is_by_class() => Err(format!(
            "the split '{split}' sorts examples by class, and these do not have one class each; take shared or shards"
        )),
        // The other splits only count the labels.
        _ => split.shards(&vec![0; examples(data)], workers, seed),
    }
}

/// The replica of worker `rank`, which draws its batches from `shard` or, without one, from the sequence that all
/// workers share.
///
/// # Errors
/// If the model cannot be built for the data.
pub fn replica<'a>(
    data: &'a Dataset,
    config: &TaskConfig,
    rank: usize,
    shard: Option<Vec<u32>>,
) -> Result<Box<dyn Replica + 'a>, ModelError> {
    Ok(match &data.content {
        Content::Images(images) => {
            Box::new(images::ImageReplica::new(images, config, rank, shard)?)
        }
        Content::Text(text) => Box::new(text::TextReplica::new(text, config, rank)?),
        Content::Ratings(ratings) => {
            Box::new(ratings::RatingReplica::new(ratings, config, rank, shard)?)
        }
    })
}
