//! The flags of the tool that this replaces, and what each means here.

use std::path::PathBuf;

use clap::Parser as _;
use neonvm_builder::engine::{Changes, Format, Request};
use neonvm_builder::registry::auth_files;
use neonvm_builder::size;
use neonvm_builder::source::{Options, Pull, Source};
use neonvm_types::guest::{MemoryLimits, Monitor};

/// Why there is nothing to build.
pub(crate) enum Stop {
    /// Help or version, for standard output.
    Print(String),
    /// What is wrong with the flags.
    Wrong(String),
}

/// Makes a VM disk image from a container image
#[derive(Debug, clap::Parser)]
#[command(
    name = "vm-builder",
    disable_version_flag = true,
    after_help = "Example:\n  vm-builder -src postgres:16 -dst registry.example/pg16-vm:1 -spec image.yaml -file pg16.qcow2"
)]
pub(crate) struct Flags {
    /// Source image: a registry reference, an archive or a directory
    #[arg(long, required_unless_present = "version")]
    src: Option<String>,
    /// Name of the result in the local image store [default: vm-SRC]
    #[arg(long)]
    dst: Option<String>,
    /// Size of the root file system
    #[arg(long, default_value = "1G")]
    size: String,
    /// Also write the disk to this file
    #[arg(long, default_value = "")]
    file: String,
    /// NAME=VALUE for ARG in the fragments of the specification; can be repeated
    #[arg(long)]
    build_arg: Vec<String>,
    /// Image specification
    #[arg(long, default_value = "")]
    spec: String,
    /// Print only the result and errors
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Query the registry even if the image is in the cache
    #[arg(long)]
    pull: bool,
    /// Print the version
    #[arg(long)]
    version: bool,
    /// Guest program to put into the disk [default: neonvm-guest-ARCH beside this program]
    #[arg(long)]
    guest: Option<PathBuf>,
    /// Not needed here; accepted so that existing scripts keep working
    #[arg(long)]
    daemon_image: Option<String>,
    /// Not needed here; accepted so that existing scripts keep working
    #[arg(long)]
    alpine_image: Option<String>,
    /// Not needed here; accepted so that existing scripts keep working
    #[arg(long)]
    busybox_image: Option<String>,
    /// linux/amd64 or linux/arm64 [default: that of this host]
    #[arg(long)]
    target_arch: Option<String>,
    /// As of v0.17: the monitor watches control group neon-postgres and gives it memory.high
    #[arg(long)]
    enable_monitor: bool,
    /// As of v0.10 and v0.17: the file cache of PostgreSQL follows the size of the VM
    #[arg(long)]
    enable_file_cache: bool,
    /// As of v0.10: memory.high and memory.max for control group neon-postgres, agents of that age are served; the image is not needed
    #[arg(long)]
    informant: Option<String>,
    /// Keep the entries of /etc/inittab of the image, as vm-builder-generic of v0.17 does
    #[arg(long)]
    use_inittab: bool,
    /// Not needed here: the monitor is part of the guest program; accepted so that existing scripts keep working
    #[arg(long)]
    monitor: Option<String>,
    /// Not needed here: control groups are open to all users; accepted so that existing scripts keep working
    #[arg(long)]
    cgroup_uid: Option<String>,
}

/// Flags without a value.
const SWITCHES: [&str; 6] =
    ["--quiet", "--pull", "--version", "--enable-monitor", "--enable-file-cache", "--use-inittab"];

/// Control group and database of images that the tools of v0.10 and v0.17 made.
const CGROUP: &str = "neon-postgres";
const DATABASE: &str = "host=localhost port=5432 dbname=postgres user=cloud_admin sslmode=disable";

impl Flags {
    /// Reads arguments, the program's name first. One dash is as good as two.
    pub(crate) fn read(arguments: Vec<String>) -> Result<Self, Stop> {
        let flags = Self::try_parse_from(arguments.into_iter().filter_map(go_flag)).map_err(|error| {
            let text = error.render().to_string();
            if error.use_stderr() { Stop::Wrong(text) } else { Stop::Print(text) }
        })?;
        if flags.version {
            return Err(Stop::Print(format!("vm-builder {}\n", env!("CARGO_PKG_VERSION"))));
        }
        Ok(flags)
    }

