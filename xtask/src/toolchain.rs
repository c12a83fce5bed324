//! Rust toolchains for other processors.

use std::path::{Path, PathBuf};

use crate::debian::output_of;

/// A Rust toolchain.
pub(crate) struct Toolchain {
    pub(crate) cargo: PathBuf,
    pub(crate) rustc: PathBuf,
}

impl Toolchain {
    /// The toolchain that runs this program, or else Debian's, if it has the standard library for a
    /// target.
    pub(crate) fn with_library(target: &str) -> Option<Self> {
        let ours = Path::new(env!("CARGO")).with_file_name("rustc");
        let both = [
            Self { cargo: env!("CARGO").into(), rustc: ours },
            Self { cargo: "/usr/bin/cargo".into(), rustc: "/usr/bin/rustc".into() },
        ];
        both.into_iter().find(|toolchain| {
            let folder = output_of(
                &toolchain.rustc.to_string_lossy(),
                &["--print", "target-libdir", "--target", target],
            );
            !folder.is_empty() && Path::new(folder.trim()).exists()
        })
    }
}
