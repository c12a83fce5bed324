//! Experiments as TOML files: the settings of training and the experiment's own keys in one table.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::LazyLock;

use gradwire::{files, printable};
use gradwire_train::settings::{Key, SETTINGS};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{ExchangeChoice, Experiment};
use crate::TestbedError;

/// The keys of an experiment that are not settings of training.
const OWN: [&str; 7] =
    ["data", "compressors", "epochs", "seeds", "evaluations", "diagnose", "links"];

/// Keys that experiment files had before `links`.
const OLD: [&str; 2] = ["links_mbit", "latency_ms"];

/// The most bytes of an experiment file.
const LONGEST: u64 = 1 << 20;

/// All keys of an experiment file.
static KEYS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| OWN.into_iter().chain(SETTINGS.iter().map(|setting| setting.name)).collect());

impl Experiment {
    /// Reads an experiment file. A missing key has the value of the default experiment.
    ///
    /// # Errors
    /// If there is no such file, or it has an unknown key or an invalid value; the error names the
    /// line.
    pub fn read(path: &Path) -> Result<Self, TestbedError> {
        Self::default().changed_by(path)
    }

    /// This experiment, changed by the keys of an experiment file.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn changed_by(self, path: &Path) -> Result<Self, TestbedError> {
        let text = files::read_text(path, LONGEST).map_err(TestbedError::read(path))?;
        let refused = |error: toml::de::Error| {
            // The error shows the line up to its end.
            let lines: Vec<_> =
                error.to_string().lines().map(|line| printable(line).to_string()).collect();
            TestbedError::Config(format!("{}: {}", printable(path.display()), lines.join("\n")))
        };
        refuse_old(path, &text)?;
        let table = toml::Deserializer::parse(&text).map_err(refused)?;
        table.deserialize_map(Table(self)).map_err(refused)
    }

    /// The experiment as a file for [`read`](Self::read), with every setting written out.
    pub fn to_toml(&self) -> String {
        let text = toml::to_string(self).expect("an experiment is a table of plain values");
        let written = |exchange: &str| format!("{} = \"{exchange}\"\n", ExchangeChoice::KEY);
        let unused = written(&self.settings.exchange.to_string());
        text.replacen(&unused, &written(&self.exchange.to_string()), 1)
    }
}

/// Refuses keys that experiment files no longer have.
fn refuse_old(path: &Path, text: &str) -> Result<(), TestbedError> {
    let keys = text.lines().filter_map(|line| Some(line.split_once('=')?.0.trim()));
    match keys.into_iter().find(|key| OLD.contains(key)) {
        None => Ok(()),
        Some(old) => Err(TestbedError::Config(format!(
            "{}: '{old}' is an old key; a link has bandwidth and latency in one text, as in \
             links = [\"100mbit\", \"1gbit/20ms\"]",
            printable(path.display())
        ))),
    }
}

/// Reads an experiment's table over an experiment.
struct Table(Experiment);

impl<'de> Visitor<'de> for Table {
    type Value = Experiment;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Experiment, A::Error> {
        let Self(mut experiment) = self;
        while let Some(key) = map.next_key_seed(Key { known: &KEYS })? {
            match key {
                "data" => experiment.data = map.next_value()?,
                "compressors" => experiment.compressors = map.next_value::<Texts<_>>()?.0,
                "epochs" => experiment.epochs = Some(map.next_value()?),
                "seeds" => experiment.seeds = map.next_value()?,
                "evaluations" => experiment.evaluations = map.next_value()?,
                "diagnose" => experiment.diagnose = map.next_value()?,
                "links" => experiment.links = map.next_value::<Texts<_>>()?.0,
                ExchangeChoice::KEY => {
                    let text = map.next_value::<String>()?;
                    experiment.exchange = text.parse().map_err(A::Error::custom)?;
                }
                setting => {
                    experiment.settings.read(setting, &mut map)?;
                }
            }
        }
        Ok(experiment)
    }
}

