//! Checks the links of a built site.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::pages::{children, destination, read};

/// The number of links of all pages of a site.
///
/// # Errors
/// The links that lead nowhere, or a file that cannot be read.
pub(super) fn check(site: &Path) -> Result<usize, String> {
    let mut pages = HashMap::new();
    let mut folders = vec![site.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in children(&folder)? {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                pages.insert(path.strip_prefix(site).unwrap_or(&path).to_owned(), read(&path)?);
            }
        }
    }
    let mut checked = 0;
    let mut faults = Vec::new();
    // The page of errors has absolute links.
    for (page, text) in pages.iter().filter(|(page, _)| !page.ends_with("404.html")) {
        for target in targets(text) {
            checked += 1;
            if !holds(site, page, target, &pages) {
                faults.push(format!("{}: {target}", page.display()));
            }
        }
    }
    faults.sort();
    if faults.is_empty() {
        Ok(checked)
    } else {
        Err(format!("links lead nowhere:\n{}", faults.join("\n")))
    }
}

fn holds(site: &Path, page: &Path, target: &str, pages: &HashMap<PathBuf, String>) -> bool {
    let Some((path, anchor)) = destination(page, target) else { return true };
    match pages.get(&path) {
        Some(text) => anchor.is_empty() || text.contains(&format!("id=\"{anchor}\"")),
        None => site.join(path).exists(),
    }
}

/// The values of `href` and `src` of a page.
fn targets(page: &str) -> impl Iterator<Item = &str> {
    let values = ["href=\"", "src=\""].into_iter().flat_map(|name| page.split(name).skip(1));
    let values = values.filter_map(|rest| rest.split('"').next());
    values.filter(|target| !target.is_empty() && !target.starts_with("data:"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let folder = std::env::temp_dir().join(format!("gradwire-links-{}", std::process::id()));
        fs::create_dir_all(folder.join("b")).expect("created");
        fs::write(
            folder.join("a.html"),
            "<a href=\"b/c.html#d\"><img src=\"e.svg\"><a href=\"http://x/y\">",
        )
        .expect("written");
        fs::write(folder.join("b/c.html"), "<h1 id=\"d\"><a href=\"../a.html\">").expect("written");
        let missing = check(&folder).expect_err("there is no e.svg");
        assert_eq!(missing, "links lead nowhere:\na.html: e.svg");
        fs::write(folder.join("e.svg"), "").expect("written");
        assert_eq!(check(&folder), Ok(4));
        fs::write(folder.join("b/c.html"), "<h1>").expect("written");
        assert_eq!(
            check(&folder).expect_err("there is no id"),
            "links lead nowhere:\na.html: b/c.html#d"
        );
        fs::remove_dir_all(&folder).expect("removed");
    }
}
