//! The compared settings: the sent values, optimizers, learning rates and compressors.

use gradwire_exchange::Exchange;

use crate::experiment::{Experiment, known};
use crate::reproduce::study::{by_exchange, schedules};

/// The learning rate of gradients, and of updates at every step. Of the peaks 0.001, 0.002, 0.004
/// and 0.008, `none` with seed 0 reaches the losses 1.820, 1.722, 1.665 and 1.677.
pub(super) const RATE: &str = "cosine:from=0.004,to=0.0004,warmup=0.05";

/// The learning rate of local steps. Of the peaks 0.004 and 0.008, `none:every=10` with seed 0
/// reaches 1.698 and 1.686.
const LOCAL_RATE: &str = "cosine:from=0.008,to=0.0008,warmup=0.05";

/// The learning rate of local steps below DiLoCo's outer optimizer. Of 0.001 and 0.004,
/// `none:every=10` reaches 1.777 and 1.805.
const DILOCO_RATE: &str = "cosine:from=0.001,to=0.0001,warmup=0.05";

/// The learning rate of sign steps, which is the step length in every element.
const SIGN_RATE: &str = "cosine:from=0.001,to=0.0001,warmup=0.05";

/// Settings that differ only in their compressors.
pub(super) struct Family {
    pub(super) name: &'static str,
    send: &'static str,
    /// The workers' optimizer, if it differs from the study's.
    optimizer: Option<&'static str>,
    /// The outer optimizer and its learning rate.
    outer: Option<(&'static str, f32)>,
    /// Whether updates are clipped to the median of their norms.
    clipped: bool,
    /// The exchanged quantity after a tenth of the steps, when the workers' mean squares are
    /// frozen.
    frozen: Option<&'static str>,
    /// Whether one worker trains without the others.
    alone: bool,
    /// Rules that give certain tensors their own compressors.
    rules: &'static [&'static str],
    pub(super) rate: &'static str,
    /// Compressors, as their specs print, that run with every seed.
    pub(super) every_seed: &'static [&'static str],
    /// Compressors that run with the first seed only.
    pub(super) first_seed: &'static [&'static str],
}

/// Gradients at every step.
const GRADIENTS: Family = Family {
    name: "gradients",
    send: "gradients",
    optimizer: None,
    outer: None,
    clipped: false,
    frozen: None,
    alone: false,
    rules: &[],
    rate: RATE,
    every_seed: &[],
    first_seed: &[],
};

/// The parameter update. Its mean is added.
const UPDATES: Family = Family { name: "updates at every step", send: "updates", ..GRADIENTS };

/// The parameter update. The outer optimizer applies its mean.
const OUTER: Family = Family {
    name: "local steps, outer Nesterov (0.7, momentum 0.5)",
    outer: Some(("nesterov:m=0.5", 0.7)),
    ..UPDATES
};

