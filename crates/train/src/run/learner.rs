//! What a worker learns: a model, and its share of the data the model is for.

use std::ops::Range;
use std::sync::Arc;

use gradwire::{State, StateError, Tensor};
use gradwire_exchange::GradientSink;

use super::batches::{Batches, Slice, plain_batch};
use super::exam::Subject;
use super::rating_batches::RatingBatches;
use super::text_batches::{LEAST, TEST_PARTS, TestPart, TextBatches, steps_per_epoch};
use super::{RunConfig, TrainError};
use gradwire_models::data::{Content, ImageSet, Ratings, Text};
use gradwire_models::models::{
    Dropout, ImageShape, LanguageModel, Memory, Model, Pairs, Recommender, Score, Statistics,
    cross_entropy,
};

/// Test images, or users, evaluated at a time.
const TEST_BATCH: usize = 100;
/// Items that a user is recommended.
const LISTED: usize = 10;

/// A model and the batches it takes.
pub(crate) enum Learner<'a> {
    /// Of images.
    Images(Box<ImageLearner<'a>>),
    /// Of text.
    Text(Box<TextLearner<'a>>),
    /// Of ratings.
    Ratings(Box<RatingLearner<'a>>),
}

/// A classifier of images.
pub(crate) struct ImageLearner<'a> {
    model: Model,
    rank: usize,
    batches: Batches<'a>,
    data: &'a ImageSet,
}

/// A language model that reads several streams.
pub(crate) struct TextLearner<'a> {
    model: LanguageModel,
    batches: TextBatches<'a>,
    data: &'a Text,
    memory: Memory,
    /// The step whose text goes on where the memory stops.
    next: u64,
    seed: u64,
    rank: usize,
}

/// A model of who takes what.
pub(crate) struct RatingLearner<'a> {
    model: Recommender,
    batches: RatingBatches<'a>,
    data: &'a Ratings,
}

impl<'a> Learner<'a> {
    /// The learner of worker `rank`, with images of its own or among those that all share.
    ///
    /// # Errors
    /// If the model cannot learn the data.
    pub(super) fn new(
        config: &'a RunConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Self, TrainError> {
        let slice = Slice { rank, workers: config.workers, batch: config.batch, shard };
        match &config.data.content {
            Content::Images(data) => {
                let shape = ImageShape {
                    channels: data.train.channels,
                    height: data.train.height,
                    width: data.train.width,
                    classes: data.train.classes,
                };
                let model = Model::new(config.model, shape)?;
                let batches = Batches::new(data, config.seed, config.augments(), slice);
                Ok(Self::Images(Box::new(ImageLearner { model, rank, batches, data })))
            }
            Content::Ratings(data) => {
                let model = Recommender::new(config.model, data.users, data.items)?;
                let batches = RatingBatches::new(data, config.seed, slice);
                Ok(Self::Ratings(Box::new(RatingLearner { model, batches, data })))
            }
            Content::Text(data) => {
                let model = LanguageModel::new(config.model, data.vocabulary.len())?;
                Ok(Self::Text(Box::new(TextLearner {
                    memory: model.blank(config.batch),
                    model,
                    batches: TextBatches::new(&data.train, slice),
                    data,
                    next: 0,
                    seed: config.seed,
                    rank,
                })))
            }
        }
    }

    /// The names and shapes of the model's parameters.
    pub(crate) fn tensors(&self) -> &[Tensor] {
        match self {
            Self::Images(images) => images.model.tensors(),
            Self::Text(text) => text.model.tensors(),
            Self::Ratings(ratings) => ratings.model.tensors(),
        }
    }

    /// The first parameters of a run.
    pub(super) fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>> {
        match self {
            Self::Images(images) => images.model.initial_parameters(seed),
            Self::Text(text) => text.model.initial_parameters(seed),
            Self::Ratings(ratings) => ratings.model.initial_parameters(seed),
        }
    }

    /// Lays out the batch of a step.
    pub(super) fn prepare(&mut self, step: u64) {
        match self {
            Self::Images(images) => images.batches.prepare(step),
            Self::Text(text) => text.batches.prepare(step),
            Self::Ratings(ratings) => ratings.batches.prepare(step),
        }
    }

    /// Examples of the batch laid out that it can be divided by; those of text belong together.
    pub(super) fn divisible(&self) -> usize {
        match self {
            Self::Images(images) => images.batches.len(),
            Self::Text(_) => 1,
            Self::Ratings(ratings) => ratings.batches.len(),
        }
    }

    /// Adds the gradient of the batch laid out for `step`, and returns its mean loss.
    pub(super) fn add_gradients(
        &mut self,
        step: u64,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
    ) -> f64 {
        self.add_gradients_of(step, 0..self.divisible(), parameters, gradients)
    }

