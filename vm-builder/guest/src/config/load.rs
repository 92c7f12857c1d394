//! Reading the image's configuration and the runtime volume.

use std::path::{Path, PathBuf};

use neonvm_types::guest::{IMAGE_CONFIG_PATH, ImageConfig, MountKind, RUNTIME_CONFIG_FILE, RuntimeConfig};

use super::mount_script::{self, MountStep, Step};
use super::shell_words;

/// Where the authorised keys of the runner are mounted.
const SSH_KEYS: (&str, &str) = ("ssh-authorized-keys", "/mnt/ssh");
/// The largest file of settings that is read, in bytes.
const LARGEST: u64 = 4 << 20;

/// Where the runtime volume is mounted; the second is for a read-only root that lacks the first.
const RUNTIME: [&str; 2] = ["/neonvm/runtime", "/run/neonvm/runtime"];

pub fn runtime_directory() -> PathBuf {
    let [usual, aside] = RUNTIME.map(Path::new);
    if usual.is_dir() || std::fs::create_dir_all(usual).is_ok() { usual.to_owned() } else { aside.to_owned() }
}

/// All inputs of a boot but the command line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    pub image: ImageConfig,
    /// The VM's configuration; of older runners, the content of their files.
    pub runtime: RuntimeConfig,
    /// What to mount and make, in order.
    pub steps: Vec<Step>,
    /// What could not be read; the boot continues without it.
    pub problems: Vec<String>,
}

/// Reads what is there, below the root directory and on the mounted runtime volume.
pub fn load(root: &Path, runtime: &Path) -> Settings {
    let mut settings = Settings::default();
    let image = root.join(IMAGE_CONFIG_PATH.trim_start_matches('/'));
    if let Some(text) = read(&image, &mut settings.problems) {
        settings.image = parsed(&image, &text, &mut settings.problems);
    }
    let structured = runtime.join(RUNTIME_CONFIG_FILE);
    match read(&structured, &mut settings.problems) {
        Some(text) => {
            settings.runtime = parsed(&structured, &text, &mut settings.problems);
            settings.steps = steps(&settings.runtime);
        }
        None => older(runtime, &mut settings),
    }
    settings
}

fn parsed<T: Default + serde::de::DeserializeOwned>(
    path: &Path,
    text: &str,
    problems: &mut Vec<String>,
) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| {
        problems.push(format!("{}: {error}", path.display()));
        T::default()
    })
}

fn read(path: &Path, problems: &mut Vec<String>) -> Option<String> {
    let length = path.metadata().ok()?.len();
    if length > LARGEST {
        problems
            .push(format!("{}: {length} bytes are more than the {LARGEST} that are read", path.display()));
        return None;
    }
    match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) => {
            problems.push(format!("{}: {error}", path.display()));
            None
        }
    }
}

/// The files of runners that write shell text.
fn older(runtime: &Path, settings: &mut Settings) {
    let problems = &mut settings.problems;
    let mut words = |name: &str| {
        let text = read(&runtime.join(name), problems)?;
        shell_words::words(&text).map_err(|error| problems.push(format!("{name}: {error}"))).ok()
    };
    let (command, mut args) = (words("command.sh"), words("args.sh"));
    // These runners append the image's `Cmd` to a command without arguments; their users rely on it.
    if command.is_some() && args.is_none() {
        args = Some(settings.image.process.cmd.clone());
    }
    settings.runtime.command = command;
    settings.runtime.args = args;
    if let Some(text) = read(&runtime.join("env.sh"), problems) {
        match shell_words::exports(&text) {
            Ok(env) => settings.runtime.env = env,
            Err(error) => problems.push(format!("env.sh: {error}")),
        }
    }
    if let Some(text) = read(&runtime.join("sysctl.conf"), problems) {
        settings.runtime.sysctl = sysctl_lines(&text);
    }
    if let Some(text) = read(&runtime.join("mounts.sh"), problems) {
        for step in mount_script::parse(&text) {
            match step {
                Ok(step) => settings.steps.push(step),
                Err(unknown) => problems.push(unknown.to_string()),
            }
        }
    }
}

fn sysctl_lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])).map(str::to_owned).collect()
}

