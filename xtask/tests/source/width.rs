//! Comments of Rust wrap at 100 columns, as code does.

use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// The most characters of a line.
const WIDTH: usize = 100;

/// The numbers of the lines that are too wide: whole-line comments, but for rows of tables and
/// lines that a web address makes wide. Code blocks in documentation count.
fn wide_comments(source: &str) -> Vec<usize> {
    let lines = (1..).zip(source.lines());
    lines.filter(|(_, line)| is_wide(line)).map(|(number, _)| number).collect()
}

fn is_wide(line: &str) -> bool {
    let text = line.trim_start();
    let text = text.trim_start_matches('/').trim_start_matches('!').trim_start();
    let is_comment = line.trim_start().starts_with("//");
    is_comment
        && line.chars().count() > WIDTH
        && !text.starts_with('|')
        && !text.split_whitespace().any(|word| word.contains("://"))
}

/// Every Rust file of the workspace.
fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<_> = ["crates", "fuzz", "xtask"].map(|name| root().join(name)).into();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).expect("a readable folder");
        for path in entries.map(|entry| entry.expect("a readable entry").path()) {
            if path.is_dir() {
                let built = path.file_name().is_some_and(|name| name == "target");
                folders.extend((!built).then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn comments_wrap_at_100_columns() {
    let mut wide = String::new();
    for path in files() {
        let source = fs::read_to_string(&path).expect("a readable file");
        let path = path.strip_prefix(root()).unwrap_or(Path::new(&path)).display();
        for line in wide_comments(&source) {
            wide += &format!("\n{path}:{line}");
        }
    }
    assert!(wide.is_empty(), "comments of more than {WIDTH} columns:{wide}");
}

#[test]
fn wide_comments_are_found() {
    // 100 columns and 101; umlauts have one column.
    let fits = format!("    /// {}", "ü".repeat(92));
    let wide = format!("    /// {}", "ü".repeat(93));
    let long_code = format!("let x = \"{}\";", "x".repeat(100));
    let table = format!("//! | {} |", "x".repeat(100));
    let address = format!("// https://{}", "x".repeat(100));
    let source = [&*fits, &wide, &long_code, &table, &address, &wide.replace("///", "//!")];
    assert_eq!(wide_comments(&source.join("\n")), [2, 6]);
}
