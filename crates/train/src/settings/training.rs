//! The declaration of the settings, and the checks of their values.

use gradwire_exchange::{Exchange, Policy, Rule};
use gradwire_models::optim::OptimizerKind;
use gradwire_models::schedule::LearningRate;
use gradwire_models::{ModelSpec, Split};

use super::payload::Payload;
use super::straggler::Straggler;
use super::value::{FromFile, ToFile, Value, known};

/// One setting, for programs that iterate over all of them.
#[derive(Debug)]
pub struct Setting {
    /// Its key in experiment files and result files, such as `raw_below`.
    pub name: &'static str,
    /// Its flag on the command line, without the dashes.
    pub flag: &'static str,
    /// The name of the flag's value in help texts.
    pub value_name: &'static str,
    /// Whether the flag may be repeated, which makes the setting a list.
    pub repeats: bool,
    /// Whether the flag's values are `on` and `off`.
    pub switch: bool,
    help: &'static [&'static str],
    set: fn(&mut TrainingSettings, &[&str]) -> Result<(), String>,
    leave_out: fn(&mut TrainingSettings) -> Option<()>,
    text: fn(&TrainingSettings) -> String,
}

impl Setting {
    /// The setting called `name`.
    pub fn named(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// Its description in a sentence or two, with its default.
    pub fn help(&self) -> String {
        let lines: Vec<&str> = self.help.iter().map(|line| line.trim()).collect();
        lines
            .join(" ")
            .replace("[`Exchange::KNOWN`]", Exchange::KNOWN)
            .replace("[`ModelSpec::known`]", &ModelSpec::known())
    }

    /// Its name in messages and checkpoints: `raw below`.
    pub fn title(&self) -> String {
        self.name.replace('_', " ")
    }

    /// Gives it the value that its flag has on the command line: one text, or one for each time it
    /// is repeated.
    ///
    /// # Errors
    /// The reason, for a text that is no value of this setting.
    pub fn set(&self, settings: &mut TrainingSettings, texts: &[&str]) -> Result<(), String> {
        (self.set)(settings, texts)
    }

    /// Gives it the value that files leave out; `None` if they never leave it out.
    pub(super) fn leave_out(&self, settings: &mut TrainingSettings) -> Option<()> {
        (self.leave_out)(settings)
    }

    /// Its value as checkpoints and messages have it.
    pub fn text(&self, settings: &TrainingSettings) -> String {
        (self.text)(settings)
    }
}

/// Declares the settings: documentation, which is also the flag's help; name and type; default;
/// flag and value name.
macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr, $flag:literal $value_name:literal;)+) => {
        /// The settings that experiments, runs and records have in common. The text of each is its
        /// flag's help.
        #[derive(Debug, Clone, PartialEq)]
        pub struct TrainingSettings {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl Default for TrainingSettings {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        /// All settings, in the order in which help texts list them.
        pub static SETTINGS: &[Setting] = &[$(Setting {
            name: stringify!($name),
            flag: $flag,
            value_name: $value_name,
            repeats: <$type as Value>::REPEATS,
            switch: <$type as Value>::SWITCH,
            help: &[$($doc),+],
            set: |settings, texts| {
                settings.$name = Value::of_texts(texts)?;
                Ok(())
            },
            leave_out: |settings| {
                settings.$name = Value::missing()?;
                Some(())
            },
            text: |settings| settings.$name.text(),
        }),+];

        impl TrainingSettings {
            /// Reads the value of the setting called `name` from a file's table, if there is such a
            /// setting.
            pub(super) fn read_value<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                name: &str,
                map: &mut A,
            ) -> Result<bool, A::Error> {
                match name {
                    $(stringify!($name) => {
                        self.$name = map.next_value::<FromFile<$type>>()?.0;
                        Ok(true)
                    })+
                    _ => Ok(false),
                }
            }

            /// Writes all values that are not missing to a file's table.
            pub(super) fn write_values<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                $(if !self.$name.is_missing() {
                    map.serialize_entry(stringify!($name), &ToFile(&self.$name))?;
                })+
                Ok(())
            }
        }
    };
}

