//! The modules of a crate: what each declares, imports and re-exports.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, UseTree};

/// Where a module is in [`Crate::modules`].
pub(crate) type Id = usize;

/// The files and modules of a crate, without those that only tests have.
#[derive(Default)]
pub(crate) struct Crate {
    pub(crate) files: Vec<File>,
    modules: Vec<Module>,
}

pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) syntax: syn::File,
    /// The module that the file contains.
    pub(crate) module: Id,
}

#[derive(Default)]
struct Module {
    file: usize,
    parent: Option<Id>,
    children: HashMap<String, Id>,
    /// The names that the module declares, and the file of each. It is another file only for macros
    /// with `#[macro_export]`.
    items: HashMap<String, usize>,
    /// The names that `use` brings into the module, and their paths.
    names: HashMap<String, Vec<String>>,
    /// The paths of `use path::*`.
    globs: Vec<Vec<String>>,
}

#[derive(Clone, Copy)]
enum Target {
    Module(Id),
    /// An item, and the file that declares it.
    Item(usize),
}

impl Crate {
    /// Parses the file at `path` and the files of its modules. `read` returns the content of a
    /// file.
    pub(crate) fn parse(path: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Self {
        let mut parsed = Self::default();
        let folder = path.parent().expect("a file is in a folder");
        parsed.add_file(path, folder, None, read);
        parsed
    }

    /// Parses a file, whose modules are in `folder`, and returns its module.
    fn add_file(
        &mut self,
        path: &Path,
        folder: &Path,
        parent: Option<Id>,
        read: &dyn Fn(&Path) -> Option<String>,
    ) -> Id {
        let content = read(path).unwrap_or_else(|| panic!("cannot read {}", path.display()));
        let syntax = syn::parse_file(&content)
            .unwrap_or_else(|error| panic!("cannot parse {}: {error}", path.display()));
        let file = self.files.len();
        let module = self.add_module(file, parent);
        self.files.push(File { path: path.to_owned(), syntax: syntax.clone(), module });
        self.add_items(module, &syntax.items, folder, read);
        module
    }

    fn add_module(&mut self, file: usize, parent: Option<Id>) -> Id {
        self.modules.push(Module { file, parent, ..Module::default() });
        self.modules.len() - 1
    }

    fn add_items(
        &mut self,
        module: Id,
        items: &[Item],
        folder: &Path,
        read: &dyn Fn(&Path) -> Option<String>,
    ) {
        let file = self.modules[module].file;
        for item in items {
            let name = match item {
                // The attribute `path` names a file of another crate.
                Item::Mod(child) if is_test_only(&child.attrs) || has(&child.attrs, "path") => {
                    continue;
                }
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let folder = folder.join(&name);
                    let id = match &child.content {
                        Some((_, items)) => {
                            let id = self.add_module(file, Some(module));
                            self.add_items(id, items, &folder, read);
                            id
                        }
                        None => {
                            let beside = folder.with_extension("rs");
                            let path = match read(&beside) {
                                Some(_) => beside,
                                None => folder.join("mod.rs"),
                            };
                            self.add_file(&path, &folder, Some(module), read)
                        }
                    };
                    self.modules[module].children.insert(name, id);
                    continue;
                }
                Item::Use(import) => {
                    self.add_use(module, &import.tree, Vec::new());
                    continue;
                }
                Item::Macro(item) => {
                    let Some(name) = &item.ident else { continue };
                    if has(&item.attrs, "macro_export") {
                        self.modules[0].items.insert(name.to_string(), file);
                    }
                    name
                }
                Item::Fn(item) => &item.sig.ident,
                Item::Struct(item) => &item.ident,
                Item::Enum(item) => &item.ident,
                Item::Union(item) => &item.ident,
                Item::Trait(item) => &item.ident,
                Item::Type(item) => &item.ident,
                Item::Const(item) => &item.ident,
                Item::Static(item) => &item.ident,
                _ => continue,
            };
            self.modules[module].items.insert(name.to_string(), file);
        }
    }

