//! The verdict of a comparison: which compressors keep the quality of `none`, and which of these is
//! the fastest on each link.

use std::time::Duration;

use gradwire_exchange::Link;
use gradwire_train::Metric;
use serde::Serialize;

use crate::format::{self, points, significant};
use crate::summary::tables::{self, DIVERGED};
use crate::summary::{Row, Spread, Summary};

/// The smallest speed-up for which a compressor is recommended, over `none` or over a slower one.
const WORTHWHILE: f64 = 1.05;

/// How far below the baseline an accuracy may lie: half a percentage point.
const TOLERANCE: f64 = 0.005;

/// The same for a perplexity above the baseline, as a fraction of the baseline.
const RELATIVE_TOLERANCE: f64 = 0.01;

/// How many tolerances a compressor may lose to be named as a faster one.
const MOST_LOST: f64 = 10.0;

/// How the quality of a compressor compares with the quality of `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// The whole interval of the difference is within the tolerance.
    Keeps,
    /// The whole interval is beyond the tolerance, or a run diverged.
    Loses,
    /// The end of the tolerance is in the interval, or runs are missing.
    CannotTell,
}

impl Judgement {
    /// In words, as a verb.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Keeps => "keeps",
            Self::Loses => "loses",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// The quality of a compressor beside the quality of `none`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The compressor's spec.
    pub compressor: String,
    /// How the qualities compare.
    pub judgement: Judgement,
    /// The mean difference of quality over seeds, this compressor minus `none`; `None` without a
    /// seed of both.
    pub difference: Option<f64>,
    /// The 95 % confidence interval of the difference, by Student's t over seeds; `None` with fewer
    /// than two seeds.
    pub interval: Option<(f64, f64)>,
    /// The number of seeds that both have.
    pub seeds: usize,
    /// How many runs diverged.
    pub diverged: usize,
}

/// A compressor on a link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// The compressor's spec.
    pub compressor: String,
    /// Modelled step time of `none` over that of this compressor.
    pub speedup: f64,
}

/// The verdict for a link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OnLink {
    /// The bandwidth.
    pub bits_per_second: f64,
    /// The latency of a message in seconds.
    pub latency_seconds: f64,
    /// The fastest compressor that keeps the quality; `None` if none of these is faster than
    /// `none`.
    pub fastest: Option<Choice>,
    /// Of the compressors that are faster still, the one with the best quality, unless it loses
    /// more than ten tolerances: the next point on the front of speed and quality.
    pub faster: Option<Choice>,
}

impl OnLink {
    /// The link in words.
    pub(crate) fn name(&self) -> String {
        let &Self { bits_per_second, latency_seconds, .. } = self;
        let latency = Duration::from_secs_f64(latency_seconds);
        format::link(&Link { bits_per_second, latency })
    }
}

/// The verdict of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The metric of the quality.
    pub metric: Metric,
    /// The loss of quality that counts as none, at least 0.
    pub tolerance: f64,
    /// The exchange of `none`, in words.
    pub baseline: String,
    /// The compressors beside `none`.
    pub compressors: Vec<Judged>,
    /// The choice for each link.
    pub links: Vec<OnLink>,
}

impl Verdict {
    /// The verdict; `None` without finished runs of `none` and of another compressor, and if `none`
    /// diverged.
    pub fn of(summary: &Summary) -> Option<Self> {
        let none = summary.baseline().filter(|_| summary.rows.len() > 1)?;
        if has_diverged(summary, none) {
            return None;
        }
        let comparison =
            Comparison { summary, tolerance: tolerance(summary.metric, none.quality.mean) };
        let others = summary.rows.iter().filter(|row| row.compressor != none.compressor);
        Some(Self {
            metric: summary.metric,
            tolerance: comparison.tolerance,
            baseline: tables::baseline(none.exchange, summary.workers),
            compressors: others.map(|row| comparison.judged(row)).collect(),
            links: (0..summary.links.len()).map(|link| comparison.on_link(link)).collect(),
        })
    }

    /// The verdict as lines: what they say, a line for each link, and a line with the compressors
    /// by quality.
    pub fn lines(&self) -> Vec<String> {
        let Self { metric, tolerance, baseline, .. } = self;
        let within = match metric.is_fraction() {
            true => format!("{:.1} points", tolerance * 100.0),
            false => format!("a perplexity of {} more", significant(*tolerance)),
        };
        let seeds = match self.compressors.iter().map(|one| one.seeds).max() {
            Some(2..) => "by the 95 % interval [in brackets] of the difference over n seeds",
            _ => "with one seed, which shows no spread (repeat --seed for an interval)",
        };
        let head = format!(
            "Fastest compressors that keep the quality of none within {within}, {seeds}. Times the \
             speed of {baseline}, modelled:"
        );
        let links = self.links.iter().map(|link| self.line(link));
        std::iter::once(head).chain(links).chain([self.by_quality()]).collect()
    }