settings! {
    /// The model: [`ModelSpec::known`] [default: lenet5]
    model: ModelSpec = known("lenet5"), "model" "MODEL";

    /// Number of workers [default: 4; under mpirun, the processes that are not servers]
    workers: usize = 4, "workers" "N";

    /// How workers exchange tensors: [`Exchange::KNOWN`] [default: server]
    exchange: Exchange = Exchange::default(), "exchange" "EXCHANGE";

    /// What workers send: gradients; updates, the changes of parameters that each worker computes
    /// with its own optimizer over the local steps of a round; or weights, the parameters
    /// themselves, which are averaged [default: gradients]
    send: Payload = Payload::default(), "send" "WHAT";

    /// With updates: the optimizer that applies the mean update to the common parameters, as the
    /// negative of a gradient; DiLoCo uses nesterov with --outer-lr 0.7 [default: off, the mean is
    /// added]
    outer: Option<OptimizerKind> = None, "outer" "NAME";

    /// The learning rate of the outer optimizer, the same at every round [default: 1]
    outer_rate: f32 = 1.0, "outer-lr" "RATE";

    /// With updates: scale an update down to the median of all workers' norms if its norm is larger
    /// [default: off]
    median_clip: bool = false, "median-clip" "on|off";

    /// How the training set is split among workers: shared, shards[:sizes=4+2+1+1],
    /// classes[:per=2], dirichlet[:alpha=0.5] [default: shared]
    split: Split = Split::default(), "split" "SPLIT";

    /// The fraction of the workers that take part in each round, drawn from the seed; above 0, up
    /// to 1 [default: 1]
    participation: f64 = 1.0, "participation" "PART";

    /// The probability that the message of a worker is lost in a round; from 0, below 1 [default:
    /// 0]
    dropout: f64 = 0.0, "dropout" "P";

    /// With updates and a sparse compressor: set the momentum of sent elements to zero [default:
    /// on]
    mask: bool = true, "mask" "on|off";

    /// Exchange the gradients of the last layers while the gradients of the first layers are still
    /// being computed. Reports show the fraction of the exchange that this hid [default: off]
    overlap: bool = false, "overlap" "on|off";

    /// Training steps [default: 600]
    steps: u64 = 600, "steps" "N";

    /// Images, or windows or streams of text, per worker and step [default: 32, 12 for gpt, 5 for
    /// LSTMs, 64 for ncf]
    batch: usize = 32, "batch" "N";

    /// sgd, momentum[:m=0.9], nesterov[:m=0.9], adam[:beta1=0.9,beta2=0.999], adamw, 1-bit Adam as
    /// adamw:freeze=N,exchange=momentum, muon[:m=0.95], rmsprop[:rho=0.9,m=0], adagrad [default:
    /// momentum, adamw for gpt, sgd for LSTMs, adam for ncf]
    optimizer: OptimizerKind = known("momentum"), "optimizer" "NAME";

    /// A number, or a schedule such as cosine:from=0.1,to=0.001,scale=on or
    /// step:from=0.1,factor=0.1,at=0.5+0.75 [default: one that suits the model]
    learning_rate: LearningRate = known("cosine:from=0.01,to=0.0001"), "lr" "RATE";

    /// Weight of the ℓ2 penalty: W times the parameter is added to the gradient, with --send
    /// gradients once for all steps of a round. adamw and muon instead shrink tensors of two or
    /// more dimensions by W times the learning rate [default: 0.0001, 0.1 for gpt, none for LSTMs
    /// and ncf]
    weight_decay: f32 = 1e-4, "weight-decay" "W";

    /// Weight of the ℓ1 penalty: W times the parameter's sign is added to the gradient [default: 0]
    l1: f32 = 0.0, "l1" "W";

    /// Send variance-reduced gradients (SVRG): the difference from the gradients at a snapshot of
    /// the parameters, whose full gradient is exchanged uncompressed; a new snapshot is taken every
    /// STEPS steps [default: 0, plain gradients]
    svrg: u64 = 0, "svrg" "STEPS";

    /// Delay a worker in every step: 3=0.2 delays worker 3 by 0.2 seconds. To see the effect,
    /// compare the seconds of runs, which --json prints [default: off]
    straggler: Option<Straggler> = None, "straggler" "WORKER=SECONDS";

    /// Scale a worker's gradient down to this ℓ2 norm if its norm is larger [default: 1 for gpt, 5
    /// for LSTMs, none for other models]
    clip: Option<f32> = None, "clip" "NORM";

    /// Random crops (4 pixels of padding) and flips of colour training images, and shifts (2
    /// pixels) of grey training images [default: on for colour images]
    augment: Option<bool> = None, "augment" "on|off";

    /// A compressor for certain tensors: '*.bias -> fp16', '<1000 -> none', '>=100000 -> powersgd',
    /// 'vectors -> none' (or matrices, convolutions); repeatable, the first matching rule applies
    rules: Vec<Rule> = Vec::new(), "rule" "TENSORS -> SPEC";

    /// Send tensors of one dimension or none (biases, the scales of norms) uncompressed [default:
    /// on]
    raw_vectors: bool = true, "raw-vectors" "on|off";

    /// Send tensors with fewer than N elements uncompressed [default: 256]
    raw_below: usize = Policy::RAW_BELOW, "raw-below" "N";

    /// Send tensors whose name contains this word uncompressed; repeatable
    raw_names: Vec<String> = Vec::new(), "raw" "WORD";

    /// Maximum number of test images or tokens in an evaluation; the last evaluation uses all
    /// [default: 1000, 20000 for text]
    evaluate_at_most: usize = 1000, "evaluate-at-most" "N";

    /// Continue without lost workers as long as N workers are left, from the state after the last
    /// exchange, which the first worker keeps in memory. The other workers take over the residuals
    /// of lost workers [default: off, a lost worker ends the run]
    min_workers: Option<usize> = None, "min-workers" "N";

    /// Seconds after which a silent rank counts as lost; more than the longest pause, such as an
    /// evaluation [default: 300]
    deadline_s: f64 = 300.0, "deadline" "SECONDS";
}

