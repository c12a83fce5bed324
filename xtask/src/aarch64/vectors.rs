//! Looks for NEON instructions in the loops of the kernels, in the compiler's assembly.
//!
//! A kernel without them would give the right bits and be several times as slow, which no other
//! test notices.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use super::emulation::{TARGET, cargo, folder};
use crate::counts::reads_whole;
use crate::toolchain::Toolchain;

/// The kernels: a line `pub use` or `pub(crate) use` of this file exports each.
const KERNELS: &str = "crates/bits/src/kernels/mod.rs";

/// Kernels that have no loop over vectors, and why.
const SCALAR: [(&str, &str); 19] = [
    ("copy", "a call of memcpy"),
    ("few_numbers_add", "looks numbers up in a table"),
    ("join_byte_codes", "looks codes up in a table"),
    ("join_codes", "looks codes up in a table"),
    ("look_up_bytes", "looks codes up in a table"),
    ("look_up_pairs", "looks codes up in a table"),
    ("look_up_singles", "looks codes up in a table"),
    ("look_up_sixes", "looks codes up in a table"),
    ("looked_up", "looks numbers up in a table"),
    ("nearest_residual", "looks numbers up in a table"),
    ("numbers_add", "looks numbers up in a table"),
    ("ones", "the next place depends on the last one"),
    ("prefetch", "a hint to the processor"),
    ("put_back", "the next place depends on the last one"),
    ("read_gaps", "the next place depends on the last one"),
    ("scatter", "writes to the places of a list"),
    ("separate", "the next place depends on the last one"),
    ("state_change", "multiplies words of 64 bits, one by one"),
    ("state_term", "a single word"),
];

/// The names of kernels without a loop over vectors.
///
/// # Errors
/// If the crate cannot be compiled.
pub(super) fn without(toolchain: &Toolchain) -> Result<Vec<String>, String> {
    let mut cargo = cargo(toolchain, "rustc --release -p gradwire-bits --lib");
    cargo.args(["--", "--emit", "asm", "-C", "codegen-units=1"]);
    if !reads_whole(&mut cargo, |_| ()) {
        return Err("the kernels cannot be compiled".to_owned());
    }
    let source = fs::read_to_string(KERNELS).map_err(|error| format!("{KERNELS}: {error}"))?;
    let assembly = Assembly::read(&newest_assembly()?)?;
    let mut missing = Vec::new();
    for (name, is_public) in exported(&source) {
        let is_scalar = SCALAR.iter().any(|(known, _)| *known == name);
        match assembly.has_vector_loop(name) {
            // The compiler may have put a kernel of the crate into those that call it.
            None if !is_scalar && is_public => {
                missing.push(format!("{name}, which is not in the assembly"))
            }
            Some(true) if is_scalar => missing.push(format!("{name} has one now")),
            Some(false) if !is_scalar => missing.push(name.to_owned()),
            _ => {}
        }
    }
    Ok(missing)
}

/// The functions that are exported as kernels, and whether the crate exports them, too.
fn exported(source: &str) -> impl Iterator<Item = (&str, bool)> {
    source.lines().flat_map(|line| {
        let is_public = line.starts_with("pub use ");
        let path = line.strip_prefix("pub use ").or_else(|| line.strip_prefix("pub(crate) use "));
        let names = path.and_then(|path| path.split_once("::")).map_or("", |(_, names)| names);
        let names = names.trim_matches(['{', '}', ';']).split(", ");
        names.filter(|name| name.starts_with(char::is_lowercase)).map(move |name| (name, is_public))
    })
}

/// The newest assembly of the crate: builds with other options leave older files.
fn newest_assembly() -> Result<PathBuf, String> {
    let folder = folder().join(TARGET).join("release/deps");
    let files = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let ours = files.flatten().filter(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.starts_with("gradwire_bits-") && name.ends_with(".s")
    });
    let newest = ours.max_by_key(|file| file.metadata().and_then(|data| data.modified()).ok());
    newest.map(|file| file.path()).ok_or_else(|| format!("{}: no assembly", folder.display()))
}

/// The functions of an assembly file, by their mangled names.
struct Assembly(HashMap<String, Vec<String>>);