    /// Notes for the user about flags that do nothing here.
    pub(crate) fn notes(&self) -> Vec<&'static str> {
        let images =
            [&self.daemon_image, &self.alpine_image, &self.busybox_image, &self.monitor, &self.informant];
        let mut notes = Vec::new();
        if images.iter().any(|image| image.is_some()) {
            notes.push(
                "the images of -daemon-image, -alpine-image, -busybox-image, -monitor and -informant are not used: the guest is one program",
            );
        }
        if self.cgroup_uid.is_some() {
            notes.push(
                "-cgroup-uid has no effect: every user may move processes into control group neon-postgres",
            );
        }
        notes
    }

    /// The monitor that the older flags request.
    fn monitor(&self) -> Option<Monitor> {
        let limits = match (&self.informant, self.enable_monitor) {
            (Some(_), _) => MemoryLimits::HighAndMax,
            (None, true) => MemoryLimits::High,
            (None, false) => MemoryLimits::Off,
        };
        let any = self.enable_file_cache || !limits.is_off();
        any.then(|| Monitor {
            enabled: true,
            cgroup: (!limits.is_off()).then(|| CGROUP.to_owned()),
            postgres: self.enable_file_cache.then(|| DATABASE.to_owned()),
            informant: self.informant.is_some(),
            limits,
        })
    }

    /// What to build.
    pub(crate) fn request(&self) -> Result<Request, String> {
        let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let base = |variable: &str, below: &str| match environment(variable) {
            Some(path) => PathBuf::from(path),
            None => PathBuf::from(environment("HOME").unwrap_or_else(|| ".".to_owned())).join(below),
        };
        let some = |text: &str| Some(text).filter(|text| !text.is_empty()).map(PathBuf::from);
        let src = self.src.as_deref().unwrap_or_default();
        let mut options = Options::new(base("XDG_CACHE_HOME", ".cache").join("neonvm"));
        if let Some(platform) = &self.target_arch {
            options.platform = platform.parse().map_err(|error| format!("-target-arch: {error}"))?;
        }
        options.pull = if self.pull { Pull::Always } else { Pull::Missing };
        options.network.auth_files = auth_files(&environment);
        let tag = self.dst.clone().unwrap_or_else(|| format!("vm-{src}"));
        let name = format!("neonvm-guest-{}", options.platform.architecture);
        let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join(&name)));
        Ok(Request {
            source: Source::parse(src).map_err(|error| format!("-src: {error}"))?,
            options,
            spec: some(&self.spec),
            build_args: self.build_arg.clone(),
            changes: Changes { monitor: self.monitor(), inittab: self.use_inittab, ..Changes::default() },
            guest: self.guest.clone().or(beside).unwrap_or_else(|| PathBuf::from(name)),
            size: Some(
                size::parse(&self.size)
                    .ok_or_else(|| format!("-size: {:?} is no size; write 10G", self.size))?,
            ),
            file: some(&self.file),
            format: Format::Qcow2,
            tag: Some(tag.parse().map_err(|error| format!("-dst: {tag:?}: {error}"))?),
            store: base("XDG_DATA_HOME", ".local/share").join("neonvm/images"),
            push: false,
            sbom: None,
            ssh_keys: Vec::new(),
        })
    }
}

