//! The links of all pages of the repository hold, also of those that the site does not have.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::markdown::{links, without_fences};
use super::pages::{INDEX, children, destination, is_page};

/// The folders with pages; others may be the user's own.
const FOLDERS: [&str; 5] = ["benchmarks", "crates", "docs", "examples", "results"];

/// The paths of all pages, relative to the root of the repository, in order.
///
/// # Errors
/// The folder that cannot be read.
fn pages(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut paths = children(root)?;
    paths.retain(|path| path.is_file() || FOLDERS.iter().any(|name| path.ends_with(name)));
    let mut found = Vec::new();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(children(&path)?);
        } else if is_page(&path) && !path.is_symlink() {
            found.push(path.strip_prefix(root).unwrap_or(&path).to_owned());
        }
    }
    found.sort();
    Ok(found)
}

/// The anchors of all headings, as GitHub and mdBook make them.
fn anchors(page: &str) -> Vec<String> {
    let text = without_fences(page);
    let mut used: HashMap<String, usize> = HashMap::new();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let anchor = anchor(line.trim_start_matches('#').trim());
            let before = used.entry(anchor.clone()).or_default();
            *before += 1;
            if *before == 1 { anchor } else { format!("{anchor}-{}", *before - 1) }
        })
        .collect()
}

fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || "-_ ".contains(*letter);
    heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

/// What is wrong with a link, if anything.
fn fault(root: &Path, page: &Path, target: &str) -> Option<String> {
    let (mut path, anchor) = destination(page, target)?;
    let fault = |what| Some(format!("{}: {target} {what}", page.display()));
    if !root.join(&path).exists() {
        return fault("does not exist");
    }
    if root.join(&path).is_dir() {
        path.push(INDEX);
    }
    if anchor.is_empty() || !is_page(&path) {
        return None;
    }
    let text = fs::read_to_string(root.join(path)).unwrap_or_default();
    if anchors(&text).iter().any(|one| one == anchor) { None } else { fault("has no heading") }
}

#[test]
fn links_of_all_pages_hold() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let mut checked = 0;
    let mut faults = Vec::new();
    for page in pages(root).expect("readable folders") {
        let text = fs::read_to_string(root.join(&page)).expect("a readable page");
        for place in links(&text) {
            checked += 1;
            faults.extend(fault(root, &page, &text[place]));
        }
    }
    assert!(faults.is_empty() && checked > 400, "{checked} links; {}", faults.join("\n"));
}

#[test]
fn anchors_are_githubs() {
    let page = "# The `none` of it\n## 1-bit Adam\n```\n# no heading\n```\n## Why?\n### Why\n";
    assert_eq!(anchors(page), ["the-none-of-it", "1-bit-adam", "why", "why-1"]);
}
