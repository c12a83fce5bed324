//! Adds linker arguments: on macOS the linker must accept that the interpreter has Python's
//! functions. Maturin adds them too, but not cargo.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
