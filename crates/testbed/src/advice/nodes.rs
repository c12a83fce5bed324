//! Advice for machines of several ranks.

use gradwire_advice::topology::TopologyAdvice;

use super::{Shown, bandwidth, below, doubts, link_names, table, verdict};

/// The advice for machines of several ranks, with the call in Python of each recommendation.
pub fn shown_between_nodes(found: &TopologyAdvice) -> Shown {
    let advice = &found.advice;
    let mut conclusions = Vec::new();
    for (at, link) in link_names(advice).enumerate() {
        conclusions.push(format!("At {link}: {}", verdict(advice, at)));
        let chosen = [advice.recommended[at], advice.local[at]].into_iter().flatten();
        conclusions.extend(chosen.map(|choice| format!("  {}", found.call(choice))));
    }
    conclusions.extend(below(advice));
    conclusions.extend(doubts(advice));
    let whose = if found.nodes == 1 { "a rank's link" } else { "a node's link" };
    conclusions.push(format!(
        "\nBytes are those in one direction of {whose}. Steps are simulated from kernels measured \
         on an H200, one core of a Zen 5, and the stated links; they are not measured. The \
         recommended compressor has the smallest error of those within 5 % of the fastest. The \
         effect on the trained model is not predicted: compare the loss with a run without \
         compression."
    ));
    Shown { situation: situation(found), table: table(advice), conclusions: conclusions.join("\n") }
}

/// The machines, the model and the time of its steps.
fn situation(found: &TopologyAdvice) -> String {
    let machines = match (found.nodes, found.sharded) {
        (1, _) => "1 machine".to_owned(),
        (nodes, false) => format!("{nodes} nodes"),
        (nodes, true) => format!("{nodes} sites"),
    };
    let inside =
        found.inside.map_or_else(String::new, |bits| format!(", {} inside", bandwidth(bits)));
    format!(
        "{machines} of {} ranks ({}){inside}; {:.3} million parameters; a step without \
         communication takes {:.1} ms.",
        found.ranks_per_node,
        found.hardware,
        found.advice.elements as f64 / 1e6,
        1e3 * found.advice.compute
    )
}
