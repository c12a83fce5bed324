//! The files of a crate form layers: no file uses a file that uses it, directly or through others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::imports::{Import, imports};
use crate::modules::Crate;
use crate::{crates, root};

/// The imports of a crate that are part of a circle, one line for each pair of files.
fn circles(of: &Crate) -> Vec<String> {
    let found = imports(of);
    let mut uses = vec![BTreeMap::new(); of.files.len()];
    for import in &found {
        uses[import.from].entry(import.to).or_insert(import);
    }
    let reached: Vec<_> = (0..of.files.len()).map(|file| reachable(file, &uses)).collect();
    let in_a_circle = |import: &&&Import| reached[import.to].contains(&import.from);
    let circles = uses.iter().flat_map(BTreeMap::values).filter(in_a_circle);
    circles.map(|import| describe(of, import)).collect()
}

/// The files that `start` uses, directly or through others.
fn reachable(start: usize, uses: &[BTreeMap<usize, &Import>]) -> BTreeSet<usize> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![start]);
    while let Some(file) = next.pop() {
        next.extend(uses[file].keys().copied().filter(|&to| reached.insert(to)));
    }
    reached
}

fn describe(of: &Crate, Import { from, to, line, path }: &Import) -> String {
    let [from, to] = [from, to].map(|&file| of.files[file].path.display());
    format!("{from}:{line} uses {to}: {path}")
}

#[test]
fn no_files_of_a_crate_import_each_other() {
    let read = |path: &Path| fs::read_to_string(root().join(path)).ok();
    let found: Vec<_> =
        crates::roots().iter().flat_map(|path| circles(&Crate::parse(path, &read))).collect();
    assert!(found.is_empty(), "files that use each other:\n{}", found.join("\n"));
}

/// The circles of a crate whose files have this content.
fn circles_of<const N: usize>(files: [(&str, &str); N]) -> Vec<String> {
    let files = BTreeMap::from(files);
    let read = |path: &Path| files.get(path.to_str()?).map(|&content| content.to_owned());
    circles(&Crate::parse(Path::new("lib.rs"), &read))
}

#[test]
fn a_circle_names_its_files_and_lines() {
    let found = circles_of([
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;"),
        ("a.rs", "\nuse crate::b::B;\npub struct A(B);"),
        ("b.rs", "pub struct B(Option<Box<super::c::C>>);"),
        ("c.rs", "pub struct C(\nOption<Box<crate::A>>);"),
    ]);
    let expected = [
        "a.rs:2 uses b.rs: crate::b::B",
        "b.rs:1 uses c.rs: super::c::C",
        "c.rs:2 uses a.rs: crate::A",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_child_and_its_parent_may_not_use_each_other() {
    let child = "use super::Parent; pub struct Child; fn f(_: Parent) {}";
    let face = "mod child; pub use child::Child; pub struct Parent;";
    assert!(circles_of([("lib.rs", face), ("child.rs", child)]).is_empty());
    let user = "mod child; pub use child::Child; pub struct Parent(Child);";
    assert_eq!(circles_of([("lib.rs", user), ("child.rs", child)]).len(), 2);
    let in_macro = "mod child; fn f() { vec![child::Child]; } pub struct Parent;";
    assert_eq!(circles_of([("lib.rs", in_macro), ("child.rs", child)]).len(), 2);
}

#[test]
fn tests_and_modules_of_the_same_file_are_no_circle() {
    let parent = "mod child; use child::Child; pub struct Parent; mod inner { use super::Parent; }";
    let child = "pub struct Child; #[cfg(test)] mod tests { use crate::Parent; }";
    assert!(circles_of([("lib.rs", parent), ("child/mod.rs", child)]).is_empty());
}
