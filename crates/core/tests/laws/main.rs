//! The laws, with one test for each registered compressor, such as `quantization::eden`; and
//! mistakes that the laws must find.

mod mistakes;

use gradwire::laws;
use gradwire::registry::REGISTRY;
use libtest_mimic::{Arguments, Trial};

fn main() {
    let laws = REGISTRY.iter().copied().map(|entry| {
        Trial::test(format!("{}::{}", entry.family.name(), entry.id), move || {
            laws::check(entry);
            Ok(())
        })
    });
    let trials = laws.chain(mistakes::trials()).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
