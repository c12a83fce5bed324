//! The exchange of an experiment's runs.

use std::fmt;
use std::str::FromStr;

use gradwire_exchange::{Exchange, ParseExchangeError, Policy, ReducerConfig, Schedule};
use gradwire_train::CompressionSchedule;
use gradwire_train::settings::{Setting, TrainingSettings};

/// The exchange of the runs of an experiment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExchangeChoice {
    /// Each compressor has the exchange that [suits](ReducerConfig::suitable) it and the number of
    /// workers, as `gradwire.torch.register` chooses by default; `none` has an all-reduce.
    #[default]
    Auto,
    /// All compressors have this exchange.
    Fixed(Exchange),
}

impl ExchangeChoice {
    /// The key in experiment files.
    pub const KEY: &str = "exchange";

    /// The name of [`Auto`](Self::Auto).
    const AUTO: &str = "auto";

    /// The exchange of the runs of a compressor with these settings.
    pub(super) fn of(
        self,
        compressor: &CompressionSchedule,
        settings: &TrainingSettings,
    ) -> Exchange {
        match self {
            Self::Fixed(exchange) => exchange,
            Self::Auto => suitable(compressor, settings),
        }
    }

    /// The description of a setting of training, as its flag has it in experiments.
    pub fn help(setting: &Setting) -> String {
        let help = setting.help();
        match help.split_once(" [default: server]") {
            Some((exchanges, _)) if setting.name == Self::KEY => format!(
                "{exchanges}, or auto: each compressor by the exchange that gradwire.torch takes \
                 for it, none by all-reduce [default: auto]"
            ),
            _ => help,
        }
    }
}

/// The exchange that suits a compressor. All-reduce needs all workers in every round: if only some
/// take part, a scatter-reduce of as many bytes replaces it.
fn suitable(compressor: &CompressionSchedule, settings: &TrainingSettings) -> Exchange {
    let specs = compressor.specs().skip(1).cloned();
    // Only the order of the compressors counts, not their first steps.
    let push = Schedule { first: compressor.first().clone(), later: (1..).zip(specs).collect() };
    let policy = Policy { rules: settings.rules.clone(), ..Policy::new(push) };
    let everyone = settings.participation == 1.0 && settings.dropout == 0.0;
    match ReducerConfig::suitable(&policy, settings.workers) {
        Exchange::AllReduce if !everyone => Exchange::ScatterReduce,
        suitable => suitable,
    }
}

impl From<Exchange> for ExchangeChoice {
    fn from(exchange: Exchange) -> Self {
        Self::Fixed(exchange)
    }
}

impl fmt::Display for ExchangeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str(Self::AUTO),
            Self::Fixed(exchange) => exchange.fmt(f),
        }
    }
}

impl FromStr for ExchangeChoice {
    type Err = ParseExchangeError;

    fn from_str(text: &str) -> Result<Self, ParseExchangeError> {
        match text.trim() {
            Self::AUTO => Ok(Self::Auto),
            other => other.parse().map(Self::Fixed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, known};

    fn exchange(compressor: &str, change: impl FnOnce(&mut Experiment)) -> String {
        Experiment::default().with(change).exchange_of(&known(compressor)).to_string()
    }

    /// As the table of docs/choosing.md says.
    #[test]
    fn each_compressor_has_the_exchange_that_pytorch_takes_for_it() {
        for (compressor, workers, expected) in [
            ("none", 4, "all-reduce"),
            ("none:every=10", 4, "all-reduce"),
            ("powersgd", 16, "all-reduce"),
            ("eden", 4, "all-gather"),
            ("eden", 9, "scatter-reduce"),
            ("int8", 2, "all-gather"),
            ("int8", 4, "scatter-reduce"),
            ("none until 100 then topk", 4, "all-gather"),
            ("eden until drop then int8", 4, "scatter-reduce"),
            ("sbc within 2MB", 4, "all-gather"),
        ] {
            let found = exchange(compressor, |e| e.workers = workers);
            assert_eq!(found, expected, "{compressor} on {workers} workers");
        }
        assert_eq!(
            exchange("none", |e| e.rules = vec![known("matrices -> 3lc")]),
            "scatter-reduce"
        );
        assert_eq!(exchange("none", |e| e.participation = 0.5), "scatter-reduce");
        assert_eq!(exchange("eden", |e| e.exchange = known("server:backup=1")), "server:backup=1");
    }

    #[test]
    fn a_choice_goes_through_text_and_back() {
        for text in ["auto", "all-gather", "server:servers=2"] {
            assert_eq!(known::<ExchangeChoice>(text).to_string(), text);
        }
        assert!("ring".parse::<ExchangeChoice>().is_err());
        let help = ExchangeChoice::help(Setting::named(ExchangeChoice::KEY).unwrap());
        assert!(help.contains("or auto") && help.ends_with("[default: auto]"), "{help}");
    }
}