/// The requests of the structured form, as the same steps.
fn steps(runtime: &RuntimeConfig) -> Vec<Step> {
    let mut steps = Vec::new();
    let (label, target) = SSH_KEYS;
    let own_keys = runtime.mounts.iter().any(|mount| mount.path == target);
    if !own_keys && Path::new("/dev/disk/by-label").join(label).exists() {
        steps.push(Step::MakeDirectory(target.into()));
        steps.push(Step::Mount(files(label, target)));
    }
    if let Some(swap) = runtime.swap.as_ref().filter(|swap| !swap.skip_swapon) {
        steps.push(Step::Swap(swap.size.get()));
    }
    for mount in &runtime.mounts {
        steps.push(Step::MakeDirectory(mount.path.clone()));
        match &mount.kind {
            MountKind::Disk { label, discard, quota, .. } => {
                if *quota {
                    steps.push(Step::ProjectQuota(label.clone()));
                }
                steps.push(Step::Mount(MountStep {
                    label: Some(label.clone()),
                    target: mount.path.clone(),
                    read_only: mount.read_only,
                    options: if *discard { "discard".into() } else { String::new() },
                    kind: None,
                }));
            }
            MountKind::Files { label } => steps.push(Step::Mount(files(label, &mount.path))),
            MountKind::Tmpfs { size } => steps.push(Step::Mount(MountStep {
                target: mount.path.clone(),
                kind: Some("tmpfs".into()),
                read_only: mount.read_only,
                options: format!("size={},mode=0777", size.get()),
                label: None,
            })),
            MountKind::Directory => {}
        }
    }
    if let Some(size) = runtime.shared_memory {
        let half = runtime.maximum_memory.map_or(0, |memory| memory.get() / 2);
        steps.push(Step::SharedMemory(size.get().max(half)));
    }
    steps
}

fn files(label: &str, target: &str) -> MountStep {
    MountStep {
        label: Some(label.to_owned()),
        target: target.to_owned(),
        read_only: true,
        ..MountStep::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        directory
    }

    #[test]
    fn the_files_of_older_runners_are_read() {
        let root = volume(&[("neonvm/config.json", r#"{"process":{"entrypoint":["/e"],"cmd":["c"]}}"#)]);
        let runtime = volume(&[
            ("command.sh", "/bin/echo 'a b'"),
            ("env.sh", "export A='1 2'\n"),
            ("sysctl.conf", "kernel.core_pattern=core\n# x\nkernel.core_uses_pid=1"),
            ("mounts.sh", "set -euo pipefail\n/neonvm/bin/mkdir -p /x\nfrobnicate\n"),
        ]);
        let settings = load(root.path(), runtime.path());
        assert_eq!(settings.runtime.command.unwrap(), ["/bin/echo", "a b"]);
        assert_eq!(settings.runtime.args.unwrap(), ["c"]);
        assert_eq!(settings.runtime.env, ["A=1 2"]);
        assert_eq!(settings.runtime.sysctl.len(), 2);
        assert_eq!(settings.steps, [Step::MakeDirectory("/x".into())]);
        assert_eq!(settings.problems.len(), 1);
    }

    #[test]
    fn the_structured_form_goes_before_the_older_files() {
        let runtime = volume(&[
            ("command.sh", "old"),
            (
                "neonvm.json",
                r#"{"command":["new"],"mounts":[{"path":"/d","kind":"disk","label":"d","quota":true},
                    {"path":"/t","kind":"tmpfs","size":4096}],"swap":{"label":"s","size":8192}}"#,
            ),
        ]);
        let settings = load(Path::new("/nonexistent"), runtime.path());
        assert_eq!(settings.problems, Vec::<String>::new());
        assert_eq!(settings.runtime.command.unwrap(), ["new"]);
        assert_eq!(settings.steps.first(), Some(&Step::Swap(8192)));
        assert_eq!(settings.steps.len(), 6);
    }

    #[test]
    fn broken_settings_are_a_problem_not_an_end() {
        let runtime = volume(&[("neonvm.json", "{"), ("command.sh", "x")]);
        let settings = load(Path::new("/nonexistent"), runtime.path());
        assert_eq!(settings.problems.len(), 1);
        assert_eq!(settings.runtime, RuntimeConfig::default());
    }
}
