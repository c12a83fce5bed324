//! Writes what mdBook reads: the pages, the files to which they link, and the table of contents.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::contents::Contents;
use super::markdown::{links, title};
use super::pages::{BUILT_INDEX, INDEX, children, destination, is_page, read};

/// Writes the first page of the repository, and all to which it leads, to a folder. Pages differ
/// from those of the repository only in links to folders and to their pages.
///
/// # Errors
/// A file that cannot be read or written.
pub(super) fn stage(root: &Path, to: &Path) -> Result<(), String> {
    let mut staged = Staged { root, to, done: BTreeSet::new(), todo: vec![INDEX.into()] };
    while let Some(path) = staged.todo.pop() {
        if staged.done.insert(path.clone()) {
            staged.add(&path)?;
        }
    }
    let contents = Contents::of(to, staged.done.iter().filter(|path| is_page(path)))?;
    staged.write(Path::new("SUMMARY.md"), &contents)
}

struct Staged<'a> {
    root: &'a Path,
    to: &'a Path,
    /// The paths, relative to both, of pages and files that were written, and of others.
    done: BTreeSet<PathBuf>,
    todo: Vec<PathBuf>,
}

impl Staged<'_> {
    /// Writes a page or a file.
    fn add(&mut self, path: &Path) -> Result<(), String> {
        let from = self.root.join(path);
        if is_page(path) {
            let folder = path.parent().unwrap_or(path);
            let text = if from.exists() { read(&from)? } else { self.list_of(folder)? };
            let changed = self.followed(path, text);
            return self.write(path, &changed);
        }
        let to = self.to.join(path);
        create_parent(&to)?;
        fs::copy(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
        Ok(())
    }

    /// A page whose links lead where mdBook puts their pages. Where they lead is to be added.
    fn followed(&mut self, page: &Path, mut text: String) -> String {
        // From the end, so the places of the other links stay the same.
        for place in links(&text).into_iter().rev() {
            let target = text[place.clone()].to_owned();
            let Some((mut path, _)) = destination(page, &target) else { continue };
            let (to, anchor) = target.split_at(target.find('#').unwrap_or(target.len()));
            if self.root.join(&path).is_dir() {
                let changed = format!("{}/{BUILT_INDEX}{anchor}", to.trim_end_matches('/'));
                text.replace_range(place, &changed);
                path.push(INDEX);
            } else if let Some(folder) = to.strip_suffix(INDEX) {
                text.replace_range(place, &format!("{folder}{BUILT_INDEX}{anchor}"));
            }
            self.todo.push(path);
        }
        text
    }

    /// A page with links to the files of a folder that has no page of its own.
    fn list_of(&self, folder: &Path) -> Result<String, String> {
        let mut text = format!("# {}\n", folder.display());
        for path in children(&self.root.join(folder))?.iter().filter(|path| path.is_file()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let page = if is_page(path) { read(path)? } else { String::new() };
            text += &format!("\n- [{}]({name})", title(&page).unwrap_or(&name));
        }
        Ok(text)
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), String> {
        let path = self.to.join(path);
        create_parent(&path)?;
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }
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
        write("README.md", "# Top\n[docs](docs) [code](code) [r](results/a/README.md#b)")
            .expect("written");
        write("docs/README.md", "# Index\n## One\n1. [A](a.md)\n2. [R](../results/a)\n")
            .expect("written");
        write("docs/a.md", "# A\n`[no](link)`\n").expect("written");
        write("results/a/README.md", "# R\n## B\n[b](b)").expect("written");
        write("results/a/unused.md", "# Unused\n").expect("written");
        write("results/a/b/README.md", "# B\n").expect("written");
        write("code/x.rs", "fn x() {}\n").expect("written");
        write("code/y.rs", "fn y() {}\n").expect("written");
        stage(&root, &to).expect("staged");
        let top = read(&to.join("README.md")).expect("a page");
        assert_eq!(
            top,
            "# Top\n[docs](docs/index.md) [code](code/index.md) [r](results/a/index.md#b)"
        );
        assert_eq!(
            read(&to.join("code/README.md")).expect("a list"),
            "# code\n\n- [x.rs](x.rs)\n- [y.rs](y.rs)"
        );
        assert!(to.join("code/y.rs").exists());
        let contents = read(&to.join("SUMMARY.md")).expect("a table of contents");
        let expected = "# Summary\n\n[Top](README.md)\n\n[Index](docs/README.md)\n\n# One\n\n- [A](docs/a.md)\n\
                        - [R](results/a/README.md)\n    - [b](results/a/b/README.md)\n\n# Other pages\n\n- [code](code/README.md)\n";
        assert_eq!(contents, expected);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
