//! Which file of a crate uses which other file.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, Macro, VisRestricted, Visibility};

use crate::modules::{Crate, Id, is_test_only, leaves};

/// One file uses an item that another file declares.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) line: usize,
    /// The path of the item as the file writes it.
    pub(crate) path: String,
}

/// The imports between the files of a crate. A file that only re-exports an item does not use it.
pub(crate) fn imports(of: &Crate) -> BTreeSet<Import> {
    let mut found = BTreeSet::new();
    for file in &of.files {
        let mut visitor = Visitor { of, module: file.module, found: &mut found };
        visitor.visit_file(&file.syntax);
    }
    found
}

struct Visitor<'a> {
    of: &'a Crate,
    module: Id,
    found: &'a mut BTreeSet<Import>,
}

impl Visitor<'_> {
    fn add(&mut self, path: &[String], line: usize) {
        let from = self.of.file(self.module);
        if let Some(to) = self.of.declaring_file(self.module, path)
            && to != from
        {
            self.found.insert(Import { from, to, line, path: path.join("::") });
        }
    }

    /// Adds the paths in the tokens of a macro: identifiers between which there is `::`.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut colons, mut line) = (Vec::new(), 0, 0);
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.add(&path, line);
                        path.clear();
                    }
                    line = ident.span().start().line;
                    path.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    self.add(&path, line);
                    path.clear();
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.add(&path, line);
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_test_only(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let (Some(child), Some((_, items))) =
            (self.of.child(self.module, &item.ident.to_string()), &item.content)
        else {
            return;
        };
        let parent = std::mem::replace(&mut self.module, child);
        items.iter().for_each(|item| self.visit_item(item));
        self.module = parent;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if matches!(item.vis, Visibility::Inherited) {
            for import in leaves(&item.tree, Vec::new()) {
                self.add(&import.path, item.use_token.span.start().line);
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let line = path.segments.first().map_or(0, |first| first.ident.span().start().line);
        self.add(&names, line);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        self.visit_path(&item.path);
        self.add_tokens(item.tokens.clone());
    }

    /// `pub(in path)` says who may use an item, and uses nothing.
    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {}
}
