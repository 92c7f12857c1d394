//! The state of a cluster on disk: other users of the computer open none of it; a lost or damaged one is noticed; a backup brings it
//! back; a full disk stops neither reads nor deletes.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use neonvm_e2e::client::{KubeClient, Resource};
use neonvm_kit::private;
use neonvm_test_support::{eventually_blocking, need, needs};
use serde_json::{Value, json};

use crate::home::{Home, client_of};

/// An unprivileged user of the host.
const UNPRIVILEGED: u32 = 65_534;

/// Names and resource versions of the objects of this test.
fn versions(client: &KubeClient) -> Vec<(String, String)> {
    let text = |item: &Value, field: &str| item["metadata"][field].as_str().unwrap().to_owned();
    let maps = client.list(Resource::CONFIG_MAP).unwrap();
    maps.iter().map(|item| (text(item, "name"), text(item, "resourceVersion"))).collect()
}

/// An object with so many bytes.
fn map(name: &str, bytes: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "default" },
        "data": { "k": "x".repeat(bytes) } })
}

/// Every path below a directory.
fn paths(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    let mut at = 0;
    while let Some(path) = found.get(at).cloned() {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| entry.path()));
        at += 1;
    }
    found
}

#[test]
fn an_unprivileged_user_opens_no_file_of_a_running_cluster() {
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
    opens.args(&all).uid(UNPRIVILEGED).gid(UNPRIVILEGED).current_dir("/");
    assert_eq!(String::from_utf8(opens.output().unwrap().stdout).unwrap(), "");
    home.good("local down");
    // As an earlier version left it, and as another user could.
    fs::set_permissions(home.cluster(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(home.cluster().join("state.redb"), Permissions::from_mode(0o644)).unwrap();
    assert!(home.bad("local check", 7).contains("state.redb has mode 0644"));
    home.good("local up --nodes 0");
    assert!(home.good("local logs --service supervisor").contains("state.redb"), "the repair is logged");
    assert!(home.good("local check").contains("has no problems"));
    home.good("local down");
    std::os::unix::fs::chown(home.cluster().join("sa.key"), Some(UNPRIVILEGED), None).unwrap();
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
    assert!(home.good("local check").contains("has no problems"));
    // While it runs.
    home.good("local backup -O state.backup");
    let file = home.path().join("state.backup");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(home.bad("local backup -O state.backup", 5).contains("--force"));
    assert!(home.bad("local restore --force state.backup", 5).contains("local down"));
    home.good("local down");
    home.good("local backup -O stopped.backup --force");
    assert!(home.bad("local restore state.backup", 5).contains("--force"));

    let state = home.cluster().join("state.redb");
    let whole = fs::read(&state).unwrap();
    fs::write(&state, b"").unwrap();
    let refused = home.bad("local up --nodes 0", 1);
    assert!(refused.contains("is empty") && refused.contains("neonctl local restore"), "{refused}");
    fs::write(&state, &whole).unwrap();
    let handle = File::options().write(true).open(&state).unwrap();
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

/// A small file system in memory, gone with its owner.
struct Small(tempfile::TempDir);

impl Small {
    fn mounted() -> Self {
        let directory =
            tempfile::Builder::new().prefix("small-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let flags = rustix::mount::MountFlags::NODEV;
        rustix::mount::mount("tmpfs", directory.path(), "tmpfs", flags, Some(c"size=64m,mode=700")).unwrap();
        Self(directory)
    }

    /// Takes all room that is left.
    fn fill(&self) {
        let mut file = File::options().append(true).create(true).open(self.0.path().join("filler")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_serves_reads_and_deletes_starts_and_recovers() {
    need!(needs::root());
    let small = Small::mounted();
    let home = Home::keeping(small.0.path().join("clusters"));
    let client = client_of(&home.json("local up --nodes 0"));
    client.create(&map("first", 200_000)).unwrap();
    small.fill();
    let refused =
        (0..100).find_map(|number| client.create(&map(&format!("m{number}"), 200_000)).err()).unwrap();
    assert!(refused.is(507) && refused.to_string().contains("the disk of"), "{refused}");
    let names = || versions(&client).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let before = names();
    small.fill();
    client.delete(Resource::CONFIG_MAP, "first", None).unwrap();
    assert_eq!(names().len(), before.len() - 1);
    home.good("local down");
    small.fill();
    let started = home.bad("local up --nodes 0", 1);
    assert!(
        started.contains("runs, but the disk of") && started.contains("hint: free disk space"),
        "{started}"
    );
    assert_eq!(names().len(), before.len() - 1, "it started, and lost nothing");
    client.delete(Resource::CONFIG_MAP, &before[1], None).unwrap();
    assert!(client.create(&map("second", 10)).unwrap_err().is(507));
    fs::remove_file(small.0.path().join("filler")).unwrap();
    eventually_blocking(|| "a write".to_owned(), || client.create(&map("second", 10)).ok());
}

/// A certificate that ended is named with the command that renews it, and that command does.
#[test]
fn the_administrators_certificate_is_renewed_while_the_cluster_runs() {
    let home = Home::new();
    home.good("local up --nodes 0");
    let path = home.cluster().join("kubeconfig");
    let authority = neonvm_kit::ca::Authority::open(&home.cluster()).unwrap();
    let ended = authority.client_for("kubernetes-admin", &["system:masters"], -60).unwrap();
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let user = &mut config["users"][0]["user"];
    for (key, pem) in [("client-certificate-data", ended.certificate), ("client-key-data", ended.key)] {
        user[key] = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem).into();
    }
    fs::write(&path, config.to_string()).unwrap();
    let list = format!("vm list --kubeconfig {}", path.display());
    let refused = home.bad(&list, 4);
    assert!(
        refused.contains("has expired") && refused.contains("neonctl local up --name local"),
        "{refused}"
    );
    let again = home.run("local up --nodes 0");
    let notes = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.success() && notes.contains("kubeconfig is renewed"), "{notes}");
    home.good(&list);
}
