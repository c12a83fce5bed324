//! Where and when a report is made, and how to cite it.

use std::fs;
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

use gradwire::registry;
use gradwire_train::VERSION;

/// The machine that makes a report, and the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The day and the minute, in UTC.
    date: String,
    /// The name of the machine; empty if the system does not say.
    host: String,
    cores: usize,
}

impl Origin {
    /// This machine, now.
    pub(crate) fn here() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let named =
            || ["HOSTNAME", "COMPUTERNAME"].iter().find_map(|name| std::env::var(name).ok());
        Self {
            date: date(since.as_secs()),
            host: host.or_else(named).unwrap_or_default().trim().to_owned(),
            cores: available_parallelism().map_or(1, usize::from),
        }
    }

    /// When and by what the report was made, in a sentence.
    pub(crate) fn sentence(&self) -> String {
        format!("Report of {} by gradwire {VERSION}.", self.date)
    }

    /// Facts about the report.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let system = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
        let host = match self.host.as_str() {
            "" => system,
            host => format!("{host} ({system})"),
        };
        vec![
            ("report of", self.date.clone()),
            ("host of the report", host),
            ("cores of that host", self.cores.to_string()),
            ("gradwire", VERSION.to_owned()),
        ]
    }

    /// An entry for a bibliography that cites gradwire, with a note about what was done.
    pub(crate) fn citation(&self, note: &str) -> String {
        let year = self.date.get(..4).unwrap_or_default();
        let braceless = note.replace(['{', '}', '\\'], "");
        format!(
            "@software{{gradwire,\n  author  = {{{{The gradwire developers}}}},\n  title   = \
             {{gradwire: compressed gradient exchange for distributed training}},\n  version = \
             {{{VERSION}}},\n  year    = {{{year}}},\n  note    = {{{braceless}}}\n}}"
        )
    }
}

/// The papers of these compressors, a line for each compressor that has one.
pub(crate) fn papers<'a>(compressors: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut lines = Vec::new();
    for id in compressors.into_iter().filter_map(|spec| spec.split([':', ' ']).next()) {
        let entry = registry::all().find(|entry| entry.id == id);
        let line = entry
            .filter(|entry| !entry.reference.is_empty() && entry.id != "none")
            .map(|entry| format!("{id}: {}", entry.reference));
        lines.extend(line.filter(|line| !lines.contains(line)));
    }
    lines
}

/// Seconds since 1970 as a day and a minute of the Gregorian calendar.
fn date(seconds: u64) -> String {
    let (days, minutes) = (seconds / 86_400, seconds / 60 % 1440);
    // Years of this count begin in March, so a leap day ends one (Hinnant, "chrono-compatible
    // low-level date algorithms").
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..10 => (400 * era + year, month + 3),
        _ => (400 * era + year + 1, month - 9),
    };
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_command_date() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_340, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59 UTC"),
            (1_796_023_860, "2026-11-30 07:31 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }

    #[test]
    fn citations_have_the_version_and_close_their_braces() {
        let origin = Origin { date: "2026-11-30 07:31 UTC".into(), host: String::new(), cores: 2 };
        let entry = origin.citation("lenet5 on }{evil\\");
        assert!(entry.contains("year    = {2026}") && entry.contains(VERSION), "{entry}");
        assert_eq!(entry.matches('{').count(), entry.matches('}').count());
        assert!(entry.contains("{lenet5 on evil}"));
        assert!(
            origin
                .facts()
                .iter()
                .any(|(name, value)| *name == "cores of that host" && value == "2")
        );
    }

    #[test]
    fn compressors_have_their_papers() {
        let papers = papers(["none", "3lc", "3lc:s=1.75", "mine/unknown"]);
        assert_eq!(papers.len(), 1);
        assert!(papers[0].starts_with("3lc: Lim et al."), "{papers:?}");
    }
}