/// The most workers of a run.
pub(crate) const MOST_WORKERS: usize = 4096;

/// A day, in seconds.
const LONGEST_DEADLINE: f64 = 86_400.0;

impl TrainingSettings {
    /// Refuses values that are out of range.
    ///
    /// # Errors
    /// The setting, its range, and the value.
    pub fn check(&self) -> Result<(), String> {
        self.model.check().map_err(|error| error.to_string())?;
        let check = |holds: bool, message: String| if holds { Ok(()) } else { Err(message) };
        // The key and the flag, for who wrote either.
        let named = |name: &str| {
            let flag = Setting::named(name).map_or("", |setting| setting.flag);
            format!("{name} (--{flag})")
        };
        for (name, count, most, why) in [
            (
                "workers",
                self.workers as u64,
                MOST_WORKERS as u64,
                "a run needs at least one worker",
            ),
            ("steps", self.steps, 1 << 48, "a run needs at least one step"),
            ("batch", self.batch as u64, 1 << 20, "a worker needs at least one example in a step"),
            (
                "evaluate_at_most",
                self.evaluate_at_most as u64,
                u64::MAX,
                "an evaluation needs at least one image or token",
            ),
        ] {
            let name = named(name);
            check(count > 0, format!("{name} must be at least 1: {why}"))?;
            check(count <= most, format!("{name} must be at most {most}, not {count}"))?;
        }
        for (name, value) in [("weight_decay", self.weight_decay), ("l1", self.l1)] {
            let name = named(name);
            let message = format!("{name} must be a number of at least 0, not {value}");
            check(value >= 0.0 && value.is_finite(), message)?;
        }
        let (part, dropout, seconds) = (self.participation, self.dropout, self.deadline_s);
        let name = named("participation");
        let message = format!("{name} must be above 0 and at most 1, not {part}");
        check(part > 0.0 && part <= 1.0, message)?;
        let name = named("dropout");
        let message = format!("{name} must be at least 0 and below 1, not {dropout}");
        check((0.0..1.0).contains(&dropout), message)?;
        if let Some(least) = self.min_workers {
            let message = format!(
                "{} must be from 1 to the number of workers, {}",
                named("min_workers"),
                self.workers
            );
            check((1..=self.workers).contains(&least), format!("{message}, not {least}"))?;
        }
        let message =
            format!("{} must be a positive number, not {}", named("outer_rate"), self.outer_rate);
        check(self.outer_rate.is_normal() && self.outer_rate > 0.0, message)?;
        if let Some(norm) = self.clip {
            let message = format!("{} must be a positive number, not {norm}", named("clip"));
            check(norm.is_finite() && norm > 0.0, message)?;
        }
        let name = named("deadline_s");
        let message =
            format!("{name} must be above 0 and at most {LONGEST_DEADLINE} seconds, not {seconds}");
        check(seconds > 0.0 && seconds <= LONGEST_DEADLINE, message)?;
        match self.straggler.filter(|straggler| straggler.worker >= self.workers) {
            None => Ok(()),
            Some(straggler) => Err(format!(
                "the straggler is worker {}, but there are workers 0 to {}; name one of them",
                straggler.worker,
                self.workers - 1
            )),
        }
    }
}
