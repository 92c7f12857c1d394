//! The same through kubectl: 1.31 or later, the first version that uses WebSockets for commands and forwarded ports. Nodes serve
//! no SPDY connections.

use std::process::Stdio;

use neonvm_test_support::{need, needs};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::support::Cluster;

const IDLE: &str = "echo hello; trap 'exit 0' TERM; while :; do sleep 0.05; done";

fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(cluster.server.kubeconfig()).args(arguments);
    command.env("HOME", cluster.server.directory()).stdin(Stdio::null()).kill_on_drop(true);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_logs_runs_commands_and_forwards_ports() {
    need!(needs::kubectl(31));
    let cluster = Cluster::with_node().await;
    let pod = cluster.create("n1", "host", IDLE, &json!({})).await;
    let ready = cluster.ready("host").await;
    let log = cluster.place("n1", &pod).join("logs/c/0.log");
    crate::support::content(&log, |text| text == "hello\n").await;
    let run = async |arguments: &[&str]| {
        let output = kubectl(&cluster, arguments).output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(run(&["logs", "host"]).await, (0, "hello\n".into(), String::new()));
    let (code, out, _) = run(&["exec", "host", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]).await;
    assert_eq!((code, out.as_str()), (3, "out\n"));
    let mut cat = kubectl(&cluster, &["exec", "-i", "host", "--", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = cat.stdin.take().unwrap();
    input.write_all(b"over and back").await.unwrap();
    drop(input);
    let output = cat.wait_with_output().await.unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"over and back".as_slice()));

    let ip: std::net::IpAddr = ready["status"]["podIP"].as_str().unwrap().parse().unwrap();
    let listener = tokio::net::TcpListener::bind((ip, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let echo = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut reader, mut writer) = stream.split();
            tokio::io::copy(&mut reader, &mut writer).await.unwrap();
        }
    });
    let mut forward =
        kubectl(&cluster, &["port-forward", "host", &format!(":{port}"), "--address", "127.0.0.1"]);
    let mut forward = forward.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(forward.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    let local: std::net::SocketAddr = line.split_whitespace().nth(2).unwrap().parse().unwrap();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|i| i.to_le_bytes()[(i % 3) as usize]).collect();
    for part in [&sent[..5], &sent[..]] {
        let stream = tokio::net::TcpStream::connect(local).await.unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let own = part.to_vec();
        let writing = tokio::spawn(async move {
            writer.write_all(&own).await.unwrap();
            writer.shutdown().await.unwrap();
        });
        let mut received = Vec::new();
        reader.read_to_end(&mut received).await.unwrap();
        writing.await.unwrap();
        assert_eq!((received.len(), received == part), (part.len(), true));
    }
    forward.kill().await.unwrap();
    echo.abort();
    let (code, out, why) = run(&["delete", "pod", "host"]).await;
    // Newer ones print the namespace, too.
    assert!(code == 0 && out.starts_with("pod \"host\" deleted"), "{code} {out}{why}");
}
