//! The sizes of a recurrent language model, as text.

use std::fmt;

use crate::options::{Options, OptionsError, Printer};

/// The sizes of a recurrent language model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LstmConfig {
    /// Hidden units of each layer, 1 to 4096.
    pub hidden: usize,
    /// Steps of truncated back-propagation through time, 1 to 4096.
    pub unroll: usize,
    /// The percentage of the outputs that dropout sets to zero, 0 to 90.
    pub dropout: u8,
    /// Whether tokens are embedded. Otherwise the first layer reads one-hot vectors, without
    /// dropout.
    pub embedding: bool,
}

impl LstmConfig {
    /// `charlstm`.
    pub const CHARACTERS: Self = Self { hidden: 200, unroll: 35, dropout: 50, embedding: true };
    /// `wordlstm`.
    pub const WORDS: Self = Self { hidden: 650, ..Self::CHARACTERS };

    /// Reads `charlstm:hidden=200,unroll=35,dropout=0.5,embedding=on`. The defaults are the options
    /// of `self`.
    pub(crate) fn read(self, text: &str) -> Result<Self, OptionsError> {
        let mut options = Options::parse(text)?;
        let expected = "a number from 1 to 4096";
        let size = |value: &str| value.parse().ok().filter(|size| (1..=4096).contains(size));
        let hidden = options.take("hidden", self.hidden, expected, size)?;
        let unroll = options.take("unroll", self.unroll, expected, size)?;
        let expected = "a multiple of 0.01 from 0 to 0.9";
        let dropout = options.take("dropout", self.dropout, expected, percentage)?;
        let on = |value: &str| ["off", "on"].iter().position(|word| *word == value);
        let on = |value: &str| on(value).map(|at| at == 1);
        let embedding = options.take("embedding", self.embedding, "off or on", on)?;
        options.finish()?;
        Ok(Self { hidden, unroll, dropout, embedding })
    }

    /// Prints the name, and the options that differ from `default`.
    pub(crate) fn print(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        default: Self,
    ) -> fmt::Result {
        let mut printer = Printer::new(f, name)?;
        printer.unless("hidden", self.hidden, default.hidden)?;
        printer.unless("unroll", self.unroll, default.unroll)?;
        let fraction = |percentage: u8| f64::from(percentage) / 100.0;
        printer.unless("dropout", fraction(self.dropout), fraction(default.dropout))?;
        let word = |on: bool| if on { "on" } else { "off" };
        printer.unless("embedding", word(self.embedding), word(default.embedding))
    }
}

fn percentage(value: &str) -> Option<u8> {
    let hundredths = value.parse::<f64>().ok()? * 100.0;
    let whole = hundredths.round();
    let fits = (0.0..=90.0).contains(&whole) && (hundredths - whole).abs() < 1e-9;
    fits.then_some(whole as u8)
}