/// A word as Go's flags are read: one dash is as good as two, and a switch may have `=true` or `=false`.
fn go_flag(word: String) -> Option<String> {
    let word = match word.strip_prefix('-') {
        Some(rest) if rest.len() > 1 && !rest.starts_with('-') => format!("--{rest}"),
        _ => word,
    };
    match word.split_once('=') {
        Some((name, "true" | "1")) if SWITCHES.contains(&name) => Some(name.to_owned()),
        Some((name, "false" | "0")) if SWITCHES.contains(&name) => None,
        _ => Some(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Flags, Stop> {
        Flags::read(std::iter::once("vm-builder").chain(line.split_whitespace()).map(str::to_owned).collect())
    }

    #[test]
    fn one_dash_is_as_good_as_two() {
        let flags = read("-src postgres:16 --target-arch=linux/arm64 -file x.qcow2 -quiet -build-arg a=b")
            .ok()
            .unwrap();
        let request = flags.request().unwrap();
        assert_eq!(request.options.platform.architecture, "arm64");
        assert_eq!(request.tag.unwrap().to_string(), "docker.io/library/vm-postgres:16");
        assert_eq!((request.size, request.options.pull), (Some(1 << 30), Pull::Missing));
        assert!(flags.quiet && flags.notes().is_empty());
        let flags = read("-src x -quiet=false -pull=true").ok().unwrap();
        assert!(!flags.quiet && flags.pull);
    }

    #[test]
    fn mistakes_are_named() {
        let Err(Stop::Wrong(text)) = read("-dst x") else { panic!() };
        assert!(text.contains("--src"), "{text}");
        let error = read("-src x -target-arch amd64").ok().unwrap().request().unwrap_err();
        assert!(error.starts_with("-target-arch: ") && error.contains("linux/amd64"), "{error}");
        let error = read("-src x -target-arch linux/amd64 -size big").ok().unwrap().request().unwrap_err();
        assert_eq!(error, "-size: \"big\" is no size; write 10G");
        assert!(matches!(read("-version"), Err(Stop::Print(_))));
        assert_eq!(read("-src x -target-arch linux/amd64 -daemon-image y").ok().unwrap().notes().len(), 1);
    }

    /// Command lines of the Makefiles, workflows and comments of v0.10, v0.17, v0.31 and later.
    #[test]
    fn command_lines_of_older_versions_are_read() {
        let host = neonvm_builder::source::Platform::host();
        for line in [
            "--src alpine:3.16 --dst vm-alpine:dev --file vm-alpine.qcow2",
            "-src postgres:15-bullseye -dst vm-postgres:15-bullseye -enable-monitor",
            "-src postgres:15-bullseye -dst vm-postgres:15-bullseye -informant vm-informant:dev -enable-file-cache",
            "-src postgres:15 -monitor vm-monitor:dev -enable-monitor -enable-file-cache -cgroup-uid postgres -pull",
            "-src tmp-pg14-disk-test:dev -use-inittab -dst pg14-disk-test:dev",
            "-src alpine:3.19 -dst pg16-disk-test:dev -spec vm-examples/pg16-disk-test/image-spec.yaml",
            "-src postgres:16-bullseye -spec tests/e2e/image-spec.yaml -dst vm-postgres-16:1 -size=2G -quiet=true",
            "-src ubuntu:22.04 -dst neondatabase/vm-ubuntu:22.04 -target-arch linux/amd64",
        ] {
            let flags = match read(line) {
                Ok(flags) => flags,
                Err(Stop::Wrong(text) | Stop::Print(text)) => panic!("{line}: {text}"),
            };
            let request = flags.request().unwrap();
            assert!(line.contains("-target-arch") || request.options.platform == host, "{line}");
        }
    }

    #[test]
    fn older_flags_set_up_the_monitor() {
        let monitor = |line: &str| read(line).ok().unwrap().request().unwrap().changes.monitor;
        assert_eq!(monitor("-src x"), None);
        let high = monitor("-src x -enable-monitor").unwrap();
        assert_eq!((high.limits, high.cgroup.as_deref()), (MemoryLimits::High, Some("neon-postgres")));
        assert!(high.postgres.is_none() && !high.informant);
        let both = monitor("-src x -informant y -enable-file-cache").unwrap();
        assert!(both.limits == MemoryLimits::HighAndMax && both.informant);
        assert!(both.postgres.unwrap().contains("user=cloud_admin"));
        assert_eq!(monitor("-src x -enable-file-cache").unwrap().cgroup, None);
        assert!(read("-src x -use-inittab").ok().unwrap().request().unwrap().changes.inittab);
    }
}
