//! Digests of the parameters on the way.

use std::collections::BTreeMap;

use super::*;

/// With a constant learning rate the parameters after ten steps are those of a run of ten steps,
/// which computes the digest at its end.
#[test]
fn digests_on_the_way_are_those_of_shorter_runs() {
    let of = |spec: &str, steps| {
        config(spec, "all-gather").with(|c| {
            c.learning_rate = "0.05".parse().unwrap();
            c.steps = steps;
        })
    };
    let (ten, longer) = (train(&of("3lc", 10)), train(&of("3lc", 20)));
    assert_eq!(longer.digest_at, BTreeMap::from([(10, ten.digest.clone())]));
    assert_ne!(longer.digest, ten.digest);
    assert!(train(&of("3lc", 9)).digest_at.is_empty());
    // The first exchange after ten steps ends a round of four.
    let twelve = train(&of("3lc:every=4", 12));
    assert_eq!(twelve.digest_at, BTreeMap::from([(12, twelve.digest.clone())]));
    // They are in checkpoints, and asynchronous workers have none.
    let (_folder, path) = checkpoint();
    let run = of("3lc", 20);
    assert!(stop(&run, 11, &path) > 10);
    assert_eq!(resume(&run, &path).unwrap().digest_at, longer.digest_at);
    let asynchronous = config("3lc", "server:mode=async");
    assert!(train(&asynchronous).digest_at.is_empty());
}
