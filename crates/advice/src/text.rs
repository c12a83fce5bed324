//! Advice as text for a terminal.

use std::fmt;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use crate::crossover::{ANY_LINK, Crossover};
use crate::{Advice, Prediction};

impl fmt::Display for Advice {
    /// A table of the candidates, and its conclusion for each link.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ranks, millions) = (self.ranks, self.elements as f64 / 1e6);
        let compute = 1e3 * self.compute;
        writeln!(
            out,
            "{ranks} ranks, {millions:.3} million parameters; a step without communication takes {compute:.1} ms.\n"
        )?;
        writeln!(out, "{}\n", self.table())?;
        for (at, link) in self.link_names().enumerate() {
            writeln!(out, "At {link}: {}", self.verdict(at))?;
        }
        self.write_crossover(out)?;
        let plain: Vec<_> = self.tensors.iter().filter(|one| one.send == "none").collect();
        if !plain.is_empty() {
            let (elements, all) =
                (plain.iter().map(|one| one.elements).sum::<usize>(), self.elements);
            writeln!(
                out,
                "At {}, {} of {} tensors gain nothing from {} and are best sent uncompressed ({:.2} % of the parameters).",
                self.link_names().next().unwrap_or_default(),
                plain.len(),
                self.tensors.len(),
                self.recommended[0].map_or("", |best| &self.predictions[best].candidate),
                100.0 * elements as f64 / all.max(1) as f64
            )?;
        }
        self.write_doubts(out)?;
        write!(
            out,
            "\nThe recommended compressor has the smallest error of those within 5 % of the \
             fastest. Times are predicted from recorded steps. The effect on the trained model is \
             not predicted: compare the loss with a run without compression."
        )
    }
}

impl Advice {
    /// Writes the bandwidth below which compression pays.
    pub(crate) fn write_crossover(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latency = after_bandwidth(self.latencies[0]);
        let [least, most] = self.crossover_range;
        let crossover = Crossover { least, likely: self.crossover, most };
        match most {
            Some(_) if least < Some(ANY_LINK) => writeln!(
                out,
                "Compression of gradients pays below {}{latency}, not counting doubted compressors.",
                range(crossover)
            ),
            Some(_) => Ok(()),
            None => writeln!(
                out,
                "Compression of gradients pays at no bandwidth{latency}, not counting doubted compressors."
            ),
        }
    }

    /// Writes each reason for a doubt, with the candidates that it concerns.
    pub(crate) fn write_doubts(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut doubts: Vec<_> =
            self.predictions.iter().filter_map(|one| one.doubt.as_deref()).collect();
        doubts.sort_unstable();
        doubts.dedup();
        for (at, doubt) in doubts.iter().enumerate() {
            let of = |one: &&Prediction| one.doubt.as_deref() == Some(doubt);
            let mut names: Vec<_> =
                self.predictions.iter().filter(of).map(|one| one.candidate.as_str()).collect();
            names.dedup();
            let begin = if at == 0 { "\nDoubted (*):\n" } else { "" };
            writeln!(out, "{begin}- {}: {doubt}.", names.join(", "))?;
        }
        Ok(())
    }

    /// The links with their latencies, if they have any.
    pub(crate) fn link_names(&self) -> impl Iterator<Item = String> {
        let links = self.links.iter().zip(&self.latencies);
        links.map(|(&link, &latency)| bandwidth(link) + &after_bandwidth(latency))
    }

    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        let head =
            ["", "exchange", "sent per step", "smaller", "codec", "error"].map(str::to_owned);
        let links = self.link_names().map(|link| format!("step at {link}"));
        table
            .load_style(
                TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')),
            )
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(head.into_iter().chain(links).chain(["faster below".to_owned()]));
        for row in std::iter::once(&self.plain).chain(&self.predictions) {
            table.add_row(cells(row, self.plain.bytes_up));
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.trim_fmt()
    }

    pub(crate) fn verdict(&self, link: usize) -> String {
        let of = |at: usize| {
            let one = &self.predictions[at];
            format!(
                "{} ({:.2}× as fast as no compression)",
                one.candidate, one.on_links[link].speedup
            )
        };
        let local =
            self.local[link].map(|at| format!("; if training may take local steps, {}", of(at)));
        let best = self.recommended[link].map_or_else(|| "do not compress".to_owned(), of);
        best + &local.unwrap_or_default()
    }
}

