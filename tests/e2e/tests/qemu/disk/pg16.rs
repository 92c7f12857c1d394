//! The disks of `examples/pg16-disk-test` and `examples/file-cache`, built by buildah and booted.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use neonvm_test_support::{Need, need, needs};

use super::agent::{self, Agent};
use super::guest::Guest;
use crate::machine::{self, Machine, PG16_TOOLS};

const MIB: u64 = 1 << 20;

/// A disk of an example, and the key that may log in.
struct Disk {
    machine: Machine,
    kernel: String,
    key: PathBuf,
}

fn disk(example: &str, more: &[&str]) -> Need<Disk> {
    needs::qemu()?;
    // buildah changes owners.
    needs::root()?;
    needs::programs(&PG16_TOOLS)?;
    needs::programs(&["buildah", "crun", "psql", "ssh", "ssh-keygen"])?;
    let kernel = machine::kernel()?;
    let machine = Machine::new();
    let key = machine.path("key");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
    assert!(made.unwrap().success());
    let from = format!("dir:{}", machine::pg16().display());
    let spec = machine::repository().join("examples").join(example).join("image.yaml").display().to_string();
    let build = [
        "vm",
        "build",
        "--from",
        &from,
        "--owner",
        "root",
        "-f",
        &spec,
        "-O",
        "pg.qcow2",
        "--ssh-key",
        "key.pub",
    ];
    machine.good(&[&build[..], more].concat());
    Ok(Disk { machine, kernel, key })
}

/// A VM with the disk.
struct Vm {
    disk: Disk,
    guest: Guest,
}

impl Vm {
    fn boot(disk: Disk) -> Self {
        let guest = Guest::boot(&disk.machine, "pg.qcow2", &disk.kernel, &[22, 5432, agent::PORT], &[]);
        Self { disk, guest }
    }

    /// The answer to a query, as soon as there is one.
    fn sql(&self, query: &str) -> String {
        let port = self.guest.port(5432).to_string();
        self.guest.until(query, || {
            let mut command = Command::new("psql");
            command.args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-Atc", query]);
            output(command.env("PGCONNECT_TIMEOUT", "60"))
        })
    }

    /// What a command in the VM prints.
    fn ssh(&self, text: &str) -> String {
        let port = self.guest.port(22).to_string();
        self.guest.until(text, || {
            let mut command = Command::new("ssh");
            command.args(["-F", "/dev/null", "-p", &port, "-i"]).arg(&self.disk.key);
            for option in [
                "StrictHostKeyChecking=no",
                "UserKnownHostsFile=/dev/null",
                "BatchMode=yes",
                "LogLevel=ERROR",
            ] {
                command.args(["-o", option]);
            }
            output(command.args(["root@127.0.0.1", text]).env_remove("SSH_AUTH_SOCK"))
        })
    }

    /// Waits until a query has an answer.
    fn shows(&self, query: &str, answer: &str) {
        self.guest.until(&format!("{answer:?} as the answer to {query}"), || {
            let text = self.sql(query);
            if text == answer { Ok(()) } else { Err(text) }
        });
    }
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn the_disk_test_of_the_older_system_runs_in_its_limited_group() {
    let vm = Vm::boot(need!(disk("pg16-disk-test", &[])));
    assert!(vm.sql("select version()").starts_with("PostgreSQL 16."));
    // By the image's cgexec, and by that of the guest program.
    vm.ssh("cgexec -g memory:neon-test allocate-loop 100 190 >/tmp/loop 2>&1 &");
    vm.ssh("/neonvm/bin/cgexec -g memory:neon-test sleep 1000 >/tmp/sleep 2>&1 &");
    vm.guest.until("two processes", || {
        let text = vm.ssh("cat /sys/fs/cgroup/neon-test/cgroup.procs /tmp/loop /tmp/sleep");
        if vm.ssh("wc -l < /sys/fs/cgroup/neon-test/cgroup.procs") == "2" { Ok(()) } else { Err(text) }
    });
    let number = |file: &str| vm.ssh(&format!("cat /sys/fs/cgroup/neon-test/{file}"));
    let high: u64 = vm.guest.until("the limit", || {
        let text = number("memory.high");
        text.parse().map_err(|_| text)
    });
    let total = vm.ssh("grep MemTotal /proc/meminfo | tr -dc 0-9").parse::<u64>().unwrap() * 1024;
    assert!(high + 200 * MIB <= total && high + 201 * MIB > total, "{high} of {total}");
    assert_eq!(number("memory.max"), "max");
    vm.guest.until("the most", || {
        let text = vm.ssh("cat /tmp/loop");
        if text.contains("190 MiB, the most") && text.contains("100 MiB, the least") {
            Ok(())
        } else {
            Err(text)
        }
    });
    // What the group uses and 100 MiB must stay below the limit of the smaller size.
    let mut agent = Agent::connect(&vm.guest);
    let refusal = vm.guest.until("a refusal", || {
        let text = agent.shrink(450);
        if text.contains("the control group uses") { Ok(text) } else { Err(text) }
    });
    assert!(refusal.contains(r#""Ok":false"#), "{refusal}");
    assert!(agent.shrink(700).contains(r#""Ok":true"#));
    assert_eq!(number("memory.high"), (500 * MIB).to_string());
    vm.guest.press_power_button();
    vm.guest.ends();
}

#[test]
fn the_file_cache_follows_the_size_of_a_vm() {
    let vm = Vm::boot(need!(disk("file-cache", &["--user", "postgres", "--stop-signal", "SIGINT"])));
    let limit = "show neon.file_cache_size_limit";
    vm.shows(limit, "0");
    let mut agent = Agent::connect(&vm.guest);
    // At the connection: what is there. Then a smaller size, before the VM gets it.
    vm.guest.until("a cache", || {
        let text = vm.sql(limit);
        if text == "0" { Err(text) } else { Ok(()) }
    });
    let verdict = vm.guest.until("consent", || {
        let text = agent.shrink(768);
        if text.contains(r#""Ok":true"#) { Ok(text) } else { Err(text) }
    });
    assert!(verdict.contains("file cache: 374 MiB"), "{verdict}");
    vm.shows(limit, "374");
    let refused = agent.shrink(128);
    assert!(refused.contains(r#""Ok":false"#) && refused.contains("exceed threshold"), "{refused}");
    vm.shows(limit, "374");
    // The server is gone for a while: no consent without it, and afterwards as before.
    vm.ssh(
        "rm -f /neonvm/vmstart.allowed; cd /var/lib/postgresql/data; \
         kill -INT $(head -n 1 postmaster.pid); while [ -e postmaster.pid ]; do sleep 1; done",
    );
    let error = agent.shrink(640);
    assert!(error.contains("InternalError") && error.contains("file cache: connection"), "{error}");
    vm.ssh("touch /neonvm/vmstart.allowed");
    vm.shows(limit, "374");
    assert!(agent.grow(960).contains("UpscaleConfirmation"));
    vm.shows(limit, "549");
    vm.guest.press_power_button();
    let console = vm.guest.ends();
    assert!(console.contains("database system is shut down"), "{console}");
}