    fn line(&self, link: &OnLink) -> String {
        let rate = link.name();
        let named = |choice: &Choice| {
            let Choice { compressor, speedup } = choice;
            let judged = self.compressors.iter().find(|one| one.compressor == *compressor);
            let quality = judged.map_or_else(String::new, |one| self.quality(one));
            format!("{compressor}, {} times ({quality})", significant(*speedup))
        };
        let fastest = link.fastest.as_ref().map(named);
        let faster = link.faster.as_ref().map(named);
        match (fastest, faster) {
            (None, None) => format!("at {rate}: none; no other is faster and keeps the quality"),
            (fastest, None) => format!("at {rate}: {}", fastest.unwrap_or_default()),
            (fastest, Some(faster)) => {
                format!("at {rate}: {}; faster: {faster}", fastest.unwrap_or("none".to_owned()))
            }
        }
    }

    /// How the quality of a compressor compares, with the difference.
    fn quality(&self, one: &Judged) -> String {
        let show = |difference: f64| match (self.metric.is_fraction(), difference.abs()) {
            (true, _) => points(difference),
            (false, 1e6..) => format!("{difference:+.1e}"),
            (false, _) => format!("{difference:+.3}"),
        };
        let unit = if self.metric.is_fraction() { " points" } else { "" };
        let difference = one.difference.map_or_else(String::new, |difference| {
            let interval = one.interval.map_or_else(String::new, |(low, high)| {
                format!(" [{} to {}]", show(low), show(high))
            });
            format!(": {}{unit}{interval}, n = {}", show(difference), one.seeds)
        });
        format!("{}{difference}", one.judgement.verb())
    }

    /// The compressors by judgement.
    fn by_quality(&self) -> String {
        let named = |judgement: Judgement, title: &str| {
            let all = self.compressors.iter().filter(|one| one.judgement == judgement);
            let names: Vec<&str> = all.map(|one| one.compressor.as_str()).collect();
            (!names.is_empty()).then(|| format!("{title}: {}", names.join(", ")))
        };
        let groups = [
            named(Judgement::Keeps, "keep the quality"),
            named(Judgement::CannotTell, "cannot tell"),
            named(Judgement::Loses, "lose quality"),
        ];
        groups.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// The verdict as lines; empty without runs of `none` and of another compressor.
pub fn lines(summary: &Summary) -> Vec<String> {
    match summary.baseline() {
        Some(none) if summary.rows.len() > 1 && has_diverged(summary, none) => {
            vec!["Runs of none diverged, so no quality can be compared with theirs.".to_owned()]
        }
        _ => Verdict::of(summary).map_or_else(Vec::new, |verdict| verdict.lines()),
    }
}

/// Whether a run of `none` diverged, or ended with a perplexity without meaning.
fn has_diverged(summary: &Summary, none: &Row) -> bool {
    let wreck = !summary.metric.is_fraction() && none.quality.mean >= DIVERGED;
    wreck || summary.diverged_of(&none.compressor) > 0
}

/// The loss of quality that counts as none, for a baseline of this quality.
pub(crate) fn tolerance(metric: Metric, baseline: f64) -> f64 {
    if metric.is_fraction() { TOLERANCE } else { RELATIVE_TOLERANCE * baseline }
}

/// The compressors beside `none`.
struct Comparison<'a> {
    summary: &'a Summary,
    /// How much worse the quality may be.
    tolerance: f64,
}

impl Comparison<'_> {
    /// How much worse the quality is than that of `none`, in the mean over the seeds that both
    /// have: seeds differ by more than compressors.
    fn lost(&self, difference: f64) -> f64 {
        if self.summary.metric.is_fraction() { -difference } else { difference }
    }

    fn judged(&self, row: &Row) -> Judged {
        Judged {
            compressor: row.compressor.clone(),
            judgement: self.judgement(row),
            difference: row.difference.map(|difference| difference.mean),
            interval: row.difference.as_ref().and_then(Spread::interval),
            seeds: row.difference.map_or(0, |difference| difference.count),
            diverged: self.summary.diverged_of(&row.compressor),
        }
    }

