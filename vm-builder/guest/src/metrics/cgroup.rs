//! Use of control groups (version 2).

use std::fs;
use std::path::{Path, PathBuf};

use neonvm_types::exposition::{Kind, double};

use super::text::Text;

/// Levels below the root that get series.
const DEEPEST: usize = 2;
/// Most groups that get series.
const MOST: usize = 32;

/// A control group: texts of its files, empty where it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its path below the root, `/` for the root.
    pub name: String,
    /// `cpu.stat`.
    pub cpu: String,
    /// `memory.current`.
    pub memory: String,
    /// `memory.stat`.
    pub memory_stat: String,
}

/// The groups below the mount point `root`, level by level, each level by name.
pub(super) fn collect(root: &Path) -> Vec<Group> {
    if !root.join("cgroup.controllers").exists() {
        return Vec::new();
    }
    let mut groups = Vec::new();
    let mut level: Vec<PathBuf> = vec![root.to_owned()];
    for _ in 0..=DEEPEST {
        for directory in &level {
            let name = directory.strip_prefix(root).unwrap_or(directory).to_string_lossy().into_owned();
            groups.push(Group {
                name: if name.is_empty() { "/".to_owned() } else { name },
                cpu: super::read(&directory.join("cpu.stat")),
                memory: super::read(&directory.join("memory.current")),
                memory_stat: super::read(&directory.join("memory.stat")),
            });
            if groups.len() == MOST {
                return groups;
            }
        }
        level = level.iter().flat_map(|directory| children(directory)).collect();
    }
    groups
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut paths: Vec<_> = directories.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The number after `key` at the start of a line of `text`.
fn field(text: &str, key: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(name, _)| *name == key)?.1.trim().parse().ok().map(double)
}

pub(super) fn render(groups: &[Group], text: &mut Text) {
    text.collector("cgroups");
    for (family, help, key) in [
        ("host_cgroup_cpu_usage_seconds_total", "Processor time used.", "usage_usec"),
        ("host_cgroup_cpu_user_seconds_total", "Processor time used in user mode.", "user_usec"),
        ("host_cgroup_cpu_system_seconds_total", "Processor time used in kernel mode.", "system_usec"),
    ] {
        text.family(family, Kind::Counter, help);
        for group in groups {
            if let Some(value) = field(&group.cpu, key) {
                text.sample(&[("cgroup", &group.name)], value / 1e6);
            }
        }
    }
    text.family("host_cgroup_memory_current_bytes", Kind::Gauge, "Memory used.");
    for group in groups {
        if let Ok(value) = group.memory.trim().parse() {
            text.sample(&[("cgroup", &group.name)], double(value));
        }
    }
    for (family, help, key) in [
        ("host_cgroup_memory_anon_bytes", "Memory used for no file.", "anon"),
        ("host_cgroup_memory_file_bytes", "Memory used for contents of files.", "file"),
    ] {
        text.family(family, Kind::Gauge, help);
        for group in groups {
            if let Some(value) = field(&group.memory_stat, key) {
                text.sample(&[("cgroup", &group.name)], value);
            }
        }
    }
}
