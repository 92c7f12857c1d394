//! What is slow to make and always the same: kept in `target/demo` between runs.

use std::process::Command;

use anyhow::ensure;

use super::stage::{POSTGRES, Stage};

/// The kernel and the image, if they are not kept from an earlier run.
pub(super) fn all(stage: &Stage) -> anyhow::Result<()> {
    if !stage.kept.join("data/neonvm/kernels/default/vmlinux").exists() {
        stage.title("A kernel");
        stage.neonctl(&["kernel", "fetch"])?;
    }
    let tree = stage.kept.join("postgres-17-root");
    if !tree.exists() {
        stage.title("Debian with PostgreSQL, as a directory (a container image would do as well)");
        let making = stage.kept.join("postgres-17-root.making");
        let _ = std::fs::remove_dir_all(&making);
        let making = making.display().to_string();
        stage.show("examples/postgres/make-root.sh", &[&making]);
        let log = stage.kept.join("make-root.log");
        let file = std::fs::File::create(&log)?;
        let script = stage.root.join("examples/postgres/make-root.sh");
        let status = Command::new(script).arg(&making).stdout(file.try_clone()?).stderr(file).status()?;
        ensure!(status.success(), "debootstrap failed; see {}", log.display());
        std::fs::rename(&making, &tree)?;
    }
    stage.title("Its disk");
    let tree = tree.display().to_string();
    let config = "config_file=/etc/postgresql/17/main/postgresql.conf";
    let server = format!("{POSTGRES}/postgres");
    stage.neonctl(&[
        "vm",
        "build",
        "--from",
        &tree,
        "-f",
        "examples/postgres/image.yaml",
        "-t",
        "demo/postgres:17",
        "--size",
        "4Gi",
        "--user",
        "postgres",
        "--stop-signal",
        "SIGINT",
        "--",
        &server,
        "-D",
        "/var/lib/postgresql/17/main",
        "-c",
        config,
    ])
}
