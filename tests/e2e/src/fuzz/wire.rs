//! HTTP as an attacker writes it: a well-formed request with something wrong in it.

use serde_json::{Value, json};

use super::{Random, hostile, mutate, text};

/// Paths that some service knows, of all of them: an attacker tries each everywhere.
const PATHS: [&str; 34] = [
    "/",
    "/healthz",
    "/readyz",
    "/livez",
    "/metrics",
    "/version",
    "/ready",
    "/cpu_change",
    "/cpu_current",
    "/v1/status",
    "/v1/size",
    "/v1/console",
    "/v1/stop",
    "/v1/migration",
    "/v1/volumes/root",
    "/v1/ports/22",
    "/v1/ports/25183",
    "/v1/inspect",
    "/v1/what-if",
    "/extender/filter",
    "/extender/prioritize",
    "/extender/bind",
    "/validate-v1-pod-eviction",
    "/mutate-vm-neon-tech-v1-virtualmachine",
    "/validate-vm-neon-tech-v1-virtualmachine",
    "/pods",
    "/exec/default/p/c?command=id",
    "/containerLogs/default/p/c",
    "/api/v1/secrets",
    "/api/v1/namespaces/default/pods/p/exec?command=id",
    "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines?watch=1",
    "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    "/openapi/v3",
    "/api/v1/namespaces/neonvm-system/serviceaccounts/x/token",
];
const METHODS: [&str; 10] =
    ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "PRI", "G\u{0}T"];
const MEDIA: [&str; 7] = [
    "application/json",
    "application/yaml",
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/vnd.kubernetes.protobuf",
    "text/plain; charset=\u{ff}",
    "",
];

/// A request: its bytes, and its path as it was written.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is sent.
    pub bytes: Vec<u8>,
    /// Path with its query.
    pub path: String,
}

/// What services expect in a body, changed somewhere.
pub fn body(random: &mut Random) -> Value {
    let vm = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": "x", "namespace": "default"},
        "spec": {"guest": {"cpus": {"min": "250m", "use": 1, "max": 2}, "memorySlotSize": "1Gi",
            "memorySlots": {"min": 1, "use": 1, "max": 2}, "rootDisk": {"image": "127.0.0.1:1/none:1"}}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
    let review = |kind: &str, object: Value| {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": kind}, "resource": {"group": "", "version": "v1", "resource": "x"},
            "namespace": "default", "name": "p", "userInfo": {"username": "system:admin", "groups": ["system:masters"]},
            "object": object, "oldObject": null, "dryRun": false}})
    };
    let amount = json!({"vCPUs": 1, "mem": "1Gi"});
    let mut chosen = match random.below(9) {
        0 => review("VirtualMachine", vm),
        1 => review(
            "Eviction",
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}),
        ),
        2 => {
            json!({"protoVersion": 7, "pod": {"namespace": "default", "name": "p"}, "computeUnit": amount, "resources": amount,
            "lastPermit": null, "metrics": {"loadAvg1M": 0.5}})
        }
        3 => {
            json!({"pod": pod, "nodes": {"items": [{"metadata": {"name": "n1"}}]}, "nodenames": ["n1", "n2"]})
        }
        4 => json!({"podName": "p", "podNamespace": "default", "podUID": "u", "node": "n1"}),
        5 => json!({"node": "n1", "resources": amount, "vm": "default/x"}),
        6 => vm,
        7 => {
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}})
        }
        _ => hostile(random),
    };
    if !random.once_in(4) {
        mutate(random, &mut chosen);
    }
    chosen
}

fn path(random: &mut Random) -> String {
    let mut path = random.pick(&PATHS).to_owned();
    let noise = text(random).replace(['\r', '\n', ' ', '\0'], "%20");
    match random.below(8) {
        0 => path += &noise,
        1 => path = format!("/{noise}{path}"),
        2 => path = format!("{path}?{noise}"),
        3 => path = path.replace('/', "//../"),
        4 => path = format!("http://{noise}{path}"),
        _ => {}
    }
    path
}

/// A request in HTTP/1.1, with a body in one of many forms, which may end early.
pub fn request(random: &mut Random) -> Request {
    let path = path(random);
    let method = if random.once_in(2) { "POST" } else { random.pick(&METHODS) };
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    let media = random.pick(&MEDIA);
    head += &format!("content-type: {media}\r\n");
    head += &extra(random);
    let mut bytes = head.into_bytes();
    framed(random, &mut bytes);
    if random.once_in(4) {
        random.damage(&mut bytes);
    }
    Request { bytes, path }
}

