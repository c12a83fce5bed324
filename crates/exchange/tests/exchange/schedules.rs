//! Compressors that change during a run: all ranks change at the same step, residuals are carried
//! over, and a state can be restored into any stage.

use crate::common::{Run, SIZES, bits};

const STRATEGIES: [&str; 5] =
    ["all-gather", "scatter-reduce", "sparse-all-reduce", "server", "server:servers=2"];

fn run(name: &str) -> Run {
    let mut run = Run::of(name, 3, "topk:ratio=0.3", &SIZES);
    let later = [(2, "topk:ratio=0.01"), (5, "topk:ratio=0.5")];
    run.policy.push.later = later.map(|(from, spec)| (from, spec.parse().unwrap())).to_vec();
    run
}

#[test]
fn ranks_change_together_and_send_what_the_stage_says() {
    for name in STRATEGIES {
        let ends = run(name).steps(8);
        for end in &ends {
            assert!(bits(&end.parameters) == bits(&ends[0].parameters), "{name}");
            let up: Vec<u64> = end.reports.iter().map(|report| report.traffic.bytes_up).collect();
            assert!(up[2] < up[1] / 4 && up[5] > 8 * up[4], "{name}: {up:?}");
        }
    }
}

#[test]
fn what_keeps_nothing_is_followed_by_anything() {
    for (name, first, later, smaller) in [
        ("all-gather", "none", "topk:ratio=0.01", 20),
        ("scatter-reduce", "fp16", "3lc", 4),
        ("server", "none", "sbc", 20),
        ("all-reduce", "none", "powersgd:rank=1", 4),
        ("all-reduce", "bf16", "gradiveq:slice=16,keep=2,refresh=100", 2),
    ] {
        let mut run = Run::of(name, 3, first, &SIZES);
        run.policy.push.later = vec![(2, later.parse().unwrap())];
        let ends = run.steps(5);
        for end in &ends {
            assert!(bits(&end.parameters) == bits(&ends[0].parameters), "{name}, {later}");
            let up: Vec<u64> = end.reports.iter().map(|report| report.traffic.bytes_up).collect();
            assert!(up[4] < up[1] / smaller, "{name}, {later}: {up:?}");
        }
    }
}

#[test]
fn a_state_goes_back_to_the_stage_it_was_saved_in() {
    for name in STRATEGIES {
        let run = run(name);
        // From the third stage back to the first.
        run.each(|rank, exchange| run.repeat(rank, (2, 7), exchange));
    }
}
