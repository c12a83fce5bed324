//! Checks whether MPI is installed, and installs it in continuous integration.

use crate::debian::{self, output_of};

/// The Debian packages.
const PACKAGES: [&str; 3] = ["libopenmpi-dev", "openmpi-bin", "libclang-dev"];

/// Checks that MPI is installed. In continuous integration, as root, it installs a missing MPI.
///
/// # Errors
/// The reason and the remedy if there is no MPI.
pub(crate) fn prepare() -> Result<(), String> {
    debian::prepare(&PACKAGES, None, is_here).map_err(|install| {
        format!(
            "tests with MPI need MPI, and libclang in the folder LIBCLANG_PATH (Debian: {install})"
        )
    })
}

/// Whether MPI's compiler and launcher are installed, and libclang, which parses its header.
fn is_here() -> bool {
    let clang = std::env::var_os("LIBCLANG_PATH").is_some()
        || output_of("ldconfig", &["-p"]).contains("libclang");
    clang
        && !output_of("mpicc", &["--version"]).is_empty()
        && !output_of("mpirun", &["--version"]).is_empty()
}
