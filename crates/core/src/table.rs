//! Tables of what a name can stand for: gradwire's own entries, and those that other crates add.

use std::sync::{PoisonError, RwLock};

use crate::printable;

/// An entry of a [`Table`].
pub trait Named: Sync + 'static {
    /// What the entries are, for messages: `compressor`.
    const WHAT: &'static str;

    /// The name. A name of another crate has the form `CRATE/NAME`.
    fn name(&self) -> &'static str;

    /// A description in a line.
    fn summary(&self) -> &'static str;
}

/// Entries by name: gradwire's own, and those that other crates add for the rest of the process.
#[derive(Debug)]
pub struct Table<E: 'static> {
    own: &'static [&'static E],
    added: RwLock<Vec<&'static E>>,
}

impl<E: Named> Table<E> {
    /// A table of gradwire's own entries.
    pub const fn new(own: &'static [&'static E]) -> Self {
        Self { own, added: RwLock::new(Vec::new()) }
    }

    /// Every entry: gradwire's own, then those of other crates, in the order in which they were
    /// added.
    pub fn all(&self) -> impl Iterator<Item = &'static E> + use<E> {
        self.own.iter().copied().chain(self.added())
    }

    fn added(&self) -> Vec<&'static E> {
        self.added.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The entry with this name.
    pub fn find(&self, name: &str) -> Option<&'static E> {
        self.all().find(|entry| entry.name() == name)
    }

    /// Adds entries of another crate. Entries that are there already are left out.
    ///
    /// # Errors
    /// If a name does not have the form `CRATE/NAME`, or belongs to another entry. Then nothing is
    /// added.
    pub fn register(&self, entries: &[&'static E]) -> Result<(), RegistryError> {
        let mut added = self.added.write().unwrap_or_else(PoisonError::into_inner);
        let mut longer = added.clone();
        for &entry in entries {
            self.check_name(entry)?;
            match longer.iter().find(|known| known.name() == entry.name()) {
                Some(known) if std::ptr::eq(*known, entry) => {}
                Some(known) => {
                    return Err(RegistryError::Twice {
                        what: E::WHAT,
                        id: entry.name(),
                        summaries: [known.summary(), entry.summary()],
                    });
                }
                None => longer.push(entry),
            }
        }
        *added = longer;
        Ok(())
    }

    /// Refuses a name that is gradwire's own, or could be.
    fn check_name(&self, entry: &E) -> Result<(), RegistryError> {
        let id = entry.name();
        if let Some(own) = self.own.iter().find(|own| own.name() == id) {
            let summaries = [own.summary(), entry.summary()];
            return Err(RegistryError::Shadows { what: E::WHAT, id, summaries });
        }
        let is_word = |word: &str| {
            let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
            !word.is_empty() && word.bytes().all(plain)
        };
        match id.split_once('/') {
            Some((krate, name)) if is_word(krate) && is_word(name) => Ok(()),
            _ => Err(RegistryError::Name { what: E::WHAT, id }),
        }
    }

    /// The crate that a name names, if no entry of the table is of that crate: the program does not
    /// contain it.
    pub fn missing_crate<'a>(&self, name: &'a str) -> Option<&'a str> {
        let krate = crate_of(name)?;
        let is_there = self.all().any(|entry| crate_of(entry.name()) == Some(krate));
        (!is_there).then_some(krate)
    }
}

/// The crate of an entry, by the entry's name; `None` for gradwire's own.
pub fn crate_of(name: &str) -> Option<&str> {
    name.split_once('/').map(|(krate, _)| krate)
}

/// Why entries were not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// A name without the crate's name, or with other characters.
    #[error(
        "a {what} of another crate cannot be registered as '{id}'; call it CRATE/NAME, in small \
         letters, digits, '-' and '_', such as 'acme/scaled-sign'", id = printable(.id)
    )]
    Name {
        /// What it is: a compressor, a model or a data set.
        what: &'static str,
        /// The name.
        id: &'static str,
    },
    /// The name of one of gradwire's own entries.
    #[error(
        "'{id}' ({new}) cannot be registered: gradwire has its own {what} '{id}' ({own}); call the \
         new one CRATE/{id}, with the name of its crate", own = .summaries[0], new = .summaries[1]
    )]
    Shadows {
        /// What they are: compressors, models or data sets.
        what: &'static str,
        /// The name.
        id: &'static str,
        /// What gradwire's own entry does, and what the new one does.
        summaries: [&'static str; 2],
    },
    /// Two entries with one name.
    #[error(
        "two entries have the name '{id}' of a {what}: one is '{}', the other '{}'; give one of \
         them another name", .summaries[0], .summaries[1]
    )]
    Twice {
        /// What they are: compressors, models or data sets.
        what: &'static str,
        /// The name.
        id: &'static str,
        /// What each of them does.
        summaries: [&'static str; 2],
    },
}
