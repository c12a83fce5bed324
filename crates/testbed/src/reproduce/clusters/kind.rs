//! The kinds of clusters, with the compressors that are compared for each.

use gradwire_advice::topology::{Method, NODES, PCIE, Picture, SITES};
use gradwire_exchange::Result;

use super::cell::{Cell, cells, methods};

/// A kind of cluster with its compressors.
pub(super) struct Kind {
    pub(super) heading: &'static str,
    /// The name of its chart's file.
    pub(super) file: &'static str,
    pub(super) picture: Picture,
    specs: &'static [&'static str],
    /// The compressors with a column of their own.
    pub(super) columns: [&'static str; 3],
}

/// The compressors of gradients that none of gradwire's measurements doubts with Adam.
const GRADIENTS: [&str; 7] =
    ["none", "bf16", "int8", "int4:hadamard=on,ef=off", "eden:bits=4", "eden:bits=2", "eden"];

/// The compressors of the changes of local steps.
const CHANGES: [&str; 6] = [
    "none:every=50",
    "bf16:every=50",
    "int8:every=50",
    "eden:every=50",
    "eden:bits=0.25,every=50",
    "eden:every=100",
];

/// All kinds.
pub(super) const KINDS: [Kind; 3] = [
    Kind {
        heading: "One machine on PCIe",
        file: "pcie",
        picture: PCIE,
        specs: &GRADIENTS,
        columns: ["bf16", "int8", "eden:bits=4"],
    },
    Kind {
        heading: "Nodes joined by Ethernet",
        file: "nodes",
        picture: NODES,
        specs: &GRADIENTS,
        columns: ["bf16", "int8", "eden:bits=4"],
    },
    Kind {
        heading: "Sites joined by the internet",
        file: "sites",
        picture: SITES,
        specs: &CHANGES,
        columns: ["none:every=50", "int8:every=50", "eden:every=50"],
    },
];

/// A kind with its simulated steps.
pub(super) struct Simulated {
    pub(super) kind: &'static Kind,
    pub(super) methods: Vec<Method>,
    /// Every size on every link.
    pub(super) cells: Vec<Cell>,
}

impl Simulated {
    pub(super) fn of(kind: &'static Kind) -> Result<Self> {
        let (picture, methods) = (&kind.picture, methods(kind.specs)?);
        let cells = cells(picture, picture.sizes, &picture.compared(), &methods);
        Ok(Self { kind, methods, cells })
    }
}
