//! What the server's state is protected from: other users of the computer, and a full disk.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use neonvm_test_support::{eventually, need, needs};

use super::*;
use crate::disk::Snapshot;

async fn reply(shared: &Shared, method: Method, path: &str, body: &Value) -> EngineResponse {
    match soon(shared.state.run(&incoming(method, path, "", body))).await {
        Reply::Answer(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// Paths below a directory that a user can open, with the directory itself.
fn opened_by(user: u32, directory: &Path) -> String {
    let mut find = Command::new("find");
    // Its own start directory must be one that the user may enter.
    find.arg(directory).args(["-readable", "-print"]).uid(user).gid(user).current_dir("/");
    String::from_utf8(find.output().unwrap().stdout).unwrap()
}

#[tokio::test]
async fn no_other_user_can_open_files_of_a_cluster_and_open_modes_are_repaired() {
    need!(needs::root());
    // A place that every user may enter, unlike the directories that keep temporary files private.
    let home = tempfile::Builder::new().prefix("open-").tempdir_in("/tmp").unwrap();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(home.path(), std::fs::Permissions::clone(&all)).unwrap();
    let directory = home.path().join("cluster");
    for round in 0..2 {
        let server = Server::start(&config(&directory)).await.unwrap();
        assert_eq!(create(&server.shared, &format!("ns-{round}")).await.code, 201);
        soon(server.run(std::future::ready(()))).await.unwrap();
        let found = std::fs::read_dir(&directory).unwrap().flatten();
        let modes: Vec<(std::ffi::OsString, u32)> = found
            .map(|entry| {
                let mode = std::os::unix::fs::MetadataExt::mode(&entry.metadata().unwrap()) & 0o777;
                (entry.file_name(), mode)
            })
            .collect();
        assert!(modes.len() >= 5 && modes.iter().all(|(_, mode)| *mode == 0o600), "{modes:?}");
        assert_eq!(opened_by(65_534, &directory), "");
        // As earlier versions left it.
        std::fs::set_permissions(&directory, std::fs::Permissions::clone(&all)).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(directory.join("state.redb"), open).unwrap();
        assert!(opened_by(65_534, &directory).contains("state.redb"), "the test would notice");
    }
}

#[tokio::test]
async fn a_full_disk_refuses_what_takes_room_and_serves_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&config(directory.path())).await.unwrap();
    let shared = Arc::clone(&server.shared);
    let ready = || own_path(&shared, &incoming(Method::Get, "/readyz", "", &Value::Null));
    assert_eq!(create(&shared, "before").await.code, 201);
    shared.state.disk().fill(true);
    // The full disk is not noticed yet: it is accepted, from the reserve.
    assert_eq!(create(&shared, "first").await.code, 201);
    let refused = create(&shared, "second").await;
    let status: Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!((refused.code, &status["reason"]), (507, &json!("InsufficientStorage")));
    let message = status["message"].as_str().unwrap();
    assert!(message.contains(&format!("the disk of {} is full", directory.path().display())), "{message}");
    assert_eq!(reply(&shared, Method::Get, "/api/v1/namespaces/first", &Value::Null).await.code, 200);
    assert_eq!(reply(&shared, Method::Get, "/api/v1/namespaces/second", &Value::Null).await.code, 404);
    assert_eq!(reply(&shared, Method::Delete, "/api/v1/namespaces/before", &Value::Null).await.code, 200);
    let body = ready().unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"[-]disk-space failed: the disk of"), "{body:?}");
    for path in ["/livez", "/healthz"] {
        assert!(own_path(&shared, &incoming(Method::Get, path, "", &Value::Null)).is_none(), "{path}");
    }
    shared.state.disk().fill(false);
    eventually("room on the disk", async || ready().is_none().then_some(())).await;
    assert_eq!(create(&shared, "second").await.code, 201);
    soon(server.run(std::future::ready(()))).await.unwrap();
}

#[tokio::test]
async fn the_state_as_a_whole_is_for_administrators() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&config(directory.path())).await.unwrap();
    let shared = Arc::clone(&server.shared);
    assert_eq!(create(&shared, "kept").await.code, 201);
    let backup = incoming(Method::Get, "/neonvm/backup", "", &Value::Null);
    let stranger = Incoming { user: Arc::new(User::anonymous()), ..backup.clone() };
    assert_eq!(whole::answer(&shared, &stranger).await.unwrap().status(), 403);
    let put = Incoming { method: Method::Put, ..backup.clone() };
    assert_eq!(whole::answer(&shared, &put).await.unwrap().status(), 405);
    let body = soon(whole::answer(&shared, &backup)).await.unwrap().into_body().collect();
    let body = soon(body).await.unwrap().to_bytes();
    let (header, _) = Snapshot::read(&body[..]).unwrap();
    assert_eq!(header.revision, shared.state.with(|engine| engine.store().revision()));
    assert!(String::from_utf8_lossy(&body).contains("\"name\":\"kept\""));
    let check = incoming(Method::Get, "/neonvm/check", "", &Value::Null);
    let body = soon(whole::answer(&shared, &check)).await.unwrap().into_body().collect();
    let checked: Value = serde_json::from_slice(&soon(body).await.unwrap().to_bytes()).unwrap();
    assert_eq!((&checked["problems"], &checked["objects"]), (&json!([]), &json!(header.objects)));
    soon(server.run(std::future::ready(()))).await.unwrap();
}