    fn add_use(&mut self, module: Id, tree: &UseTree, before: Vec<String>) {
        for import in leaves(tree, before) {
            match import.name {
                Some(name) => drop(self.modules[module].names.insert(name, import.path)),
                None => self.modules[module].globs.push(import.path),
            }
        }
    }

    /// The module `name` that is written inside the file of `module`, or that has a file of its
    /// own.
    pub(crate) fn child(&self, module: Id, name: &str) -> Option<Id> {
        self.modules[module].children.get(name).copied()
    }

    /// The file of a module.
    pub(crate) fn file(&self, module: Id) -> usize {
        self.modules[module].file
    }

    /// The file that declares the item at `path`, as code of `module` writes the path. Nothing if
    /// the path leads to a module, a local name or another crate.
    pub(crate) fn declaring_file(&self, module: Id, path: &[String]) -> Option<usize> {
        match self.resolve(module, path, &mut Seen::new())? {
            Target::Item(file) => Some(file),
            Target::Module(_) => None,
        }
    }

    fn resolve(&self, module: Id, path: &[String], seen: &mut Seen) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(module),
            "super" => Target::Module(self.modules[module].parent?),
            name => self.find(module, name, seen)?,
        };
        for name in rest {
            target = match target {
                Target::Module(id) if name == "super" => Target::Module(self.modules[id].parent?),
                Target::Module(id) => self.find(id, name, seen)?,
                // A variant of an enum, or a function of a type.
                item @ Target::Item(_) => item,
            };
        }
        Some(target)
    }

    /// Finds a name in a module: declared there, or imported.
    fn find(&self, module: Id, name: &str, seen: &mut Seen) -> Option<Target> {
        let key = (module, name.to_owned());
        if let Some(found) = seen.get(&key) {
            return *found;
        }
        // Imports that lead to themselves find nothing.
        seen.insert(key.clone(), None);
        let found = self.find_here(module, name, seen);
        seen.insert(key, found);
        found
    }

    fn find_here(&self, module: Id, name: &str, seen: &mut Seen) -> Option<Target> {
        let Module { children, items, names, globs, .. } = &self.modules[module];
        if let Some(&file) = items.get(name) {
            return Some(Target::Item(file));
        }
        if let Some(&child) = children.get(name) {
            return Some(Target::Module(child));
        }
        if let Some(path) = names.get(name) {
            return self.resolve(module, path, seen);
        }
        globs.iter().find_map(|path| match self.resolve(module, path, seen)? {
            Target::Module(id) => self.find(id, name, seen),
            Target::Item(file) => Some(Target::Item(file)),
        })
    }
}

/// What a search has found so far, by module and name.
type Seen = HashMap<(Id, String), Option<Target>>;

/// A name that `use` imports; without a name, everything at the path.
pub(crate) struct Import {
    pub(crate) name: Option<String>,
    pub(crate) path: Vec<String>,
}

/// The imports of `use before::tree`.
pub(crate) fn leaves(tree: &UseTree, mut before: Vec<String>) -> Vec<Import> {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves(&path.tree, before)
        }
        UseTree::Group(group) => {
            group.items.iter().flat_map(|tree| leaves(tree, before.clone())).collect()
        }
        UseTree::Glob(_) => vec![Import { name: None, path: before }],
        UseTree::Name(name) => {
            if name.ident != "self" {
                before.push(name.ident.to_string());
            }
            vec![Import { name: before.last().cloned(), path: before }]
        }
        UseTree::Rename(rename) => {
            before.push(rename.ident.to_string());
            vec![Import { name: Some(rename.rename.to_string()), path: before }]
        }
    }
}

fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

/// Whether an item is compiled only for tests.
pub(crate) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let condition = list.tokens.to_string().replace(' ', "");
        let doctest = condition == "doctest";
        list.path.is_ident("cfg")
            && (doctest || condition == "test" || condition.starts_with("all(test,"))
    })
}
