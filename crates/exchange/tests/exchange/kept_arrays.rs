//! Arrays that a device keeps, as a reducer gives, takes and saves them.

use gradwire::{Kept, Spec};
use gradwire_exchange::{KeptArray, KeptFor, Schedule};

use crate::reducer::{model, ranks, step};

#[test]
fn an_array_that_is_set_before_the_first_step_is_saved_with_its_compressor() {
    let model = model("all-gather", "topk:ratio=0.1");
    let residual = vec![1.0; 300];
    let saved = ranks(vec![model.clone()], |_, reducer| {
        reducer.set_array(residual_of("t0.weight"), Some(residual.clone())).unwrap();
        reducer.save()
    });
    ranks(vec![model], |_, reducer| {
        reducer.restore(saved.clone()).unwrap();
        assert_eq!(reducer.array(residual_of("t0.weight")), Some(&residual[..]));
    });
}

fn residual_of(name: &str) -> KeptArray<'_> {
    KeptArray { name, kind: Kept::Residual, of: KeptFor::Gradients }
}

/// A device that makes the averages of a scatter-reduce by itself sets the arrays of slices and of
/// averages before a state is saved.
#[test]
fn a_state_of_arrays_that_were_set_equals_the_state_of_a_reducer_that_made_them() {
    let mut model = model("scatter-reduce", "topk:ratio=0.1");
    let later = vec![(1, "topk:ratio=0.2".parse::<Spec>().unwrap())];
    model.policy.push = Schedule { first: model.policy.push.first, later };
    let models = || vec![model.clone(); 2];
    let names = [
        "t0.weight",
        "t2.weight[0..10000]",
        "t2.weight[10000..20000]",
        "t3.weight[0..4500]",
        "t3.weight[4500..9000]",
    ];
    let arrays = || {
        let of_both = [KeptFor::Gradients, KeptFor::Averages];
        names
            .iter()
            .flat_map(move |name| of_both.map(|of| KeptArray { name, kind: Kept::Residual, of }))
    };
    let made = ranks(models(), |rank, reducer| {
        let groups = [vec![0, 1, 2, 3]];
        (0..2).for_each(|at| drop(step(reducer, &groups, rank, at)));
        let values: Vec<_> =
            arrays().map(|array| reducer.array(array).map(<[f32]>::to_vec)).collect();
        // Both ranks have a residual of every slice, and one of them also of its average.
        assert_eq!(values.iter().step_by(2).flatten().count(), names.len());
        (reducer.save(), values)
    });
    for at in 0..names.len() {
        let averages = made.iter().filter(|(_, values)| values[2 * at + 1].is_some());
        assert_eq!(averages.count(), 1, "{}", names[at]);
    }
    ranks(models(), |rank, reducer| {
        let (saved, values) = &made[rank];
        reducer.enter(1).unwrap();
        for (array, values) in arrays().zip(values) {
            reducer.set_array(array, values.clone()).unwrap();
        }
        assert!(reducer.save() == *saved);
        for wrong in ["t2.weight[0..3]", "t2.weight", "t9.weight[0..3]"] {
            assert!(reducer.set_array(residual_of(wrong), None).is_err(), "{wrong}");
        }
    });
}

#[test]
fn arrays_that_a_restored_state_lacks_are_forgotten() {
    for text in ["topk:ratio=0.1", "topk:ratio=0.1,ef=ef21"] {
        // All-gather has no encoder of averages, so that the states say nothing about one.
        let unused = ranks(vec![model("all-gather", text); 2], |_, reducer| reducer.save());
        ranks(vec![model("scatter-reduce", text); 2], |rank, reducer| {
            step(reducer, &[vec![0, 1, 2, 3]], rank, 0);
            let used = reducer.save();
            for prefix in ["push/residual/", "reduce/residual/"] {
                assert!(used.floats_under(prefix).next().is_some(), "{text}: {prefix}");
            }
            assert_eq!(used.floats_under("push/sum/").next().is_some(), text.contains("ef21"));
            reducer.restore(unused.clone()).unwrap();
            let left = reducer.save();
            assert_eq!(left.floats_under("").map(|(key, _)| key).collect::<Vec<_>>(), [""; 0]);
        });
    }
}