    fn judgement(&self, row: &Row) -> Judgement {
        if self.summary.diverged_of(&row.compressor) > 0 {
            return Judgement::Loses;
        }
        let Some(difference) = row.difference else { return Judgement::CannotTell };
        let (low, high) = difference.interval().unwrap_or((difference.mean, difference.mean));
        let (least, most) = match (self.lost(low), self.lost(high)) {
            (low, high) if low <= high => (low, high),
            (low, high) => (high, low),
        };
        // A difference of exactly the tolerance may be rounded up.
        let tolerance = self.tolerance * (1.0 + 1e-9);
        match difference.count < self.summary.seeds() {
            _ if least > tolerance => Judgement::Loses,
            // Other runs failed or are not finished.
            true => Judgement::CannotTell,
            false if most <= tolerance => Judgement::Keeps,
            false => Judgement::CannotTell,
        }
    }

    fn on_link(&self, link: usize) -> OnLink {
        let faster_than = |least: f64| {
            self.summary.rows.iter().filter_map(move |row| {
                let speedup = row.on_links[link].speedup.filter(|speedup| *speedup >= least)?;
                Some((row, speedup))
            })
        };
        let keeping = faster_than(WORTHWHILE).filter(|(row, _)| self.keeps(row));
        let fastest = keeping.max_by(|(_, a), (_, b)| a.total_cmp(b));
        let least = fastest.map_or(WORTHWHILE, |(_, speedup)| speedup * WORTHWHILE);
        let near = faster_than(least)
            .filter_map(|(row, speedup)| Some((row, speedup, self.lost(row.difference?.mean))));
        let faster = near
            .filter(|(row, _, lost)| {
                *lost <= MOST_LOST * self.tolerance
                    && self.summary.diverged_of(&row.compressor) == 0
            })
            .min_by(|(_, a, lost_a), (_, b, lost_b)| lost_a.total_cmp(lost_b).then(b.total_cmp(a)));
        let choice = |row: &Row, speedup| Choice { compressor: row.compressor.clone(), speedup };
        OnLink {
            bits_per_second: self.summary.links[link].bits_per_second,
            latency_seconds: self.summary.links[link].latency.as_secs_f64(),
            fastest: fastest.map(|(row, speedup)| choice(row, speedup)),
            faster: faster.map(|(row, speedup, _)| choice(row, speedup)),
        }
    }

    fn keeps(&self, row: &Row) -> bool {
        self.judgement(row) == Judgement::Keeps
    }
}

#[cfg(test)]
mod tests {
    use gradwire_train::RunRecord;

    use super::*;
    use crate::summary::summarize;
    use crate::synthetic;

    /// Runs of a compressor with these qualities, by seed, and this many bytes each way a step.
    fn runs(compressor: &str, bytes: f64, qualities: &[f64]) -> Vec<RunRecord> {
        let run = |(seed, quality): (u64, &f64)| {
            let mut run = synthetic::run(compressor, seed);
            (run.bytes_up, run.bytes_down, run.quality) = (10.0 * bytes, 10.0 * bytes, *quality);
            run
        };
        (0..).zip(qualities).map(run).collect()
    }

    fn says(runs: &[Vec<RunRecord>]) -> Vec<String> {
        let links = [Link::mbit(0.001), Link::mbit(1e9)];
        lines(&summarize(&runs.concat(), &links).unwrap())
    }

    const NONE: [f64; 3] = [0.90, 0.92, 0.94];

    #[test]
    fn the_interval_of_paired_differences_decides() {
        let judged = |qualities: &[f64]| {
            let all = [runs("none", 4000.0, &NONE), runs("3lc", 100.0, qualities)].concat();
            let verdict = Verdict::of(&summarize(&all, &[Link::mbit(0.001)]).unwrap()).unwrap();
            (verdict.compressors[0].judgement, verdict.compressors[0].interval.unwrap())
        };
        // Differences of −0.1, 0 and 0.1 points: 0 ± 4.303 · 0.1 / √3 = 0.248 points.
        let (keeps, (low, high)) = judged(&[0.899, 0.92, 0.941]);
        assert!((low + 0.00248).abs() < 1e-5 && (high - 0.00248).abs() < 1e-5, "{low} {high}");
        assert_eq!(keeps, Judgement::Keeps);
        // 0.4 points less: from −0.648 to −0.152, while half a point is allowed.
        assert_eq!(judged(&[0.895, 0.916, 0.937]).0, Judgement::CannotTell);
        // 0.8 points less: from −1.048 to −0.552; seeds differ by 4 points.
        assert_eq!(judged(&[0.891, 0.912, 0.933]).0, Judgement::Loses);
        // As good in the mean, but once 3 points less and once 3 more.
        assert_eq!(judged(&[0.87, 0.92, 0.97]).0, Judgement::CannotTell);
    }

