//! Checkpoints to deltas and back: `delta`, `patch`, `fold`, `pack`, `unpack`, `inspect`.

mod support;

use std::fs;
use std::process::Stdio;

use serde_json::Value;
use support::Bench;

/// A file with one tensor of `halves` bfloat16 elements; each `step`th differs by `add`.
fn checkpoint(bench: &Bench, name: &str, halves: usize, (step, add): (usize, u8)) {
    let json = format!(
        r#"{{"__metadata__":{{"format":"pt"}},"w":{{"dtype":"BF16","shape":[{halves}],"data_offsets":[0,{}]}}}}"#,
        2 * halves
    );
    let mut file = (json.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(json.as_bytes());
    for at in 0..halves {
        let low = (at.wrapping_mul(0x9e37_79b9) >> 13) as u8;
        let changed = if at % step == 0 { low.wrapping_add(add) } else { low };
        file.extend_from_slice(&[changed, 0x3c]);
    }
    bench.write(name, &file);
}

/// A folder of two files with an index.
fn folder(bench: &Bench, name: &str, last: u8) {
    fs::create_dir(bench.path(name)).unwrap();
    for (file, tensor, byte) in [("m-1", "a", 1), ("m-2", "b", last)] {
        let json = format!(r#"{{"{tensor}":{{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}}}"#);
        let bytes = [&(json.len() as u64).to_le_bytes(), json.as_bytes(), &[byte, 7]].concat();
        bench.write(&format!("{name}/{file}.safetensors"), &bytes);
    }
    let index = r#"{"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}"#;
    bench.write(&format!("{name}/m.safetensors.index.json"), index.as_bytes());
}

#[cfg(target_os = "linux")]
#[test]
fn errors_of_files_come_with_the_remedy_that_fits() {
    let bench = Bench::new();
    for (name, add) in [("v0", 0), ("v1", 1)] {
        checkpoint(&bench, name, 100_000, (2, add));
    }
    bench.refuses(&[
        (
            "delta absent v1 -o d",
            "'absent': No such file or directory (os error 2); check the path",
        ),
        ("delta v0/below v1 -o d", "(os error 20); check the path: a part of it is not a folder"),
        (&format!("pack v0 -o {}", "x".repeat(300)), "choose another name, or a shorter one"),
        ("compress absent.npy c.gw --compressor none", "(os error 2); check the path"),
    ]);
    for line in ["delta v0 v1 -o -", "pack v0 -o -", "list"] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = bench.command(line).stdout(full).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        let expected = "standard output: No space left on device (os error 28); make room";
        assert!(!output.status.success() && error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn files_come_back_byte_for_byte() {
    let bench = Bench::new();
    for (name, add) in [("v0", 0), ("v1", 1), ("v2", 3)] {
        checkpoint(&bench, &format!("{name}.safetensors"), 100_000, (100, add));
    }
    bench.ok("delta v0.safetensors v1.safetensors -o 1.gwd");
    bench.ok("delta v1.safetensors v2.safetensors -o 2.gwd --threads 3");
    let deltas = [bench.read("1.gwd"), bench.read("2.gwd")];
    assert!(deltas.iter().all(|delta| delta.len() < 2500), "a thousand changes");
    let same = |a: &str, b: &str| assert!(bench.read(a) == bench.read(b), "{a} is not {b}");
    bench.ok("patch v0.safetensors 1.gwd 2.gwd -o new.safetensors");
    same("new.safetensors", "v2.safetensors");
    fs::copy(bench.path("v0.safetensors"), bench.path("own.safetensors")).unwrap();
    for _ in 0..2 {
        bench.ok("patch own.safetensors 1.gwd --in-place");
        same("own.safetensors", "v1.safetensors");
    }
    bench.ok("fold v0.safetensors 1.gwd 2.gwd -o both.gwd");
    bench.ok("patch v0.safetensors both.gwd -o new.safetensors -f");
    same("new.safetensors", "v2.safetensors");
    bench.ok("pack v0.safetensors -o v0.gwd");
    bench.ok("unpack v0.gwd -o back.safetensors");
    same("back.safetensors", "v0.safetensors");
    let names = bench.names();
    assert!(
        names.iter().all(|name| !name.ends_with(".tmp") && !name.contains("redo")),
        "{names:?}"
    );
}

#[test]
fn streams_go_through_pipes() {
    let bench = Bench::new();
    checkpoint(&bench, "a.safetensors", 5000, (10, 0));
    checkpoint(&bench, "b.safetensors", 5000, (10, 2));
    bench.ok("delta a.safetensors b.safetensors -o d.gwd");
    let delta = bench.run("delta a.safetensors b.safetensors -o -").stdout;
    assert_eq!(delta, bench.read("d.gwd"));
    let output = bench.piped("patch a.safetensors - -o c.safetensors", &delta);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(bench.read("c.safetensors"), bench.read("b.safetensors"));
    let rows: Value =
        serde_json::from_slice(&bench.piped("inspect - --json", &delta).stdout).unwrap();
    assert_eq!((&rows[0]["kind"], &rows[0]["bytes"]), (&"delta".into(), &delta.len().into()));
    for input in [&delta[..delta.len() - 1], b"no delta".as_slice(), b""] {
        let output = bench.piped("patch a.safetensors - -o x.safetensors", input);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains("standard input"), "{error}");
    }
    assert!(!bench.names().contains(&"x.safetensors".to_owned()));
}

#[test]
fn folders_keep_their_files() {
    let bench = Bench::new();
    folder(&bench, "a", 5);
    folder(&bench, "b", 6);
    bench.ok("delta a b -o d.gwd");
    bench.ok("patch a d.gwd -o c");
    bench.ok("pack a -o a.gwd");
    bench.ok("unpack a.gwd -o a2");
    for (one, other) in [("b", "c"), ("a", "a2")] {
        for file in ["m-1.safetensors", "m-2.safetensors", "m.safetensors.index.json"] {
            let [one, other] = [one, other].map(|folder| bench.read(&format!("{folder}/{file}")));
            assert_eq!(one, other);
        }
    }
    let table = bench.ok("inspect a.gwd");
    assert!(table.contains("files: m-1.safetensors, m-2.safetensors"), "{table}");
    assert!(table.contains("snapshot of run") && table.contains("all elements"), "{table}");
    let table = bench.ok("inspect d.gwd");
    assert!(table.contains("1 small tensors") && table.contains("U8"), "{table}");
    bench.ok("patch a d.gwd --in-place");
    assert_eq!(bench.read("a/m-2.safetensors"), bench.read("b/m-2.safetensors"));
}

#[test]
fn a_bench_counts_changes_and_bytes() {
    let bench = Bench::new();
    checkpoint(&bench, "a.safetensors", 50_000, (100, 0));
    checkpoint(&bench, "b.safetensors", 50_000, (100, 1));
    bench.ok("delta a.safetensors b.safetensors -o d.gwd");
    let rows = support::rows(&bench, "bench --delta a.safetensors b.safetensors --quick");
    let portable: Vec<_> = rows.iter().map(|row| row["portable"].as_bool().unwrap()).collect();
    assert_eq!(portable, [false, true]);
    assert!(rows.iter().all(|row| row["changes"] == 500 && row["raw_bytes"] == 100_000));
    // Files of one layout need no description.
    assert_eq!(rows[0]["delta_bytes"], bench.read("d.gwd").len());
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let bench = Bench::new();
    // A patch in place locks this file, which stays.
    bench.write("gradwire.lock", b"");
    for (name, add) in [("v0", 0), ("v1", 1), ("v2", 3)] {
        checkpoint(&bench, &format!("{name}.safetensors"), 1000, (10, add));
    }
    folder(&bench, "folder", 1);
    bench.ok("delta v0.safetensors v1.safetensors -o d.gwd");
    bench.ok("pack v0.safetensors -o s.gwd");
    let delta = bench.read("d.gwd");
    bench.write("cut.gwd", &delta[..delta.len() - 5]);
    let mut flipped = delta.clone();
    flipped[delta.len() / 2] ^= 4;
    bench.write("flipped.gwd", &flipped);
    // A tensor of another shape is new: 4000 bytes.
    checkpoint(&bench, "long.safetensors", 2000, (10, 0));
    bench.ok("delta v0.safetensors long.safetensors -o long.gwd");
    bench.refuses(&[
        ("patch v2.safetensors d.gwd -o x", "hash"),
        ("patch v2.safetensors d.gwd --in-place", "hash"),
        ("patch v0.safetensors cut.gwd -o x", "'cut.gwd': the delta is truncated"),
        ("patch v0.safetensors flipped.gwd -o x", "checksum"),
        ("patch v0.safetensors v1.safetensors -o x", "'v1.safetensors': this is not a delta"),
        ("patch v0.safetensors absent.gwd -o x", "absent.gwd"),
        ("patch v0.safetensors s.gwd -o x", "unpack it"),
        ("patch v0.safetensors d.gwd", "--in-place"),
        ("patch v0.safetensors d.gwd -o x --in-place", "cannot be used with"),
        ("patch v0.safetensors - - -o x", "named twice"),
        ("patch v0.safetensors d.gwd -o -", "name a file"),
        ("unpack s.gwd -o -", "name a file"),
        ("patch d.gwd d.gwd -o x", "d.gwd"),
        ("unpack d.gwd -o x", "gradwire patch"),
        ("unpack s.gwd -o x --max-bytes 100", "100 bytes"),
        ("fold v0.safetensors long.gwd -o x --max-bytes 3999", "raise the limit (--max-bytes"),
        ("patch v0.safetensors long.gwd -o x --max-bytes 3999", "'long.gwd': the update holds"),
        ("pack absent -o x", "absent"),
        ("delta v0.safetensors v1.safetensors -o folder", "a folder"),
        ("unpack s.gwd -o folder", "a folder"),
        ("delta v0.safetensors v1.safetensors -o x --threads 0", "--threads"),
        ("inspect cut.gwd", "truncated"),
        ("delta v0.safetensors v1.safetensors -o d.gwd", "'d.gwd' exists already"),
        ("pack v0.safetensors -o d.gwd", "--force"),
        ("fold v0.safetensors d.gwd -o s.gwd", "--force"),
        ("unpack s.gwd -o v0.safetensors", "--force"),
        ("patch v0.safetensors d.gwd -o v1.safetensors", "--force"),
    ]);
    bench.ok("fold v0.safetensors long.gwd -o x --max-bytes 4000");
}

#[cfg(unix)]
#[test]
fn a_patch_in_place_that_is_killed_is_completed_or_never_began() {
    use std::time::{Duration, Instant};
    use support::kills;
    let bench = Bench::new();
    checkpoint(&bench, "v0.safetensors", 3_000_000, (20, 0));
    checkpoint(&bench, "v1.safetensors", 3_000_000, (20, 1));
    bench.ok("delta v0.safetensors v1.safetensors -o d.gwd");
    let [old, new] = ["v0.safetensors", "v1.safetensors"].map(|name| bench.read(name));
    fs::create_dir(bench.path("w")).unwrap();
    bench.write("w/own.safetensors", &old);
    let start = Instant::now();
    bench.ok("patch w/own.safetensors d.gwd --in-place");
    let took = start.elapsed();
    let mut draws = gradwire::Rng::new(3, 0, 0, 0, 0);
    for _ in 0..kills(6) {
        bench.write("w/own.safetensors", &old);
        let mut command = bench.command("patch w/own.safetensors d.gwd --in-place");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let moment = support::below(took.as_micros() as u64, &mut draws);
        std::thread::sleep(Duration::from_micros(moment));
        // It may have ended already.
        let _ = child.kill();
        child.wait().unwrap();
        // Any command that opens the weights completes the patch.
        bench.ok("delta w/own.safetensors v1.safetensors -o rest.gwd --force");
        let found = bench.read("w/own.safetensors");
        assert!(found == old || found == new, "a mixture after {moment} µs");
        bench.ok("patch w/own.safetensors d.gwd --in-place");
        assert!(bench.read("w/own.safetensors") == new);
        let entries = fs::read_dir(bench.path("w")).unwrap().map(|entry| entry.unwrap());
        let mut left: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, ["gradwire.lock", "own.safetensors"]);
    }
}
