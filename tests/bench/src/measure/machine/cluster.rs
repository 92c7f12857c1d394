//! A local cluster of one measurement. Nothing of it is left when it goes out of scope.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use kube::api::{Api, DynamicObject, PostParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use neonvm_api::VirtualMachine;
use serde_json::json;

use super::super::Setup;
use super::super::{beside, run_command as run};
use super::repository;

/// Disk of [`machine_with_a_volume`], and label of its file system.
pub(super) const DISK: &str = "data";
/// The image that all machines start from: its workload only waits.
const IMAGE: &str = "idle:1";

pub(super) struct Cluster {
    home: tempfile::TempDir,
    neonctl: PathBuf,
    arguments: Vec<String>,
    /// Seconds that `local up` took.
    pub(super) took: f64,
}

impl Cluster {
    /// A new one, in a home of its own.
    pub(super) fn start(setup: &Setup, arguments: &[&str]) -> anyhow::Result<Self> {
        let home = setup.directory()?;
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut cluster = Self { home, neonctl: beside("neonctl")?, arguments, took: 0.0 };
        cluster.kernel()?;
        let mut up = vec!["local", "up", "--accel", "tcg", "--timeout", "120s"];
        up.extend(cluster.arguments.iter().map(String::as_str));
        let begun = Instant::now();
        cluster.neonctl(&up)?;
        cluster.took = begun.elapsed().as_secs_f64();
        Ok(cluster)
    }

    /// The kernel that was built if there is one, otherwise the fetched one.
    fn kernel(&self) -> anyhow::Result<()> {
        let kernels = self.home.path().join(".local/share/neonvm/kernels");
        std::fs::create_dir_all(&kernels)?;
        for name in ["built", "fetched"] {
            let kernel = repository()?.join("target/kernels").join(name);
            if kernel.join("kernel.json").exists() {
                return Ok(std::os::unix::fs::symlink(kernel, kernels.join("default"))?);
            }
        }
        self.neonctl(&["kernel", "fetch", "--progress", "none"]).map(drop)
    }

    /// Builds [`IMAGE`].
    pub(super) fn image(&self) -> anyhow::Result<()> {
        self.image_of(IMAGE, "exec sleep 1000000")
    }

    /// Builds an image whose workload is a line of shell.
    pub(super) fn image_of(&self, tag: &str, workload: &str) -> anyhow::Result<()> {
        let root = self.root()?.display().to_string();
        let mut arguments = vec!["vm", "build", "--progress", "none", "--from", &root, "--owner", "root"];
        arguments.extend(["-t", tag, "--", "/bin/sh", "-c", workload]);
        self.neonctl(&arguments).map(drop)
    }

    /// The tree of the images that [`Self::image_of`] builds.
    fn root(&self) -> anyhow::Result<PathBuf> {
        let repository = repository()?;
        let kept = repository.join("target/tmp/disk/busybox");
        let root = if kept.exists() { kept } else { self.home.path().join("root") };
        if !root.exists() {
            run(Command::new(repository.join("examples/busybox/make-root.sh")).arg(&root))?;
        }
        Ok(root)
    }

    pub(super) fn directory(&self) -> PathBuf {
        self.home.path().join(".local/state/neonctl/local/local")
    }

    /// For files of the measurement; gone with the cluster.
    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    /// `program` as a person with this cluster would start it.
    pub(super) fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.home.path()).stdin(Stdio::null());
        command
            .env_clear()
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.directory().join("kubeconfig"));
        for kept in ["PATH", "RUST_LOG"] {
            command.envs(std::env::var_os(kept).map(|value| (kept, value)));
        }
        command
    }

    /// Standard output of `neonctl`, which must succeed.
    pub(super) fn neonctl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        run(&mut self.command(&self.neonctl, arguments))
    }

    /// The program itself, for those who measure it.
    pub(super) fn program(&self) -> &Path {
        &self.neonctl
    }

    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let text = std::fs::read_to_string(self.directory().join("kubeconfig"))?;
        let file = Kubeconfig::from_yaml(&text)?;
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        config.read_timeout = None;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    /// Stops and forgets it; nothing may be left.
    pub(super) fn down(self) -> anyhow::Result<()> {
        self.neonctl(&["local", "down", "--delete"])?;
        ensure!(!self.directory().exists(), "the cluster's directory is left");
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.directory().exists() {
            // No caller needs the error, and what is left is in the directory for temporary files.
            self.neonctl(&["local", "down", "--delete"]).ok();
        }
    }
}

/// Machines of the cluster's first namespace.
pub(super) fn machines(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("vm.neon.tech", "v1", "VirtualMachine");
    Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// One CPU of two, 256 MiB of 1 GiB: room to grow, and no quota that slows one virtual CPU.
pub(super) fn machine(name: &str) -> anyhow::Result<DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "guest": {
            "cpus": {"min": 1, "max": 2, "use": 1},
            "memorySlotSize": "256Mi", "memorySlots": {"min": 1, "max": 4, "use": 1},
            "rootDisk": {"image": IMAGE}}}
    }))?)
}

/// One of an image, with an own volume of so many MiB at `/data`.
pub(super) fn machine_with_a_volume(
    name: &str,
    image: &str,
    mebibytes: u64,
) -> anyhow::Result<DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
            "disks": [{"name": DISK, "mountPath": "/data"}],
            "volumeClaimTemplates": [{"metadata": {"name": DISK}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": format!("{mebibytes}Mi")}}}}],
            "guest": {"cpus": {"min": 1, "max": 2, "use": 1}, "memorySlotSize": "256Mi",
                "memorySlots": {"min": 2, "max": 4, "use": 2}, "rootDisk": {"image": image}}}
    }))?)
}

/// Sends the request that creates a machine.
pub(super) async fn create(api: &Api<DynamicObject>, name: &str) -> anyhow::Result<()> {
    let made = api.create(&PostParams::default(), &machine(name)?).await?;
    ensure!(made.name_any() == name, "another machine was made");
    Ok(())
}

pub(super) fn typed(object: &DynamicObject) -> anyhow::Result<VirtualMachine> {
    serde_json::from_value(serde_json::to_value(object)?).context("not a machine")
}
