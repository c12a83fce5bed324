//! The laws that every compressor obeys, for the tests of a compressor in this crate or outside it.
//! Needs the feature `testing`.
//!
//! ```
//! # use gradwire::registry::REGISTRY;
//! # let entry = REGISTRY[0];
//! gradwire::laws::check(entry);
//! ```

mod decoding;
mod device;
mod draws;
mod encoding;
mod formats;
mod means;
mod memories;
mod ranges;
pub mod samples;
mod several;
mod states;
mod subjects;

use self::subjects::parse;
use crate::{Entry, Guarantee, Spec};

/// A law of one configuration: panics if the configuration breaks it.
pub type Law = fn(&Spec);

/// The laws of configurations, by name.
pub const LAWS: &[(&str, Law)] = &[
    ("equal keys give equal bytes within the bounds", encoding::is_deterministic_and_bounded),
    ("what is not sent is kept", encoding::residual_is_what_is_not_sent),
    ("without error feedback nothing is kept", encoding::nothing_is_kept_without_feedback),
    ("lossless means every value", encoding::lossless_means_every_value),
    ("a restored encoder continues as the saved one", encoding::restored_continues_as_saved),
    ("messages of any state decode", states::messages_of_any_state_decode),
    ("input that is not finite is named and changes nothing", encoding::non_finite_is_refused),
    ("16-bit input is encoded as its exact conversion", encoding::sixteen_bits_are_converted),
    ("sparse messages say which elements they carry", encoding::positions_are_what_is_carried),
    ("every truncation is an error and adds nothing", decoding::truncation_is_refused),
    ("arbitrary bytes add all or nothing", decoding::arbitrary_bytes_add_all_or_nothing),
    ("decoding is linear in the weight, and adds", decoding::is_linear_in_the_weight),
    (
        "errors of contractive messages are no larger than the tensor",
        means::contractive_messages_help,
    ),
    ("estimates of a constant gradient converge to it", means::estimates_converge),
    ("draws differ between steps, tensors and ranks", draws::draws_differ),
    (
        "the mean of unbiased messages is the gradient, over steps, ranks and tensors",
        draws::expectation_is_the_gradient,
    ),
    ("accumulated messages decode like a single one", means::accumulated_messages_decode),
    ("threads change nothing", several::threads_change_nothing),
    (
        "threads that share a tensor change nothing",
        several::threads_that_share_a_tensor_change_nothing,
    ),
    ("threads that share a list change nothing", several::threads_that_share_a_list_change_nothing),
    ("threads that share rounds change nothing", several::threads_that_share_rounds_change_nothing),
    ("packing the device form gives the message", device::packing_the_form_gives_the_message),
    ("unpacking accepts what decoding accepts", device::unpacking_accepts_what_decoding_accepts),
    ("the mean of linear messages is the message of the mean", means::linear_messages_add),
];

/// The laws of configurations with a memory that any compressor can have.
const LAWS_OF_MEMORIES: &[(&str, Law)] = &[
    ("threads change nothing", several::threads_change_nothing),
    (
        "threads that share a tensor change nothing",
        several::threads_that_share_a_tensor_change_nothing,
    ),
    ("a restored encoder continues as the saved one", encoding::restored_continues_as_saved),
    ("messages of any state decode", states::messages_of_any_state_decode),
    ("input that is not finite is named and changes nothing", encoding::non_finite_is_refused),
    ("16-bit input is encoded as its exact conversion", encoding::sixteen_bits_are_converted),
    ("what is sent and kept follows the formulas", memories::memories_follow_their_formulas),
];

/// Checks all laws of a compressor, registered or not: the default configuration with error
/// feedback on and off, the entry's examples, the memories that any compressor can have, and the
/// ends of its parameters' ranges. Takes seconds.
///
/// # Panics
/// If the compressor breaks a law; the law and the configuration are printed.
pub fn check(entry: &'static Entry) {
    let described = [entry.id, entry.summary, entry.formula, entry.reference, entry.payload];
    assert!(described.iter().all(|text| !text.is_empty()), "an entry lacks a text: {described:?}");
    if let Guarantee::Neither(reason) = entry.default_guarantee() {
        assert!(!reason.is_empty(), "the guarantee lacks a reason");
    }
    for spec in specs(entry) {
        for (name, law) in LAWS {
            let _named = Named(format!("{spec}: {name}"));
            law(&spec);
        }
    }
    for spec in memories::specs(entry) {
        for (name, law) in LAWS_OF_MEMORIES {
            let _named = Named(format!("{spec}: {name}"));
            law(&spec);
        }
    }
    {
        let _named =
            Named(format!("{}: the ends of ranges work, and nothing beyond them does", entry.id));
        ranges::ends_work_and_nothing_beyond(entry);
    }
    if entry.error_feedback {
        let _named = Named(format!("{}: residuals of a constant gradient stay bounded", entry.id));
        means::residuals_stay_bounded(entry);
    }
    let _named =
        Named(format!("{}: the decoded tensor has the size of what it stands for", entry.id));
    draws::kept_part_has_its_size(entry);
}

/// The configurations that the laws check: the defaults with error feedback on and off, and the
/// entry's examples.
///
/// # Panics
/// If an example is not a configuration of the entry.
pub fn specs(entry: &'static Entry) -> Vec<Spec> {
    let texts = ["ef=on", "ef=off"].iter().chain(entry.examples);
    texts.map(|text| parse(entry, text)).collect()
}

/// Prints the broken law when its check panics.
struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("a law is broken: {}", self.0);
        }
    }
}
