//! Spec strings: what parses, what it prints as, and what errors say.

use gradwire::registry::REGISTRY;
use gradwire::{Residual, Spec, SpecError};

fn parse(text: &str) -> Spec {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> SpecError {
    text.parse::<Spec>().expect_err(text)
}

#[test]
fn only_what_differs_from_the_defaults_is_printed() {
    for (text, printed) in [
        ("3lc", "3lc"),
        ("3lc:", "3lc"),
        (" 3lc : ", "3lc"),
        ("3lc:s=1", "3lc"),
        ("3lc:s=1.0,ef=on,beta=1", "3lc"),
        ("3lc:s=1.75", "3lc:s=1.75"),
        ("3lc: zre = off , s = 1.5", "3lc:s=1.5,zre=off"),
        ("topk:ratio=0.01,ef=off", "topk:ef=off"),
        ("topk:positions=rice,ratio=1e-3", "topk:ratio=0.001,positions=rice"),
        ("terngrad:clip=0", "terngrad:clip=0"),
        ("none:every=2", "none:every=2"),
        ("fp16:beta=0.5", "fp16:ef=on,beta=0.5"),
        ("3lc:gamma=0.25", "3lc:gamma=0.25"),
    ] {
        let Ok(spec) = text.replace(" :", ":").parse::<Spec>() else { panic!("{text}") };
        assert_eq!(spec.to_string(), printed);
        assert_eq!(parse(printed), spec);
    }
}

#[test]
fn error_feedback_is_the_entrys_unless_given() {
    for entry in REGISTRY {
        assert_eq!(parse(entry.id).feedback().is_some(), entry.error_feedback, "{}", entry.id);
        assert_eq!(parse(&format!("{}:ef=on", entry.id)).feedback(), Some(Residual::PLAIN));
        assert_eq!(parse(&format!("{}:ef=off", entry.id)).feedback(), None);
        assert_eq!(parse(entry.id), Spec::of(entry));
    }
    let weighted = Some(Residual { beta: 0.9, gamma: 0.5 });
    assert_eq!(parse("3lc:beta=0.9,gamma=0.5").feedback(), weighted);
}

#[test]
fn a_message_without_history_has_no_momentum() {
    for (spec, alone) in [
        ("topk:momentum=0.5", "topk"),
        ("topk:ef=ef21,every=2", "topk:every=2"),
        ("topk:ef=off,momentum=0.5", "topk:ef=off"),
        ("3lc:beta=0.9", "3lc:beta=0.9"),
    ] {
        assert_eq!(parse(spec).without_history(), parse(alone));
    }
    assert_eq!(parse("none:every=4").every(), 4);
}

#[test]
fn every_parameter_can_be_given_its_default() {
    for entry in REGISTRY {
        for parameter in entry.parameters {
            let value = parameter.kind.default();
            assert_eq!(parse(&format!("{}:{}={value}", entry.id, parameter.key)), Spec::of(entry));
        }
    }
}

#[test]
fn what_kept_nothing_can_be_followed_by_any() {
    for (earlier, later, can) in [
        ("none", "topk", true),
        ("terngrad", "3lc", true),
        ("topk:ratio=0.1", "topk:ratio=0.01,every=5", true),
        ("topk", "3lc", false),
        ("topk", "topk:ef=off", false),
        ("signum", "signsgd", false),
        ("powersgd:ef=off", "none", false),
        ("variance:ef=off", "none", false),
        ("gradiveq", "gradiveq:refresh=5", true),
        // As many numbers, of another shape.
        ("gradiveq:slice=512,keep=64", "gradiveq:slice=1024,keep=32", false),
        ("powersgd:rank=4", "powersgd:rank=2", false),
    ] {
        assert_eq!(parse(later).can_follow(&parse(earlier)), can, "{earlier}, {later}");
    }
}

#[test]
fn errors_name_the_known_ones() {
    let unknown = error("3lcc").to_string();
    assert!(REGISTRY.iter().all(|entry| unknown.contains(entry.id)), "{unknown}");
    let key = error("topk:ration=0.1").to_string();
    for known in ["topk", "ration", "ratio", "select", "positions", "ef", "beta", "gamma", "every"]
    {
        assert!(key.contains(known), "{key}");
    }
    assert!(matches!(error(""), SpecError::UnknownCompressor { .. }));
    assert!(matches!(error("3lc:s"), SpecError::NotAPair { .. }));
    assert!(matches!(error("3lc:s=1,s=1"), SpecError::DuplicateKey { .. }));
    let comma = error("topk,ratio=0.1,ef=off").to_string();
    assert_eq!(comma, "parameters follow a colon: write 'topk:ratio=0.1,ef=off'");
    assert!(matches!(error("none until 100 then topk"), SpecError::Schedule { .. }));
    let choice = error("topk:select=random").to_string();
    assert!(choice.contains("exact or sampled"), "{choice}");
}

#[test]
fn error_feedback_that_would_diverge_is_refused() {
    let expected =
        "'randomk': residuals would grow without bound with these parameters; give ef=off";
    for items in ["", ",ef=on", ",ef=ef21", ",beta=0.9", ",indices=independent,ratio=1"] {
        let text = format!("randomk:unbiased=on{items}");
        assert_eq!(error(&text).to_string(), expected, "{text}");
    }
    assert_eq!(parse("randomk:unbiased=on,ef=off").feedback(), None);
}

#[test]
fn estimates_need_messages_that_bring_them_closer() {
    for text in [
        "strom",
        "inceptionn",
        "threshold:v=0.01",
        "gradiveq",
        "natural",
        "sketched-sgd",
        "powersgd",
        "gradzip",
        "acp-sgd",
        "sbc:select=sampled",
        "qsgd:s=1",
        "qsgd:bucket=0",
        "qsparse-local:scale=off,s=1",
        "qsparse-local:scale=off,bucket=0",
    ] {
        let separator = if text.contains(':') { ',' } else { ':' };
        let refused = error(&format!("{text}{separator}ef=ef21"));
        assert!(matches!(refused, SpecError::Impossible { key: "ef=ef21", .. }), "{refused}");
    }
    for text in [
        "threshold:ef=ef21",
        "gradiveq:refresh=1,ef=ef21",
        "qsgd:ef=ef21",
        "qsparse-local:scale=off,ef=ef21",
        "qsparse-local:s=1,bucket=0,ef=ef21",
        "qsparse-local:quantizer=sign,ef=ef21",
    ] {
        assert!(parse(text).sends_changes(), "{text}");
    }
    let refused = parse("threshold:ef=ef21").with_number("v", 0.5).unwrap_err();
    assert!(matches!(refused, SpecError::Impossible { .. }), "{refused}");
}

#[test]
fn values_outside_their_range_are_refused() {
    // ranges.rs has the ranges of all parameters.
    for text in ["3lc:s=1,5", "3lc:gamma=1e-46", "sbc2:every=0"] {
        assert!(text.parse::<Spec>().is_err(), "{text}");
    }
    assert_eq!(error("3lc:s=2").to_string(), "'3lc': s=2 is not allowed; give a number in [1, 2)");
    let ratio = error("topk:ratio=0").to_string();
    assert!(ratio.contains("(0, 1]"), "{ratio}");
}

#[test]
fn presets_are_names_for_specs() {
    let printed = |text: &str| text.parse::<Spec>().unwrap().to_string();
    assert_eq!(printed("sbc1"), "sbc:p=0.001");
    assert_eq!(printed("sbc2"), "sbc:every=10");
    assert_eq!(printed("sbc3:p=0.05,mean=bf16"), "sbc:p=0.05,mean=bf16,every=100");
    assert_eq!(printed("sbc3:every=7"), "sbc:every=7");
    let error = "sbc4".parse::<Spec>().unwrap_err().to_string();
    assert!(error.contains("sbc3"), "{error}");
}

#[test]
fn parameters_are_read_and_replaced_by_name() {
    let spec: Spec = "sbc:p=0.001,every=10".parse().unwrap();
    assert_eq!(
        (spec.real("p"), spec.real("ratio"), spec.real("select")),
        (Some(0.001), None, None)
    );
    let other = spec.clone().with_number("p", 0.25).unwrap().with_every(3);
    assert_eq!(other.to_string(), "sbc:p=0.25,every=3");
    let refused = |key, value| spec.clone().with_number(key, value).unwrap_err().to_string();
    let levels = "qsgd:s=4".parse::<Spec>().unwrap();
    assert_eq!(
        (levels.real("s"), levels.number("s"), spec.number("p")),
        (None, Some(4.0), Some(0.001))
    );
    assert_eq!(levels.with_number("s", 6.6).unwrap().to_string(), "qsgd:s=7");
    assert!(refused("p", 1.0).contains("p=1 is not allowed"));
    assert!(refused("q", 0.5).contains("'sbc' has no parameter 'q'"));
    assert!(refused("select", 0.5).contains("exact or sampled"));
}
