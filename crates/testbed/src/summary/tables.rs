//! Tables of a summary, and explanations of their numbers.

use gradwire_exchange::Exchange;
use gradwire_train::Metric;

use super::{Row, Spread, Summary};
use crate::format::{self, bytes, points, seconds, significant, times};
use crate::table::{Table, or_dash};

/// A run with at least this perplexity has diverged.
pub(crate) const DIVERGED: f64 = 1e300;

/// Quality and traffic of each compressor: all measured.
pub fn traffic(summary: &Summary) -> Table {
    let metric = summary.metric;
    let ratio = if summary.baseline().is_some() { "ratio" } else { "ratio to 32 bits" };
    let finished = |row: &Row| {
        let failed = diverged(summary, row).map_or_else(String::new, |text| format!(", {text}"));
        quality(metric, &row.quality) + &failed
    };
    let mut columns = Table::of(&summary.rows).column("compressor", |row| &row.compressor);
    if summary.has_exchanges() {
        columns = columns.column("exchange", |row| row.exchange);
    }
    let mut table = columns
        .column(metric.name(), finished)
        .column("against none", |row| or_dash(row.difference.map(|by| difference(metric, &by))))
        .column("bits/parameter", |row| significant(row.bits_per_parameter))
        .column(ratio, |row| times(row.ratio))
        .column("up", |row| times(row.ratio_up))
        .column("down", |row| times(row.ratio_down))
        .column("sent", |row| bytes(row.bytes_up))
        .column("received", |row| bytes(row.bytes_down))
        .table();
    let quality = table.head.iter().position(|head| head == metric.name()).unwrap_or(1);
    for (compressor, count) in &summary.diverged {
        if summary.row(compressor).is_none() {
            let mut cells = vec![or_dash(None); table.head.len()];
            cells[0].clone_from(compressor);
            cells[quality] = format!("{count} of {count} diverged");
            table.push(cells);
        }
    }
    table.with_optional(&["received", "sent", "down", "up", "bits/parameter", "exchange"])
}

/// How many runs of a row diverged: `1 of 3 diverged`.
fn diverged(summary: &Summary, row: &Row) -> Option<String> {
    let count = summary.diverged_of(&row.compressor);
    (count > 0).then(|| format!("{count} of {} diverged", count + row.quality.count))
}

/// Time a step of each compressor: measured parts, then modelled step time and speed-up by link.
pub fn time(summary: &Summary) -> Table {
    let mut columns = Table::of(&summary.rows)
        .column("compressor", |row| &row.compressor)
        .column("compute", |row| seconds(row.compute))
        .column("compress", |row| seconds(row.compress))
        .column("decompress", |row| seconds(row.decompress));
    if overlaps(summary) {
        let hidden = |part| format!("{:.0} % of communication", 100.0 * part);
        columns = columns.column(HIDDEN, |row| or_dash(row.hidden.map(hidden)));
    }
    for (at, link) in summary.links.iter().enumerate() {
        let head = format!("{}, modelled", format::link(link));
        columns = columns.column(head, |row| on_link(row, at));
    }
    columns.table().with_optional(&["decompress", "compress", "compute", HIDDEN])
}

/// The column head for the fraction of communication hidden by overlap.
const HIDDEN: &str = "hidden";

/// Whether some run overlapped exchange and computation.
fn overlaps(summary: &Summary) -> bool {
    summary.rows.iter().any(|row| row.hidden.is_some())
}

fn on_link(row: &Row, at: usize) -> String {
    let here = &row.on_links[at];
    match here.speedup {
        Some(speedup) => format!("{} ({})", seconds(here.step), times(speedup)),
        None => seconds(here.step),
    }
}

/// A quality with its spread over seeds.
pub fn quality(metric: Metric, quality: &Spread) -> String {
    if quality.count < 2 {
        return metric.show(quality.mean);
    }
    let Spread { mean, sd, min, max, .. } = *quality;
    if metric.is_fraction() {
        let [mean, sd, min, max] = [mean, sd, min, max].map(|part| part * 100.0);
        return format!("{mean:.2} ± {sd:.2} % [{min:.2}–{max:.2}]");
    }
    let show = |value| metric.show(value);
    format!("{} ± {} [{}–{}]", show(mean), significant(sd), show(min), show(max))
}

