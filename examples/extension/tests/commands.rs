//! Every command knows the compressor by its name.

use std::fs;
use std::path::Path;
use std::process::Command;

/// What a command prints.
fn printed(folder: &Path, arguments: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_acme-gradwire"));
    let output = command.current_dir(folder).args(arguments.split(' ')).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn lists_and_tables_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let printed = |arguments| printed(folder.path(), arguments);
    assert!(printed("list").contains("acme/scaled-sign"));
    assert!(printed("list acme/scaled-sign").contains("multiplies the mean"));
    let table = printed(
        "compare --compressor none --compressor acme/scaled-sign:gain=2 --steps 3 --out out",
    );
    assert!(table.contains("acme/scaled-sign:gain=2"), "{table}");
    let report = fs::read_to_string(folder.path().join("out/report.html")).unwrap();
    assert!(report.contains("acme/scaled-sign:gain=2"));
    let bench = printed("bench --quick --compressor acme/scaled-sign --elements 1000");
    assert!(bench.contains("acme/scaled-sign"), "{bench}");
}

#[test]
fn files_have_it() {
    let folder = tempfile::tempdir().unwrap();
    // A NumPy file of four elements.
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }";
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend(format!("{header:<117}\n").bytes());
    file.extend([1.0f32, -2.0, 3.0, 2.0].iter().flat_map(|x| x.to_le_bytes()));
    fs::write(folder.path().join("g.npy"), file).unwrap();
    let printed = |arguments| printed(folder.path(), arguments);
    printed("compress --compressor acme/scaled-sign g.npy g.gw");
    assert!(printed("inspect g.gw").contains("acme/scaled-sign"));
    printed("decompress g.gw h.npy");
    let decoded = fs::read(folder.path().join("h.npy")).unwrap();
    let expected: Vec<u8> = [2.0f32, -2.0, 2.0, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert!(decoded.ends_with(&expected));
}
