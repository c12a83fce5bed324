//! `gradwire reproduce --check`: repeats the runs of a folder of results, and compares them.

use std::path::Path;

use gradwire_testbed::check::{self, Checked, Committed, find};

use crate::failure::Failure;
use crate::form::Form;
use crate::settings::Settings;
use crate::{engine, output};

/// Repeats the runs below a folder, or only the runs that `row` names, and prints how they compare.
pub(crate) fn check(
    settings: &Settings,
    row: Option<&str>,
    folder: &Path,
    form: Form,
) -> Result<(), Failure> {
    let (data, steps) = settings.data_and_steps()?;
    if engine::processes()?.is_some() {
        let reason = "--check repeats runs in one process; start it without mpirun";
        return Err(Failure::Input(reason.to_owned()));
    }
    let runs = chosen(folder, row)?;
    let started = engine::start(&[])?;
    let checked = check::check(runs, data, steps, &*started.engine, &started.bars);
    started.bars.clear();
    let all = checked?;
    form.print(&check::table(&all))?;
    form.text(format!("\n{}", check::summary(&all)))?;
    match all.iter().filter(|one| one.verdict.is_failure()).count() {
        0 => not_all_skipped(&all),
        count => Err(Failure::Run(format!(
            "{count} of {} runs differ from the committed runs",
            all.len()
        ))),
    }
}

/// Fails if nothing was compared.
fn not_all_skipped(all: &[Checked]) -> Result<(), Failure> {
    match all.iter().any(|one| one.now.is_some()) {
        true => Ok(()),
        false => {
            Err(Failure::Input("no run could be checked; the table gives the reasons".to_owned()))
        }
    }
}

/// The runs below a folder: those that `row` names, or all.
fn chosen(folder: &Path, row: Option<&str>) -> Result<Vec<Committed>, Failure> {
    let found = find(folder)?;
    for other in &found.others {
        output::note(format!("Left out: {} has runs of another program.", other.display()));
    }
    if found.runs.is_empty() {
        let folder = folder.display();
        return Err(Failure::Input(format!("there is no runs.jsonl with runs in '{folder}'")));
    }
    let Some(row) = row else { return Ok(found.runs) };
    let mut compressors: Vec<_> =
        found.runs.iter().map(|run| run.record.compressor.clone()).collect();
    compressors.sort_unstable();
    compressors.dedup();
    let exactly = found.runs.iter().any(|run| run.is_called(row));
    let is_named = |run: &Committed| if exactly { run.is_called(row) } else { run.is_of(row) };
    let named: Vec<_> = found.runs.into_iter().filter(is_named).collect();
    if named.is_empty() {
        return Err(Failure::Input(format!(
            "no run in '{}' has the line number or the compressor '{row}'; give a line number, or one of {}",
            folder.display(),
            compressors.join(", ")
        )));
    }
    Ok(named)
}
