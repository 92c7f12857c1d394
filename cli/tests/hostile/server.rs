//! A hostile API server: every text that it may choose steers a terminal.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::objects;

/// Sets a title, reads a status back, clears, overwrites, reorders; with and without the bytes that introduce it.
pub(crate) const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}6n\r\u{8}\u{7f}\u{90}x\u{9c}\u{202e}fdp\u{2066}.\u{2028}\u{2029}\u{85}\u{c}\u{0}";

/// What the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Objects whose texts are hostile.
    Objects,
    /// A refusal in Kubernetes' form.
    Refuses,
    /// Something that is not JSON.
    Garbage,
}

/// A server for as long as the process of the test lives; returns its port.
pub(crate) fn start(manner: Manner) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream, manner));
        }
    });
    port
}

fn serve(stream: TcpStream, manner: Manner) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).ok()?;
    let target = first.split(' ').nth(1)?;
    match manner {
        Manner::Refuses => {
            let status = json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
                "message": format!("no{HOSTILE}\nerror: two lines") });
            answer(stream, "403 Forbidden", status.to_string().as_bytes())
        }
        Manner::Garbage => answer(stream, "400 Bad Request", format!("<{HOSTILE}>\n").as_bytes()),
        Manner::Objects => objects_at(stream, target, first.starts_with("POST ")),
    }
}

fn objects_at(mut stream: TcpStream, target: &str, is_new: bool) -> Option<()> {
    let path = target.split('?').next()?;
    if path.ends_with("/log") {
        let lines = ["serial", "guest", "qemu", "runner"].map(|source| {
            format!("2026-01-01T00:00:00.123456789Z {source}| a{HOSTILE}\n2026-01-01T00:00:01.123456789Z {HOSTILE}\n")
        });
        return answer(stream, "200 OK", lines.concat().as_bytes());
    }
    if path == "/version" {
        let version = json!({ "major": "1", "minor": "36", "gitVersion": format!("v1{HOSTILE}"), "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "" });
        return answer(stream, "200 OK", version.to_string().as_bytes());
    }
    let words: Vec<&str> = path.trim_matches('/').split('/').collect();
    let Some((at, object)) =
        words.iter().enumerate().find_map(|(at, word)| Some((at, objects::named(word)?)))
    else {
        return answer(
            stream,
            "404 Not Found",
            json!({ "kind": "Status", "code": 404, "message": HOSTILE, "reason": "NotFound" })
                .to_string()
                .as_bytes(),
        );
    };
    let is_list = at + 1 == words.len();
    if is_list && target.contains("watch=") {
        let event = json!({ "type": "MODIFIED", "object": object }).to_string() + "\n";
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
            )
            .ok()?;
        write!(stream, "{:x}\r\n{event}\r\n", event.len()).ok()?;
        stream.flush().ok()?;
        // Goes on until the client has seen enough.
        return stream.read(&mut [0; 1]).ok().map(drop);
    }
    let body = if is_list && !is_new {
        let version = object.get("apiVersion").cloned().unwrap_or(Value::Null);
        json!({ "apiVersion": version, "kind": "List", "metadata": { "resourceVersion": "1" }, "items": [object] })
    } else {
        object
    };
    answer(stream, "200 OK", body.to_string().as_bytes())
}

fn answer(mut stream: TcpStream, status: &str, body: &[u8]) -> Option<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()
}
