//! What models learn from a data set: a [`Task`] for each kind of data, and the [`Replica`] of it that a worker trains.

mod image_batches;
mod images;
mod metric;
mod order;
mod rating_batches;
mod ratings;
mod sampler;
mod segmentation;
mod task;
mod text;
mod text_batches;

use crate::data::{Content, Dataset};

pub use metric::Metric;
pub use task::{Replica, Task, TaskConfig};

/// The task of a data set.
pub fn task_of(data: &Dataset) -> Box<dyn Task<'_> + '_> {
    match &data.content {
        Content::Images(images) if images.train.is_masked() => {
            Box::new(segmentation::Segmentation(images))
        }
        Content::Images(images) => Box::new(images::Classification(images)),
        Content::Text(text) => Box::new(text::Language { name: &data.name, text }),
        Content::Ratings(ratings) => Box::new(ratings::Recommendation(ratings)),
    }
}

/// Refuses a model that is for other data, settings the task cannot be trained with, and data too few to train or to
/// evaluate on.
///
/// # Errors
/// The reason, with what to change.
pub fn check(data: &Dataset, config: &TaskConfig) -> Result<(), String> {
    let kind = data.task();
    if config.model.task() != kind {
        let (name, error) = (&data.name, config.model.not_for(kind));
        return Err(format!("data set '{name}' holds {kind}, but {error}"));
    }
    task_of(data).check(config)
}

/// Steps in which `workers` with batches of `batch` examples (streams, of text) see the training set once.
pub fn steps_per_epoch(data: &Dataset, workers: usize, batch: usize) -> f64 {
    task_of(data).steps_per_epoch(workers, batch)
}