    /// The same; of images, `early` gets gradients as soon as they are known.
    pub(super) fn add_gradients_early(
        &mut self,
        step: u64,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
        early: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        let all = 0..self.divisible();
        match self {
            Self::Images(images) => images.add_gradients(all, parameters, gradients, early),
            Self::Text(_) | Self::Ratings(_) => self.add_gradients(step, parameters, gradients),
        }
    }

    /// The same of some examples of the batch, as if there were no others.
    pub(super) fn add_gradients_of(
        &mut self,
        step: u64,
        examples: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
    ) -> f64 {
        match self {
            Self::Images(images) => images.add_gradients(examples, parameters, gradients, None),
            Self::Ratings(learner) => {
                let RatingLearner { model, batches, .. } = &mut **learner;
                let (Pairs { users, items }, taken) = batches.batch();
                let range = examples.start * batches.each()..examples.end * batches.each();
                let pairs = Pairs { users: &users[range.clone()], items: &items[range.clone()] };
                model.add_gradients(parameters, pairs, &taken[range], gradients)
            }
            Self::Text(text) => {
                // The text is another in a new epoch, and after steps that others took alone.
                if text.next != step || text.batches.starts_epoch(step) {
                    text.memory.clear();
                }
                text.next = step + 1;
                let dropout = Dropout { seed: text.seed, rank: text.rank as u32, step };
                let TextLearner { model, memory, batches, .. } = &mut **text;
                let dropout = Some(dropout);
                model.add_gradients(parameters, batches.chunk(), dropout, memory, gradients)
            }
        }
    }

    /// Tensors whose gradients become known together, in the order in which they do.
    pub(super) fn order(&self) -> Vec<Vec<usize>> {
        match self {
            Self::Images(images) => images.model.order(),
            Self::Text(_) | Self::Ratings(_) => vec![(0..self.tensors().len()).collect()],
        }
    }

    /// Does something that leaves the running statistics of batch normalisation as they were.
    pub(super) fn without_a_trace<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.statistics();
        let result = work(self);
        if let Self::Images(images) = self {
            images.model.set_statistics(before);
        }
        result
    }

    /// Adds this worker's part of the gradient of the mean loss over the whole training set, images as they are: the
    /// mean over workers is all of it. `scratch` has the parameters' sizes.
    ///
    /// # Panics
    /// If it learns something other than images.
    pub(super) fn add_whole_gradient(
        &mut self,
        parameters: &[Vec<f32>],
        scratch: &mut [Vec<f32>],
        gradients: &mut [Vec<f32>],
    ) {
        self.without_a_trace(|learner| {
            let Self::Images(learner) = learner else { panic!("the whole set is of images") };
            let ImageLearner { model, batches, data, .. } = &mut **learner;
            let (mut images, mut labels) = (Vec::new(), Vec::new());
            for examples in batches.part().chunks(TEST_BATCH) {
                plain_batch(data, &data.train, examples, &mut images, &mut labels);
                scratch.iter_mut().for_each(|values| values.fill(0.0));
                model.add_gradients(parameters, &images, &labels, scratch);
                let weight = batches.weight() * examples.len() as f32;
                for (sum, term) in gradients.iter_mut().flatten().zip(scratch.iter().flatten()) {
                    *sum += weight * term;
                }
            }
        });
    }

    /// The running statistics of batch normalisation.
    pub(super) fn statistics(&self) -> Vec<Statistics> {
        match self {
            Self::Images(images) => images.model.statistics().to_vec(),
            Self::Text(_) | Self::Ratings(_) => Vec::new(),
        }
    }

    /// Test images, tokens of the test text that can be predicted, or users that something is kept back of.
    pub(super) fn test_examples(&self) -> usize {
        match self {
            Self::Images(images) => images.data.test.len(),
            Self::Text(text) => text.data.test.len() - 1,
            Self::Ratings(ratings) => ratings.data.test.len(),
        }
    }

    /// Parts in which workers share an evaluation of so many examples.
    pub(super) fn test_parts(&self, examples: usize) -> usize {
        match self {
            Self::Images(_) | Self::Ratings(_) => examples.div_ceil(TEST_BATCH),
            Self::Text(_) => TEST_PARTS,
        }
    }

    /// Evaluates one part. `scratch` is working memory.
    pub(super) fn score(
        &self,
        subject: &Subject,
        statistics: &[Statistics],
        part: usize,
        scratch: &mut Vec<f32>,
    ) -> Score {
        let Subject { parameters, examples } = subject;
        match self {
            Self::Images(images) => {
                let end = ((part + 1) * TEST_BATCH).min(*examples);
                let part: Vec<u32> = (part * TEST_BATCH..end).map(|at| at as u32).collect();
                let mut labels = Vec::new();
                plain_batch(images.data, &images.data.test, &part, scratch, &mut labels);
                images.model.evaluate_with(parameters, statistics, scratch, &labels)
            }
            Self::Ratings(learner) => {
                let end = ((part + 1) * TEST_BATCH).min(*examples);
                rank(learner, parameters, part * TEST_BATCH..end)
            }
            Self::Text(text) => {
                let part = TestPart::new(&text.data.test, *examples, part);
                let mut memory = text.model.blank(part.streams());
                let mut total = Score::default();
                part.for_each(|chunk, counts| {
                    total.add(text.model.evaluate(parameters, chunk, counts, &mut memory));
                });
                total
            }
        }
    }

    /// Adds what every worker has beyond its exchange and parameters: batch-norm statistics, or what
    /// it remembers of a text.
    pub(crate) fn save(&self, state: &mut State) {
        match self {
            Self::Images(images) => {
                images.model.save(&format!("statistics{}/", images.rank), state)
            }
            Self::Text(text) => {
                let prefix = format!("streams{}/", text.rank);
                text.memory.save(&prefix, state);
                state.set_number(&format!("{prefix}next"), text.next);
            }
            Self::Ratings(_) => {}
        }
    }

    /// Takes back what this worker saved of its own. Of `workers` in all; if another number of them saved it, it takes
    /// the statistics of one of those, and reads its text from where it is with nothing in mind.
    pub(crate) fn restore(
        &mut self,
        state: &State,
        saved_by: usize,
        workers: usize,
    ) -> Result<(), StateError> {
        match self {
            Self::Images(images) => {
                let from = images.rank % saved_by;
                images.model.restore(&format!("statistics{from}/"), state)
            }
            Self::Text(_) if saved_by != workers => Ok(()),
            Self::Text(text) => {
                let prefix = format!("streams{}/", text.rank);
                text.next = state.number(&format!("{prefix}next"))?;
                text.memory.restore(&prefix, state)
            }
            Self::Ratings(_) => Ok(()),
        }
    }
}