/// A list of values that a file contains as texts, such as compressors.
struct Texts<T>(Vec<T>);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Texts<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        let values = texts.iter().map(|text| text.parse().map_err(D::Error::custom));
        values.collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::known;

    fn read(text: &str) -> Result<Experiment, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("experiment.toml");
        std::fs::write(&path, text).unwrap();
        Experiment::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn an_experiment_goes_through_toml_and_back() {
        let mut experiment = Experiment::default();
        assert_eq!(read(&experiment.to_toml()).unwrap(), experiment);
        experiment.epochs = Some(1.5);
        experiment.overlap = true;
        experiment.augment = Some(false);
        experiment.clip = Some(2.5);
        experiment.seeds = vec![1, 2];
        experiment.links = ["12mbit", "1gbps/20ms"].map(known).to_vec();
        assert_eq!(read(&experiment.to_toml()).unwrap(), experiment);
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        let experiment =
            read("model = \"resnet20\"\ncompressors = [\"none\", \"3lc:s=1.9\"]").unwrap();
        assert_eq!(experiment.model.to_string(), "resnet20");
        assert_eq!(experiment.compressors[1].to_string(), "3lc:s=1.9");
        assert_eq!(experiment.workers, Experiment::default().workers);
    }

    #[test]
    fn old_keys_are_refused_with_the_new_one() {
        for old in ["links_mbit = [10.0, 100.0]", "steps = 3\nlatency_ms = 20"] {
            let error = read(old).unwrap_err();
            assert!(error.contains("old key") && error.contains("links = [\"100mbit\""), "{error}");
        }
    }

    #[test]
    fn a_file_changes_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("experiment.toml");
        std::fs::write(&path, "steps = 7").unwrap();
        let base = Experiment { seeds: vec![9], ..Experiment::default() };
        let changed = base.clone().changed_by(&path).unwrap();
        assert_eq!((changed.steps, changed.seeds), (7, vec![9]));
        std::fs::write(&path, base.to_toml().replace("seeds = [9]", "seeds = [0]")).unwrap();
        assert_eq!(base.changed_by(&path).unwrap(), Experiment::default());
    }

    #[test]
    fn the_experiments_of_this_repository_are_experiments() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(!files.is_empty());
        for file in files {
            Experiment::read(&file).unwrap().check().unwrap();
        }
    }

    /// The cells of the row of docs/experiments.md whose first cell fits.
    fn row(page: &str, fits: impl Fn(&str) -> bool) -> Option<Vec<&str>> {
        let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        rows.map(|row| row.split(" | ").collect::<Vec<_>>()).find(|cells| fits(cells[0]))
    }

    fn page() -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiments.md");
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_page_of_experiments_has_every_key_with_its_default_and_flag() {
        let (page, written) = (page(), Experiment::default().to_toml());
        for key in KEYS.iter() {
            let cells = row(&page, |first| first == format!("`{key}`"));
            let cells = cells.unwrap_or_else(|| panic!("docs/experiments.md has no row for {key}"));
            let default = written.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")));
            match default {
                Some(default) => assert_eq!(cells[2], format!("`{default}`"), "{key}"),
                None => assert!(cells[2].starts_with("not set: "), "{key}"),
            }
            if let Some(setting) = SETTINGS.iter().find(|setting| setting.name == *key) {
                assert_eq!(cells[4], format!("`--{}`", setting.flag), "{key}");
            }
        }
    }

    #[test]
    fn the_page_of_experiments_has_the_defaults_that_suit_a_model() {
        let page = page();
        for model in [
            "mlp",
            "lenet5",
            "cifar-cnn",
            "vgg16",
            "vgg19",
            "alexnet",
            "unet",
            "resnet20",
            "densenet40",
            "gpt",
            "charlstm",
            "wordlstm",
            "ncf",
        ] {
            let cells = row(&page, |first| first.contains(&format!("`{model}`"))).unwrap();
            let settings = Experiment::default().suiting(model.parse().unwrap()).unwrap().settings;
            let names =
                ["learning_rate", "optimizer", "batch", "weight_decay", "clip", "evaluate_at_most"];
            for (name, cell) in names.into_iter().zip(&cells[1..]) {
                let setting = SETTINGS.iter().find(|setting| setting.name == name).unwrap();
                assert_eq!(*cell, format!("`{}`", setting.text(&settings)), "{name} of {model}");
            }
        }
    }

    #[test]
    fn what_is_no_file_of_text_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("experiment.toml");
        let refused = |path: &Path| Experiment::read(path).unwrap_err().to_string();
        std::fs::write(&path, b"steps = 3\ndata = \"\xe9\"\n").unwrap();
        let error = refused(&path);
        assert!(error.contains("line 2 is not UTF-8 text; convert"), "{error}");
        assert!(!error.contains("permissions"), "{error}");
        std::fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
        assert!(refused(&path).contains("1073741824 bytes"), "{}", refused(&path));
        if cfg!(unix) {
            let error = refused(Path::new("/dev/zero"));
            assert!(
                error.contains("name a regular file") && !error.contains("permissions"),
                "{error}"
            );
        }
        let error = refused(&folder.path().join("absent.toml"));
        assert!(error.contains("check the path"), "{error}");
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named() {
        for (text, says) in [
            ("compressors = [\"4lc\"]", "unknown compressor '4lc'"),
            ("compressors = [\"3lc:s=2\"]", "s=2 is not allowed"),
            ("model = \"vgg\"", "vgg"),
            ("exchange = \"ring\"", "ring"),
            ("links = [\"fast\"]", "'fast' is not a link"),
            ("steeps = 3", "unknown key 'steeps' (did you mean 'steps'"),
            ("optimizer = \"adm\"", "'adm' (did you mean 'adam'"),
            ("optimizer = \"adam:bta1=0.8\"", "'bta1' (did you mean 'beta1'"),
            ("model = \"resnet2O\"", "'resnet2O' (did you mean 'resnet20'"),
            ("split = \"clases\"", "'clases' (did you mean 'classes'"),
            ("steps = \"many\"", "steps"),
            ("steeps = 3", "raw_below"),
            ("workers = 4\nmodel = \"vgg\"", "line 2"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
            assert!(error.contains("experiment.toml"), "{error}");
        }
    }
}
