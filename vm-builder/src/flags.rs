//! The flags of the tool that this replaces, and what each means here.

use std::path::PathBuf;

use clap::Parser as _;
use neonvm_builder::engine::{Changes, Format, Request};
use neonvm_builder::registry::auth_files;
use neonvm_builder::size;
use neonvm_builder::source::{Options, Pull, Source};

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
    after_help = "Example:\n  vm-builder -src postgres:16 -dst registry.example/pg16-vm:1 -target-arch linux/amd64 -spec image.yaml -file pg16.qcow2"
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
    /// linux/amd64 or linux/arm64
    #[arg(long, required_unless_present = "version")]
    target_arch: Option<String>,
}

impl Flags {
    /// Reads arguments, the program's name first. One dash is as good as two.
    pub(crate) fn read(arguments: Vec<String>) -> Result<Self, Stop> {
        let dashes = |word: String| match word.strip_prefix('-') {
            Some(rest) if rest.len() > 1 && !rest.starts_with('-') => format!("--{rest}"),
            _ => word,
        };
        let flags = Self::try_parse_from(arguments.into_iter().map(dashes)).map_err(|error| {
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
        let given =
            [&self.daemon_image, &self.alpine_image, &self.busybox_image].iter().any(|image| image.is_some());
        if given {
            vec![
                "-daemon-image, -alpine-image and -busybox-image have no effect: the guest is one program, no image is needed for it",
            ]
        } else {
            Vec::new()
        }
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
        let platform = self.target_arch.as_deref().unwrap_or_default();
        options.platform = platform.parse().map_err(|error| format!("-target-arch: {error}"))?;
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
            changes: Changes::default(),
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
            work: None,
        })
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
    }

    #[test]
    fn mistakes_are_named() {
        let Err(Stop::Wrong(text)) = read("-src x") else { panic!() };
        assert!(text.contains("--target-arch"), "{text}");
        let error = read("-src x -target-arch linux/amd64 -size big").ok().unwrap().request().unwrap_err();
        assert_eq!(error, "-size: \"big\" is no size; write 10G");
        assert!(matches!(read("-version"), Err(Stop::Print(_))));
        assert_eq!(read("-src x -target-arch linux/amd64 -daemon-image y").ok().unwrap().notes().len(), 1);
    }
}
