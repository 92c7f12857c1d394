//! No command prints what steers a terminal, whatever names, fields, events, log lines and answers contain.
//!
//! The program runs as a user runs it, with its output in pipes. Every leaf of the command tree has a line in [`COMMANDS`]
//! or in [`INTERACTIVE`]; a new one without fails the test.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod live;
mod objects;
mod server;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use clap::CommandFactory as _;
use server::{HOSTILE, Manner};

/// The guest's own bytes are what these are for.
const INTERACTIVE: [&str; 5] = ["vm console", "vm run", "vm ssh", "vm connect", "vm port-forward"];

/// Command lines, with `HOSTILE` for a hostile word; those with `+` have forms of output that are tried as well, and those
/// with `!` show something hostile from the server.
const COMMANDS: &[&str] = &[
    "vm build HOSTILE",
    "vm create -f HOSTILE",
    "vm create HOSTILE --image HOSTILE",
    "+! vm list",
    "+! vm get pg",
    "! vm get pg -vv",
    "image list -v",
    "+! vm describe pg",
    "vm scale pg --cpu HOSTILE",
    "! vm scale pg --cpu 2 --no-wait",
    "vm set pg --env HOSTILE",
    "vm set pg --env A=HOSTILE --no-wait",
    "vm stop pg --no-wait",
    "vm start pg --no-wait",
    "vm restart pg --no-wait",
    "vm pause pg --no-wait",
    "vm disk add pg --empty scratch=1Gi:/scratch",
    "vm disk remove pg data",
    "vm freeze pg",
    "vm thaw pg",
    "vm snapshot create pg",
    "vm snapshot list",
    "vm snapshot delete s1",
    "vm suspend pg --no-wait",
    "vm resume pg --no-wait",
    "+ vm disk list pg",
    "vm disk grow pg HOSTILE 20Gi --no-wait",
    "vm disk grow pg data HOSTILE",
    "vm disk limit pg HOSTILE --iops 100 --no-wait",
    "vm disk limit pg data --bandwidth HOSTILE",
    "vm cp HOSTILE HOSTILE",
    "vm ssh-config HOSTILE",
    "! vm migrate pg --no-wait",
    "vm delete HOSTILE",
    "! vm delete pg -y --no-wait",
    "! vm logs pg",
    "! vm logs pg --timestamps --source guest",
    "! vm logs pg --previous",
    "+! vm history pg --since 3650d",
    "! vm history pg --since 3650d -o html",
    "vm history pg --since 3650d -o svg",
    "vm history HOSTILE --since HOSTILE",
    "vm wait pg --for cpu>=HOSTILE --timeout 0s",
    "+! migration list",
    "+! migration get pg-1",
    "+! migration describe pg-1",
    "! migration cancel pg-1 --no-wait",
    "migration wait HOSTILE --timeout 0s",
    "+! podautoscaler list",
    "+! podautoscaler get web",
    "+! podautoscaler describe web",
    "+! podautoscaler explain web",
    "+! podautoscaler history web",
    "podautoscaler wait web --for replicas=HOSTILE --timeout 0s",
    "! podautoscaler pause web",
    "! podautoscaler resume web",
    "image list --store HOSTILE",
    "image inspect HOSTILE",
    "image export HOSTILE --out HOSTILE",
    "image pull HOSTILE",
    "image push HOSTILE --to HOSTILE",
    "image remove HOSTILE",
    "image prune --HOSTILE",
    "image release list --from HOSTILE",
    "image release push --registry HOSTILE --from HOSTILE",
    "image release save --out HOSTILE --from HOSTILE",
    "image release load --from HOSTILE",
    "install --set HOSTILE=HOSTILE",
    "upgrade --set HOSTILE=HOSTILE",
    "uninstall --purge HOSTILE",
    "kernel fetch HOSTILE",
    "kernel build HOSTILE",
    "kernel image HOSTILE --tag HOSTILE",
    "kernel list",
    "kernel remove HOSTILE",
    "local up --name HOSTILE",
    "local down --name HOSTILE",
    "local list",
    "! local logs --name dev",
    "local logs --name dev --service HOSTILE",
    "local status --name HOSTILE",
    "local kubeconfig --name HOSTILE",
    "local check --name HOSTILE",
    "local backup --name HOSTILE --out HOSTILE",
    "local restore HOSTILE --name HOSTILE",
    "! status",
    "status --namespace HOSTILE",
    "! doctor --cluster",
    "doctor --namespace HOSTILE",
    "test cluster --image HOSTILE --namespace HOSTILE --timeout 0s",
    "test cluster --image HOSTILE --timeout 0s",
    "test cluster --registry HOSTILE --timeout 0s",
    "dashboard --port 99999999",
    "dashboard --namespace HOSTILE --interval HOSTILE",
    "+! top vms",
    "agent inspect --node HOSTILE",
    "scheduler inspect",
    "debug node-pressure HOSTILE",
    "version",
    "completion bash",
    "completion zsh",
    "man",
    "config view",
    "config set name HOSTILE",
    "config unset HOSTILE",
    "config path",
    "config convert --kind agent -f HOSTILE",
    "config explain --kind scheduler -f HOSTILE",
    "HOSTILE",
];

