//! Exchanges that change from one stage of a schedule to the next, beside runs of one exchange.

use crate::common::{connected, exchange, gradients, tensors};
use gradwire::State;
use gradwire_exchange::{
    CompressionSchedule, Exchange, OnNonFinite, Policy, Reducer, ReducerConfig, RunDescription,
    Schedule, reshard,
};

const SIZES: [usize; 2] = [300, 60_000];

fn schedule(text: &str) -> Schedule {
    text.parse::<CompressionSchedule>().unwrap().resolve(RunDescription::of_steps(1000)).unwrap()
}

fn policy(text: &str, rules: &[&str]) -> Policy {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    Policy { rules, ..Policy::new(schedule(text)) }
}

/// The exchanges of a run's stages, as texts.
fn suitable(text: &str, rules: &[&str], ranks: usize) -> Vec<(u64, String)> {
    let stages = ReducerConfig::suitable_stages(&policy(text, rules), ranks);
    stages.into_iter().map(|(step, exchange)| (step, exchange.to_string())).collect()
}

#[test]
fn each_stage_has_the_exchange_that_suits_it() {
    let named = |stages: &[(u64, &str)]| -> Vec<(u64, String)> {
        stages.iter().map(|(step, name)| (*step, (*name).to_owned())).collect()
    };
    for (text, rules, ranks, expected) in [
        ("none until 200 then eden", &[][..], 4, &[(0, "all-reduce"), (200, "all-gather")][..]),
        ("none until 200 then eden", &[], 16, &[(0, "all-reduce"), (200, "scatter-reduce")]),
        ("none until 200 then fp16", &[], 4, &[(0, "all-reduce")]),
        (
            "eden until 10 then none until 20 then int8:ef=off",
            &[],
            4,
            &[(0, "all-gather"), (10, "all-reduce"), (20, "scatter-reduce")],
        ),
        // Residuals go from stage to stage; the last of these stages counts.
        ("qsgd:s=1,ef=on until 10 then qsgd:s=100,ef=on", &[], 4, &[(0, "scatter-reduce")]),
        (
            "none until 5 then qsgd:s=1,ef=on until 10 then qsgd:s=100,ef=on",
            &[],
            4,
            &[(0, "all-reduce"), (5, "scatter-reduce")],
        ),
        // A rule whose messages do not add, and one that keeps residuals.
        (
            "none until 200 then eden",
            &["*0* -> terngrad:ef=off"],
            4,
            &[(0, "scatter-reduce"), (200, "all-gather")],
        ),
        ("none until 200 then eden", &["*0* -> 3lc"], 4, &[(0, "all-gather")]),
        (
            "none until 200 then eden",
            &["*0* -> fp16"],
            2,
            &[(0, "all-reduce"), (200, "all-gather")],
        ),
        ("lossless", &[], 4, &[(0, "scatter-reduce")]),
        ("none", &["*0* -> 3lc"], 2, &[(0, "all-gather")]),
    ] {
        assert_eq!(suitable(text, rules, ranks), named(expected), "{text}, {rules:?}, {ranks}");
    }
}

fn config(text: &str, exchange: Exchange) -> ReducerConfig {
    ReducerConfig {
        exchange,
        policy: policy(text, &[]),
        tensors: tensors(&SIZES),
        seed: 7,
        on_non_finite: OnNonFinite::Refuse,
    }
}

/// For each rank: the bits of the means and the sent bytes of each step, and the state at the end.
type Ends = Vec<(Vec<(Vec<u32>, u64)>, State)>;

fn run(
    ranks: usize,
    config: &ReducerConfig,
    later: &[(u64, Exchange)],
    steps: std::ops::Range<u64>,
    states: Option<&[State]>,
) -> Ends {
    connected(ranks, |rank, transport| {
        let transport = Box::new(transport);
        let mut reducer = Reducer::staged(transport, config.clone(), later.to_vec()).unwrap();
        if let Some(states) = states {
            reducer.restore(states.to_vec()).unwrap();
        }
        let names: Vec<_> = config.tensors.iter().map(|tensor| tensor.name()).collect();
        let mut found = Vec::new();
        for step in steps.clone() {
            let group = reducer.group_of(&names).unwrap();
            let mut values = gradients(&config.tensors, rank, step).concat();
            reducer.average(group, step, &mut values).unwrap();
            let bits = values.iter().map(|value| value.to_bits()).collect();
            found.push((bits, reducer.report().traffic.bytes_up));
        }
        (found, reducer.save())
    })
}

/// As [`run`], with the exchanges that suit.
fn run_staged(
    ranks: usize,
    text: &str,
    steps: std::ops::Range<u64>,
    states: Option<&[State]>,
) -> Ends {
    let stages = ReducerConfig::suitable_stages(&policy(text, &[]), ranks);
    assert!(stages.len() > 1);
    run(ranks, &config(text, stages[0].1), &stages[1..], steps, states)
}

