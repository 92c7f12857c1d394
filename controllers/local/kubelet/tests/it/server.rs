//! Logs, exec, attach and port-forward through the API server.

use futures_util::AsyncBufReadExt as _;
use kube::api::{AttachParams, LogParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use neonvm_test_support::{need, needs};

use crate::support::{Cluster, is_root};

const TALKS: &str = "echo 2026-01-01T00:00:00Z stdout F first; echo 2026-01-02T00:00:00Z stdout F second; \
                     trap 'exit 0' TERM; while [ ! -e $NEONVM_ROOT/out/more ]; do sleep 0.05; done; echo third; \
                     while :; do sleep 0.05; done";

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_read_and_followed() {
    let cluster = Cluster::with_node().await;
    let pod = cluster.create("n1", "talks", TALKS, &json!({})).await;
    cluster.ready("talks").await;
    let pods = cluster.pods();
    let file = cluster.place("n1", &pod).join("logs/c/0.log");
    crate::support::content(&file, |text| text.lines().count() == 2).await;
    let read = async |parameters: LogParams| pods.logs("talks", &parameters).await.unwrap();
    assert_eq!(read(LogParams::default()).await, "first\nsecond\n");
    assert_eq!(read(LogParams { tail_lines: Some(1), ..LogParams::default() }).await, "second\n");
    let timed = LogParams { timestamps: true, limit_bytes: Some(26), ..LogParams::default() };
    assert_eq!(read(timed).await, "2026-01-01T00:00:00Z first");
    assert!(pods.logs("talks", &LogParams { previous: true, ..LogParams::default() }).await.is_err());
    let follow = LogParams { follow: true, ..LogParams::default() };
    let mut lines = pods.log_stream("talks", &follow).await.unwrap().lines();
    let mut next = async || {
        use futures_util::StreamExt as _;
        let line = tokio::time::timeout(neonvm_test_cluster::PATIENCE, lines.next());
        line.await.unwrap().map(Result::unwrap)
    };
    assert_eq!((next().await.as_deref(), next().await.as_deref()), (Some("first"), Some("second")));
    std::fs::write(cluster.out("n1", &pod).join("more"), "").unwrap();
    assert_eq!(next().await.as_deref(), Some("third"));
    cluster.delete("talks").await;
    assert_eq!(next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_in_containers() {
    let cluster = Cluster::with_node().await;
    cluster.create("n1", "host", TALKS, &json!({})).await;
    cluster.ready("host").await;
    let pods = cluster.pods();
    let run = async |script: &str, terminal: bool| {
        let parameters = AttachParams {
            stderr: !terminal,
            tty: terminal,
            stdin: false,
            stdout: true,
            ..AttachParams::default()
        };
        let mut process = pods.exec("host", ["sh", "-c", script], &parameters).await.unwrap();
        let status = process.take_status().unwrap();
        let mut output = String::new();
        process.stdout().unwrap().read_to_string(&mut output).await.unwrap();
        (output, status.await.unwrap())
    };
    let (output, status) = run("echo $NEONVM_NETWORK; pwd", false).await;
    let end = if is_root() { "user\n/\n" } else { "/root\n" };
    assert!(output.starts_with("user\n/") && output.ends_with(end), "{output}");
    assert_eq!(status.status.as_deref(), Some("Success"));
    let (_, status) = run("exit 7", false).await;
    assert_eq!(status.reason.as_deref(), Some("NonZeroExitCode"));
    assert_eq!(status.details.unwrap().causes.unwrap()[0].message.as_deref(), Some("7"));
    let (output, status) = run("test -t 0 && echo terminal", true).await;
    assert_eq!((output.as_str(), status.status.as_deref()), ("terminal\r\n", Some("Success")));

    let parameters = AttachParams::default().stdin(true).stderr(false);
    let mut process = pods.exec("host", ["cat"], &parameters).await.unwrap();
    let mut input = process.stdin().unwrap();
    input.write_all(b"over and back").await.unwrap();
    input.flush().await.unwrap();
    let mut bytes = [0; 13];
    process.stdout().unwrap().read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"over and back");
    drop(input);
    drop(process);
    cluster.delete("host").await;
}

/// The output of `sh` in the pod's container.
async fn shell_output(cluster: &Cluster, script: &str) -> String {
    let parameters = AttachParams::default().stdin(false);
    let mut process = cluster.pods().exec("host", ["sh", "-c", script], &parameters).await.unwrap();
    let (mut output, mut errors) = (String::new(), String::new());
    let (mut out, mut err) = (process.stdout().unwrap(), process.stderr().unwrap());
    let (read, also) = tokio::join!(out.read_to_string(&mut output), err.read_to_string(&mut errors));
    assert!(read.is_ok() && also.is_ok(), "{read:?} {also:?}");
    output + &errors
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_land_in_the_pods_own_root() {
    need!(needs::network_namespaces());
    let cluster = Cluster::with_node().await;
    let volume = json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": {} }],
        "containers": [{ "volumeMounts": [{ "name": "v", "mountPath": "/vm/images" }] }] } });
    let pod = cluster.create("n1", "host", TALKS, &volume).await;
    cluster.ready("host").await;
    let canary = cluster.server.directory().join("canary");
    std::fs::write(&canary, "of the host").unwrap();
    let canary = canary.display().to_string();
    // The user of the command, and what a way out would lead to.
    let user: u32 = shell_output(&cluster, "id -u").await.trim().parse().unwrap();
    assert!((2_016_777_216..2_033_554_432).contains(&user), "{user}");
    let state = cluster.server.kubeconfig().display().to_string();
    let pids = format!("/proc/{}/root", std::process::id());
    for path in [&canary, &format!("/proc/1/root{canary}"), &format!("../..{canary}"), &state, &pids] {
        let text = shell_output(&cluster, &format!("cat {path}")).await;
        let refused = text.contains("No such file") || text.contains("Permission denied");
        assert!(refused && !text.contains("of the host"), "{path}: {text}");
    }
    let text = shell_output(&cluster, "ls /root /home /var /run /sys; grep CapBnd /proc/self/status").await;
    assert_eq!(text.matches("No such file").count(), 5, "{text}");
    assert!(text.contains("CapBnd:\t0000000000000000"), "{text}");
    // Neither capabilities in a namespace of its own, nor the processes of the whole pod.
    let text = shell_output(&cluster, "unshare --user --map-root-user id -u; unshare --user id -u").await;
    assert_eq!(text.matches("Operation not permitted").count(), 2, "{text}");
    let bomb = "grep processes /proc/self/limits; while :; do sleep 1000 & done";
    let text = shell_output(&cluster, bomb).await;
    assert!(text.contains("1024") && text.contains("fork"), "{text}");
    // Its own files are there as they are now, and stay so.
    let place = cluster.place("n1", &pod);
    std::fs::write(place.join("volumes/v/disk"), "of the pod").unwrap();
    assert_eq!(shell_output(&cluster, "cat /vm/images/disk").await, "of the pod");
    let text = shell_output(&cluster, "touch /vm/images/more; rm /vm/images/disk; touch /x").await;
    assert_eq!(text.matches("Read-only file system").count(), 3, "{text}");
    assert_eq!(std::fs::read_dir(place.join("exec")).unwrap().count(), 0, "it is seen by the command alone");
    cluster.delete("host").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_program_is_for_clients_of_the_runner_only() {
    let cluster = Cluster::with_node().await;
    cluster.create("n1", "host", TALKS, &json!({})).await;
    cluster.ready("host").await;
    let parameters = AttachParams::default();
    // The fake runner takes the word for a command, which does not exist.
    let mut process =
        cluster.pods().exec("host", ["neond", "runner", "statistics"], &parameters).await.unwrap();
    let status = process.take_status().unwrap().await.unwrap();
    assert_eq!(status.details.unwrap().causes.unwrap()[0].message.as_deref(), Some("127"));
    for words in [&["neond", "local"][..], &["neond", "runner"], &["neond", "runner", "true"]] {
        assert!(cluster.pods().exec("host", words.to_vec(), &parameters).await.is_err(), "{words:?}");
    }
    cluster.delete("host").await;
}

/// The output of a command in bytes: more than fits into pipes and sockets.
const BYTES: usize = 20_000_000;

/// A command that prints [`BYTES`], and a word that identifies it as long as it runs.
async fn print_much(cluster: &Cluster, input: bool) -> (kube::api::AttachedProcess, String) {
    cluster.create("n1", "host", TALKS, &json!({})).await;
    cluster.ready("host").await;
    let script = format!("head -c {BYTES} /dev/zero; : {}", cluster.id);
    let parameters = AttachParams::default().stdin(input).stderr(false);
    let process = cluster.pods().exec("host", ["sh", "-c", &script], &parameters).await.unwrap();
    (process, script)
}

/// Whether a process has this word.
fn runs(word: &str) -> bool {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let words = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
    all.map(words).any(|words| words.split(|byte| *byte == 0).any(|other| other == word.as_bytes()))
}

/// Counts the output of a command for a client that stops reading, once the command has ended, for longer than the node
/// waits for what others may still write.
async fn count_slowly(output: &mut (impl tokio::io::AsyncRead + Unpin), command: &str) -> usize {
    let (mut buffer, mut total, mut has_paused) = (vec![0; 64 << 10], 0, false);
    loop {
        if !has_paused && !runs(command) {
            has_paused = true;
            tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        }
        // The library does not end the streams of a broken connection.
        let more = tokio::time::timeout(std::time::Duration::from_secs(60), output.read(&mut buffer)).await;
        match more.unwrap_or_else(|_| panic!("the connection broke after {total} bytes")).unwrap() {
            0 => return total,
            count => total += count,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_gets_all_that_a_command_wrote() {
    let cluster = Cluster::with_node().await;
    let (mut process, command) = print_much(&cluster, false).await;
    assert_eq!(count_slowly(&mut process.stdout().unwrap(), &command).await, BYTES);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_input_of_a_client_loses_no_output() {
    let cluster = Cluster::with_node().await;
    let (mut process, command) = print_much(&cluster, true).await;
    let mut input = process.stdin().unwrap();
    let talks = tokio::spawn(async move {
        while input.write_all(&[0; 512]).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    });
    assert_eq!(count_slowly(&mut process.stdout().unwrap(), &command).await, BYTES);
    talks.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_forwarded() {
    let cluster = Cluster::with_node().await;
    cluster.create("n1", "host", TALKS, &json!({})).await;
    let ready = cluster.ready("host").await;
    let ip: std::net::IpAddr = ready["status"]["podIP"].as_str().unwrap().parse().unwrap();
    let listener = tokio::net::TcpListener::bind((ip, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut reader, mut writer) = stream.split();
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
    });
    let mut forwarder = cluster.pods().portforward("host", &[port]).await.unwrap();
    let mut stream = forwarder.take_stream(port).unwrap();
    stream.write_all(b"hello").await.unwrap();
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"hello");
    drop(stream);
    echo.abort();
    cluster.delete("host").await;
}
