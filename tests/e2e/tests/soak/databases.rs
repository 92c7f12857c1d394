//! Databases as distributions package them, without a specification file, their data on a disk of the VM.

use std::process::Command;

use neonvm_test_support::need;
use neonvm_test_support::needs::{self, Need};

use crate::cluster::{Cluster, possible};
use crate::machine;

/// What a database is, and how a person asks it.
struct Database {
    /// Root directory of Debian with it.
    root: String,
    /// Its user in the image.
    user: &'static str,
    /// Directory of its data, with content in the image.
    data: &'static str,
    command: &'static [&'static str],
    /// Creates a table and reads it.
    question: &'static str,
}

fn debootstrap(package: &str) -> String {
    let made = machine::once(package, |root| {
        let include = format!("--include={package}");
        let output = Command::new("debootstrap")
            .args(["--variant=minbase", &include, "trixie"])
            .arg(root)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    });
    made.display().to_string()
}

fn can_be_made() -> Need {
    possible()?;
    needs::root()?;
    needs::programs(&["debootstrap"])
}

/// The image's user owns the disk, which has the content of the image's directory and nothing else.
#[test]
fn unmodified_databases_run_from_a_disk() {
    need!(can_be_made());
    let cluster = Cluster::start();
    let databases = [
        Database {
            root: debootstrap("postgresql-17"),
            user: "postgres",
            data: "/var/lib/postgresql",
            command: &[
                "/usr/lib/postgresql/17/bin/postgres",
                "-D",
                "/var/lib/postgresql/17/main",
                "-c",
                "config_file=/etc/postgresql/17/main/postgresql.conf",
            ],
            question: "su postgres -c \"psql -qAtc 'create table if not exists t as select 42; select * from t'\"",
        },
        Database {
            root: debootstrap("mariadb-server"),
            user: "mysql",
            data: "/var/lib/mysql",
            command: &["/usr/sbin/mariadbd", "--socket=/tmp/m.sock", "--pid-file=/tmp/m.pid"],
            question: "mariadb -NS /tmp/m.sock -e 'create table if not exists mysql.t as select 42; select * from mysql.t'",
        },
    ];
    for database in databases {
        let build = [
            "vm",
            "build",
            "--from",
            &database.root,
            "-t",
            "db:1",
            "--user",
            database.user,
            "--size",
            "3Gi",
            "--",
        ];
        cluster.good(&[&build[..], database.command].concat());
        let disk = format!("data=1Gi:{}", database.data);
        let create = [
            "vm",
            "create",
            "db",
            "--image",
            "db:1",
            "--cpu",
            "1",
            "--memory",
            "512Mi..2Gi",
            "--disk",
            &disk,
        ];
        cluster.good(&[&create[..], &["--wait", "--timeout", "170s"]].concat());
        let answer = cluster.succeeds(|| cluster.neonctl(&["vm", "ssh", "db", "--", database.question]));
        assert_eq!(answer.trim(), "42");
        let owner = cluster
            .inside("db", &format!("stat -c %U {0}; ls {0} | grep -c lost+found || true", database.data));
        assert_eq!(owner.split_whitespace().collect::<Vec<_>>(), [database.user, "0"]);
        cluster.good(&["vm", "delete", "db", "--yes"]);
    }
    cluster.down();
}
