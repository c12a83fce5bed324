//! Advice for readers: a table of the candidates, and the conclusions for each link.

pub mod nodes;

use std::time::Duration;

use gradwire_advice::{ANY_LINK, Advice, Crossover, Prediction};
use serde::Serialize;

use crate::format::{bytes, seconds, step_seconds, times};
use crate::table::{Table, or_dash};
use crate::wrap::wrapped;

/// Advice as text and a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The ranks, the model and the time of its steps.
    pub situation: String,
    /// A row for no compression and for each candidate.
    pub table: Table,
    /// What to do on each link, doubts, and what is not predicted; in lines.
    pub conclusions: String,
}

impl Shown {
    /// Everything, for a terminal of this width in characters.
    pub fn text(&self, width: usize) -> String {
        let Self { situation, table, conclusions } = self;
        let [situation, conclusions] = [situation, conclusions].map(|text| wrapped(text, width));
        format!("{situation}\n\n{}\n\n{conclusions}", table.terminal(width))
    }
}

/// A candidate on a link: a line of a file of comma-separated values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line<'a> {
    /// The compressor, and perhaps an exchange; `no compression` in the first lines.
    pub candidate: &'a str,
    /// The exchange.
    pub exchange: &'a str,
    /// Bytes that a rank sends in a step.
    pub bytes_up: f64,
    /// Processor seconds of compressing and decompressing in a step.
    pub codec_seconds: f64,
    /// The relative error that remains after error feedback.
    pub error: Option<f64>,
    /// The bandwidth in Mbit/s.
    pub mbit: f64,
    /// The latency of a message in milliseconds.
    pub latency_ms: f64,
    /// Predicted seconds of a step.
    pub step_seconds: f64,
    /// The step time without compression over this one.
    pub speedup: f64,
    /// Whether the candidate is recommended on this link, of those that exchange at every step.
    pub recommended: bool,
    /// Whether it is recommended on this link if training may take local steps.
    pub recommended_local: bool,
    /// Why the trained model may suffer.
    pub doubt: Option<&'a str>,
}

/// A line for each candidate and link, those of no compression first.
pub fn lines(advice: &Advice) -> Vec<Line<'_>> {
    let candidates = advice.predictions.iter().enumerate().map(|(at, row)| (Some(at), row));
    std::iter::once((None, &advice.plain))
        .chain(candidates)
        .flat_map(|(at, row)| {
            row.on_links.iter().enumerate().map(move |(link, on)| Line {
                candidate: &row.candidate,
                exchange: &row.exchange,
                bytes_up: row.bytes_up,
                codec_seconds: row.codec,
                error: row.error,
                mbit: advice.links[link] / 1e6,
                latency_ms: advice.latencies[link] * 1e3,
                step_seconds: on.seconds,
                speedup: on.speedup,
                recommended: at == advice.recommended[link],
                recommended_local: at.is_some() && at == advice.local[link],
                doubt: row.doubt.as_deref(),
            })
        })
        .collect()
}

/// The advice for ranks with a link each.
pub fn shown(advice: &Advice) -> Shown {
    let Advice { ranks, elements, compute, .. } = advice;
    let mut conclusions: Vec<String> = link_names(advice)
        .enumerate()
        .map(|(at, link)| format!("At {link}: {}", verdict(advice, at)))
        .collect();
    conclusions.extend(below(advice));
    conclusions.extend(best_plain(advice));
    conclusions.extend(doubts(advice));
    conclusions.push(
        "\nThe recommended compressor has the smallest error of those within 5 % of the fastest. \
         Times are predicted from recorded steps. The effect on the trained model is not \
         predicted: compare the loss with a run without compression."
            .to_owned(),
    );
    Shown {
        situation: format!(
            "{ranks} ranks, {:.3} million parameters; a step without communication takes {:.1} ms.",
            *elements as f64 / 1e6,
            1e3 * compute
        ),
        table: table(advice),
        conclusions: conclusions.join("\n"),
    }
}

/// The tensors that are best sent uncompressed on the first link, if there are any.
fn best_plain(advice: &Advice) -> Option<String> {
    let plain: Vec<_> = advice.tensors.iter().filter(|one| one.send == "none").collect();
    let best = advice.recommended[0].filter(|_| !plain.is_empty())?;
    let elements: usize = plain.iter().map(|one| one.elements).sum();
    Some(format!(
        "At {}, {} of {} tensors gain nothing from {} and are best sent uncompressed ({:.2} % of \
         the parameters).",
        link_names(advice).next().unwrap_or_default(),
        plain.len(),
        advice.tensors.len(),
        advice.predictions[best].candidate,
        100.0 * elements as f64 / advice.elements.max(1) as f64
    ))
}

