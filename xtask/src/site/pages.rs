//! The Markdown pages of the repository, and where their links lead.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// The page that stands for a folder.
pub(super) const INDEX: &str = "README.md";
/// What mdBook calls it.
pub(super) const BUILT_INDEX: &str = "index.md";

pub(super) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
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

    #[test]
    fn links_lead_to_paths_below_the_root() {
        let of = |target| destination(Path::new("docs/a.md"), target);
        assert_eq!(of("../results/b#c"), Some((PathBuf::from("results/b"), "c")));
        assert_eq!(of("#d"), Some((PathBuf::from("docs/a.md"), "d")));
        assert_eq!(of("https://example.org/e.md"), None);
    }
}
