//! The Markdown pages of the repository, and where their links lead.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// The page that stands for a folder.
pub(super) const INDEX: &str = "README.md";
/// The folders with pages; others may be the user's own.
const FOLDERS: [&str; 5] = ["benchmarks", "crates", "docs", "examples", "results"];

/// The paths of all pages, relative to the root of the repository, in order.
///
/// # Errors
/// The folder that cannot be read.
pub(super) fn pages(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut paths = children(root)?;
    paths.retain(|path| path.is_file() || FOLDERS.iter().any(|name| path.ends_with(name)));
    let mut found = Vec::new();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(children(&path)?);
        } else if is_page(&path) {
            found.push(path.strip_prefix(root).unwrap_or(&path).to_owned());
        }
    }
    found.sort();
    Ok(found)
}

pub(super) fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// The paths in a folder, in order, without hidden files and without what is built.
pub(super) fn children(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !name.starts_with('.') && name != "target" && name != "__pycache__"
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_ours).collect();
    paths.sort();
    Ok(paths)
}

/// The path, relative to the root, and the anchor to which a link of a page leads; `None` if it
/// leads outside the repository.
pub(super) fn destination<'a>(page: &Path, target: &'a str) -> Option<(PathBuf, &'a str)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    if path.is_empty() {
        return Some((page.to_owned(), anchor));
    }
    let mut found = PathBuf::new();
    for part in page.parent().unwrap_or(Path::new("")).join(path).components() {
        match part {
            Component::ParentDir => _ = found.pop(),
            Component::Normal(name) => found.push(name),
            _ => {}
        }
    }
    Some((found, anchor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::markdown::{anchors, links};

    #[test]
    fn links_lead_to_paths_below_the_root() {
        let of = |target| destination(Path::new("docs/a.md"), target);
        assert_eq!(of("../results/b#c"), Some((PathBuf::from("results/b"), "c")));
        assert_eq!(of("#d"), Some((PathBuf::from("docs/a.md"), "d")));
        assert_eq!(of("https://example.org/e.md"), None);
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
}