/// The bandwidth below which compression pays; nothing if it pays on any link.
fn below(advice: &Advice) -> Option<String> {
    let latency = after_bandwidth(advice.latencies[0]);
    let crossover = advice.crossovers();
    let pays = match crossover {
        Crossover { most: None, .. } => "at no bandwidth".to_owned(),
        Crossover { least, .. } if least < Some(ANY_LINK) => format!("below {}", range(crossover)),
        _ => return None,
    };
    Some(format!(
        "Compression of gradients pays {pays}{latency}, not counting doubted compressors."
    ))
}

/// Each reason for a doubt, with the candidates that it concerns.
fn doubts(advice: &Advice) -> Vec<String> {
    let doubts = || advice.predictions.iter().filter_map(|one| Some((one, one.doubt.as_deref()?)));
    let mut reasons: Vec<_> = doubts().map(|(_, doubt)| doubt).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let line = |reason: &str| {
        let concerned = doubts().filter(|(_, doubt)| *doubt == reason);
        let mut names: Vec<_> = concerned.map(|(one, _)| one.candidate.as_str()).collect();
        names.dedup();
        format!("- {}: {reason}.", names.join(", "))
    };
    let title = (!reasons.is_empty()).then(|| "\nDoubted (*):".to_owned());
    title.into_iter().chain(reasons.into_iter().map(line)).collect()
}

/// The links with their latencies, if they have any.
fn link_names(advice: &Advice) -> impl Iterator<Item = String> {
    let links = advice.links.iter().zip(&advice.latencies);
    links.map(|(&link, &latency)| bandwidth(link) + &after_bandwidth(latency))
}

fn table(advice: &Advice) -> Table {
    let rows: Vec<&Prediction> =
        std::iter::once(&advice.plain).chain(&advice.predictions).collect();
    let mark = |row: &Prediction| if row.doubt.is_some() { " *" } else { "" };
    let percent = |error: f64| format!("{:.1} %", 100.0 * error);
    let mut columns = Table::of(&rows)
        .column("compressor", |row| row.candidate.clone() + mark(row))
        .column("exchange", |row| &row.exchange)
        .column("sent per step", |row| bytes(row.bytes_up))
        .column("smaller", |row| times(advice.plain.bytes_up / row.bytes_up))
        .column("codec", |row| seconds(row.codec))
        .column("error", |row| or_dash(row.error.map(percent)));
    for (at, link) in link_names(advice).enumerate() {
        columns = columns
            .column(format!("step at {link}"), move |row| step_seconds(row.on_links[at].seconds));
    }
    columns.column("faster below", |row| range(row.crossovers())).table().with_optional(&[
        "sent per step",
        "codec",
        "exchange",
        "smaller",
        "error",
    ])
}

/// The recommendations for a link.
fn verdict(advice: &Advice, link: usize) -> String {
    let of = |at: usize| {
        let one = &advice.predictions[at];
        format!("{} ({:.2}× as fast as no compression)", one.candidate, one.on_links[link].speedup)
    };
    let local =
        advice.local[link].map(|at| format!("; if training may take local steps, {}", of(at)));
    let best = advice.recommended[link].map_or_else(|| "do not compress".to_owned(), of);
    best + &local.unwrap_or_default()
}

/// The text of a latency in seconds, to follow a bandwidth; empty if there is none.
fn after_bandwidth(latency: f64) -> String {
    if latency > 0.0 {
        format!(" with {:?} latency", Duration::from_secs_f64(latency))
    } else {
        String::new()
    }
}

/// A crossover: one bandwidth if the measured times determine it closely, otherwise a range.
fn range(Crossover { least, likely, most }: Crossover) -> String {
    match (least, likely, most) {
        (_, _, None) => or_dash(None),
        (Some(ANY_LINK), ..) => "any".to_owned(),
        (Some(least), Some(likely), Some(most)) if most <= CLOSE * least => bandwidth(likely),
        (Some(least), _, Some(ANY_LINK)) => format!("{} or more", bandwidth(least)),
        (Some(least), _, Some(most)) => format!("{} to {}", bandwidth(least), bandwidth(most)),
        (None, _, Some(ANY_LINK)) => "an unclear bandwidth".to_owned(),
        (None, _, Some(most)) => format!("{} or less", bandwidth(most)),
    }
}

/// Two bandwidths up to this factor apart count as equal.
const CLOSE: f64 = 1.25;

/// A bandwidth with up to three digits.
fn bandwidth(bits_per_second: f64) -> String {
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    let (size, unit) =
        units.into_iter().find(|(size, _)| bits_per_second >= *size).unwrap_or((1.0, "bit/s"));
    let value = bits_per_second / size;
    let decimals = if value.fract() == 0.0 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests;
