//! How much memory the machine grants this process: available memory, and limits of its control groups and of the
//! process.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use vramlab_allocator::units::{Bytes, KIB};

/// The kernel's files that report memory.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    proc: PathBuf,
    cgroups: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self { proc: "/proc".into(), cgroups: "/sys/fs/cgroup".into() }
    }
}

impl Machine {
    /// A machine without control groups, described by `proc`.
    #[cfg(test)]
    pub(super) fn told_in(proc: &Path) -> Self {
        Self { proc: proc.into(), cgroups: proc.join("cgroups") }
    }

    /// The memory that the process can use now without swapping or exceeding a limit; `None` if nothing reports it.
    pub(super) fn left(&self) -> Option<Bytes> {
        let sources = [
            self.available(),
            self.within_groups(),
            self.within(Resource::As, "VmSize:"),
            self.within(Resource::Data, "VmData:"),
        ];
        sources.into_iter().flatten().min()
    }

    fn available(&self) -> Option<Bytes> {
        kibibytes(&fs::read_to_string(self.proc.join("meminfo")).ok()?, "MemAvailable:")
    }

    /// How much a limit of the process leaves, given the usage in its status.
    fn within(&self, resource: Resource, used: &str) -> Option<Bytes> {
        let limit = Bytes(getrlimit(resource).current?);
        let status = fs::read_to_string(self.proc.join("self/status")).ok()?;
        Some(limit.saturating_sub(kibibytes(&status, used)?))
    }

    /// How much the tightest of the process's control groups leaves, including all groups above it.
    fn within_groups(&self) -> Option<Bytes> {
        let groups = fs::read_to_string(self.proc.join("self/cgroup")).ok()?;
        groups.lines().filter_map(|line| self.within_group(line)).min()
    }

    /// `line` is `hierarchy:controllers:path`; the second version of control groups names no controllers.
    fn within_group(&self, line: &str) -> Option<Bytes> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (root, files) = match controllers {
            "" => (self.cgroups.clone(), &UNIFIED),
            _ if controllers.split(',').any(|name| name == "memory") => (self.cgroups.join("memory"), &LEGACY),
            _ => return None,
        };
        let path = Path::new(path.trim_start_matches('/'));
        path.ancestors().filter_map(|group| files.left(&root.join(group))).min()
    }
}

/// The files in which a control group reports its memory.
struct GroupFiles {
    limits: &'static [&'static str],
    used: &'static str,
    /// The line of `memory.stat` with file pages that the kernel reclaims before an allocation fails.
    reclaimable: &'static str,
}

const UNIFIED: GroupFiles =
    GroupFiles { limits: &["memory.max", "memory.high"], used: "memory.current", reclaimable: "inactive_file" };
const LEGACY: GroupFiles = GroupFiles {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};

impl GroupFiles {
    fn left(&self, group: &Path) -> Option<Bytes> {
        let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok().map(Bytes);
        // Without a limit, the file contains `max`.
        let limit = self.limits.iter().filter_map(|file| number(file)).min()?;
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let reclaimable = field(&stat, self.reclaimable).map_or(Bytes::ZERO, Bytes);
        Some(limit.saturating_sub(number(self.used)?.saturating_sub(reclaimable)))
    }
}

/// The number that follows `name` on a line of its own.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

fn kibibytes(text: &str, name: &str) -> Option<Bytes> {
    field(text, name).map(|kib| Bytes(kib.saturating_mul(KIB)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine made of files, each given as path and text.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine { proc: root.path().join("proc"), cgroups: root.path().join("cgroup") };
        (root, machine)
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:  100 kB\nMemFree:  9 kB\nMemAvailable:   4000 kB\n");

    #[test]
    fn without_limits_what_is_available_counts() {
        let (_root, machine) = machine(&[MEMINFO]);
        assert_eq!(machine.left(), Some(Bytes::kib(4000)));
    }

    #[test]
    fn a_group_and_every_one_above_it_limit() {
        let group = |max: &'static str, used: &'static str| {
            machine(&[
                MEMINFO,
                ("proc/self/cgroup", "0::/a/b\n"),
                ("cgroup/a/memory.max", max),
                ("cgroup/a/memory.current", used),
                ("cgroup/a/memory.stat", "anon 5\ninactive_file 1024\nactive_file 77\n"),
                ("cgroup/a/b/memory.max", "max\n"),
                ("cgroup/a/b/memory.current", "123\n"),
            ])
        };
        let left = |(_root, machine): (tempfile::TempDir, Machine)| machine.left();
        // The kernel reclaims cached file pages that are not in use before an allocation fails.
        assert_eq!(left(group("1048576\n", "524288\n")), Some(Bytes(524_288 + 1024)));
        assert_eq!(left(group("1048576\n", "9999999\n")), Some(Bytes::ZERO));
        assert_eq!(left(group("max\n", "524288\n")), Some(Bytes::kib(4000)));
    }

    #[test]
    fn the_bound_at_which_a_group_is_slowed_counts_too() {
        let (_root, machine) = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/\n"),
            ("cgroup/memory.max", "max\n"),
            ("cgroup/memory.high", "8192\n"),
            ("cgroup/memory.current", "4096\n"),
        ]);
        assert_eq!(machine.left(), Some(Bytes(4096)));
    }

    #[test]
    fn the_first_version_of_groups_limits_too() {
        let (_root, machine) = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "7:cpu,cpuacct:/x\n5:memory:/docker/1\n0::/x\n"),
            ("cgroup/memory/memory.limit_in_bytes", "1048576\n"),
            ("cgroup/memory/memory.usage_in_bytes", "1000000\n"),
            ("cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 24\n"),
        ]);
        assert_eq!(machine.left(), Some(Bytes(48_576 + 24)));
    }

    #[test]
    fn a_machine_that_tells_nothing_leaves_it_open() {
        let (_root, machine) = machine(&[("proc/meminfo", "nonsense")]);
        assert_eq!(machine.left(), None);
    }

    #[test]
    fn this_machine_tells() {
        assert!(Machine::default().left().is_some_and(|left| left > Bytes::mib(1)));
    }
}