    #[test]
    fn each_link_has_the_fastest_that_keeps_quality_and_the_next_on_the_front() {
        let off = |points: f64| NONE.map(|quality| quality - points / 100.0);
        let all = [
            runs("none", 4000.0, &NONE),
            runs("eden", 400.0, &off(0.1)),
            runs("int8", 1000.0, &off(0.0)),
            runs("3lc", 100.0, &off(1.0)),
            runs("topk", 50.0, &off(3.0)),
            runs("sbc", 10.0, &off(17.65)),
        ];
        let found = says(&all);
        assert!(found[0].contains("speed of an uncompressed parameter server"), "{}", found[0]);
        assert!(found[0].contains("within 0.5 points, by the 95 % interval"), "{}", found[0]);
        // 4000 / 400 and 4000 / 100 bytes, and 14 milliseconds of 192, 19.2 and 4.8 seconds.
        let expected = "at 1 kbit/s: eden, 9.99 times (keeps: -0.10 points [-0.10 to -0.10], n = 3); \
                        faster: 3lc, 39.9 times (loses: -1.00 points [-1.00 to -1.00], n = 3)";
        assert_eq!(found[1], expected);
        assert!(found[2].ends_with("none; no other is faster and keeps the quality"), "{found:?}");
        assert_eq!(found[3], "keep the quality: eden, int8; lose quality: 3lc, topk, sbc");
        // Nothing keeps the quality: the faster one is still named, but no wreck.
        let lost = says(&[all[0].clone(), all[3].clone(), all[5].clone()]);
        assert!(lost[1].starts_with("at 1 kbit/s: none; faster: 3lc, 39.9 times"), "{lost:?}");
        let wreck = says(&[all[0].clone(), all[5].clone()]);
        assert!(wreck[1].ends_with(": none; no other is faster and keeps the quality"));
    }

    #[test]
    fn one_seed_has_no_interval() {
        let one = |quality| [runs("none", 4000.0, &[0.9]), runs("3lc", 100.0, &[quality])];
        let found = says(&one(0.896));
        assert!(found[0].contains("with one seed, which shows no spread"), "{}", found[0]);
        assert!(found[1].contains("3lc, 39.9 times (keeps: -0.40 points, n = 1)"), "{}", found[1]);
        // 0.9 − 0.895 is rounded to more than half a point.
        assert!(says(&one(0.895))[1].contains("(keeps: -0.50 points, n = 1)"));
        assert!(says(&one(0.89))[1].contains("none; faster: 3lc, 39.9 times (loses: -1.00 points"));
        assert!(says(&one(0.9)[..1]).is_empty() && says(&one(0.9)[1..]).is_empty());
    }

    #[test]
    fn compressors_that_lack_runs_or_diverged_are_not_recommended() {
        let all = [runs("none", 4000.0, &NONE), runs("3lc", 100.0, &NONE[..2])].concat();
        let summary = summarize(&all, &[Link::mbit(0.001)]).unwrap();
        let judgement = |summary: &Summary| Verdict::of(summary).unwrap().compressors.remove(0);
        assert_eq!(judgement(&summary).judgement, Judgement::CannotTell);
        let failed = summary.clone().with_diverged(&[synthetic::diverged("3lc", 2)]);
        let found = judgement(&failed);
        assert_eq!((found.judgement, found.diverged, found.seeds), (Judgement::Loses, 1, 2));
        assert_eq!(Verdict::of(&failed).unwrap().links[0].faster, None);
        let none = summary.with_diverged(&[synthetic::diverged("none", 2)]);
        assert!(Verdict::of(&none).is_none() && lines(&none)[0].contains("none diverged"));
    }

    #[test]
    fn less_perplexity_is_better() {
        let says = |other: f64| {
            let runs = [synthetic::text_run("none", 4.0), synthetic::text_run("3lc", other)];
            lines(&summarize(&runs, &[Link::mbit(0.1)]).unwrap())
        };
        assert!(says(3.0)[1].contains("(keeps: -1.000, n = 1)"), "{:?}", says(3.0));
        assert!(says(4.03)[1].contains("keeps") && says(4.0)[0].contains("0.0400 more"));
        assert!(says(4.05)[1].contains("none; faster: 3lc"), "{:?}", says(4.05));
        // Ten times the tolerance, 0.4, is not near.
        assert!(!says(4.5)[1].contains("3lc") && says(4.5)[2].contains("lose quality: 3lc"));
        assert!(!says(f64::MAX)[1].contains("3lc"));
        let mut diverged = [synthetic::text_run("none", f64::MAX), synthetic::text_run("3lc", 4.0)];
        diverged[0].quality = f64::MAX;
        let found = lines(&summarize(&diverged, &[Link::mbit(0.1)]).unwrap());
        assert!(found.len() == 1 && found[0].contains("none diverged"), "{found:?}");
    }
}
