//! The origin of a run: the build of gradwire, the processor, and the features of it that are used.

use std::fs;
use std::thread::available_parallelism;

/// gradwire's version, and the commit of its source if it is known, as in `0.1.0+65700e9784`; with
/// `.modified` if the source was changed after this commit.
pub const VERSION: &str = env!("GRADWIRE_VERSION");

/// The name of this machine's processor; its architecture if the system does not know the name.
pub fn processor() -> String {
    name_in("/proc/cpuinfo")
}

/// The processor's name in a file that only Linux has; the architecture if it is not there.
fn name_in(file: &str) -> String {
    let cpus = fs::read_to_string(file).unwrap_or_default();
    model_name(&cpus).unwrap_or(std::env::consts::ARCH).to_owned()
}

/// The instruction set of the kernels, with `+fma` if the models' matrix products are fused, too.
pub fn instruction_set() -> String {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("fma") {
        return format!("{}+fma", gradwire_bits::instruction_set());
    }
    gradwire_bits::instruction_set().to_owned()
}

/// The number of worker threads that compute at the same time.
pub(crate) fn threads() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// The first model name in the text of `/proc/cpuinfo`.
fn model_name(cpus: &str) -> Option<&str> {
    cpus.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim()).filter(|name| !name.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_name_is_that_of_the_first_core() {
        let cpus = "processor\t: 0\nmodel name\t: AMD EPYC 9R45\ncache size\t: 1024 KB\n\n\
                    processor\t: 1\nmodel name\t: another\n";
        assert_eq!(model_name(cpus), Some("AMD EPYC 9R45"));
        assert_eq!(model_name("processor\t: 0\nBogoMIPS\t: 50.00\n"), None);
        assert_eq!(model_name("model name\t:\n"), None);
        assert!(!processor().is_empty());
        assert_eq!(name_in("no such file"), std::env::consts::ARCH);
    }

    #[test]
    fn the_version_begins_with_that_of_the_package() {
        let commit = VERSION.strip_prefix(env!("CARGO_PKG_VERSION")).unwrap();
        let named = |commit: &str| {
            let commit = commit.strip_suffix(".modified").unwrap_or(commit);
            commit.len() >= 10 && commit.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        assert!(commit.is_empty() || commit.strip_prefix('+').is_some_and(named), "{VERSION}");
    }
}
