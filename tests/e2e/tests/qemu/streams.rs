//! `vm run`: the streams of a workload are those of the command, byte by byte.

use std::io::Write as _;
use std::process::{Output, Stdio};

use neonvm_test_support::need;

use crate::cluster::{Cluster, possible};

/// What `vm run` of a command gives, with this standard input.
fn run(cluster: &Cluster, flags: &[&str], command: &[&str], input: &[u8]) -> Output {
    let sized = ["vm", "run", "--rm", "--image", "idle:1", "--cpu", "1", "--memory", "256Mi"];
    let mut neonctl = cluster.neonctl(&[&sized, flags, &["--"], command].concat());
    neonctl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = neonctl.spawn().unwrap();
    let (mut to, input) = (child.stdin.take().unwrap(), input.to_vec());
    // A workload that does not read its input ends it.
    let writer = std::thread::spawn(move || drop(to.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

#[test]
fn every_byte_of_a_workload_passes_in_both_directions() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    let check = |output: &Output, code: i32, stdout: &[u8]| {
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(output.stdout == stdout, "{} bytes instead of {}: {text}", output.stdout.len(), stdout.len());
    };
    check(&run(&cluster, &["-i"], &["cat"], b"hi\n"), 0, b"hi\n");
    // Every byte, a line of a million bytes, no line end at the end.
    let mut bytes: Vec<u8> =
        (0..2_000_000_u32).map(|n| u8::try_from(n.wrapping_mul(2_654_435_761) >> 24).unwrap()).collect();
    bytes.extend(vec![b'x'; 1_000_000]);
    check(&run(&cluster, &["-i"], &["cat"], &bytes), 0, &bytes);
    // Without a client of its input a workload has none. Errors are apart, and a shell's status is the command's.
    let script = "cat; printf 'out\\033[1m\\377'; printf 'err\\001' >&2; exit 3";
    let output = run(&cluster, &[], &["sh", "-c", script], b"nothing");
    check(&output, 3, b"out\x1b[1m\xff");
    let at = output.stderr.windows(4).any(|four| four == b"err\x01");
    assert!(at, "{}", String::from_utf8_lossy(&output.stderr));
    // One that ends before it has read its input.
    check(&run(&cluster, &["-i"], &["echo", "enough"], &bytes), 0, b"enough\n");
    // The log has the same as lines.
    let sized =
        ["vm", "run", "kept", "--image", "idle:1", "--cpu", "1", "--memory", "256Mi", "--", "echo", "line"];
    assert_eq!(cluster.good(&sized), "line\n");
    assert!(cluster.good(&["vm", "logs", "kept", "--source", "guest"]).contains("line\n"));
    cluster.down();
}
