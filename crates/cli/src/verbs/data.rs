//! `gradwire data`: known data sets, and data sets in a folder.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use gradwire_models::data::{self, Content, Known, ROOT_VARIABLE, Verdict};
use gradwire_testbed::table::Table;

use crate::failure::Failure;
use crate::form::Form;
use crate::output;

/// Show the known data sets, or check the files in a folder.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Data {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the data sets known by name and the folders searched for each (the default)
    List {
        #[command(flatten)]
        form: Form,
    },
    /// Recognise and load the data set in a folder, and compare its files with known checksums
    Check {
        /// The folder, not the name of a data set; without arguments, gradwire data shows the
        /// folders of known data sets
        dir: PathBuf,
    },
}

impl Data {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match &self.action {
            None => list(self.form),
            Some(Action::List { form }) => list(*form),
            Some(Action::Check { dir }) => check(dir),
        }
    }
}

fn list(form: Form) -> Result<(), Failure> {
    let catalogue = data::catalogue();
    let table = Table::of(&catalogue)
        .column("name", |known| known.name)
        .column("what it is", |known| known.summary)
        .column("where it is", |known| place(known))
        .table();
    form.print(&table.left_aligned())?;
    if form.is_csv() {
        return Ok(());
    }
    output::line(format!(
        "\nData sets are searched for in ${ROOT_VARIABLE}/<name>, then in data/<name>.\n\
         --data takes a name, or any folder with such files:\n"
    ))?;
    let with_files: Vec<_> = catalogue.iter().filter(|known| !known.files.is_empty()).collect();
    let files = Table::of(&with_files)
        .column("name", |known| known.name)
        .column("files", |known| {
            known.files.iter().map(|file| file.name).collect::<Vec<_>>().join(", ")
        })
        .table();
    form.print(&files.left_aligned())
}

fn place(known: &Known) -> String {
    if known.files.is_empty() {
        return "generated".to_owned();
    }
    let found = data::places(known.name, None).into_iter().find(|place| place.exists());
    found.map_or("not found".to_owned(), |place| place.display().to_string())
}

fn check(dir: &Path) -> Result<(), Failure> {
    let loaded = data::load(dir).map_err(|error| Failure::Input(error.to_string()))?;
    let (name, sum) = (&loaded.name, &loaded.checksum);
    output::line(format!("{name}: {}\nSHA-256 {sum}", sizes(&loaded.content)))?;
    let place = data::folder_with_files(dir).map_err(|error| Failure::Input(error.to_string()))?;
    let Some(known) = known(name, &place) else {
        return output::line(
            "It is not one of the data sets known by name, so there is no checksum to compare with.",
        );
    };
    let verdicts = known.verify(&place).map_err(|error| Failure::Input(error.to_string()))?;
    if known.name != name && verdicts.iter().all(|(_, verdict)| is_other(verdict)) {
        return output::line(format!(
            "Its files have the names of {0}'s files, but none has the known checksum: it is another \
             data set in the format of {0}.",
            known.name
        ));
    }
    let mut wrong = Vec::new();
    for (file, verdict) in verdicts {
        let says = match &verdict {
            Verdict::Matches => "as known".to_owned(),
            Verdict::Unknown(sum) => format!("no checksum is known; it has {sum}"),
            Verdict::Missing => "not there".to_owned(),
            Verdict::Differs(sum) => {
                wrong.push(file);
                format!("differs from the known file; it has {sum}")
            }
        };
        output::line(format!("{file}: {says}"))?;
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "{} differ from the known files; fetch them again",
        wrong.join(", ")
    )))
}

fn sizes(content: &Content) -> String {
    match content {
        Content::Images(images) => {
            let [channels, height, width] = images.train.shape();
            let (train, test) = (images.train.len(), images.test.len());
            let classes = images.train.classes;
            let classed = if images.train.is_masked() { "classes of pixels" } else { "classes" };
            format!(
                "{train} training and {test} test images of {width}×{height}×{channels}, {classes} {classed}"
            )
        }
        Content::Ratings(ratings) => format!(
            "{} training ratings, {} users, {} items, with held-out items of {} users",
            ratings.train.len(),
            ratings.users,
            ratings.items,
            ratings.test.len()
        ),
        Content::Text(text) => format!(
            "{} training and {} test {}, {} symbols",
            text.train.len(),
            text.test.len(),
            text.unit,
            text.vocabulary.len()
        ),
        Content::Other(_) => "data of another crate".to_owned(),
    }
}

/// Whether a file is not the known one.
fn is_other(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Differs(_) | Verdict::Missing)
}

/// The known data set with the most files in `dir`, if any. A known data set of a single file must
/// also have the loaded data set's name, since other data sets may have a file of the same name.
fn known(name: &str, dir: &Path) -> Option<&'static Known> {
    let there = |known: &Known| {
        if known.files.len() == 1 && known.name != name {
            return 0;
        }
        let exists =
            |name: &str| dir.join(name).exists() || dir.join(format!("{name}.gz")).exists();
        known.files.iter().filter(|file| exists(file.name)).count()
    };
    let known = data::catalogue().into_iter().max_by_key(|known| there(known));
    known.filter(|known| there(known) > 0)
}
