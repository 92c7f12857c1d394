//! The image specification: what is added to an image on its way to a disk. The format is that of the tool we
//! replace: `commands`, `shutdownHook`, `build`, `merge`, `files`; and `monitor` of our own. Every other key is an error.

use std::path::{Path, PathBuf};

use neonvm_types::guest::{Command, MemoryLimits, Monitor, Service, Start};
use serde::Deserialize;

/// A specification of a VM image, as read from YAML.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    #[serde(default)]
    pub commands: Vec<SpecCommand>,
    /// Shell text that is run at shutdown, again and again until the workload has ended.
    #[serde(default)]
    pub shutdown_hook: Option<String>,
    #[serde(default)]
    pub monitor: Option<SpecMonitor>,
    /// Dockerfile text before everything else: stages that `merge` copies from.
    #[serde(default)]
    pub build: Option<String>,
    /// Dockerfile text that changes the image, run as root.
    #[serde(default)]
    pub merge: Option<String>,
    /// Files that `build` and `merge` can copy.
    #[serde(default)]
    pub files: Vec<SpecFile>,
}

/// A process that the guest runs beside the workload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SpecCommand {
    pub name: String,
    pub user: String,
    /// When it starts: an action of a System V inittab.
    pub sysv_init_action: String,
    pub shell: String,
}

/// The monitor in the VM, which reports to autoscaler-agents what the VM needs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SpecMonitor {
    /// Whether it runs, true. An image with another monitor needs the port.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Control group below `/sys/fs/cgroup` of which the memory counts; that of all processes.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// Connection string of a PostgreSQL with a file cache that follows the size of the VM.
    #[serde(default)]
    pub postgres: Option<String>,
    /// Whether agents up to v0.17 of upstream are served too, with the informant's protocol; false.
    #[serde(default)]
    pub informant: bool,
    /// Memory limits of the control group `cgroup`, or of the workload's: `off`, `high` or `high-and-max`; off.
    #[serde(default)]
    pub limits: MemoryLimits,
}

const fn yes() -> bool {
    true
}

impl SpecMonitor {
    /// As the guest takes it.
    pub fn settings(&self) -> Monitor {
        Monitor {
            enabled: self.enabled,
            cgroup: self.cgroup.clone(),
            postgres: self.postgres.clone(),
            informant: self.informant,
            limits: self.limits,
        }
    }
}

/// A file of the build context: one of `hostPath` and `content`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SpecFile {
    pub filename: String,
    /// A file on this machine, relative to the specification.
    #[serde(default)]
    pub host_path: Option<PathBuf>,
    #[serde(default)]
    pub content: Option<String>,
}

/// Why a specification cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: {problem}", path.display())]
    Form { path: PathBuf, problem: String },
    #[error("{}: {field}: {problem}", path.display())]
    Field {
        path: PathBuf,
        /// Such as `commands[2].user`.
        field: String,
        problem: String,
    },
}

impl Spec {
    /// Reads a specification from a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Reads a specification from text; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        // An empty document has no settings.
        let spec: Option<Self> = serde_saphyr::with_deserializer_from_str(text, |yaml| {
            Option::deserialize(neonvm_types::objects::Objects(yaml))
        })
        .map_err(|error| {
            // The first line has the fault and its position; the rest shows the source text.
            let problem = error.to_string().lines().next().unwrap_or_default().to_owned();
            Error::Form { path: path.to_owned(), problem }
        })?;
        let spec = spec.unwrap_or_default();
        spec.validate().map_err(|(field, problem)| Error::Field { path: path.to_owned(), field, problem })?;
        Ok(spec)
    }

    /// Whether a Dockerfile engine has work to do.
    pub fn has_fragments(&self) -> bool {
        let some = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.trim().is_empty());
        some(&self.build) || some(&self.merge)
    }

    /// The commands as the guest takes them.
    pub fn services(&self) -> Vec<Service> {
        let service = |command: &SpecCommand| Service {
            name: command.name.clone(),
            user: command.user.clone(),
            start: start(&command.sysv_init_action).unwrap_or(Start::Once),
            command: Command::Shell(command.shell.clone()),
        };
        self.commands.iter().map(service).collect()
    }

    fn validate(&self) -> Result<(), (String, String)> {
        for (index, command) in self.commands.iter().enumerate() {
            let fields = [
                ("name", &command.name),
                ("user", &command.user),
                ("sysvInitAction", &command.sysv_init_action),
                ("shell", &command.shell),
            ];
            for (name, value) in fields {
                let field = || format!("commands[{index}].{name}");
                if value.is_empty() {
                    return Err((field(), "must not be empty".to_owned()));
                }
                if value.contains('\0') {
                    return Err((field(), "must not hold a NUL".to_owned()));
                }
            }
            if start(&command.sysv_init_action).is_none() {
                return Err((
                    format!("commands[{index}].sysvInitAction"),
                    format!(
                        "{:?} is none of {}",
                        command.sysv_init_action,
                        ACTIONS.map(|(name, _)| name).join(", ")
                    ),
                ));
            }
        }
        for (index, file) in self.files.iter().enumerate() {
            let plain = |part: std::path::Component<'_>| matches!(part, std::path::Component::Normal(_));
            if file.filename.is_empty() || !Path::new(&file.filename).components().all(plain) {
                return Err((
                    format!("files[{index}].filename"),
                    "must be a name or a relative path without `..`".to_owned(),
                ));
            }
            if file.host_path.is_some() == file.content.is_some() {
                return Err((
                    format!("files[{index}]"),
                    "needs exactly one of hostPath and content".to_owned(),
                ));
            }
        }
        Ok(())
    }
}

