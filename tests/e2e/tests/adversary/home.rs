//! What attacks start from: a home directory with clusters in it, and `neonctl`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use neonvm_e2e::client::KubeClient;
use serde_json::Value;
use tempfile::TempDir;

/// The directory of the programs, built if they are not.
fn programs() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| neonvm_e2e::programs().unwrap())
}

/// A home directory that every user may enter, with clusters that are stopped with it.
pub(crate) struct Home {
    home: TempDir,
    data: PathBuf,
}

impl Home {
    pub(crate) fn new() -> Self {
        let mut home = Self::keeping(PathBuf::new());
        // Every user may enter this, too: the cluster's own modes must protect it.
        home.data = home.path().join("clusters");
        std::fs::create_dir(&home.data).unwrap();
        home
    }

    /// With its clusters somewhere else.
    pub(crate) fn keeping(data: PathBuf) -> Self {
        let home = tempfile::Builder::new().prefix("home-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { home, data }
    }

    /// With a kernel that VMs boot unless they name another one.
    pub(crate) fn with_kernel(kernel: &Path) -> Self {
        let home = Self::new();
        let kernels = home.path().join(".local/share/neonvm/kernels");
        std::fs::create_dir_all(&kernels).unwrap();
        std::os::unix::fs::symlink(kernel, kernels.join("default")).unwrap();
        home
    }

    pub(crate) fn path(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn run(&self, arguments: &str) -> Output {
        let mut command = Command::new(programs().join("neonctl"));
        command.args(arguments.split_whitespace());
        self.here(command).output().unwrap()
    }

    /// As [`Self::run`], by a shell: `$0` is `neonctl`.
    pub(crate) fn shell(&self, script: &str) -> Output {
        self.shell_command(script).output().unwrap()
    }

    /// As [`Self::shell`], to be started.
    pub(crate) fn shell_command(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(programs().join("neonctl"));
        self.here(command)
    }

    fn here(&self, mut command: Command) -> Command {
        command.env_clear().env("HOME", self.home.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).current_dir(self.home.path());
        command.env("NEONCTL_DATA_DIR", &self.data);
        // Causes are shown all the same.
        command.env("RUST_BACKTRACE", "full");
        command.env("NEONCTL_TIMEOUT", "120s").env("NEONCTL_REQUEST_TIMEOUT", "60s");
        command.stdin(std::process::Stdio::null());
        command
    }

    pub(crate) fn good(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "neonctl {arguments}: {}\n{stderr}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.good(&format!("{arguments} -o json"))).unwrap()
    }

    /// Everything that a command that must end with this code writes.
    pub(crate) fn bad(&self, arguments: &str, code: i32) -> String {
        let output = self.run(arguments);
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(code), "neonctl {arguments}\n{text}");
        text
    }

    /// The directory of the cluster.
    pub(crate) fn cluster(&self) -> PathBuf {
        self.data.join("local")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self.run("local down --all --delete --timeout 5s");
    }
}

pub(crate) fn client_of(up: &Value) -> KubeClient {
    KubeClient::new(up["kubeconfig"].as_str().unwrap().into())
}
