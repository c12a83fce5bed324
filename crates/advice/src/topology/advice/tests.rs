use super::*;
use crate::topology::hardware::Hardware;
use crate::topology::plan::Transport;
use crate::topology::simulation::{BUCKET, model};

fn methods(specs: &[&str]) -> Vec<Method> {
    specs.iter().map(|spec| Method::of(&spec.parse().unwrap()).unwrap()).collect()
}

/// 16 nodes of 8 ranks with a model of a billion parameters; at 1 Gbit/s and at 100 Tbit/s.
fn advice(sharded: bool, specs: &[&str]) -> TopologyAdvice {
    let recording = model(1_000_000_000, BUCKET, 0.2, 0.1);
    let topology = Topology {
        nodes: 16,
        ranks_per_node: 8,
        inside: Link::mbit(1.6e6),
        between: Link::mbit(1e3),
    };
    let simulation = Simulation::new(&recording, topology, Hardware::H200);
    let links = [Link::mbit(1e3), Link::mbit(1e8)];
    let comparison =
        Comparison { simulation, links: &links, optimizer: OptimizerFamily::Adaptive, sharded };
    advise_topology(&comparison, &methods(specs)).unwrap()
}

#[test]
fn slow_links_between_nodes_call_for_two_levels_and_fast_ones_for_none() {
    let found = advice(false, &["bf16", "int8", "eden", "3lc", "efsignsgd"]);
    let best = found.advice.recommended[0].unwrap();
    assert_eq!(found.advice.predictions[best].spec, "eden");
    assert_eq!(found.plans[best].levels, Levels::Two);
    assert_eq!(found.advice.recommended[1], None);
    // 4 GB · 2 · 15/16 through each node's link.
    let plain = &found.advice.plain;
    assert!((plain.bytes_up / 7.5e9 - 1.0).abs() < 1e-9, "{}", plain.bytes_up);
    assert!((plain.on_links[0].seconds / (60.0 + 0.1) - 1.0).abs() < 0.01, "{plain:?}");
    let call =
        "register(model, \"eden\", exchange=\"scatter-reduce\", transport=\"device\", nodes=16)";
    assert!(found.call(best).contains(call), "{}", found.call(best));
}

#[test]
fn sites_take_local_steps_of_their_own_shards() {
    let found = advice(true, &["none:every=50", "eden:every=50"]);
    assert!(found.plans.iter().all(|plan| plan.levels == Levels::Sites));
    assert_eq!(found.advice.recommended, [None, None]);
    let best = found.advice.local[0].unwrap();
    assert_eq!(found.advice.predictions[best].spec, "eden:every=50");
    let call = "LocalSteps(model, optimizer, 50, \"eden\", exchange=";
    assert!(found.call(best).contains(call), "{}", found.call(best));
    assert!(found.call(best).contains("process_group=mesh[\"sites\"]"));
}

#[test]
fn a_single_machine_compares_links_inside() {
    let recording = model(335_000_000, BUCKET, 0.2, 0.1);
    let link = Link::mbit(40_000.0);
    let topology = Topology { nodes: 1, ranks_per_node: 8, inside: link, between: link };
    let simulation = Simulation::new(&recording, topology, Hardware::RTX_3090);
    let links = [link];
    let comparison =
        Comparison { simulation, links: &links, optimizer: OptimizerFamily::Sgd, sharded: false };
    let found = advise_topology(&comparison, &methods(&["bf16", "int8"])).unwrap();
    assert_eq!(found.inside, None);
    // 2 · 7/8 of 1.34 GB at 5 GB/s.
    let plain = found.advice.plain.on_links[0].seconds;
    assert!(plain > 0.469 && plain < 0.6, "{plain}");
    let int8 = found.advice.predictions.iter().position(|one| one.spec == "int8").unwrap();
    assert_eq!(found.plans[int8].transport, Transport::Device);
    assert!(found.call(0).contains("bf16_compress_hook"));
    let none = Comparison { links: &[], ..comparison };
    assert!(advise_topology(&none, &[]).unwrap_err().to_string().contains("no link"));
}
