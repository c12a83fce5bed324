//! Predictions from recorded training steps.

use std::ops::ControlFlow;

use gradwire::Tensor;
use gradwire_advice::{
    Bucket, Candidate, Cluster, MeasuredStep, Messages, OptimizerFamily, Progress, Recording,
    Situation, advise,
};
use gradwire_exchange::{Exchange, ExchangeError, Link, ParseExchangeError, Rule, RuleError};
use gradwire_testbed::advice::shown;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::buffer::{Buffer, dtype};
use crate::errors::Failure;

/// The characters of a line of text.
const WIDTH: usize = 80;

/// A candidate from Python: spec, exchange or `auto`, rules.
type Asked = (String, String, Vec<String>);

/// A step with a real exchange: spec, ranks, link, seconds and sent bytes of a step.
type Measured = (String, usize, String, f64, f64);

/// Predicts the steps of candidates; returns the advice as JSON and as text.
///
/// `tensors` have names, shapes and the seconds after which their gradients are ready; `gradients`
/// has the gradients of each recorded step. `cluster` has the fields of `Cluster` except the ranks,
/// the link and the correction. `measured` describes a step that was measured with an exchange: the
/// spec, the ranks, the link, the seconds and the sent bytes. `progress` is called with the present
/// candidate, the number of finished trials, the number of all trials, and the finished part of the
/// work; an exception ends the trials.
#[pyfunction]
#[pyo3(signature = (tensors, gradients, step_seconds, *, ranks, cluster, links, optimizer, candidates, measured, progress))]
#[expect(clippy::too_many_arguments, reason = "a Python function with keywords")]
pub(crate) fn advice(
    py: Python<'_>,
    tensors: Vec<(String, Vec<usize>, f64)>,
    gradients: Vec<Vec<Buffer>>,
    step_seconds: f64,
    ranks: usize,
    cluster: &Bound<'_, PyDict>,
    links: Vec<String>,
    optimizer: &str,
    candidates: Option<Vec<Asked>>,
    measured: Option<Measured>,
    progress: Py<PyAny>,
) -> PyResult<(String, String)> {
    let number = |key: &str| -> PyResult<f64> {
        cluster.get_item(key)?.map_or(Ok(0.0), |value| value.extract())
    };
    let messages = |[overhead, start, efficiency]: [&str; 3]| -> PyResult<Messages> {
        let efficiency = number(efficiency)?.clamp(0.01, 1.0);
        Ok(Messages { overhead: number(overhead)?, start: number(start)?, efficiency })
    };
    let measured = measured.map(measured_step).transpose()?;
    let cluster = Cluster {
        ranks,
        spare_core: number("spare_core")? != 0.0,
        crowding: number("crowding")?.max(1.0),
        messages: messages(["overhead", "start", "efficiency"])?,
        plain: messages(["plain_overhead", "plain_start", "plain_efficiency"])?,
        synchronization: number("synchronization")?,
        correction: 0.0,
        noise: number("noise")?,
        link: measured.as_ref().map(|step| step.link),
        staging: number("staging")?,
    };
    let optimizer = OptimizerFamily::of_name(optimizer);
    let links = links.iter().map(|link| link.parse::<Link>()).collect::<Result<Vec<_>, _>>();
    let links = links.map_err(Failure::from)?;
    let candidates = match candidates {
        Some(asked) => asked.iter().map(candidate).collect::<Result<Vec<_>, _>>()?,
        None => Candidate::defaults(),
    };
    let recording = Recording {
        ready: tensors.iter().map(|(.., ready)| *ready).collect(),
        tensors: tensors.into_iter().map(|(name, shape, _)| Tensor::new(name, &shape)).collect(),
        gradients: gradients.iter().map(|step| step.iter().map(Buffer::floats).collect()).collect(),
        step_seconds,
    };
    let situation = Situation {
        recording: &recording,
        cluster,
        optimizer,
        links: &links,
        measured: measured.as_ref(),
    };
    let mut raised = None;
    let advice = py.detach(|| {
        advise(&situation, &candidates, &mut |at| match tell(&progress, at) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                raised = Some(error);
                ControlFlow::Break(())
            }
        })
    });
    if let Some(error) = raised {
        return Err(error);
    }
    let advice = advice.map_err(Failure::from)?;
    let json =
        serde_json::to_string(&advice).map_err(|error| Failure::config(error.to_string()))?;
    Ok((json, shown(&advice).text(WIDTH)))
}

/// Calls a Python function with the progress. Raises its error, or that of a signal such as Ctrl-C.
fn tell(progress: &Py<PyAny>, at: &Progress<'_>) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        let candidate = at.candidate.to_string();
        progress.call1(py, (candidate, at.finished, at.trials, at.done)).map(drop)
    })
}

/// The buckets that `DistributedDataParallel` forms of tensors with names, shapes and the seconds
/// after which their gradients are ready, and with types; each is a list of their indices.
#[pyfunction]
pub(crate) fn buckets(
    tensors: Vec<(String, Vec<usize>, f64)>,
    types: Vec<String>,
) -> PyResult<Vec<Vec<usize>>> {
    let ready: Vec<_> = tensors.iter().map(|(.., ready)| *ready).collect();
    let tensors = tensors.into_iter().map(|(name, shape, _)| Tensor::new(name, &shape));
    let tensors: Vec<_> = tensors.collect();
    let dtypes = types.iter().map(|name| dtype(name)).collect::<Result<Vec<_>, _>>()?;
    if dtypes.len() != tensors.len() {
        return Err(Failure::config("each tensor has one type").into());
    }
    let buckets = Bucket::form(&tensors, &dtypes, &ready);
    Ok(buckets.into_iter().map(|bucket| bucket.tensors).collect())
}

fn measured_step(
    (spec, ranks, link, step_seconds, bytes_up): Measured,
) -> Result<MeasuredStep, Failure> {
    let candidate = candidate(&(spec, "auto".to_owned(), Vec::new()))?;
    Ok(MeasuredStep { candidate, ranks, link: link.parse()?, step_seconds, bytes_up })
}

fn candidate((spec, exchange, rules): &Asked) -> Result<Candidate, Failure> {
    let spec = spec.parse().map_err(|error| {
        Failure::from(ExchangeError::config(format!(
            "the candidate '{spec}' is not a compressor: {error}"
        )))
    })?;
    let exchange = match exchange.as_str() {
        "auto" => None,
        name => Some(name.parse::<Exchange>().map_err(Failure::config::<ParseExchangeError>)?),
    };
    let rules = rules.iter().map(|rule| rule.parse::<Rule>());
    let rules = rules.collect::<Result<_, RuleError>>().map_err(Failure::config)?;
    Ok(Candidate { spec, exchange, rules })
}
