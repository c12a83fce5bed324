//! The memory of a long run does not grow, except for its record.

use std::time::{Duration, Instant};

use super::processes::{ends_within, signal};
use super::trial::Trial;

/// The duration of the run, and the fraction of it after which memory is compared.
const TIME: Duration = Duration::from_secs(30);
const WARM: f64 = 0.25;

/// The growth of memory allowed after that: for allocators, and for the record, a doubling vector
/// with a row of about 150 bytes per step. A gradient of the run has 50 000 bytes.
const MARGIN: u64 = 16 << 20;
const STEP: u64 = 512;

/// Samples the memory of a random run that does not end.
pub(super) fn grows(trial: &mut Trial) -> Result<(), String> {
    loop {
        trial.restart()?;
        let (mut settings, _) = trial.catalogue.run(&mut trial.rng);
        for (key, value) in [("--steps", "10000000"), ("--batch", "32"), ("--evaluations", "1000")]
        {
            let at = settings.iter().position(|word| word == key).ok_or("a key is missing")?;
            value.clone_into(&mut settings[at + 1]);
        }
        let then = format!(" & sleep {}; kill -TERM $!", TIME.as_secs());
        let mut child = trial.start(&mut trial.command(&settings), &then)?;
        let (start, mut before, mut after) = (Instant::now(), 0, 0);
        while start.elapsed() < TIME && !ends_within(&mut child, Duration::from_millis(250)) {
            let warm = start.elapsed() > TIME.mul_f64(WARM);
            let most = if warm { &mut after } else { &mut before };
            *most = resident(child.id()).max(*most);
        }
        signal(child.id(), "-TERM");
        let ended = trial.finish(&mut child)?;
        if ended.status.code() != Some(130) {
            // The settings were refused, or the loss is no longer finite.
            ended.succeeded()?;
            continue;
        }
        trial.attacks += 1;
        let count =
            ended.said.rsplit_once("stopped after ").and_then(|(_, rest)| rest.split(' ').next());
        let steps: u64 =
            count.and_then(|count| count.parse().ok()).ok_or("it did not report its steps")?;
        let limit = before + MARGIN + STEP * steps;
        if after > limit {
            return Err(format!(
                "memory grew from {before} to {after} bytes in {steps} steps; at most {limit} bytes were expected"
            ));
        }
        return Ok(());
    }
}

/// The resident memory of a process in bytes; 0 if it has ended.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
