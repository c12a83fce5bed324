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
use crate::models::ModelKind;

pub use config::TaskConfig;
pub use metric::Metric;
pub use order::Visit;
pub use replica::{BatchBytes, Replica};
pub use sampler::Sampler;
pub use task::Task;

/// The task of one of gradwire's own models on a data set.
///
/// # Errors
/// If the model is for other data.
pub(crate) fn task_of(model: ModelKind, data: &Dataset) -> Result<Box<dyn Task<'_> + '_>, String> {
    let kind = data.task();
    let refused = || {
        let (name, error) = (&data.name, model.not_for(kind));
        format!("data set '{name}' has {kind}, but {error}")
    };
    if model.task() != kind {
        return Err(refused());
    }
    Ok(match &data.content {
        Content::Images(images) if images.train.is_masked() => {
            Box::new(segmentation::Segmentation { model, images })
        }
        Content::Images(images) => Box::new(images::Classification { model, images }),
        Content::Text(text) => Box::new(text::Language { model, name: &data.name, text }),
        Content::Ratings(ratings) => Box::new(ratings::Recommendation { model, ratings }),
        Content::Other(_) => return Err(refused()),
    })
}
