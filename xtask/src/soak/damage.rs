//! Damaged files are refused with a message; intact ones come back.

use super::draw::{damage, tensors};
use super::forge::forged;
use super::trial::Trial;

/// The number of damaged files that a trial makes from one file.
const FILES: usize = 12;

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Compresses random tensors, and decompresses the frames, intact and damaged.
pub(super) fn frames(trial: &mut Trial) -> Result<(), String> {
    let count = loop {
        trial.restart()?;
        let (file, count) = tensors(&mut trial.rng);
        trial.write("t.safetensors", &file)?;
        let mut compress = words(&format!(
            "compress t.safetensors t.gw --force --seed {} --compressor",
            trial.rng.u32(..)
        ));
        compress.push(trial.catalogue.spec(&mut trial.rng));
        if trial.gradwire(&compress)?.succeeded()? {
            break count;
        }
    };
    // Decoded tensors come back unchanged if the codec is lossless.
    for line in [
        "inspect t.gw",
        "decompress t.gw a.safetensors --force",
        "compress a.safetensors b.gw --force --compressor none",
        "decompress b.gw b.safetensors --force",
    ] {
        let ended = trial.gradwire(&words(line))?;
        if !ended.succeeded()? {
            return Err(format!("a whole file was refused: {}", ended.said.trim()));
        }
    }
    if trial.read("a.safetensors")? != trial.read("b.safetensors")? {
        return Err("tensors changed when they were compressed without loss".to_owned());
    }
    let whole = trial.read("t.gw")?;
    for _ in 0..FILES {
        trial.attacks += 1;
        let mut bytes = whole.clone();
        damage(&mut bytes, &mut trial.rng);
        let repaired = count == 1 && bytes.len() > 4 && trial.rng.bool();
        if repaired {
            let end = bytes.len() - 4;
            let checksum = crc32fast::hash(&bytes[..end]);
            bytes[end..].copy_from_slice(&checksum.to_le_bytes());
        }
        trial.write("bad.gw", &bytes)?;
        let done = trial.gradwire(&words("decompress bad.gw bad.safetensors"))?.succeeded()?;
        // A file cut between two frames is valid.
        if done && count == 1 && !repaired && bytes != whole {
            return Err("a damaged frame was decompressed".to_owned());
        }
    }
    Ok(())
}

/// Damages the newest checkpoint of a run and resumes. If an older checkpoint remains, the run must
/// end with the same digest; otherwise resuming must fail with an error. A checkpoint with wrong
/// content and a correct checksum must lead to an error or to a finished run.
pub(super) fn checkpoints(trial: &mut Trial) -> Result<(), String> {
    let (settings, digest) = loop {
        trial.restart()?;
        let (settings, _) = trial.catalogue.run(&mut trial.rng);
        let save = words("--save run.state --save-every 9");
        let ended = trial.gradwire(&[&settings[..], &save].concat())?;
        if ended.succeeded()? && trial.has("run.state.1") {
            break (settings, ended.digest.unwrap_or_default());
        }
    };
    let [newest, older] = [trial.read("run.state")?, trial.read("run.state.1")?];
    for _ in 0..FILES / 2 {
        trial.attacks += 1;
        let mut bytes = newest.clone();
        damage(&mut bytes, &mut trial.rng);
        trial.write("run.state", &bytes)?;
        trial.write("alone.state", &bytes)?;
        let beside = trial.gradwire(&[&settings[..], &words("--resume run.state")].concat())?;
        if !beside.succeeded()? || beside.digest.as_ref() != Some(&digest) {
            return Err(format!("the older checkpoint was not used: {}", beside.said.trim()));
        }
        let alone = trial.gradwire(&[&settings[..], &words("--resume alone.state")].concat())?;
        if alone.succeeded()? && bytes != newest {
            return Err("a damaged checkpoint was used".to_owned());
        }
    }
    for _ in 0..FILES / 2 {
        trial.attacks += 1;
        let file = forged(&older, &mut trial.rng).ok_or("a checkpoint is no state file")?;
        trial.write("forged.state", &file)?;
        let mut settings = settings.clone();
        // Another number of workers redistributes residuals by the keys of their arrays.
        if let Some(at) = settings.iter().position(|word| word == "--workers") {
            settings[at + 1] = trial.rng.u8(1..5).to_string();
        }
        trial.gradwire(&[&settings[..], &words("--resume forged.state")].concat())?.succeeded()?;
    }
    trial.write("run.state", &older)?;
    let ended = trial.gradwire(&[&settings[..], &words("--resume run.state")].concat())?;
    match ended.digest {
        Some(found) if found == digest => Ok(()),
        found => {
            Err(format!("the older checkpoint gives the digest {found:?} instead of {digest}"))
        }
    }
}
