//! A run that was saved and resumed ends with the same bits as one without interruption.

use crate::common::{RATE, Run, bits, custom, exchange, gradients, saved, suits};
use gradwire::State;
use gradwire_exchange::{ExchangeError, StepInput};

const SIZES: [usize; 4] = [300, 3, 0, 2000];

/// A worker's parameters, and its state as a file.
type Saved = (Vec<Vec<f32>>, Vec<u8>);

fn read((_, state): &Saved) -> State {
    State::from_bytes(state).unwrap()
}

/// Every worker's parameters and state after `steps`, from those of an earlier part.
fn continued(run: &Run, steps: std::ops::Range<u64>, earlier: Option<&[Saved]>) -> Vec<Saved> {
    run.each(|rank, exchange| {
        let mut parameters = run.initial.clone();
        if let Some(earlier) = earlier {
            parameters.clone_from(&earlier[rank].0);
            exchange.restore(&read(&earlier[rank])).unwrap();
        }
        for step in steps.clone() {
            let gradients = gradients(&run.tensors, rank, step);
            if let Some(early) = exchange.gradient_sink(step) {
                early.ready(3, &gradients[3]);
            }
            exchange.step(StepInput::new(step, RATE, &gradients), &mut parameters).unwrap();
        }
        let state = saved(exchange);
        (parameters, state.to_bytes().unwrap())
    })
}

#[test]
fn a_resumed_run_is_bit_identical() {
    for name in [
        "all-reduce overlapped",
        "all-gather overlapped",
        "scatter-reduce overlapped",
        "all-reduce",
        "all-gather",
        "scatter-reduce",
        "sparse-all-reduce",
        "hierarchical",
        "server",
        "server:servers=2",
    ] {
        let registered = [
            "none",
            "3lc",
            "topk:ratio=0.1",
            "terngrad",
            "randomk:ratio=0.2",
            "onebit",
            "powersgd",
            "gradiveq:slice=8,keep=2,refresh=4",
            "topk:ratio=0.1,ef=ef21,momentum=0.5",
            "randomk:ratio=0.2,ef=ef21",
        ];
        let registered = registered.iter().map(|text| text.parse().unwrap());
        for spec in registered.chain(custom::momenta()) {
            let plain = name.trim_end_matches(" overlapped");
            let mut run = Run::new(exchange(plain), 3, &spec, &SIZES);
            run.groups = (plain != name).then(|| vec![vec![3], vec![2, 1, 0]]);
            run.momentum = true;
            if !suits(plain, &run.policy.push.first) {
                continue;
            }
            let whole = continued(&run, 0..6, None);
            let half = continued(&run, 0..3, None);
            let resumed = continued(&run, 3..6, Some(&half));
            for rank in 0..3 {
                assert!(bits(&whole[rank].0) == bits(&resumed[rank].0), "{name}, {spec}: {rank}");
                assert!(whole[rank].1 == resumed[rank].1, "{name}, {spec}: state of {rank}");
            }
            assert!(bits(&whole[0].0) != bits(&half[0].0));
        }
    }
}

#[test]
fn another_configuration_is_refused() {
    let saved = Run::of("all-gather", 2, "3lc", &SIZES);
    let state = continued(&saved, 0..1, None);
    for (name, workers, text) in
        [("all-gather", 3, "3lc"), ("scatter-reduce", 2, "3lc"), ("all-gather", 2, "3lc:s=1.5")]
    {
        let run = Run::of(name, workers, text, &SIZES);
        for result in run.each(|_, exchange| exchange.restore(&read(&state[0]))) {
            let error = result.unwrap_err();
            assert!(matches!(error, ExchangeError::State(_)), "{error}");
            assert!(error.to_string().contains("saved with"), "{error}");
        }
    }
}

#[test]
fn residuals_of_a_state_without_the_number_of_the_encoder_are_not_dropped() {
    let run = Run::of("all-gather", 2, "3lc", &SIZES);
    let mut state = read(&continued(&run, 0..1, None)[0]);
    assert!(state.number("push/encoder").is_ok());
    state.retain(|key| key != "push/encoder");
    for result in run.each(|_, exchange| exchange.restore(&state)) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("push/encoder"), "{error}");
    }
}

#[test]
fn a_run_goes_on_with_groups_or_without_but_for_slices() {
    for (name, text) in
        [("all-gather", "3lc"), ("all-gather", "onebit"), ("all-reduce", "powersgd")]
    {
        let mut run = Run::of(name, 3, text, &SIZES);
        run.momentum = true;
        let groups = Some(vec![vec![3, 2], vec![1, 0]]);
        let whole = continued(&run, 0..4, None);
        for first in [None, groups.clone()] {
            run.groups = first;
            let half = continued(&run, 0..2, None);
            run.groups = if run.groups.is_none() { groups.clone() } else { None };
            let rest = continued(&run, 2..4, Some(&half));
            assert!(bits(&rest[1].0) == bits(&whole[1].0), "{name}, {text}: {:?}", run.groups);
        }
    }
    let mut run = Run::of("scatter-reduce", 3, "3lc", &SIZES);
    let saved = continued(&run, 0..1, None);
    run.groups = Some(vec![vec![0, 1, 2, 3]]);
    let results = run.each(|_, exchange| exchange.restore(&read(&saved[0])));
    let error = results[0].as_ref().unwrap_err().to_string();
    assert!(error.contains("saved with exchange = scatter-reduce with 3 workers"), "{error}");
    assert!(error.contains("of each tensor with 3 workers"), "{error}");
}
