//! Overlap: when gradients are handed over, and the effects of failures.

use super::small as config;
use super::*;

/// The result of a run whose exchanges are logged, and the calls of the first worker's.
fn logged(
    config: &RunConfig,
    change: fn(u64, &mut [Vec<f32>]),
) -> (Result<RunRecord, TrainError>, Vec<Call>) {
    let logs = [(); 2].map(|()| Log::default());
    let result = run_wrapped(config, &(), &RunOptions::default(), &|rank, inner| {
        Box::new(Wrapped { log: Arc::clone(&logs[rank]), after: change, ..Wrapped::new(inner) })
    });
    let log = logs[0].lock().unwrap().clone();
    (result, log)
}

#[test]
fn gradients_are_handed_over_between_the_beginning_of_a_step_and_its_end() {
    let config = config("lenet5", "3lc", "all-gather", true).with(|c| c.steps = 2);
    let (result, log) = logged(&config, |_, _| {});
    result.unwrap();
    let step = |step| {
        let handed = [6, 7, 4, 5, 2, 3, 0, 1].map(Call::HandedOver);
        [&[Call::Sink(step)], &handed[..], &[Call::Step(step)]].concat()
    };
    assert_eq!(log, [step(0), step(1)].concat());
}

/// Parameters with which the loss is finite and the gradient of the second layer is not.
fn steep(step: u64, parameters: &mut [Vec<f32>]) {
    if step == 1 {
        parameters.iter_mut().for_each(|values| values.fill(0.0));
        parameters[1].fill(100.0);
        parameters[3].fill(1e-30);
        for (at, weight) in parameters[4].iter_mut().enumerate() {
            *weight = if at % 2 == 0 { 3e38 } else { -3e38 };
        }
    }
}

#[test]
fn a_gradient_that_is_not_finite_is_named_though_it_has_been_sent() {
    for overlap in [false, true] {
        let config = config("mlp:100-200", "none", "all-gather", overlap).with(|c| {
            c.weight_decay = 0.0;
            c.check_every = 0;
        });
        let (result, log) = logged(&config, steep);
        let error = result.unwrap_err();
        let TrainError::Diverged { what, .. } = &error else { panic!("{error}") };
        assert!(what.contains("'fc2.weight'") && what.contains("at step 2"), "{what}");
        assert_eq!(log.contains(&Call::HandedOver(2)), overlap);
    }
}

#[test]
fn a_worker_that_dies_ends_the_others() {
    let config = config("lenet5", "3lc", "all-gather", true);
    let (result, _) = logged(&config, |step, _| assert!(step < 2, "the memory is gone"));
    let error = result.unwrap_err();
    let TrainError::Panicked { message, .. } = &error else { panic!("{error}") };
    assert!(message.contains("the memory is gone"), "{message}");
}