/// Lines of a head that ask for something, or are too many or too long.
fn extra(random: &mut Random) -> String {
    let word = |random: &mut Random| text(random).replace(['\r', '\n'], "");
    let sockets = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
        sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-protocol: v4.channel.k8s.io\r\n";
    match random.below(10) {
        0 => sockets.to_owned(),
        1 => "connection: upgrade\r\nupgrade: SPDY/3.1\r\n".to_owned(),
        2 => format!("authorization: Bearer {}\r\n", word(random)),
        3 => format!("{}: {}\r\n", word(random), word(random)),
        4 => "x-many: y\r\n".repeat(1 << random.below(11)),
        5 => format!("x-long: {}\r\n", "z".repeat(1 << random.below(17))),
        6 => "impersonate-user: admin\r\nimpersonate-group: system:masters\r\n".to_owned(),
        7 => "x-forwarded-for: 127.0.0.1\r\nx-remote-user: admin\r\nx-remote-group: system:masters\r\n"
            .to_owned(),
        _ => String::new(),
    }
}

/// Appends the end of the head and a body: whole, chunked, of a wrong length, or never ending.
fn framed(random: &mut Random, bytes: &mut Vec<u8>) {
    let content = match random.below(6) {
        0 => Vec::new(),
        1 => {
            let length = 1 << random.below(18);
            random.bytes(length)
        }
        2 => "[".repeat(1 << random.below(17)).into_bytes(),
        _ => body(random).to_string().into_bytes(),
    };
    let length = content.len();
    let wrong =
        ["-1", "18446744073709551616", "9223372036854775807", "0x10", "1, 1", "4\r\ncontent-length: 5", ""];
    let chunks =
        ["0\r\n\r\n", "ffffffffffffffff\r\n", "-1\r\nx\r\n", "5;x=y\r\nhello\r\n0\r\na: b\r\n\r\n", "zz\r\n"];
    match random.below(8) {
        0 => bytes.extend(format!("content-length: {}\r\n\r\n", random.pick(&wrong)).bytes()),
        1 => bytes.extend(format!("content-length: {}\r\n\r\n", length * 2).bytes()),
        2 => {
            bytes.extend(b"transfer-encoding: chunked\r\n\r\n");
            bytes.extend(format!("{length:x}\r\n").bytes());
            bytes.extend(&content);
            bytes.extend(format!("\r\n{}", random.pick(&chunks)).bytes());
            return;
        }
        3 => bytes.extend(format!("transfer-encoding: chunked\r\ncontent-length: {length}\r\n\r\n").bytes()),
        _ => bytes.extend(format!("content-length: {length}\r\nconnection: close\r\n\r\n").bytes()),
    }
    bytes.extend(content);
}

/// A connection in HTTP/2: its preface and frames of all kinds, with noise in them.
pub fn frames(random: &mut Random) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    for _ in 0..1 << random.below(8) {
        let kind = random.next().to_be_bytes()[0] % 12;
        let flags = random.next().to_be_bytes()[0];
        let stream = u32::try_from(random.below(9)).unwrap_or_default();
        let length = random.below(64);
        let payload = match kind {
            // `:method GET`, `:scheme https`, `:path /`, and perhaps more.
            1 => [vec![0x82, 0x87, 0x84], random.bytes(length)].concat(),
            _ => random.bytes(length),
        };
        let size = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
        bytes.extend(size.iter().skip(1));
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_requests_are_well_formed_enough_to_be_read() {
        let mut random = Random::new(3);
        let whole = (0..1_000).filter(|_| {
            let request = request(&mut random);
            request.bytes.windows(4).any(|four| four == b"\r\n\r\n")
        });
        assert!(whole.count() > 800);
    }

    #[test]
    fn frames_have_their_lengths() {
        let bytes = frames(&mut Random::new(5));
        let mut rest = bytes.get(24..).unwrap_or_default();
        while let [a, b, c, _, _, _, _, _, _, after @ ..] = rest {
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            rest = after.get(length..).unwrap_or_default();
        }
        assert!(rest.is_empty());
    }
}
