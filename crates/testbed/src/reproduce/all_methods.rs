//! One short run of every registered compressor, and of every exchange, split and schedule. They
//! show that each method trains a model, and count its bytes. They are too short to rank methods.
//!
//! A test fails for a compressor or an exchange without a result in the repository.

use gradwire_models::schedule::LearningRate;
use gradwire_train::{CompressionSchedule, RunRecord};

use super::findings::page;
use super::study::{Report, Results, Study, by_exchange, schedules, with_server};
use super::variation::{Variation, each_once, runs_of};
use crate::TestbedError;
use crate::experiment::{Experiment, known};
use crate::format::{bytes, significant};
use crate::table::Table;

/// The study of all methods.
pub(crate) const ALL_METHODS: Study = Study {
    id: "all-methods",
    summary: "a short run of every compressor, exchange, split and schedule (--row compressors or exchanges)",
    rows: &["compressors", "exchanges"],
    fixed: &[
        "exchange",
        "send",
        "split",
        "participation",
        "dropout",
        "optimizer",
        "outer",
        "outer-lr",
        "svrg",
        "overlap",
        "workers",
        "fraction",
    ],
    experiment: Some(|row| {
        with_server().with(|e| {
            e.steps = 300;
            e.evaluations = 3;
            e.raw_vectors = false;
            e.compressors = match row {
                COMPRESSORS => schedules(std::iter::once("none").chain(registered())),
                _ => each_once(VARIATIONS.iter().flat_map(|variation| variation.specs)),
            };
        })
    }),
    variants: |row, experiment, _| {
        parts(row, experiment).into_iter().map(|(_, experiment)| experiment).collect()
    },
    report: |results, _| report(results),
    ..Study::PLAIN
};

/// The row of compressors; the other row is `exchanges`.
const COMPRESSORS: usize = 0;

/// The ids of all compressors but `none`.
fn registered() -> impl Iterator<Item = &'static str> {
    gradwire::registry::all().map(|entry| entry.id).filter(|id| *id != "none")
}

/// Exchanges, splits and schedules.
const VARIATIONS: [Variation; 22] = [
    Variation { name: "server", change: |e| e.exchange = known("server"), specs: &["none", "3lc"] },
    Variation {
        name: "two servers",
        change: |e| e.exchange = known("server:servers=2"),
        specs: &["3lc"],
    },
    Variation {
        name: "server, one backup worker",
        change: |e| e.exchange = known("server:backup=1"),
        specs: &["none", "3lc"],
    },
    Variation {
        name: "server, workers up to two steps ahead, a quarter of the learning rate",
        change: |e| unsynchronized(e, "server:stale=2"),
        specs: &["none", "3lc"],
    },
    Variation {
        name: "asynchronous server, a quarter of the learning rate",
        change: |e| unsynchronized(e, "server:mode=async"),
        specs: &["none", "3lc"],
    },
    Variation {
        name: "all-reduce",
        change: |e| e.exchange = known("all-reduce"),
        specs: &["none", "powersgd"],
    },
    Variation {
        name: "all-gather",
        change: |e| e.exchange = known("all-gather"),
        specs: &["none", "3lc", "topk"],
    },
    Variation {
        name: "scatter-reduce",
        change: |e| e.exchange = known("scatter-reduce"),
        specs: &["none", "3lc", "topk"],
    },
    Variation {
        name: "sparse all-reduce",
        change: |e| e.exchange = known("sparse-all-reduce"),
        specs: &["topk"],
    },
    Variation {
        name: "two nodes of two workers",
        change: |e| e.exchange = known("hierarchical:node=2"),
        specs: &["none", "3lc", "topk"],
    },
    Variation {
        name: "overlap with back-propagation",
        change: |e| (e.exchange, e.overlap) = (known("all-gather"), true),
        specs: &["3lc"],
    },
    Variation {
        name: "updates of ten local steps, a shard for each worker",
        change: |e| local(e, "shards"),
        specs: &["none:every=10", "3lc:every=10", "sbc:every=10"],
    },
    Variation {
        name: "updates of ten local steps, two classes a worker",
        change: |e| local(e, "classes:per=2"),
        specs: &["none:every=10", "3lc:every=10"],
    },
    Variation {
        name: "updates of ten local steps, classes by Dirichlet(0.5)",
        change: |e| local(e, "dirichlet:alpha=0.5"),
        specs: &["none:every=10", "3lc:every=10"],
    },
    Variation {
        name: "updates of ten local steps, half of the workers in a round",
        change: |e| {
            local(e, "shards");
            e.participation = 0.5;
        },
        specs: &["none:every=10", "3lc:every=10"],
    },
    Variation {
        name: "updates of ten local steps, a tenth of the messages lost",
        change: |e| {
            local(e, "shards");
            e.dropout = 0.1;
        },
        specs: &["none:every=10", "3lc:every=10"],
    },
    Variation {
        name: "updates of ten local steps, outer Nesterov",
        change: |e| {
            local(e, "shards");
            (e.outer, e.outer_rate) = (Some(known("nesterov")), 0.7);
        },
        specs: &["none:every=10", "3lc:every=10"],
    },
    Variation {
        name: "EF21",
        change: |e| e.exchange = known("all-gather"),
        specs: &["topk:ef=ef21", "onebit:ef=ef21"],
    },
    Variation {
        name: "momentum before compression, plain SGD",
        change: |e| {
            (e.exchange, e.optimizer) = (known("all-gather"), known("sgd"));
            // A mean of gradients is a tenth of their sum with the weights of momentum.
            e.learning_rate.from *= 10.0;
        },
        specs: &["topk:ef=ef21,momentum=0.9", "topk:momentum=0.9"],
    },
    Variation {
        name: "schedules",
        change: |e| (e.exchange, e.send) = (known("all-gather"), known("updates")),
        specs: &[
            "sbc2 until 0.5 then sbc1",
            "sbc within 500kB",
            "topk:ratio=0.01 from ratio=0.25 over 0.25",
            "none until 30 then 3lc",
        ],
    },
    Variation {
        name: "a schedule that follows the learning rate",
        change: |e| {
            (e.exchange, e.send) = (known("all-gather"), known("updates"));
            e.learning_rate = known("step:from=0.01,factor=0.1,at=0.5");
        },
        specs: &["sbc2 until drop then sbc1"],
    },
    Variation {
        name: "weights after ten local steps",
        change: |e| {
            local(e, "shards");
            e.send = known("weights");
        },
        specs: &["none:every=10", "entropy-bits:every=10"],
    },
];