/// Forms that are tried with commands that have them.
const FORMS: [&str; 5] = ["json", "yaml", "name", "custom-columns=A:.metadata.name,B:.status", "wide"];

/// What an output holds that it must not.
fn unclean(output: &str) -> Option<char> {
    output.chars().find(|c| {
        let steers = c.is_control() && !matches!(c, '\n' | '\t');
        steers || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
    })
}

struct Home {
    directory: tempfile::TempDir,
    port: u16,
}

impl Home {
    fn new(manner: Manner) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = Self { directory, port: server::start(manner) };
        let server = format!("http://127.0.0.1:{}", home.port);
        let kubeconfig = serde_json::json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": server } }], "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u", "namespace": "default" } }] });
        std::fs::write(home.path("kubeconfig"), kubeconfig.to_string()).unwrap();
        let cluster = home.path(".local/state/neonctl/local/dev");
        std::fs::create_dir_all(cluster.join("log")).unwrap();
        std::fs::write(cluster.join("kubeconfig"), "{}").unwrap();
        for service in ["local", "scheduler"] {
            let text = format!("2026-01-01T00:00:00Z {service} {HOSTILE}\n{HOSTILE}\n");
            std::fs::write(cluster.join(format!("log/{service}.log")), text).unwrap();
        }
        home
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_neonctl")));
        command.args(arguments).env_clear().env("HOME", self.directory.path()).stdin(Stdio::null());
        command.env("KUBECONFIG", self.path("kubeconfig")).env("NEONCTL_REQUEST_TIMEOUT", "5s");
        command.current_dir(self.directory.path());
        command
    }

    fn run(&self, arguments: &[String]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

/// The words of a line of [`COMMANDS`]. An argument cannot hold a zero byte.
fn words(line: &str) -> Vec<String> {
    let hostile = HOSTILE.replace('\0', "");
    line.split(' ')
        .filter(|word| !matches!(*word, "+" | "!" | "+!"))
        .map(|word| word.replace("HOSTILE", &hostile))
        .collect()
}

fn check(arguments: &[String], output: &Output, manner: Manner) -> Result<(String, String), String> {
    let text = |raw: &[u8]| String::from_utf8(raw.to_vec()).map_err(|_| format!("{arguments:?}: no UTF-8"));
    let (out, err) = (text(&output.stdout)?, text(&output.stderr)?);
    for (name, text) in [("standard output", &out), ("standard error", &err)] {
        if let Some(found) = unclean(text) {
            return Err(format!("{manner:?} {arguments:?}: {found:?} on {name}:\n{text:?}"));
        }
    }
    Ok((out, err))
}

/// Runs everything against a server of this manner; returns what went wrong.
fn attack(manner: Manner) -> Vec<String> {
    let home = Home::new(manner);
    let mut problems = Vec::new();
    for line in COMMANDS {
        let plain = words(line);
        let mut tried = vec![plain.clone()];
        if line.starts_with('+') && manner == Manner::Objects {
            tried.extend(FORMS.map(|form| [plain.clone(), vec!["-o".into(), form.into()]].concat()));
        }
        for arguments in tried {
            match check(&arguments, &home.run(&arguments), manner) {
                Err(problem) => problems.push(problem),
                // What never arrived proves nothing.
                Ok((out, err)) if manner == Manner::Objects && line.contains('!') => {
                    let shown = ["\\x1b", "\\u001b", "\\e"];
                    let all = out + &err;
                    // These show a part of each object, where there may be nothing to choose.
                    let is_part =
                        arguments.iter().any(|word| word == "name" || word.starts_with("custom-columns"));
                    if !is_part && !shown.iter().any(|form| all.contains(form)) {
                        problems.push(format!("{arguments:?} shows nothing hostile: {all}"));
                    }
                }
                Ok(_) => {}
            }
        }
    }
    problems
}

#[test]
fn objects_events_and_logs_are_shown_without_control_characters() {
    let problems = attack(Manner::Objects);
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

#[test]
fn refusals_are_shown_without_control_characters() {
    let problems = attack(Manner::Refuses);
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

#[test]
fn answers_that_are_no_json_are_shown_without_control_characters() {
    let problems = attack(Manner::Garbage);
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

#[test]
fn watches_are_shown_without_control_characters() {
    let home = Home::new(Manner::Objects);
    for line in [
        "vm list -w",
        "vm list -w -o json",
        "migration list -w",
        "podautoscaler list -w",
        "podautoscaler list -w -o json",
        "podautoscaler explain web -w",
        "vm logs pg -f",
        "top",
    ] {
        let arguments = words(line);
        let mut child = home.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let (sender, bytes) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut block = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut block) {
                if sender.send(block[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        // More than a line of headers has.
        let mut some = Vec::new();
        while some.len() < 150 {
            let more = bytes.recv_timeout(neonvm_test_support::PATIENCE);
            some.extend(more.unwrap_or_else(|_| panic!("{line} prints no more than {some:?}")));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let text = String::from_utf8_lossy(&some);
        assert_eq!(unclean(&text), None, "{line}: {text:?}");
    }
}

#[test]
fn requests_are_shown_on_standard_error_only() {
    let home = Home::new(Manner::Objects);
    let path = "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines/pg 200 ";
    for (line, bodies) in [
        ("vm get pg -o json -v", false),
        ("-vv vm get pg -o json", true),
        ("vm get --verbose pg -o json", false),
    ] {
        let output = home.run(&words(line));
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            value["kind"].as_str().map(|kind| kind.starts_with("VirtualMachine")),
            Some(true),
            "{line}"
        );
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains(&format!("GET {path}")), "{line}: {errors}");
        assert_eq!(errors.contains("  received: {"), bodies, "{line}: {errors}");
    }
    assert!(home.run(&words("vm get pg -o json")).stderr.is_empty());
}

#[test]
fn raw_logs_are_as_they_were_written() {
    let home = Home::new(Manner::Objects);
    for line in ["vm logs pg --raw", "local logs --name dev --raw"] {
        let output = home.run(&words(line));
        assert!(
            output.stdout.windows(HOSTILE.len()).any(|some| some == HOSTILE.as_bytes()),
            "{line}: {output:?}"
        );
    }
}

#[test]
fn every_command_is_attacked() {
    fn leaves(command: &clap::Command, path: &str, all: &mut BTreeSet<String>) {
        for below in command.get_subcommands() {
            leaves(below, format!("{path} {}", below.get_name()).trim(), all);
        }
        if command.get_subcommands().next().is_none() {
            all.insert(path.to_owned());
        }
    }
    let mut root = neonvm_cli::args::Args::command();
    root.build();
    let mut all = BTreeSet::new();
    leaves(&root, "", &mut all);
    let starts = |leaf: &str| {
        let attacked = COMMANDS
            .iter()
            .any(|line| format!("{} ", words(line).join(" ")).starts_with(&format!("{leaf} ")));
        attacked || INTERACTIVE.contains(&leaf) || leaf.split(' ').any(|word| word == "help")
    };
    let missing: Vec<&String> = all.iter().filter(|leaf| !starts(leaf)).collect();
    assert!(missing.is_empty(), "no line in COMMANDS begins with {missing:?}");
}