/// A difference of qualities with its sign, and its standard deviation if there are several; for
/// fractions in percentage points.
pub fn difference(metric: Metric, difference: &Spread) -> String {
    let Spread { mean, sd, count, .. } = *difference;
    let (shown, deviation) = match mean.abs() {
        _ if metric.is_fraction() => (points(mean), format!("{:.2}", sd * 100.0)),
        DIVERGED.. => return "–".to_owned(),
        1e6.. => (format!("{mean:+.1e}"), format!("{sd:.1e}")),
        _ => (format!("{mean:+.3}"), format!("{sd:.3}")),
    };
    if count > 1 { format!("{shown} ± {deviation}") } else { shown }
}

/// Names the compressors whose workers sent more bytes than in an uncompressed all-reduce of the
/// gradients of every step, and says how many times as many.
pub fn beyond_all_reduce(summary: &Summary) -> Option<String> {
    let sent = summary.rows.iter().map(|row| (row, row.bits_up / summary.all_reduce_bits));
    // Headers take a few percent of the smallest models.
    let beyond: Vec<String> = sent
        .filter(|(_, ratio)| ratio.is_finite() && *ratio > 1.05)
        .map(|(row, ratio)| format!("{} {}", row.compressor, times(ratio)))
        .collect();
    (!beyond.is_empty()).then(|| {
        format!(
            "Workers sent more bytes than in an uncompressed all-reduce: {}. Use all-reduce, \
             scatter-reduce, or a compressor that sends less.",
            beyond.join(", ")
        )
    })
}

/// The baseline of ratios and speed-ups, in words: the exchange of the runs of `none`.
pub fn baseline(exchange: Exchange, workers: usize) -> String {
    match exchange {
        Exchange::AllReduce => "an uncompressed all-reduce".to_owned(),
        Exchange::AllGather if workers > 2 => format!(
            "an uncompressed all-gather, which moves {} times the bytes of an all-reduce",
            workers as f64 / 2.0
        ),
        Exchange::ParameterServer { servers: 1, .. } => format!(
            "an uncompressed parameter server, whose link carries the messages of all {workers} workers"
        ),
        other => format!("uncompressed messages by the exchange {other}"),
    }
}

/// Explanations of the numbers in [`traffic`] and [`time`], for a caption.
pub fn notes(summary: &Summary) -> Vec<String> {
    let ratio = match summary.baseline() {
        Some(none) => {
            let baseline = baseline(none.exchange, summary.workers);
            format!("Ratios and speed-ups compare with the runs of none: {baseline}.")
        }
        None => "Ratios compare with 32 bits per parameter, step and direction, because none was not run."
            .to_owned(),
    };
    let several_seeds = summary.rows.iter().any(|row| row.quality.count > 1);
    let notes = [
        (
            true,
            "Measured: quality; bytes per worker with message headers, counted where they are sent and received; and \
             the times of compute, compress and decompress per step, on one core.",
        ),
        (true, ratio.as_str()),
        (
            summary.has_exchanges(),
            "The runs of different compressors have different exchanges. Bits per parameter count every copy of a \
             message that a worker sends or receives.",
        ),
        (
            true,
            "Modelled: step times and speed-ups on each link, from the measured bytes and times. A link of that \
             bandwidth connects each worker and each server to the network; computing and sending do not overlap. The \
             time of compute is the median of the means of all runs; a compressor that needs gradients of parts of a \
             batch has a compute time of its own.",
        ),
        (
            summary.lacks_servers,
            "The modelled times include the bytes of servers, but not the CPU time in which \
             servers decode, update and encode, because some of these runs did not record it.",
        ),
        (
            overlaps(summary),
            "Hidden: the part of the communication (encoding, sending, waiting and decoding) during which workers \
             continued to compute, measured on the machine and the network of the run.",
        ),
        (
            several_seeds,
            "Quality is mean ± standard deviation over seeds [smallest–largest]. Differences from \
             none are paired by seed, and ± is their standard deviation.",
        ),
    ];
    let said = notes.into_iter().filter(|(said, _)| *said).map(|(_, note)| note.to_owned());
    let incomplete = |row: &Row| format!("{} {}", row.compressor, row.quality.count);
    let incomplete: Vec<String> = summary.incomplete().map(incomplete).collect();
    let fewer = (!incomplete.is_empty()).then(|| {
        let (seeds, which) = (summary.seeds(), incomplete.join(", "));
        format!(
            "Compressors with fewer than {seeds} seeds, whose means are less reliable: {which}."
        )
    });
    said.chain(fewer).collect()
}