/// The compared settings. `none` sent as gradients is the baseline.
pub(super) static FAMILIES: [Family; 14] = [
    Family {
        every_seed: &["none", "terngrad", "eden", "3lc", "eden:bits=2,code=huffman"],
        first_seed: &[
            "none until 0.1 then 3lc",
            "none until 0.1 then onebit",
            "3lc:ef=ef21",
            "3lc:momentum=0.9",
            "onebit:ef=ef21",
            "3lc:beta=0.9",
            "terngrad:clip=4,code=huffman",
            "int4:hadamard=on,ef=off",
            "topk:ratio=0.1",
            "topk:ratio=0.1,ef=ef21",
            "topk:ratio=0.1,ef=ef21,momentum=0.9",
            "powersgd",
            "onebit",
            "qsgd:s=7",
            "natural",
            "3lc:ef=off",
            "3lc:beta=0.5",
            "onebit:beta=0.9",
            "topk",
            "efsignsgd",
            "eden:ef=on",
            "sbc",
            "adacomp",
            "int8",
            "thc",
            "acp-sgd",
            "fp16",
            "bf16",
            "8bit",
            "codebook8",
            "lpc-svrg",
            "signsgd",
            "signum",
            "inceptionn:b=20",
            "entropy-bits",
            "randomk",
            "threshold:v=0.003",
            "gradient-dropping",
            "dgc",
            "sgc",
            "adaptive",
            "variance",
            "variance:alpha=2",
            "sketched-sgd",
            "strom:tau=0.003",
            "dryden",
            "local-selection",
            "sketchml",
            "qsparse-local",
            "gradzip",
            "atomo",
            "gradiveq",
        ],
        ..GRADIENTS
    },
    Family { name: "nothing: one worker alone", alone: true, every_seed: &["none"], ..GRADIENTS },
    Family {
        name: "gradients, SGD",
        optimizer: Some("sgd"),
        rate: SIGN_RATE,
        first_seed: &["demo", "demo:k=128", "signsgd", "signum"],
        ..GRADIENTS
    },
    Family {
        name: "gradients, vectors uncompressed",
        rules: &["vectors -> none"],
        first_seed: &["3lc", "onebit"],
        ..GRADIENTS
    },
    Family {
        name: "gradients, vectors as 3lc",
        rules: &["vectors -> 3lc"],
        first_seed: &["3lc"],
        ..GRADIENTS
    },
    Family {
        name: "gradients, embeddings as int8",
        rules: &["tokens.weight -> int8", "positions.weight -> int8"],
        first_seed: &["3lc", "onebit", "topk"],
        ..GRADIENTS
    },
    Family {
        name: "gradients, mean squares frozen after a tenth",
        frozen: Some("gradient"),
        first_seed: &[
            "none",
            "none until 0.1 then 3lc",
            "none until 0.1 then onebit",
            "none until 0.1 then topk",
        ],
        ..GRADIENTS
    },
    Family {
        name: "momentum after a tenth (1-bit Adam)",
        frozen: Some("momentum"),
        first_seed: &[
            "none until 0.1 then onebit",
            "none until 0.1 then 3lc",
            "none until 0.1 then eden:ef=on",
        ],
        ..GRADIENTS
    },
    Family {
        every_seed: &["3lc"],
        first_seed: &["terngrad", "eden", "onebit", "topk", "sbc", "powersgd"],
        ..UPDATES
    },
    Family {
        name: "local steps, outer Nesterov (0.7, momentum 0.9)",
        outer: Some(("nesterov", 0.7)),
        rate: DILOCO_RATE,
        first_seed: &["none:every=10", "none:every=50", "terngrad:every=50", "3lc:every=50"],
        ..OUTER
    },
    Family {
        every_seed: &[
            "none:every=10",
            "terngrad:code=huffman,every=10",
            "eden:bits=0.5,every=10",
            "eden:bits=0.25,every=25",
            "eden:every=25",
            "eden:every=30",
            "eden:every=50",
            "eden:every=100",
            "terngrad:code=huffman,every=100",
            "chunk-topk:mean=senders,beta=0.95,every=25",
        ],
        first_seed: &[
            "none:every=30",
            "none:every=50",
            "eden:bits=0.1,every=50",
            "codebook8:every=100",
            "terngrad:every=10",
            "terngrad:code=huffman,every=25",
            "terngrad:every=50",
            "onebit:every=10",
            "onebit:every=50",
            "eden:every=100 until 0.7 then eden:every=25",
            "eden:every=25 until 0.3 then eden:every=100",
            "eden:ef=on,every=25",
            "eden:ef=on,every=50",
            "chunk-topk:beta=0.95,every=10",
            "chunk-topk:beta=0.95,every=25",
            "chunk-topk:k=512,beta=0.95,every=25",
            "chunk-topk:beta=0.95,every=100",
            "thc:every=10",
            "int4:hadamard=on,ef=off,every=10",
            "acp-sgd:every=10",
            "3lc:every=10",
            "3lc:every=50",
            "sbc:every=10",
            "sbc:p=0.1,every=10",
            "fp16:every=10",
            "bf16:every=10",
            "8bit:every=10",
            "lpc-svrg:every=10",
            "inceptionn:b=20,every=10",
            "entropy-bits:every=10",
            "randomk:ratio=0.1,every=10",
            "threshold:v=0.003,every=10",
            "gradient-dropping:every=10",
            "dgc:ratio=0.1,every=10",
            "sgc:ratio=0.1,every=10",
            "adaptive:ratio=0.1,every=10",
            "sketched-sgd:ratio=0.01,every=10",
            "strom:tau=0.003,every=10",
            "dryden:every=10",
            "local-selection:every=10",
            "sketchml:every=10",
            "qsparse-local:ratio=0.1,every=10",
            "gradzip:every=10",
            "atomo:every=10",
            "gradiveq:every=10",
            "qsgd:s=7,every=10",
            "natural:every=10",
            "int8:every=10",
            "efsignsgd:every=10",
            "adacomp:every=10",
        ],
        ..OUTER
    },
    Family {
        name: "local steps, outer Adam (0.003)",
        outer: Some(("adam", 0.003)),
        first_seed: &["none:every=10"],
        ..OUTER
    },
    Family {
        name: "updates of local steps, clipped to the median (SparseLoCo)",
        clipped: true,
        rate: LOCAL_RATE,
        first_seed: &["chunk-topk:beta=0.95,every=30"],
        ..UPDATES
    },
    Family {
        name: "updates of local steps",
        rate: LOCAL_RATE,
        every_seed: &["none:every=10", "terngrad:every=10", "onebit:every=10", "3lc:every=10"],
        first_seed: &[
            "terngrad:every=50",
            "3lc:every=50",
            "none:every=50",
            "onebit:every=50",
            "sbc:every=10",
            "topk:every=10",
            "chunk-topk:beta=0.95,every=10",
            "chunk-topk:beta=0.95,every=25",
        ],
        ..UPDATES
    },
];

