//! One trial: its folder, its draws and its commands.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use fastrand::Rng;

use super::draw::Catalogue;
use super::processes::{ends_within, signal};

/// The time limit of a command; a slower one has failed.
pub(super) const LIMIT: Duration = Duration::from_secs(120);

/// A trial in progress.
pub(super) struct Trial<'a> {
    /// The draws of this trial.
    pub(super) rng: Rng,
    /// The possible draws.
    pub(super) catalogue: &'a Catalogue,
    /// The number of its attacks.
    pub(super) attacks: u64,
    gradwire: &'a Path,
    folder: PathBuf,
    script: Vec<String>,
}

/// A command that has ended.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// Its standard error.
    pub(super) said: String,
    /// The digest of the parameters, if it printed one.
    pub(super) digest: Option<String>,
}

impl Ended {
    /// Returns whether the command succeeded; if not, it refused its input with a proper message.
    ///
    /// # Errors
    /// If it ended in any other way, with its status and the end of its output.
    pub(super) fn succeeded(&self) -> Result<bool, String> {
        let refused = self.said.contains("error: ") && !self.said.contains("panicked");
        match self.status.code() {
            Some(0) => Ok(true),
            Some(1 | 2) if refused => Ok(false),
            _ => Err(format!("{}: {}", self.status, self.said.trim())),
        }
    }
}

impl<'a> Trial<'a> {
    /// Trial `number` of a seed, in a new folder.
    pub(super) fn new(
        seed: u64,
        number: u64,
        gradwire: &'a Path,
        catalogue: &'a Catalogue,
    ) -> Result<Self, String> {
        let name = format!("gradwire-soak-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let rng = Rng::with_seed(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        Ok(Self { rng, catalogue, attacks: 0, gradwire, folder, script: Vec::new() })
    }

    /// The commands so far, for a shell.
    pub(super) fn script(&self) -> String {
        format!("  cd {}\n  {}", self.folder.display(), self.script.join("\n  "))
    }

    /// Removes the folder.
    pub(super) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.folder);
    }

    /// Removes all files, and forgets the commands.
    pub(super) fn restart(&mut self) -> Result<(), String> {
        self.remove();
        self.script.clear();
        fs::create_dir_all(&self.folder).map_err(|error| error.to_string())
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }

    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        fs::read(self.folder.join(name)).map_err(|error| format!("{name}: {error}"))
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        fs::write(self.folder.join(name), bytes).map_err(|error| format!("{name}: {error}"))
    }

    /// A command of `gradwire`.
    pub(super) fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(self.gradwire);
        command.args(arguments).current_dir(&self.folder).env_remove("GRADWIRE_DATA");
        command
    }

    /// Runs `gradwire` to its end.
    pub(super) fn gradwire(&mut self, arguments: &[String]) -> Result<Ended, String> {
        let mut child = self.start(&mut self.command(arguments), "")?;
        self.finish(&mut child)
    }

    /// Starts a command. `then` follows it in the script.
    pub(super) fn start(&mut self, command: &mut Command, then: &str) -> Result<Child, String> {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
        self.script.push(words.join(" ") + then);
        let file = |name| File::create(self.folder.join(name)).map_err(|error| error.to_string());
        command.stdin(Stdio::null()).stdout(file("printed")?).stderr(file("said")?);
        command.spawn().map_err(|error| format!("{}: {error}", words[0]))
    }

    /// Waits for the end of a command.
    ///
    /// # Errors
    /// If that takes longer than [`LIMIT`].
    pub(super) fn finish(&self, child: &mut Child) -> Result<Ended, String> {
        if !ends_within(child, LIMIT) {
            signal(child.id(), "-KILL");
            let _ = child.wait();
            return Err(format!("it did not end within {} s", LIMIT.as_secs()));
        }
        let text = |name| Ok::<_, String>(String::from_utf8_lossy(&self.read(name)?).into_owned());
        let (printed, said) = (text("printed")?, text("said")?);
        let digest =
            printed.lines().find_map(|line| line.strip_prefix("Digest of the parameters: "));
        let status = child.wait().map_err(|error| error.to_string())?;
        Ok(Ended { status, said, digest: digest.map(str::to_owned) })
    }
}

/// A word quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{word}'") }
}