#[cfg(test)]
mod tests {
    use gradwire_train::RunRecord;

    use super::*;
    use crate::synthetic;

    #[test]
    fn tables_have_a_row_for_each_compressor_and_a_column_for_each_link() {
        let runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
        let summary = synthetic::summary(&runs);
        let traffic = traffic(&summary);
        assert_eq!(traffic.rows[1][1], "91.00 %");
        assert_eq!(traffic.rows[1][4], "26.7×");
        let time = time(&summary);
        assert_eq!((time.head.len(), time.head[4].as_str()), (8, "10 Mbit/s, modelled"));
        assert!(time.rows[0][4].ends_with("(1.00×)"));
    }

    #[test]
    fn the_exchange_of_the_baseline_is_said() {
        let says = |workers, exchange: &str| {
            let mut runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
            runs.iter_mut().for_each(|run| run.workers = workers);
            runs[0].exchange = exchange.parse().unwrap();
            (notes(&synthetic::summary(&runs)).concat(), traffic(&synthetic::summary(&runs)))
        };
        let (all_reduce, table) = says(4, "all-reduce");
        assert!(all_reduce.contains("of none: an uncompressed all-reduce."), "{all_reduce}");
        assert_eq!((&*table.head[1], &*table.rows[0][1]), ("exchange", "all-reduce"));
        let (server, table) = says(4, "server");
        assert!(server.contains("parameter server, whose link carries the messages of all 4"));
        assert!(
            !table.head.contains(&"exchange".to_owned()) && !server.contains("different exchanges")
        );
        assert!(says(5, "all-gather").0.contains("moves 2.5 times the bytes"));
        assert!(says(4, "server:servers=2").0.contains("by the exchange server:servers=2"));
    }

    #[test]
    fn rows_count_runs_that_diverged() {
        let runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
        let failed = [synthetic::diverged("3lc", 2), synthetic::diverged("sbc", 1)];
        let table = traffic(&synthetic::summary(&runs).with_diverged(&failed));
        let cells = |row: usize| (&*table.rows[row][0], &*table.rows[row][1], &*table.rows[row][2]);
        assert_eq!(cells(0), ("none", "91.00 %", "+0.00"));
        assert_eq!(cells(1), ("3lc", "91.00 %, 1 of 2 diverged", "+0.00"));
        assert_eq!(cells(2), ("sbc", "1 of 1 diverged", "–"));
    }

    #[test]
    fn compressors_that_send_more_than_an_all_reduce_are_named() {
        let mut runs = [synthetic::run("none", 1), synthetic::run("topk:ratio=0.9", 1)];
        assert_eq!(beyond_all_reduce(&synthetic::summary(&runs)), None);
        // Four workers send 48 bits a parameter; this one sends 72 in each of 10 steps.
        runs[1].bytes_up = 10.0 * 9000.0;
        let note = beyond_all_reduce(&synthetic::summary(&runs)).unwrap();
        assert!(note.contains("uncompressed all-reduce: topk:ratio=0.9 1.50×. Use"), "{note}");
        runs[1].workers = 1;
        runs[0].workers = 1;
        assert_eq!(beyond_all_reduce(&synthetic::summary(&runs)), None);
    }

    #[test]
    fn what_was_hidden_is_shown_where_there_was_overlap() {
        let mut runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
        let heads = |runs: &[RunRecord]| time(&synthetic::summary(runs));
        assert!(!heads(&runs).head.contains(&HIDDEN.to_owned()));
        // A step waits for a quarter of its 10 or 30 milliseconds in the background.
        for (at, step) in runs[1].trace.iter_mut().enumerate() {
            step.background = if at % 2 == 0 { 0.010 } else { 0.030 };
            step.waited = step.background / 4.0;
        }
        let time = heads(&runs);
        assert_eq!((time.head.len(), time.head[4].as_str()), (9, "hidden"));
        assert_eq!([&time.rows[0][4], &time.rows[1][4]], ["–", "75 % of communication"]);
        let notes = notes(&synthetic::summary(&runs));
        assert!(notes.iter().any(|note| note.starts_with("Hidden:")));
    }
}
