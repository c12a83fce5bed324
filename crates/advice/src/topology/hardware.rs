//! GPUs and their hosts.

/// A GPU, its host, and what a message costs them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hardware {
    /// Its name.
    pub name: &'static str,
    /// The time of a kernel's elements divided by their time on an H200. Memory limits kernels, so
    /// this is the ratio of the bandwidths of memory. Launches take the same time.
    pub slower: f64,
    /// Bytes per second of a copy between GPU and main memory, in each direction.
    pub copy: f64,
    /// Seconds that a message between GPUs takes apart from its bytes.
    pub device_message: f64,
    /// Seconds that a message between hosts takes apart from its bytes.
    pub host_message: f64,
}

impl Hardware {
    /// An H200 (4.8 TB/s of memory, PCIe 5). The times of messages are guesses.
    pub const H200: Self =
        Self { name: "H200", slower: 1.0, copy: 50e9, device_message: 2e-6, host_message: 30e-6 };

    /// An RTX 3090 (0.936 TB/s of memory, PCIe 4). The times of messages are guesses.
    pub const RTX_3090: Self =
        Self { name: "RTX 3090", slower: 4.8 / 0.936, copy: 20e9, ..Self::H200 };
}
