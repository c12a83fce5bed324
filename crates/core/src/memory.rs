//! The memory that is left for this process.

use std::fs;
use std::path::Path;

/// The bytes that this process can still use before the system kills a process for lack of memory:
/// the machine's available memory, swap included, within the limits of control groups, such as a
/// container's. `None` if the system does not tell; only Linux does.
///
/// A reservation proves nothing: Linux lets a program reserve more memory than exists, and kills it
/// when it uses that memory.
pub fn available() -> Option<u64> {
    let machine = of_machine(&fs::read_to_string("/proc/meminfo").ok()?)?;
    Some(of_groups().into_iter().fold(machine, u64::min))
}

/// The available memory according to the text of `/proc/meminfo`.
fn of_machine(text: &str) -> Option<u64> {
    let kilobytes = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let free = kilobytes("MemAvailable:")?.checked_add(kilobytes("SwapFree:").unwrap_or(0))?;
    free.checked_mul(1024)
}

/// The memory that each of this process's control groups with a limit leaves.
fn of_groups() -> Vec<u64> {
    let root = Path::new("/sys/fs/cgroup");
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut left = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let files = match controllers {
            "" => &V2,
            _ if controllers.split(',').any(|one| one == "memory") => &V1,
            _ => continue,
        };
        let (root, path) = (root.join(files.folder), path.trim_start_matches('/'));
        // The groups above a group limit it, too. In a container the path may lie outside the
        // visible part.
        let groups = Path::new(path).ancestors().map(|group| root.join(group));
        left.extend(groups.filter_map(|group| files.left(&group)));
    }
    left
}

/// The files of a version of control groups.
struct Files {
    folder: &'static str,
    limit: &'static str,
    used: &'static str,
    /// The entry of `memory.stat` with the bytes of cached files, which the system drops first.
    cached: &'static str,
}

const V1: Files = Files {
    folder: "memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: "total_inactive_file ",
};
const V2: Files =
    Files { folder: "", limit: "memory.max", used: "memory.current", cached: "inactive_file " };

impl Files {
    /// The memory that the group in a folder leaves; `None` without a limit.
    fn left(&self, group: &Path) -> Option<u64> {
        let read = |name: &str| fs::read_to_string(group.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let (limit, used) = (number(self.limit)?, number(self.used)?);
        let stat = read("memory.stat").unwrap_or_default();
        let cached = stat.lines().find_map(|line| line.strip_prefix(self.cached));
        let cached = cached.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_has_is_read() {
        let text = "MemTotal:  100 kB\nMemFree: 2 kB\nMemAvailable:   40 kB\nSwapTotal: 9 kB\nSwapFree: 3 kB\n";
        assert_eq!(of_machine(text), Some(43 * 1024));
        assert_eq!(of_machine("MemTotal: 100 kB\n"), None);
        assert_eq!(of_machine("MemAvailable: many kB\n"), None);
        // Some memory, and not an absurd amount.
        assert!(available().is_none_or(|bytes| (1 << 20..1 << 60).contains(&bytes)));
    }

    #[test]
    fn a_group_leaves_its_limit_less_what_is_used_and_cannot_be_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(V2.left(folder.path()), None);
        write("memory.max", "max\n");
        write("memory.current", "600\n");
        assert_eq!(V2.left(folder.path()), None, "it has no limit");
        write("memory.max", "1000\n");
        assert_eq!(V2.left(folder.path()), Some(400));
        write("memory.stat", "anon 350\ninactive_file 250\nactive_file 5\n");
        assert_eq!(V2.left(folder.path()), Some(650));
        write("memory.max", "100\n");
        assert_eq!(V2.left(folder.path()), Some(0));
        write("memory.limit_in_bytes", "2000\n");
        write("memory.usage_in_bytes", "1500\n");
        write("memory.stat", "inactive_file 1\ntotal_inactive_file 300\n");
        assert_eq!(V1.left(folder.path()), Some(800));
    }
}