/// A server that applies each worker's gradient on arrival, at a quarter of the learning rate: at
/// the full rate these runs diverge.
fn unsynchronized(experiment: &mut Experiment, exchange: &str) {
    experiment.exchange = known(exchange);
    experiment.learning_rate.from /= 4.0;
}

/// Updates of each worker's own shard.
fn local(experiment: &mut Experiment, split: &str) {
    experiment.exchange = known("all-gather");
    experiment.send = known("updates");
    experiment.split = known(split);
}

/// The parts of a row, each with its name.
fn parts(row: usize, experiment: &Experiment) -> Vec<(&'static str, Experiment)> {
    if row == COMPRESSORS {
        return compressors(experiment);
    }
    let of = |variation: &Variation| {
        let changed = experiment.clone().with(variation.change);
        (variation.name, changed.with(|e| e.compressors = schedules(variation.specs)))
    };
    VARIATIONS.iter().map(of).collect()
}

/// Every compressor by exchange, with a suitable optimizer.
fn compressors(experiment: &Experiment) -> Vec<(&'static str, Experiment)> {
    /// A description, whether the run is for a compressor, and its settings.
    type Setting = (&'static str, fn(&CompressionSchedule) -> bool, fn(&mut Experiment));
    let settings: [Setting; 5] = [
        (
            "signs, plain SGD",
            |one| one.first().compressor().votes(),
            |e| {
                (e.optimizer, e.learning_rate) = (known("sgd"), LearningRate::constant(0.001));
            },
        ),
        (
            "momentum in the memory, plain SGD",
            |one| one.first().applies_momentum(),
            |e| {
                e.optimizer = known("sgd");
            },
        ),
        (
            "plain SGD",
            |one| PLAIN_SGD.contains(&one.first().entry().id),
            |e| {
                e.optimizer = known("sgd");
            },
        ),
        ("SVRG", |one| one.first().entry().id == "lpc-svrg", |e| e.svrg = 50),
        ("momentum 0.9", |_| true, |_| {}),
    ];
    let mut left = experiment.compressors.clone();
    let parts = settings.map(|(name, is_for, change)| {
        let (mine, others) = std::mem::take(&mut left).into_iter().partition(is_for);
        left = others;
        let changed = experiment.clone().with(|e| e.compressors = mine).with(change);
        by_exchange(&changed).into_iter().map(move |one| (name, one))
    });
    let mut parts: Vec<_> = parts.into_iter().flatten().collect();
    // The baseline comes first.
    parts.sort_by_key(|(_, one)| one.compressors[0].first().entry().id != "none");
    parts
}

/// Compressors that diverge here with momentum at this learning rate.
const PLAIN_SGD: [&str; 3] = ["randomk", "adaptive", "sketched-sgd"];

fn report(results: &Results<'_>) -> Result<Report, TestbedError> {
    let mut rows: Vec<(&str, &RunRecord)> = Vec::new();
    for (name, part) in parts(results.row, results.experiment) {
        for schedule in &part.compressors {
            let runs = runs_of(results.runs, &part, &schedule.to_string());
            rows.extend(runs.into_iter().map(|run| (name, run)));
        }
    }
    let Some(&(_, first)) = rows.first() else {
        return Err(TestbedError::Config("there are no runs to show".to_owned()));
    };
    let sent = |run: &RunRecord| 8.0 * run.bytes_up / (run.parameters as u64 * run.steps) as f64;
    let what = if results.row == COMPRESSORS { "optimizer" } else { "set-up" };
    let table = Table::of(&rows)
        .column(what, |(name, _)| name)
        .column("compressor", |(_, run)| &run.compressor)
        .column("exchange", |(_, run)| run.exchange)
        .column(first.metric.name(), |(_, run)| first.metric.show(run.quality))
        .column("bits sent per parameter and step", |(_, run)| significant(sent(run)))
        .column("sent", |(_, run)| bytes(run.bytes_up))
        .column("seed", |(_, run)| run.seed)
        .table();
    let text = format!(
        "{} on {}, {} workers with {} images each, {} steps, learning rate {}. Each method trains \
         the model, and its bytes are counted. The runs are too short to rank methods.\n\n{}",
        first.model,
        first.data,
        first.workers,
        first.batch,
        first.steps,
        first.learning_rate,
        table.markdown(),
    );
    Ok(page(results, &text, &Vec::new(), vec![table.into()]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use gradwire_exchange::{Exchange, Synchronization};
    use gradwire_models::Split;
    use gradwire_train::Payload;

    use super::*;
    use crate::results;

    /// An accuracy that only a model that has learned reaches; a tenth is chance.
    const LEARNED: f64 = 0.6;

    /// The committed runs of a row.
    fn committed(row: &str) -> Vec<RunRecord> {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/all-methods");
        results::read(&results.join(row).join("runs.jsonl")).unwrap()
    }

    #[test]
    fn every_compressor_has_a_result() {
        let runs = committed("compressors");
        for entry in gradwire::registry::REGISTRY {
            let found = |run: &RunRecord| {
                run.compressor == entry.id && run.steps >= 300 && run.quality > LEARNED
            };
            assert!(
                runs.iter().any(found),
                "'{}' has no result; run `cargo run --release -- reproduce all-methods --row compressors`",
                entry.id
            );
        }
    }

    #[test]
    fn every_exchange_has_a_result() {
        let runs = committed("exchanges");
        let experiment = ALL_METHODS.experiment.unwrap()(1);
        for (name, part) in parts(1, &experiment) {
            for schedule in &part.compressors {
                let found = runs_of(&runs, &part, &schedule.to_string());
                assert!(
                    found.iter().any(|run| run.quality > LEARNED),
                    "{name}, {schedule}: no result; run `cargo run --release -- reproduce all-methods --row exchanges`"
                );
            }
        }
    }

    #[test]
    fn every_split_payload_and_form_of_schedule_is_run() {
        let experiment = ALL_METHODS.experiment.unwrap()(1);
        let parts: Vec<_> = parts(1, &experiment).into_iter().map(|(_, part)| part).collect();
        let kinds = |kind: fn(&Experiment) -> usize| {
            parts.iter().map(kind).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        let split = kinds(|part| match part.split {
            Split::Shared => 0,
            Split::Shards { .. } => 1,
            Split::Classes { .. } => 2,
            Split::Dirichlet { .. } => 3,
        });
        let payload = kinds(|part| match part.send {
            Payload::Gradients => 0,
            Payload::Updates => 1,
            Payload::Weights => 2,
        });
        assert_eq!((split, payload), (vec![0, 1, 2, 3], vec![0, 1, 2]));
        let texts: Vec<String> =
            parts.iter().flat_map(|part| &part.compressors).map(ToString::to_string).collect();
        for form in [" until 0.", " until 30 ", " until drop ", " from ", " within "] {
            assert!(texts.iter().any(|text| text.contains(form)), "no '{form}' in {texts:?}");
        }
    }

    #[test]
    fn every_kind_of_exchange_is_run() {
        let experiment = ALL_METHODS.experiment.unwrap()(1);
        let parts = parts(1, &experiment);
        let kind = |exchange: Exchange| match exchange {
            Exchange::AllReduce => 0,
            Exchange::AllGather => 1,
            Exchange::ScatterReduce => 2,
            Exchange::SparseAllReduce => 3,
            Exchange::Hierarchical { .. } => 4,
            Exchange::ParameterServer { synchronization, backups, servers } => {
                match synchronization {
                    Synchronization::BoundedStaleness(_) => 5,
                    Synchronization::Asynchronous => 6,
                    Synchronization::Synchronous if backups > 0 => 7,
                    Synchronization::Synchronous if servers > 1 => 8,
                    Synchronization::Synchronous => 9,
                }
            }
            // For sharded models; the trainer refuses them.
            Exchange::ReduceScatter | Exchange::GatherShards => 10,
        };
        let mut kinds: Vec<usize> =
            parts.iter().map(|(_, part)| kind(part.settings().exchange)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds, (0..10).collect::<Vec<_>>());
    }
}
