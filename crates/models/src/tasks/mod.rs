//! Tasks that models learn from data sets: a [`Task`] for each kind of data, and the [`Replica`]
//! that a worker trains.

mod config;
mod images;
mod metric;
mod order;
mod ratings;
mod replica;
mod sampler;
mod segmentation;
mod task;
mod text;
mod text_batches;
mod windows;

use crate::data::{Content, Dataset};

pub use config::TaskConfig;
pub use metric::Metric;
pub use replica::{BatchBytes, Replica};
pub use task::Task;

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

/// Refuses a model for other data, and settings that the [task](Task::check) refuses.
///
/// # Errors
/// The reason and the remedy.
pub fn check(data: &Dataset, config: &TaskConfig) -> Result<(), String> {
    let kind = data.task();
    if config.model.task() != kind {
        let (name, error) = (&data.name, config.model.not_for(kind));
        return Err(format!("data set '{name}' has {kind}, but {error}"));
    }
    task_of(data).check(config)
}
