//! A worker's end of the exchange that logs its calls, breaks, or changes the parameters.

use std::sync::{Arc, Mutex};

use gradwire::{State, Tensor};
use gradwire_exchange::{
    Control, DistributedOptimizer, ExchangeError, GradientSink, StepInput, StepReport,
};

/// The calls of a worker's exchange.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Call {
    Sink(u64),
    HandedOver(usize),
    Step(u64),
}

pub(super) type Log = Arc<Mutex<Vec<Call>>>;

/// Called with a step, before its exchange.
pub(super) type Before = Box<dyn Fn(u64) -> Result<(), ExchangeError> + Send>;

/// An exchange that calls `before` and `after` around each of its steps.
pub(super) struct Wrapped {
    pub(super) inner: Box<dyn DistributedOptimizer>,
    pub(super) log: Log,
    pub(super) before: Before,
    pub(super) after: fn(u64, &mut [Vec<f32>]),
}

impl Wrapped {
    /// The exchange `inner`, unchanged.
    pub(super) fn new(inner: Box<dyn DistributedOptimizer>) -> Self {
        Self { inner, log: Log::default(), before: Box::new(|_| Ok(())), after: |_, _| {} }
    }

    fn log(&self, call: Call) {
        self.log.lock().unwrap().push(call);
    }
}

impl DistributedOptimizer for Wrapped {
    fn tensors(&self) -> &[Tensor] {
        self.inner.tensors()
    }

    fn gradient_sink(&mut self, step: u64) -> Option<Arc<dyn GradientSink>> {
        self.log(Call::Sink(step));
        let inner = self.inner.gradient_sink(step)?;
        Some(Arc::new(LoggedSink { inner, log: Arc::clone(&self.log) }))
    }

    fn step(
        &mut self,
        input: StepInput<'_>,
        parameters: &mut [Vec<f32>],
    ) -> Result<StepReport, ExchangeError> {
        self.log(Call::Step(input.step));
        (self.before)(input.step)?;
        let report = self.inner.step(input, parameters);
        (self.after)(input.step, parameters);
        report
    }

    fn needs_squares(&self) -> bool {
        self.inner.needs_squares()
    }

    fn sent(&self, index: usize) -> Option<&[u32]> {
        self.inner.sent(index)
    }

    fn global_model(&mut self) -> Result<Option<Vec<Vec<f32>>>, ExchangeError> {
        self.inner.global_model()
    }

    fn save(&mut self, state: &mut State) -> Result<(), ExchangeError> {
        self.inner.save(state)
    }

    fn restore(&mut self, state: &State) -> Result<(), ExchangeError> {
        self.inner.restore(state)
    }

    fn control(&mut self) -> Control<'_> {
        self.inner.control()
    }
}

#[derive(Debug)]
struct LoggedSink {
    inner: Arc<dyn GradientSink>,
    log: Log,
}

impl GradientSink for LoggedSink {
    fn ready(&self, index: usize, gradient: &[f32]) {
        self.log.lock().unwrap().push(Call::HandedOver(index));
        self.inner.ready(index, gradient);
    }
}