impl ImageLearner<'_> {
    /// Adds the gradient of some examples of the batch laid out.
    fn add_gradients(
        &mut self,
        examples: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
        early: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        let (images, labels) = self.batches.batch();
        // A label an image, or one a pixel.
        let [size, each] = [images.len(), labels.len()].map(|all| all / self.batches.len());
        let images = &images[examples.start * size..examples.end * size];
        let labels = &labels[examples.start * each..examples.end * each];
        self.model.add_gradients_early(parameters, images, labels, gradients, early)
    }
}

/// How many of the test users are recommended what they took: the item kept back is one of the [`LISTED`] best.
fn rank(learner: &RatingLearner<'_>, parameters: &[Vec<f32>], users: Range<usize>) -> Score {
    let mut total = Score::default();
    for question in &learner.data.test[users] {
        let users = vec![question.user; question.items.len()];
        let pairs = Pairs { users: &users, items: &question.items };
        let scores = learner.model.scores(parameters, pairs);
        let (kept, others) = (scores[0], &scores[1..]);
        let before = others.iter().filter(|&&score| score >= kept).count();
        let losses = scores.iter().enumerate().map(|(at, &score)| cross_entropy(score, at == 0));
        total.examples += 1;
        total.correct += usize::from(before < LISTED);
        total.loss += losses.sum::<f64>() / scores.len() as f64;
    }
    total
}

/// Refuses a model of other data, naming both.
fn check_model(config: &RunConfig) -> Result<(), TrainError> {
    let task = config.data.task();
    if config.model.task() == task {
        return Ok(());
    }
    let (name, error) = (&config.data.name, config.model.not_for(task));
    Err(TrainError::Config(format!("data set '{name}' holds {task}, but {error}")))
}

/// Refuses data that the model is not for, or that are too few to train or to evaluate on.
pub(super) fn check_data(config: &RunConfig) -> Result<(), TrainError> {
    check_model(config)?;
    let refuse = |reason: String| Err(TrainError::Config(reason));
    match &config.data.content {
        Content::Images(images) if images.train.is_empty() || images.test.is_empty() => {
            refuse("the data set needs at least one training and one test image".to_owned())
        }
        Content::Images(images) if images.train.is_masked() && config.augments() => {
            refuse("crops and flips would part images from their masks; leave them off".to_owned())
        }
        Content::Text(_) | Content::Ratings(_) if config.augments() => refuse(format!(
            "crops and flips are for images; leave them off for {}",
            config.data.task()
        )),
        Content::Text(text) => {
            let (tokens, unit) = (text.train.len(), text.unit);
            if steps_per_epoch(tokens, config.workers, config.batch) == 0 {
                return refuse(format!(
                    "the training text of '{}' has {tokens} {unit}, and {} workers with {} streams each take \
                     at least {LEAST} for each stream; use fewer workers, a smaller batch or a longer text",
                    config.data.name, config.workers, config.batch
                ));
            }
            if text.test.len() < 2 {
                return refuse(format!("the test text needs at least two {unit}"));
            }
            Ok(())
        }
        Content::Images(_) | Content::Ratings(_) => Ok(()),
    }
}