/// The cells of a row; `plain` are the bytes that a rank sends in a step without compression.
fn cells(row: &Prediction, plain: f64) -> Vec<String> {
    let mark = if row.doubt.is_some() { " *" } else { "" };
    let smaller = format!("{:.1}×", plain / row.bytes_up);
    let error = row.error.map_or_else(|| "–".to_owned(), |error| format!("{:.1} %", 100.0 * error));
    let crossover = range(row.crossovers());
    let codec = format!("{:.2} ms", 1e3 * row.codec);
    let start = [
        row.candidate.clone() + mark,
        row.exchange.clone(),
        size(row.bytes_up),
        smaller,
        codec,
        error,
    ];
    let steps = row.on_links.iter().map(|on| time(on.seconds));
    start.into_iter().chain(steps).chain([crossover]).collect()
}

/// A number of bytes.
fn size(bytes: f64) -> String {
    if bytes < 1e8 { format!("{:.1} kB", bytes / 1e3) } else { format!("{:.1} MB", bytes / 1e6) }
}

/// The time of a step in seconds.
fn time(seconds: f64) -> String {
    if seconds < 10.0 { format!("{:.1} ms", 1e3 * seconds) } else { format!("{seconds:.1} s") }
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
        (_, _, None) => "–".to_owned(),
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
pub(crate) fn bandwidth(bits_per_second: f64) -> String {
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    let (size, unit) =
        units.into_iter().find(|(size, _)| bits_per_second >= *size).unwrap_or((1.0, "bit/s"));
    let value = bits_per_second / size;
    let decimals = if value.fract() == 0.0 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::{Candidate, Cluster, OptimizerFamily, Recording, Situation, advise};
    use gradwire::{Floats, Rng, Tensor};
    use gradwire_exchange::Link;

    #[test]
    fn the_text_says_what_to_do_on_each_link() {
        let tensors = vec![Tensor::new("weight", &[512, 512]), Tensor::new("bias", &[512])];
        let mut rng = Rng::new(0, 0, 0, 0, 0);
        let mut drawn = |tensor: &Tensor| {
            let values: Vec<_> = (0..tensor.elements()).map(|_| rng.normal()).collect();
            Floats::F32(values.leak())
        };
        let gradients = tensors.iter().map(&mut drawn);
        let recording = Recording::untimed(tensors.clone(), vec![gradients.collect()], 0.1, 0.0);
        let slow = Link { latency: Duration::from_micros(1500), ..Link::mbit(1.0) };
        let links = [slow, Link::mbit(100_000.0)];
        let candidates =
            ["fp16", "3lc", "eden:every=10"].map(|s| Candidate::new(s.parse().unwrap()));
        let at = Situation {
            recording: &recording,
            cluster: Cluster::of(2),
            optimizer: OptimizerFamily::Adaptive,
            links: &links,
            measured: None,
        };
        let found = advise(&at, &candidates, &mut |_| ControlFlow::Continue(()));
        let text = found.unwrap().to_string();
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        assert!(line("At 1 Mbit/s with 1.5ms latency:").contains("fp16 (1.9"), "{text}");
        assert!(line("At 1 Mbit/s").contains("local steps, eden:every=10"), "{text}");
        assert!(
            line("Compression of gradients pays below").contains(" with 1.5ms latency,"),
            "{text}"
        );
        assert_eq!(line("At 100 Gbit/s"), "At 100 Gbit/s: do not compress");
        let gains = line("At 1 Mbit/s with 1.5ms latency, 1 of 2 tensors");
        assert!(gains.contains("from fp16") && gains.contains("0.19 %"), "{text}");
        assert!(line("- 3lc").contains("Adam") && line(" 3lc *").contains("all-gather"), "{text}");
    }

    #[test]
    fn crossovers_are_ranges_where_times_vary() {
        let of = |least, likely, most| range(Crossover { least, likely, most });
        let (slow, fast, any) = (Some(9e8), Some(1.8e9), Some(ANY_LINK));
        assert_eq!(of(fast, fast, fast), "1.8 Gbit/s");
        assert_eq!(of(slow, slow, Some(1e9)), "900 Mbit/s");
        assert_eq!(of(slow, fast, fast), "900 Mbit/s to 1.8 Gbit/s");
        assert_eq!(of(slow, fast, any), "900 Mbit/s or more");
        assert_eq!(of(None, slow, fast), "1.8 Gbit/s or less");
        assert_eq!(of(None, None, any), "an unclear bandwidth");
        assert_eq!(of(None, None, None), "–");
        assert_eq!(of(any, any, any), "any");
    }

    #[test]
    fn bandwidths_are_short() {
        let all = [1e9, 2.5e8, 1.5e6, 12_345.0, 10.0].map(bandwidth);
        assert_eq!(all, ["1 Gbit/s", "250 Mbit/s", "1.5 Mbit/s", "12.3 kbit/s", "10 bit/s"]);
    }
}
