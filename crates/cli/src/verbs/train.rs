//! `gradwire train`: one run.

use std::path::PathBuf;
use std::slice;

use clap::Args;
use gradwire_testbed::files::check_writable;
use gradwire_testbed::runner::Progress;
use gradwire_testbed::{results, summary::summarize};
use gradwire_train::CompressionSchedule;
use gradwire_train::{RunOptions, Save};

use crate::failure::Failure;
use crate::settings::Settings;
use crate::verbs::compare::{print_tables, write_json};
use crate::{engine, output};

/// Train one model with one compressor, with checkpoints to resume from.
///
/// A resumed run gives the same bits as one never stopped. Ctrl-C writes a checkpoint before it
/// ends, if --save names a file.
#[derive(Debug, Args)]
pub(crate) struct Train {
    #[command(flatten)]
    settings: Settings,
    /// The compressor, such as 3lc:s=1.75, or a schedule such as 'sbc2 until 0.5 then sbc1'
    #[arg(long, value_name = "SPEC", default_value = "3lc")]
    compressor: CompressionSchedule,
    /// Seed of weights, data order and draws
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Write a checkpoint to this file, at the end and when stopped
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Also write it each time this many steps are done
    #[arg(long, value_name = "STEPS", requires = "save", default_value_t = 0)]
    save_every: u64,
    /// How many checkpoints stay: FILE, FILE.1 before it, and so on
    #[arg(long, value_name = "N", requires = "save", default_value_t = 2, value_parser = at_least_one)]
    keep: usize,
    /// Resume from this checkpoint or, if damaged, the newest intact one; settings must match, except the number of
    /// workers
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Write the run with its trace, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the run's row, as compare does
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "give a number from 1".to_owned())
}

impl Train {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut experiment = self.settings.experiment()?;
        experiment.compressors = vec![self.compressor.clone()];
        experiment.seeds = vec![self.seed];
        engine::fit(&mut experiment, self.settings.has("workers"))?;
        experiment.check()?;
        let data = experiment.load_data()?;
        let config = experiment.runs(&data).remove(0);
        let save = self.save.clone().map(|path| Save {
            path,
            every: self.save_every,
            at_end: true,
            keep: self.keep,
        });
        let options = RunOptions { save, resume: self.resume.clone(), ..RunOptions::default() };

        let started = engine::start(slice::from_ref(&config))?;
        // Of several processes one writes.
        if started.bars.report() {
            let files = [&self.out, &self.json].into_iter().flatten();
            files.map(PathBuf::as_path).try_for_each(check_writable)?;
        }
        started.bars.started(0, 1, &config);
        let record = started.engine.run(&config, &started.bars, &options);
        started.bars.clear();
        let Some(record) = record? else { return Ok(()) };
        started.bars.finished(&record);

        let runs = slice::from_ref(&record);
        let summary = summarize(runs, &experiment.links())?;
        print_tables(&summary)?;
        output::line(format!("\nDigest of the parameters: {}", record.digest))?;
        if let Some(path) = &self.out {
            results::write(path, runs)?;
        }
        write_json(self.json.as_deref(), runs)
    }
}
