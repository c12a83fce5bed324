//! The builds of gradwire that made runs, and the processors.

use gradwire_train::RunRecord;

/// A sentence about the builds and processors of these runs, with the number of runs of each if
/// there are several. Empty without runs.
pub(crate) fn provenance(runs: &[RunRecord]) -> String {
    let mut makers: Vec<(String, usize)> = Vec::new();
    for maker in runs.iter().map(maker) {
        match makers.iter_mut().find(|(known, _)| *known == maker) {
            Some((_, count)) => *count += 1,
            None => makers.push((maker, 1)),
        }
    }
    match makers.as_slice() {
        [] => return String::new(),
        [(maker, _)] => return format!("Runs by {maker}."),
        _ => {}
    }
    let counted = makers.iter().map(|(maker, count)| match count {
        1 => format!("{maker} (1 run)"),
        _ => format!("{maker} ({count} runs)"),
    });
    format!("Runs by {}.", counted.collect::<Vec<_>>().join("; "))
}

/// The build and the processor of a run.
fn maker(run: &RunRecord) -> String {
    let version = &run.version;
    match run.processor.as_str() {
        "" => format!("gradwire {version}"),
        processor => format!("gradwire {version} on {processor}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn runs_are_counted_by_build_and_processor() {
        let old = synthetic::run("none", 0);
        let new = RunRecord {
            version: "0.1.0+abc".to_owned(),
            processor: "EPYC".to_owned(),
            ..synthetic::run("none", 1)
        };
        assert_eq!(provenance(std::slice::from_ref(&old)), "Runs by gradwire 0.0.0.");
        assert_eq!(provenance(&[new.clone(), new.clone()]), "Runs by gradwire 0.1.0+abc on EPYC.");
        assert_eq!(provenance(&[]), "");
        assert_eq!(
            provenance(&[old, new.clone(), new]),
            "Runs by gradwire 0.0.0 (1 run); gradwire 0.1.0+abc on EPYC (2 runs)."
        );
    }
}