const ACTIONS: [(&str, Start); 8] = [
    ("sysinit", Start::Sysinit),
    ("wait", Start::Wait),
    ("once", Start::Once),
    ("respawn", Start::Respawn),
    ("askfirst", Start::Askfirst),
    ("shutdown", Start::Shutdown),
    ("ctrlaltdel", Start::Ctrlaltdel),
    ("restart", Start::Restart),
];

/// When a command of this action of an inittab starts.
pub(crate) fn start(action: &str) -> Option<Start> {
    ACTIONS.iter().find(|(name, _)| *name == action).map(|(_, start)| *start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Spec, String> {
        Spec::parse(text, Path::new("image.yaml")).map_err(|error| error.to_string())
    }

    /// `[0.7]` is no object, at any depth.
    #[test]
    fn a_list_stands_for_no_object() {
        let document = serde_json::json!({
            "commands": [{ "name": "a", "user": "root", "sysvInitAction": "respawn", "shell": "b" }],
            "monitor": { "enabled": false, "cgroup": "g", "informant": false, "limits": "off" },
            "files": [{ "filename": "f", "content": "c" }],
        });
        parse(&document.to_string()).unwrap();
        for (path, changed) in neonvm_test_support::lists::for_objects(&document) {
            assert!(parse(&changed.to_string()).is_err(), "{path}: {changed}");
        }
    }

    #[test]
    fn a_whole_specification_is_read() {
        let spec = parse(
            "---\ncommands:\n  - name: a\n    user: root\n    sysvInitAction: sysinit\n    shell: 'echo \"$X\"'\n\
             shutdownHook: |\n  stop it\nbuild: |\n  FROM x AS y\nmerge: |\n  RUN true\n\
             files:\n  - filename: a.conf\n    content: hello\n  - filename: b\n    hostPath: c/d\n",
        )
        .unwrap();
        assert_eq!(spec.services()[0].start, Start::Sysinit);
        assert_eq!(spec.services()[0].command, Command::Shell("echo \"$X\"".into()));
        assert_eq!(spec.shutdown_hook.as_deref(), Some("stop it\n"));
        assert!(spec.has_fragments());
        assert_eq!(parse("").unwrap(), Spec::default());
        assert!(!parse("build: ' '").unwrap().has_fragments());
    }

    #[test]
    fn the_monitor_is_set_up() {
        let spec = parse("monitor:\n  postgres: host=/run user=u\n").unwrap();
        let settings = spec.monitor.unwrap().settings();
        assert_eq!((settings.enabled, settings.postgres.as_deref()), (true, Some("host=/run user=u")));
        assert!(!settings.informant);
        assert!(parse("monitor: {informant: true}").unwrap().monitor.unwrap().settings().informant);
        assert!(!parse("monitor: {enabled: false}").unwrap().monitor.unwrap().enabled);
        assert!(parse("monitor: {pgconnstr: x}").is_err());
        assert_eq!(settings.limits, MemoryLimits::Off);
        let limits = |text: &str| parse(text).map(|spec| spec.monitor.unwrap().settings().limits);
        assert_eq!(limits("monitor: {limits: high-and-max}"), Ok(MemoryLimits::HighAndMax));
        let error = limits("monitor: {limits: max}").unwrap_err();
        assert!(error.contains("image.yaml") && error.contains("high-and-max"), "{error}");
    }

    #[test]
    fn every_example_is_read() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        let entries =
            std::fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path().join("image.yaml"));
        let found: Vec<_> = entries.filter(|path| path.exists()).collect();
        assert!(found.len() >= 3, "{found:?}");
        for path in found {
            let spec = Spec::read(&path).unwrap();
            assert!(!spec.services().is_empty(), "{}", path.display());
            for file in &spec.files {
                let beside = file.host_path.iter().all(|name| path.with_file_name(name).exists());
                assert!(beside, "{}: {}", path.display(), file.filename);
            }
        }
    }

    #[test]
    fn mistakes_are_named() {
        let command = |changes: &str| format!("commands:\n  - name: a\n    shell: b\n{changes}");
        for (text, parts) in [
            ("shutdownhook: x\n".to_owned(), &["image.yaml", "shutdownhook", "shutdownHook"][..]),
            (
                command("    user: c\n    sysvInitAction: boot\n"),
                &["commands[0].sysvInitAction", "\"boot\"", "respawn"],
            ),
            (command("    user: ''\n    sysvInitAction: wait\n"), &["commands[0].user: must not be empty"]),
            (command("    user: c\n"), &["sysvInitAction"]),
            ("files:\n  - filename: ../x\n    content: a\n".into(), &["files[0].filename"]),
            ("files:\n  - filename: x\n".into(), &["files[0]: needs exactly one of hostPath and content"]),
            ("commands: [".into(), &["image.yaml"]),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(!error.contains('\n'), "{error}");
            for part in parts {
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }
}