impl Assembly {
    fn read(path: &PathBuf) -> Result<Self, String> {
        let text =
            fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut functions: HashMap<String, Vec<String>> = HashMap::new();
        let mut current = String::new();
        for line in text.lines() {
            match line.strip_suffix(':').filter(|label| label.starts_with('_')) {
                Some(label) => label.clone_into(&mut current),
                None => functions.entry(current.clone()).or_default().push(line.trim().to_owned()),
            }
        }
        Self(functions)
    }

    /// Whether the kernel, or a function that it calls, has a loop over vectors; `None` if there is
    /// no function of this name.
    fn has_vector_loop(&self, kernel: &str) -> Option<bool> {
        let part = format!("{}{kernel}17h", kernel.len());
        let is_kernel = |name: &&String| name.contains("7kernels") && name.contains(&part);
        let mut waiting: Vec<&String> = self.0.keys().filter(is_kernel).collect();
        if waiting.is_empty() {
            return None;
        }
        let mut seen = Vec::new();
        while let Some(name) = waiting.pop() {
            let Some(body) = self.0.get(name).filter(|_| !seen.contains(&name)) else { continue };
            seen.push(name);
            if loops(body).any(is_over_vectors) {
                return Some(true);
            }
            waiting.extend(body.iter().filter_map(|line| self.called(line)));
        }
        Some(false)
    }

    /// The function of the crate that an instruction calls.
    fn called(&self, line: &str) -> Option<&String> {
        let name = line.strip_prefix("bl\t").or_else(|| line.strip_prefix("b\t"))?;
        self.0.get_key_value(name).map(|(name, _)| name)
    }
}

/// The innermost loops: from a label to a branch back to it, without another loop inside.
fn loops(body: &[String]) -> impl Iterator<Item = &[String]> {
    let mut labels = HashMap::new();
    let mut all: Vec<Range<usize>> = Vec::new();
    for (at, line) in body.iter().enumerate() {
        if let Some(label) = line.strip_suffix(':') {
            labels.insert(label, at);
        } else if let Some(&start) = line.rsplit(['\t', ' ']).next().and_then(|to| labels.get(to)) {
            all.push(start..at);
        }
    }
    let inside = |a: &Range<usize>, b: &Range<usize>| b.start < a.start && a.end < b.end;
    let innermost =
        all.clone().into_iter().filter(move |one| !all.iter().any(|other| inside(other, one)));
    innermost.map(|range| &body[range])
}

/// Whether at least a quarter of the instructions load, store or compute with vectors.
fn is_over_vectors(body: &[String]) -> bool {
    let registers = [".16b", ".8h", ".4s", ".2d", "\tq", " q"];
    let is_vector = |line: &&&String| registers.iter().any(|kind| line.contains(kind));
    let instructions: Vec<&String> = body.iter().filter(|line| !line.starts_with('.')).collect();
    let vectors = instructions.iter().filter(is_vector).count();
    vectors > 0 && 4 * vectors >= instructions.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
_ZN4bits7kernels4sign5signs17h0E:
.LBB0_1:
\tldr\tq0, [x0], #16
\tfcmge\tv0.4s, v0.4s, #0.0
\tsubs\tx1, x1, #4
\tb.ne\t.LBB0_1
\tret
_ZN4bits7kernels4slow4slow17h0E:
\tdup\tv0.4s, w0
.LBB1_1:
\tldr\ts1, [x0], #4
\tfadd\ts0, s0, s1
\tsubs\tx1, x1, #1
\tb.ne\t.LBB1_1
\tret
_ZN4bits7kernels4call4call17h0E:
\tbl\t_ZN4bits7kernels4sign5signs17h0E
\tret
";

    #[test]
    fn only_loops_count_and_calls_are_followed() {
        let assembly = Assembly::parse(TEXT);
        assert_eq!(assembly.has_vector_loop("signs"), Some(true));
        assert_eq!(assembly.has_vector_loop("slow"), Some(false));
        assert_eq!(assembly.has_vector_loop("call"), Some(true));
        assert_eq!(assembly.has_vector_loop("none"), None);
    }

    #[test]
    fn kernels_are_read_from_the_exports() {
        let source = "pub use a::{Side, fast};\nuse b::c;\npub(crate) use d::slow;\n";
        assert_eq!(exported(source).collect::<Vec<_>>(), [("fast", true), ("slow", false)]);
    }
}
