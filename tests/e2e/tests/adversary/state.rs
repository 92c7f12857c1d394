//! The state of a cluster on disk: other users of the computer open none of it; a lost or damaged one is noticed; a backup brings it
//! back.

use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use neonvm_e2e::client::{KubeClient, Resource};
use neonvm_kit::private;
use neonvm_test_support::{need, needs};
use serde_json::{Value, json};
use tempfile::TempDir;

/// An unprivileged user of the host.
const NOBODY: u32 = 65_534;

/// A home directory that everybody may enter, with clusters that are stopped with it.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = tempfile::Builder::new().prefix("home-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Self(home)
    }

    fn run(&self, arguments: &str) -> Output {
        let mut command = Command::new(neonvm_e2e::programs().unwrap().join("neonctl"));
        command.args(arguments.split_whitespace()).env_clear().env("HOME", self.0.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).current_dir(self.0.path());
        command.env("NEONCTL_TIMEOUT", "120s").env("NEONCTL_REQUEST_TIMEOUT", "60s");
        command.stdin(std::process::Stdio::null()).output().unwrap()
    }

    fn good(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "neonctl {arguments}: {}\n{stderr}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.good(&format!("{arguments} -o json"))).unwrap()
    }

    /// Everything that a command that must end with this code writes.
    fn bad(&self, arguments: &str, code: i32) -> String {
        let output = self.run(arguments);
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(code), "neonctl {arguments}\n{text}");
        text
    }

    fn cluster(&self) -> PathBuf {
        self.0.path().join(".local/state/neonctl/local/local")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self.run("local down --all --delete --timeout 5s");
    }
}

fn client_of(up: &Value) -> KubeClient {
    KubeClient::new(up["kubeconfig"].as_str().unwrap().into())
}

/// Names and resource versions of the objects of this test.
fn versions(client: &KubeClient) -> Vec<(String, String)> {
    let text = |item: &Value, field: &str| item["metadata"][field].as_str().unwrap().to_owned();
    let maps = client.list(Resource::CONFIG_MAP).unwrap();
    maps.iter().map(|item| (text(item, "name"), text(item, "resourceVersion"))).collect()
}

/// Every path below a directory.
fn paths(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    let mut at = 0;
    while let Some(path) = found.get(at).cloned() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| entry.path()));
        at += 1;
    }
    found
}

#[test]
fn nobody_opens_no_file_of_a_running_cluster() {
    need!(needs::root());
    let home = Home::new();
    home.good("local up");
    let all = paths(&home.cluster());
    assert!(all.len() > 15, "{all:?}");
    // Only the directories above could protect what is open itself.
    let open = private::audit(&home.cluster(), &private::LEFT).unwrap();
    assert!(open.is_empty(), "{open:?}");
    let mut opens = Command::new("/bin/sh");
    opens.args(["-c", "for path; do if [ -r \"$path\" ]; then echo \"$path\"; fi; done", "sh"]);
    opens.args(&all).uid(NOBODY).gid(NOBODY).current_dir("/");
    assert_eq!(String::from_utf8(opens.output().unwrap().stdout).unwrap(), "");
    home.good("local down");
    // As an earlier version left it, and as somebody else could.
    std::fs::set_permissions(home.cluster(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(home.cluster().join("state.redb"), std::fs::Permissions::from_mode(0o644))
        .unwrap();
    assert!(home.bad("local check", 7).contains("state.redb has mode 0644"));
    home.good("local up --nodes 0");
    assert!(home.good("local logs --service supervisor").contains("state.redb"), "the repair is logged");
    assert!(home.good("local check").contains("is sound"));
    home.good("local down");
    std::os::unix::fs::chown(home.cluster().join("sa.key"), Some(NOBODY), None).unwrap();
    let refused = home.bad("local up --nodes 0", 5);
    assert!(refused.contains("belongs to user 65534") && refused.contains("chown -R 0"), "{refused}");
}

#[test]
fn a_state_that_is_lost_or_damaged_is_refused_and_a_backup_brings_it_back() {
    let home = Home::new();
    let up = home.json("local up --nodes 0");
    let client = client_of(&up);
    for name in ["a", "b", "c"] {
        let meta = json!({ "name": name, "namespace": "default" });
        let object =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": { "k": name } });
        client.create(&object).unwrap();
    }
    let before = versions(&client);
    assert_eq!(before.len(), 3);
    assert!(home.good("local check").contains("is sound"));
    // While it runs.
    home.good("local backup -O state.backup");
    let file = home.0.path().join("state.backup");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(home.bad("local backup -O state.backup", 5).contains("--force"));
    assert!(home.bad("local restore --force state.backup", 5).contains("local down"));
    home.good("local down");
    home.good("local backup -O stopped.backup --force");
    assert!(home.bad("local restore state.backup", 5).contains("--force"));

    let state = home.cluster().join("state.redb");
    let whole = std::fs::read(&state).unwrap();
    std::fs::write(&state, b"").unwrap();
    let refused = home.bad("local up --nodes 0", 1);
    assert!(refused.contains("is empty") && refused.contains("neonctl local restore"), "{refused}");
    std::fs::write(&state, &whole).unwrap();
    let handle = std::fs::File::options().write(true).open(&state).unwrap();
    for page in (0..whole.len() as u64).step_by(4096) {
        handle.write_all_at(b"damage", page + 600).unwrap();
    }
    drop(handle);
    let refused = home.bad("local check", 7);
    assert!(refused.contains("state.redb") && refused.contains("damaged"), "{refused}");

    home.good("local restore --force state.backup");
    let up = home.json("local up --nodes 0");
    assert_eq!(versions(&client_of(&up)), before);
}
