//! Writes what mdBook reads: the pages, the files to which they link, and the table of contents.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::markdown::{links, title};
use super::pages::{INDEX, children, destination, is_page, pages};

/// The page whose links make the table of contents.
const CONTENTS: &str = "docs/README.md";

/// Writes all to a folder. Pages differ from those of the repository only in links to folders,
/// which lead to the page of the folder.
///
/// # Errors
/// A file that cannot be read or written.
pub(super) fn stage(root: &Path, to: &Path) -> Result<(), String> {
    let mut staged = Staged { root, to, done: BTreeSet::new() };
    let pages = pages(root)?;
    for page in &pages {
        let text = read(&root.join(page))?;
        staged.page(page, &text)?;
    }
    let contents = staged.contents()?;
    staged.write(Path::new("SUMMARY.md"), &contents)
}

struct Staged<'a> {
    root: &'a Path,
    to: &'a Path,
    /// The paths, relative to both, of pages and files that were written.
    done: BTreeSet<PathBuf>,
}

impl Staged<'_> {
    fn page(&mut self, page: &Path, text: &str) -> Result<(), String> {
        if !self.done.insert(page.to_owned()) {
            return Ok(());
        }
        let mut changed = text.to_owned();
        // From the end, so the places of the other links stay the same.
        for place in links(text).into_iter().rev() {
            let Some((path, _)) = destination(page, &text[place.clone()]) else { continue };
            if self.root.join(&path).is_dir() {
                self.folder(&path)?;
                let target = format!("{}/{INDEX}", text[place.clone()].trim_end_matches('/'));
                changed.replace_range(place, &target);
            } else if !is_page(&path) && self.done.insert(path.clone()) {
                let (from, to) = (self.root.join(&path), self.to.join(&path));
                create_parent(&to)?;
                fs::copy(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
            }
        }
        self.write(page, &changed)
    }

    /// Writes a page with links to the files of a folder that has no page of its own.
    fn folder(&mut self, folder: &Path) -> Result<(), String> {
        if self.root.join(folder).join(INDEX).exists() {
            return Ok(());
        }
        let mut text = format!("# {}\n", folder.display());
        for path in children(&self.root.join(folder))?.iter().filter(|path| path.is_file()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let page = if is_page(path) { read(path)? } else { String::new() };
            text += &format!("\n- [{}]({name})", title(&page).unwrap_or(&name));
        }
        self.page(&folder.join(INDEX), &text)
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), String> {
        let path = self.to.join(path);
        create_parent(&path)?;
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The table of contents: the sections of `docs/README.md`, then the other pages. Pages of a
    /// folder are below the page of the folder.
    fn contents(&self) -> Result<String, String> {
        let index = read(&self.to.join(CONTENTS))?;
        let mut left: BTreeSet<PathBuf> =
            self.done.iter().filter(|path| is_page(path)).cloned().collect();
        let mut text = "# Summary\n".to_owned();
        for first in [INDEX, CONTENTS] {
            left.remove(Path::new(first));
            text += &format!("\n[{}]({first})\n", self.title_of(Path::new(first))?);
        }
        for section in index.split("\n## ").skip(1) {
            text += &format!("\n# {}\n\n", section.lines().next().unwrap_or_default());
            for place in links(section) {
                if let Some((page, _)) = destination(Path::new(CONTENTS), &section[place]) {
                    self.list(&page, 0, &mut left, &mut text)?;
                }
            }
        }
        text += "\n# Other pages\n\n";
        while let Some(page) = left.first().cloned() {
            self.list(&page, 0, &mut left, &mut text)?;
        }
        Ok(text)
    }

    /// Adds a page, and those below it, unless it was added before.
    fn list(
        &self,
        page: &Path,
        depth: usize,
        left: &mut BTreeSet<PathBuf>,
        text: &mut String,
    ) -> Result<(), String> {
        if !left.remove(page) {
            return Ok(());
        }
        let title = self.title_of(page)?;
        *text += &format!("{}- [{title}]({})\n", "    ".repeat(depth), page.display());
        if page.ends_with(INDEX) {
            let folder = page.parent().unwrap_or(page);
            let below: Vec<_> =
                left.iter().filter(|path| path.starts_with(folder)).cloned().collect();
            for page in below {
                self.list(&page, depth + 1, left, text)?;
            }
        }
        Ok(())
    }

    fn title_of(&self, page: &Path) -> Result<String, String> {
        let text = read(&self.to.join(page))?;
        // Brackets would end the link of the table of contents.
        Ok(title(&text).map_or(page.display().to_string(), |title| title.replace(['[', ']'], "")))
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn create_parent(path: &Path) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_the_pages_and_the_files_to_which_they_link() {
        let folder = std::env::temp_dir().join(format!("gradwire-site-{}", std::process::id()));
        let (root, to) = (folder.join("root"), folder.join("to"));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            create_parent(&path)
                .and_then(|()| fs::write(path, text).map_err(|error| error.to_string()))
        };
        write("README.md", "# Top\n[docs](docs) [code](code) [r](results/a)").expect("written");
        write("docs/README.md", "# Index\n## One\n1. [A](a.md)\n2. [R](../results/a)\n")
            .expect("written");
        write("docs/a.md", "# A\n`[no](link)`\n").expect("written");
        write("results/a/README.md", "# R\n").expect("written");
        write("results/a/b/README.md", "# B\n").expect("written");
        write("code/x.rs", "fn x() {}\n").expect("written");
        write("code/y.rs", "fn y() {}\n").expect("written");
        stage(&root, &to).expect("staged");
        let top = read(&to.join("README.md")).expect("a page");
        assert_eq!(
            top,
            "# Top\n[docs](docs/README.md) [code](code/README.md) [r](results/a/README.md)"
        );
        assert_eq!(
            read(&to.join("code/README.md")).expect("a list"),
            "# code\n\n- [x.rs](x.rs)\n- [y.rs](y.rs)"
        );
        assert!(to.join("code/y.rs").exists());
        let contents = read(&to.join("SUMMARY.md")).expect("a table of contents");
        let expected = "# Summary\n\n[Top](README.md)\n\n[Index](docs/README.md)\n\n# One\n\n- [A](docs/a.md)\n\
                        - [R](results/a/README.md)\n    - [B](results/a/b/README.md)\n\n# Other pages\n\n- [code](code/README.md)\n";
        assert_eq!(contents, expected);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
