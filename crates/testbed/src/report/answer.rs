//! The result of a comparison: which compressor to take on which link.

use std::rc::Rc;

use gradwire_train::Metric;

use super::content::{Answer, Captioned};
use super::end;
use crate::format::{bandwidth, points, significant, times};
use crate::summary::Summary;
use crate::table::{Table, or_dash};
use crate::verdict::{self, Choice, Judged, OnLink, Verdict};

/// The answer of a summary.
pub(crate) fn answer(summary: &Summary) -> Answer {
    let chart = end::by_bytes(summary)
        .map(|chart| Captioned { caption: end::caption(summary), figure: Rc::new(chart) });
    let lines = verdict::lines(summary);
    let Some(verdict) = Verdict::of(summary) else {
        let headline = lines.first().cloned().unwrap_or_else(|| without_verdict(summary));
        return Answer { headline, choices: Table::new([""]), notes: Vec::new(), chart };
    };
    let mut notes = vec![MEANING.to_owned(), within(&verdict), against(&verdict)];
    notes.extend(lines.last().map(|line| capitalized(line) + "."));
    Answer { headline: headline(&verdict), choices: choices(&verdict), notes, chart }
}

const MEANING: &str = "Measured: quality and bytes. Modelled: speed on a link, from the measured \
    bytes and times of a step.";

/// The result without runs to compare.
fn without_verdict(summary: &Summary) -> String {
    match summary.baseline() {
        Some(_) => "Only none was run: there is no compressor to compare with it.".to_owned(),
        None => "None was not run, so no quality or speed can be compared with it.".to_owned(),
    }
}

/// The choice on the first link on which there is one, in a sentence.
fn headline(verdict: &Verdict) -> String {
    let metric = verdict.metric.name();
    let first = verdict.links.iter().find_map(|link| Some((link, link.fastest.as_ref()?)));
    let Some((link, choice)) = first else {
        return format!("No compressor keeps the {metric} of none and is faster on these links.");
    };
    let quality = judged(verdict, choice).map_or_else(String::new, |one| {
        format!(" ({}, n = {})", difference(verdict.metric, one), one.seeds)
    });
    format!(
        "{} keeps the {metric} of none{quality} and is {} times as fast at {} (modelled).",
        choice.compressor,
        significant(choice.speedup),
        bandwidth(link.bits_per_second)
    )
}

fn judged<'a>(verdict: &'a Verdict, choice: &Choice) -> Option<&'a Judged> {
    verdict.compressors.iter().find(|one| one.compressor == choice.compressor)
}

/// The mean difference from none, with its interval.
fn difference(metric: Metric, one: &Judged) -> String {
    let show = |value: f64| match metric.is_fraction() {
        true => points(value),
        false => format!("{value:+.3}"),
    };
    let unit = if metric.is_fraction() { " points" } else { "" };
    let mean = or_dash(one.difference.map(|mean| show(mean) + unit));
    let interval = one.interval.map(|(low, high)| format!(" [{} to {}]", show(low), show(high)));
    mean + &interval.unwrap_or_default()
}

/// For each link the fastest compressor that keeps the quality, and a faster one that may not.
fn choices(verdict: &Verdict) -> Table {
    let against = format!("{} against none [95 % interval]", verdict.metric.name());
    let heads = ["link", "compressor", "speed, modelled", &against, "n", "quality"];
    let mut table = Table::new(heads).left_aligned();
    for link in &verdict.links {
        let rate = bandwidth(link.bits_per_second);
        let OnLink { fastest, faster, .. } = link;
        match fastest {
            Some(choice) => table.push(row(verdict, &rate, choice)),
            None => table.push([&rate, "none", &times(1.0), &or_dash(None), "", "keeps"]),
        }
        if let Some(choice) = faster {
            table.push(row(verdict, &format!("{rate}, faster"), choice));
        }
    }
    table
}

fn row(verdict: &Verdict, link: &str, choice: &Choice) -> [String; 6] {
    let one = judged(verdict, choice);
    [
        link.to_owned(),
        choice.compressor.clone(),
        times(choice.speedup),
        or_dash(one.map(|one| difference(verdict.metric, one))),
        or_dash(one.map(|one| one.seeds.to_string())),
        or_dash(one.map(|one| one.judgement.verb().to_owned())),
    ]
}

/// When a compressor keeps the quality.
fn within(verdict: &Verdict) -> String {
    let limit = end::limit(verdict.metric, verdict.tolerance);
    let ends = match verdict.compressors.iter().map(|one| one.seeds).max() {
        Some(2..) => "if the whole 95 % interval of the difference over n seeds (Student's t) is",
        _ => "if the difference of the one seed, which shows no spread, is",
    };
    format!("A compressor keeps the quality {ends} within the limit: {limit}.")
}

/// What speeds are relative to.
fn against(verdict: &Verdict) -> String {
    format!("Speed is relative to none: {}.", verdict.baseline)
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}

#[cfg(test)]
mod tests {
    use gradwire_exchange::Link;
    use gradwire_train::RunRecord;

    use super::*;
    use crate::summary::summarize;
    use crate::synthetic;

    fn of(qualities: &[f64]) -> Answer {
        let run = |(seed, quality): (u64, &f64)| RunRecord {
            quality: *quality,
            ..synthetic::run("3lc", seed)
        };
        let none = (1..=qualities.len() as u64).map(|seed| synthetic::run("none", seed));
        let runs: Vec<RunRecord> = none.chain((1..).zip(qualities).map(run)).collect();
        answer(&summarize(&runs, &[Link::mbit(0.001), Link::mbit(1e9)]).unwrap())
    }

    #[test]
    fn the_result_names_compressor_quality_seeds_speed_and_link() {
        // Qualities of none are 0.91, 0.92 and 0.93: differences of −0.1, 0 and 0.1 points.
        let answer = of(&[0.909, 0.92, 0.931]);
        assert_eq!(
            answer.headline,
            "3lc keeps the accuracy of none (+0.00 points [-0.25 to +0.25], n = 3) and is 24.0 \
             times as fast at 1 kbit/s (modelled)."
        );
        let rows = &answer.choices.rows;
        assert_eq!(rows[0][..3], ["1 kbit/s", "3lc", "24.0×"]);
        assert_eq!(rows[0][3..], ["+0.00 points [-0.25 to +0.25]", "3", "keeps"]);
        assert_eq!(rows[1][..2], ["1000000 Gbit/s", "none"]);
        assert!(
            answer.notes[1].contains("95 % interval")
                && answer.notes[3] == "Keep the quality: 3lc."
        );
        assert!(answer.chart.is_some());
    }

    #[test]
    fn a_faster_one_that_loses_quality_is_marked() {
        let answer = of(&[0.90]);
        assert!(answer.headline.starts_with("No compressor keeps the accuracy"));
        assert_eq!(answer.choices.rows[1][0], "1 kbit/s, faster");
        assert_eq!(answer.choices.rows[1][3..], ["-1.00 points", "1", "loses"]);
        assert!(answer.notes[1].contains("one seed, which shows no spread"));
    }

    #[test]
    fn without_a_comparison_the_reason_is_said() {
        let says =
            |compressor| answer(&synthetic::summary(&[synthetic::run(compressor, 1)])).headline;
        assert!(says("none").starts_with("Only none was run"));
        assert!(says("3lc").starts_with("None was not run"));
        let runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
        let wreck = synthetic::summary(&runs).with_diverged(&[synthetic::diverged("none", 2)]);
        assert!(answer(&wreck).headline.contains("none diverged"));
    }
}
