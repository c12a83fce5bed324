//! Files that are no files, names that a terminal would obey, settings that need more memory than
//! there is, and results that cannot be written.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use support::{Bench, TINY};

#[cfg(unix)]
#[test]
fn what_has_no_end_is_not_read() {
    let bench = Bench::with_images();
    let says = "name a regular file";
    bench.refuses(&[
        ("train --experiment /dev/zero", says),
        ("compare --experiment /dev/zero", says),
        (&format!("train {TINY} --steps 1 --resume /dev/zero"), says),
        ("inspect /dev/zero", says),
        ("decompress /dev/zero out.npy", says),
    ]);
    std::os::unix::fs::symlink("/dev/zero", bench.path("endless.npy")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", bench.path("endless.safetensors")).unwrap();
    bench.refuses(&[
        ("compress endless.npy out.gw --compressor 3lc", says),
        ("compress endless.safetensors out.gw --compressor 3lc", says),
        ("advise endless.safetensors --ranks 2 --step-ms 10 --link 1gbit", says),
    ]);
    bench.write("latin.toml", b"steps = 1\n# \xe9t\xe9\n");
    let error = bench.refused("train --experiment latin.toml");
    assert!(error.contains("line 2 is not UTF-8") && !error.contains("permissions"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn runs_that_do_not_fit_into_memory_are_refused_before_they_begin() {
    let bench = Bench::with_images();
    let says = "of memory (4096 ×";
    let large = "--model mlp --data images --workers 4096 --batch 1048576 --steps 1";
    bench.refuses(&[
        (&format!("train {large} --compressor none"), says),
        (&format!("compare {large} --compressor none"), says),
    ]);
}

/// A .safetensors file with a tensor of this name, of one float.
fn safetensors(bench: &Bench, file: &str, name: &str, element: &str) {
    let name = serde_json::to_string(name).unwrap();
    let header = format!(
        "{{\"__metadata__\":{{\"by\\u001b[2J\":\"a\\u202eb\"}},{name}:{{\"dtype\":\"{element}\",\"shape\":[1],\"data_offsets\":[0,4]}}}}"
    );
    let length = (header.len() as u64).to_le_bytes();
    bench.write(file, &[&length, header.as_bytes(), &[0, 0, 128, 63]].concat());
}

#[test]
fn names_from_files_are_shown_and_not_obeyed() {
    let bench = Bench::with_images();
    let name = "w\u{1b}[31m\u{202e}x\u{9b}\nerror: none";
    let shown = r"w\u{1b}[31m\u{202e}x\u{9b}\nerror: none";
    safetensors(&bench, "t.safetensors", name, "F32");
    bench.ok("compress t.safetensors t.gw --compressor none");
    let table = bench.ok("inspect t.gw");
    assert!(table.contains(shown), "{table}");
    assert!(table.contains(r"by\u{1b}[2J") && table.contains(r"a\u{202e}b"), "{table}");
    let plain = |text: &str| !text.contains(|c| gradwire::is_obeyed(c) && c != '\n');
    assert!(plain(&table), "{table:?}");
    // JSON has the same name, and no character that is obeyed.
    let json = bench.ok("inspect t.gw --json");
    assert!(plain(&json), "{json:?}");
    let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(rows.as_array().unwrap().iter().any(|row| row["tensor"] == name), "{json}");
    // What is left out is named in a note.
    safetensors(&bench, "ids.safetensors", name, "I32");
    let notes = bench.run("compress ids.safetensors ids.gw --compressor 3lc").stderr;
    let notes = String::from_utf8(notes).unwrap();
    assert!(plain(&notes) && (notes.is_empty() || notes.contains(shown)), "{notes:?}");
    // Names of files, too.
    let folder = bench.path("a\u{1b}[1m");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("train-images-idx3-ubyte"), b"no images").unwrap();
    let error = bench.command("train --steps 1 --data").arg("a\u{1b}[1m").output().unwrap().stderr;
    let error = String::from_utf8(error).unwrap();
    assert!(error.contains(r"a\u{1b}[1m") && plain(&error), "{error:?}");
}

#[test]
fn a_result_that_cannot_be_stored_is_printed() {
    let bench = Bench::with_images();
    fs::create_dir_all(bench.path("out/report.html")).unwrap();
    for json in ["", " --json"] {
        let line = format!("compare {TINY} --steps 2 --compressor none --out out{json}");
        let output = bench.run(&line);
        let printed = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(printed.contains("accuracy") && printed.contains("none"), "{printed}");
        assert!(error.contains("report.html"), "{error}");
    }
    // The folder goes while the run is in progress, which waits when its progress fills the pipe.
    fs::create_dir(bench.path("place")).unwrap();
    let often = TINY.replace("--evaluations 2", "--evaluations 2500");
    let line = format!("train {often} --steps 2500 --compressor none --out place/run.jsonl");
    let mut child =
        bench.command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    while !first.contains("accuracy") {
        first.clear();
        errors.read_line(&mut first).unwrap();
    }
    fs::remove_dir_all(bench.path("place")).unwrap();
    bench.write("place", b"a file is in the way");
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{rest}");
    assert!(printed.contains("Digest of the parameters"), "{printed}");
    assert!(rest.contains("cannot write 'place/run.jsonl'"), "{rest}");
}
