//! State files with changed content and a correct checksum, so readers get past the checksum.

use crc32fast::Hasher;
use fastrand::Rng;
use serde_json::Value;

use super::draw::flip;

/// Replacements for entries, besides values of other entries.
const VALUES: [&str; 7] = ["", "0", "-1", "4294967296", "18446744073709551615", "NaN", "\\"];

/// The bounds of the slices of renamed arrays.
const BOUNDS: [u64; 5] = [0, 1, 16, 4_000_000_000_000, u64::MAX];

/// Changes an entry, the name of an array or bits of arrays; `None` if the file is not a state
/// file.
pub(super) fn forged(file: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let (len, rest) = file.split_first_chunk()?;
    let (header, data) = rest.split_at_checked(u64::from_le_bytes(*len) as usize)?;
    let (mut header, mut data): (Value, _) = (serde_json::from_slice(header).ok()?, data.to_vec());
    let notes = &header["__metadata__"]["gradwire"];
    let mut lines: Vec<String> = notes.as_str()?.lines().map(str::to_owned).collect();
    // The last line is the checksum, the first one the version.
    lines.pop();
    let at = rng.usize(1..lines.len());
    match rng.u8(..5) {
        0 => drop(lines.remove(at)),
        1 => flip(&mut data, rng),
        2 => {
            let names: Vec<String> = arrays(&header)?;
            let name = &names[rng.usize(..names.len())];
            let array = header.as_object_mut()?.remove(name)?;
            let renamed = match rng.bool() {
                true => format!("worker{}/other", rng.u8(..9)),
                false => format!("{name}[{}..{}]", rng.choice(BOUNDS)?, rng.choice(BOUNDS)?),
            };
            header[renamed] = array;
        }
        _ => {
            let other = lines[rng.usize(1..lines.len())].rsplit_once('\t')?.1.to_owned();
            let value = rng.choice(VALUES)?;
            let value = if rng.bool() { value } else { &other };
            lines[at] = format!("{}\t{value}", lines[at].rsplit_once('\t')?.0);
        }
    }
    let entries: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let mut checksum = Hasher::new();
    let mut add = |bytes: &[u8]| {
        checksum.update(&(bytes.len() as u64).to_le_bytes());
        checksum.update(bytes);
    };
    add(entries.as_bytes());
    for name in arrays(&header)? {
        let [start, end] = [0, 1].map(|end| header[&name]["data_offsets"][end].as_u64());
        add(name.as_bytes());
        add(data.get(start? as usize..end? as usize)?);
    }
    header["__metadata__"]["gradwire"] =
        format!("{entries}checksum\t{:08x}\n", checksum.finalize()).into();
    let header = header.to_string();
    Some([&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat())
}

/// The names of the arrays, in order.
fn arrays(header: &Value) -> Option<Vec<String>> {
    let names = header.as_object()?.keys().filter(|name| *name != "__metadata__");
    let mut names: Vec<String> = names.cloned().collect();
    names.sort();
    Some(names)
}
