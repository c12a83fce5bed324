//! The table of contents, from the index of the documentation.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::markdown::{links, title};
use super::pages::{BUILT_INDEX, INDEX, destination, read};

/// The page whose sections and links make the table of contents.
const SOURCE: &str = "docs/README.md";

/// The table of contents while it is made.
pub(super) struct Contents<'a> {
    /// The folder of all pages.
    folder: &'a Path,
    left: BTreeSet<&'a PathBuf>,
    text: String,
}

impl<'a> Contents<'a> {
    /// The table of contents of pages in a folder, for mdBook: the sections of the index, then the
    /// other pages. Pages of a folder are below the page of the folder.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub(super) fn of(
        folder: &'a Path,
        pages: impl Iterator<Item = &'a PathBuf>,
    ) -> Result<String, String> {
        let mut contents = Self { folder, left: pages.collect(), text: "# Summary\n".to_owned() };
        for first in [INDEX, SOURCE].map(Path::new) {
            contents.left.retain(|page| *page != first);
            let title = contents.title_of(first)?;
            contents.text += &format!("\n[{title}]({})\n", first.display());
        }
        let index = read(&folder.join(SOURCE))?;
        for section in index.split("\n## ").skip(1) {
            contents.text += &format!("\n# {}\n\n", section.lines().next().unwrap_or_default());
            for place in links(section) {
                let place = section[place].replace(BUILT_INDEX, INDEX);
                if let Some((page, _)) = destination(Path::new(SOURCE), &place) {
                    contents.add(&page, &[])?;
                }
            }
        }
        contents.text += "\n# Other pages\n\n";
        while let Some(page) = contents.left.first().copied() {
            contents.add(page, &[])?;
        }
        Ok(contents.text)
    }

    /// Adds a page with those of its folder, unless it was added before. `above` are the folders
    /// of the pages above it.
    fn add(&mut self, page: &Path, above: &[&Path]) -> Result<(), String> {
        if !self.left.iter().any(|left| *left == page) {
            return Ok(());
        }
        self.left.retain(|left| *left != page);
        let title = self.title_of(page)?;
        let folder = page.parent().unwrap_or(page);
        let is_index = page.ends_with(INDEX);
        let title = match above.last() {
            Some(above) if is_index => {
                folder.strip_prefix(above).unwrap_or(folder).display().to_string()
            }
            _ => title,
        };
        self.text += &format!("{}- [{title}]({})\n", "    ".repeat(above.len()), page.display());
        if is_index {
            let above = [above, &[folder]].concat();
            let mut below: Vec<_> =
                self.left.iter().filter(|page| page.starts_with(folder)).copied().collect();
            // The page of a folder is the first of its pages.
            below.sort_by_key(|page| page.parent());
            for page in below {
                self.add(page, &above)?;
            }
        }
        Ok(())
    }

    fn title_of(&self, page: &Path) -> Result<String, String> {
        let text = read(&self.folder.join(page))?;
        // Brackets would end the link of the table of contents.
        Ok(title(&text).map_or(page.display().to_string(), |title| title.replace(['[', ']'], "")))
    }
}
