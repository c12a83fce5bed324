//! `docs/compressors.md` is generated from the registry and from measured rows; this test says
//! where it is out of date.
//!
//! `cargo xtask docs`, or `GRADWIRE_WRITE_DOCS=1`, generates it again.

use std::fs;
use std::path::PathBuf;

use crate::page::{self, Measured, Row, Speed};
use gradwire::registry::REGISTRY;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_is_up_to_date() {
    let measured = page::MEASURED.map(|(processor, file)| {
        let file = fs::read(root().join(file)).unwrap();
        Measured { processor, rows: page::rows(&file) }
    });
    let page = page::page(&measured);
    let path = root().join("docs/compressors.md");
    if std::env::var_os("GRADWIRE_WRITE_DOCS").is_some_and(|set| set == "1") {
        fs::write(&path, &page).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    for (number, (found, expected)) in committed.lines().zip(page.lines()).enumerate() {
        assert_eq!(found, expected, "line {} is out of date; run cargo xtask docs", number + 1);
    }
    assert!(committed == page, "the page is too short or too long; run cargo xtask docs");
}

#[test]
fn every_row_that_was_measured_is_shown() {
    let row = |spec: &str, elements, gbps| Row {
        compressor: spec.to_owned(),
        elements,
        compress: Speed { gbps, bound: None },
        decompress: Speed { gbps: 2.0 * gbps, bound: Some(50.0) },
        bits_per_element: 1.6,
    };
    let rows = vec![
        row("3lc", 1000, 20.0),
        row("3lc", 2000, 10.04),
        row("3lc:s=1.75", 2000, 12.6),
        row("sketchml", 2000, 0.126),
        row("none", 2000, 30.0),
    ];
    let other = vec![row("3lc", 1000, 5.0)];
    let page = page::page(&[
        Measured { processor: "a fast processor", rows },
        Measured { processor: "another", rows: other },
    ]);
    assert!(page.contains("On a fast processor:\n\n| spec |"), "{page}");
    assert!(page.contains("| `3lc` | 1.600 | 5.0 | 10.0 of 50.0, 20 % |\n"), "{page}");
    assert!(
        page.contains(
            "| `3lc` | 1.600 | 20.0 | 10.0 | 40.0 of 50.0, 80 % | 20.1 of 50.0, 40 % |\n"
        ),
        "{page}"
    );
    assert!(
        page.contains("| `3lc:s=1.75` | 1.600 | – | 12.6 | – | 25.2 of 50.0, 50 % |\n"),
        "{page}"
    );
    assert!(page.contains("| `sketchml` | 1.600 | – | 0.13 | – | 0.25 of 50.0, 1 % |\n"), "{page}");
    assert!(
        page.contains("`sketchml` compresses less than 1 GB/s on a fast processor: every non-zero"),
        "{page}"
    );
    assert!(!page.contains("`atomo` compresses less"), "{page}");
    assert!(page.contains("| `topk` | – | – | – | – | – |\n"), "{page}");
}

#[test]
fn the_format_has_the_bytes_of_every_compressor() {
    let page = fs::read_to_string(root().join("docs/format.md")).unwrap();
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
    for entry in REGISTRY {
        let name = format!("`{}`", entry.id);
        let named = |row: &&str| row.split('|').nth(1).is_some_and(|first| first.contains(&name));
        assert!(rows.iter().any(named), "docs/format.md has no row for {name}");
    }
}

#[test]
fn every_compressor_has_its_formula_in_a_line() {
    for entry in REGISTRY {
        let formula = entry.formula;
        assert!(
            formula.starts_with("x̂ = ") || formula.starts_with("Ĉ = "),
            "{}: {formula}",
            entry.id
        );
        assert!(!formula.contains('\n') && formula.chars().count() < 160, "{}", entry.id);
    }
}
