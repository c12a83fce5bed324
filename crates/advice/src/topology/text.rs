//! Advice for nodes as text for a terminal.

use std::fmt;

use super::advice::TopologyAdvice;
use crate::text::bandwidth;

impl fmt::Display for TopologyAdvice {
    /// A table of compressors with their plans, the conclusion for each link with its call in
    /// Python, and the assumptions.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = &self.advice;
        let machines = match (self.nodes, self.sharded) {
            (1, _) => "1 machine".to_owned(),
            (nodes, false) => format!("{nodes} nodes"),
            (nodes, true) => format!("{nodes} sites"),
        };
        let inside =
            self.inside.map_or_else(String::new, |bits| format!(", {} inside", bandwidth(bits)));
        let millions = advice.elements as f64 / 1e6;
        writeln!(
            out,
            "{machines} of {} ranks ({}){inside}; {millions:.3} million parameters; a step without communication takes {:.1} ms.\n",
            self.ranks_per_node,
            self.hardware,
            1e3 * advice.compute
        )?;
        writeln!(out, "{}\n", advice.table())?;
        for (at, link) in advice.link_names().enumerate() {
            writeln!(out, "At {link}: {}", advice.verdict(at))?;
            for choice in [advice.recommended[at], advice.local[at]].into_iter().flatten() {
                writeln!(out, "  {}", self.call(choice))?;
            }
        }
        advice.write_crossover(out)?;
        advice.write_doubts(out)?;
        let whose = if self.nodes == 1 { "a rank's link" } else { "a node's link" };
        write!(
            out,
            "\nBytes are those in one direction of {whose}. Steps are simulated from kernels measured on an H200, \
             one core of a Zen 5, and the stated links; they are not measured. The recommended \
             compressor has the smallest error of those within 5 % of the fastest. The effect on the \
             trained model is not predicted: compare the loss with a run without compression."
        )
    }
}