fn steps_of(ends: &Ends) -> Vec<Vec<(Vec<u32>, u64)>> {
    ends.iter().map(|(steps, _)| steps.clone()).collect()
}

#[test]
fn a_stage_has_the_means_and_bytes_of_a_run_with_its_exchange() {
    for (ranks, second) in [(4, "all-gather"), (9, "scatter-reduce")] {
        let found = run_staged(ranks, "none until 2 then eden:ef=off", 0..4, None);
        let first = run(ranks, &config("none", exchange("all-reduce")), &[], 0..2, None);
        let last = run(ranks, &config("eden:ef=off", exchange(second)), &[], 2..4, None);
        for ((found, first), last) in
            steps_of(&found).iter().zip(steps_of(&first)).zip(steps_of(&last))
        {
            assert!(found[..2] == first && found[2..] == last, "{ranks} ranks");
        }
        // All ranks together: headers, and each part to its owner and from it to all.
        let sent: u64 = found.iter().map(|(steps, _)| steps[0].1).sum();
        let (n, elements) = (ranks as u64, 60_300);
        assert_eq!(sent, n * 2 * (n - 1) * 12 + 2 * 4 * elements * (n - 1));
    }
}

#[test]
fn states_of_any_stage_continue_the_run() {
    let text = "none until 2 then qsgd:s=100,ef=on until 4 then qsgd:s=120,ef=on";
    let whole = run_staged(4, text, 0..6, None);
    for at in [1, 2, 3, 4, 5] {
        let begun = run_staged(4, text, 0..at, None);
        let states: Vec<State> = begun.iter().map(|(_, state)| state.clone()).collect();
        let rest = run_staged(4, text, at..6, Some(&states));
        for ((whole, state), (rest, end)) in whole.iter().zip(&rest) {
            assert!(whole[at as usize..] == rest[..], "from step {at}");
            assert!(state.to_bytes().unwrap() == end.to_bytes().unwrap(), "from step {at}");
        }
    }
}

#[test]
fn residuals_of_another_configuration_are_not_lost_where_the_exchange_changes() {
    // Residuals of all-gather come to a run that begins with all-reduce, without a residual.
    let before = run(4, &config("int8:ef=on", exchange("all-gather")), &[], 0..3, None);
    let states: Vec<State> = before.iter().map(|(_, state)| state.clone()).collect();
    let after = connected(4, |rank, transport| {
        let config = config("none until 4 then int8:ef=on", exchange("all-reduce"));
        let later = vec![(4, exchange("scatter-reduce"))];
        let mut reducer = Reducer::staged(Box::new(transport), config.clone(), later).unwrap();
        reducer.restore(states.clone()).unwrap();
        let group = reducer.form(&["t1.weight"]).unwrap();
        let mut values = gradients(&config.tensors, rank, 4).swap_remove(1);
        reducer.average(group, 4, &mut values).unwrap();
        (values, reducer.save())
    });
    // What ranks have sent and have yet to send is what they had and what has come.
    let kept = |states: &[State], at: usize| -> f64 {
        let whole = reshard(states, 0, 1);
        f64::from(whole.floats("push/residual/t1.weight").unwrap()[at])
    };
    let left: Vec<State> = after.iter().map(|(_, state)| state.clone()).collect();
    let come: Vec<_> =
        (0..4).map(|rank| gradients(&tensors(&SIZES), rank, 4).swap_remove(1)).collect();
    for at in (0..60_000).step_by(997) {
        let mean = come.iter().map(|values| f64::from(values[at])).sum::<f64>() / 4.0;
        let expected = kept(&states, at) + mean;
        let found = kept(&left, at) + f64::from(after[0].0[at]);
        assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
    }
}

#[test]
fn exchanges_that_do_not_suit_their_steps_are_refused() {
    let staged = |text: &str, later: &[(u64, Exchange)]| {
        connected(1, |_, transport| {
            let mut config = config(text, exchange("all-reduce"));
            if text == "3lc" {
                config.exchange = exchange("all-gather");
                config.policy.push.later.push((4, "eden".parse().unwrap()));
            }
            Reducer::staged(Box::new(transport), config, later.to_vec())
                .err()
                .map(|e| e.to_string())
        })
        .remove(0)
    };
    let gather = exchange("all-gather");
    assert_eq!(staged("none until 4 then eden", &[(4, gather)]), None);
    let error = staged("none until 4 then eden", &[(5, gather)]).unwrap();
    assert!(error.contains("messages of 'eden' do not add"), "{error}");
    let error = staged("none", &[(4, gather), (4, exchange("all-reduce"))]).unwrap();
    assert!(error.contains("not in the order of their first steps"), "{error}");
    let error = staged("3lc", &[(4, gather)]).unwrap();
    assert!(error.contains("cannot follow"), "{error}");
    let error = staged("none", &[(4, exchange("sparse-all-reduce"))]).unwrap();
    assert!(error.contains("cannot average groups"), "{error}");
}