impl Family {
    /// All its compressors.
    pub(super) fn specs(&self) -> impl Iterator<Item = &'static &'static str> {
        self.every_seed.iter().chain(self.first_seed)
    }

    /// The settings of this family with these compressors, by exchange. Vectors, a hundredth of the
    /// elements, are sent as 8-bit integers if messages are gathered: uncompressed they would be a
    /// third of 3LC's bytes.
    pub(super) fn experiments(&self, base: &Experiment, compressors: &[&str]) -> Vec<Experiment> {
        let with_vectors_as_int8 = |one: Experiment| {
            let gathered = one.exchange == Exchange::AllGather.into();
            one.with(|e| e.rules.extend(gathered.then(|| known("vectors -> int8"))))
        };
        by_exchange(&self.experiment(base, compressors))
            .into_iter()
            .map(with_vectors_as_int8)
            .collect()
    }

    fn experiment(&self, base: &Experiment, compressors: &[&str]) -> Experiment {
        base.clone().with(|e| {
            e.workers = if self.alone { 1 } else { e.workers };
            e.send = known(self.send);
            e.mask = false;
            e.outer = self.outer.map(|(outer, _)| known(outer));
            e.outer_rate = self.outer.map_or(1.0, |(_, rate)| rate);
            e.median_clip = self.clipped;
            e.learning_rate = known(self.rate);
            if let Some(optimizer) = self.optimizer {
                e.optimizer = known(optimizer);
            }
            if let Some(exchanged) = self.frozen {
                let at = (e.steps / 10).max(1);
                e.optimizer = known(&format!("{},freeze={at},exchange={exchanged}", e.optimizer));
            }
            e.rules = self.rules.iter().map(|rule| known(rule)).collect();
            e.compressors = schedules(compressors);
        })
    }
}
