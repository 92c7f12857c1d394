//! A mirror on the loopback interface.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use sha2::{Digest as _, Sha256};

use super::*;
use crate::Silent;

/// A mirror that returns this to every request.
fn serve(response: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> =
                lines.map_while(|line| line.ok().filter(|line| !line.is_empty())).collect();
            assert!(head.first().is_some_and(|line| line.starts_with("GET /debian/")), "{head:?}");
            // A client that has enough closes the connection.
            let _ = stream.write_all(&response);
        }
    });
    format!("http://{address}/debian/")
}

/// A response with this content, which may be shorter than its head has it.
fn response(size: usize, content: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n");
    [head.as_bytes(), content].concat()
}

fn pinned(content: &[u8]) -> Pinned {
    let hash: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    Pinned {
        version: "6.12.1-1",
        path: "pool/linux.deb",
        size: content.len() as u64,
        sha256: Box::leak(hash.into_boxed_str()),
    }
}

fn downloaded(mirror: &str, kernel: &Pinned) -> Result<Vec<u8>, String> {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("a.deb");
    download(mirror, kernel, &to, &Silent).map_err(|error| {
        assert!(error.hint().is_some(), "{error}");
        error.to_string()
    })?;
    Ok(std::fs::read(to).unwrap())
}

#[test]
fn a_file_is_taken_if_it_is_the_known_one() {
    let content = vec![7; 300_000];
    let kernel = pinned(&content);
    assert_eq!(downloaded(&serve(response(300_000, &content)), &kernel).unwrap(), content);
    // Without a length it ends with the connection.
    let bare = [b"HTTP/1.0 200 OK\r\n\r\n".as_slice(), &content].concat();
    assert_eq!(downloaded(&serve(bare), &kernel).unwrap(), content);
}

#[test]
fn other_files_and_other_answers_are_refused() {
    let content = vec![7; 300_000];
    let kernel = pinned(&content);
    let refused = |response: Vec<u8>| downloaded(&serve(response), &kernel).unwrap_err();
    let mut changed = content.clone();
    changed[100] ^= 1;
    let error = refused(response(300_000, &changed));
    assert!(
        error.contains("/debian/pool/linux.deb has SHA-256 ") && error.ends_with(kernel.sha256),
        "{error}"
    );
    let error = refused(response(300_000, &content[..1000]));
    assert!(error.starts_with("cannot download http://127.0.0.1:"), "{error}");
    let bare = [b"HTTP/1.0 200 OK\r\n\r\n".as_slice(), &content[..1000]].concat();
    assert!(refused(bare).ends_with("it ended after 1000 of 300000 bytes"));
    let longer = [content.as_slice(), b"x"].concat();
    assert!(refused(response(300_001, &longer)).ends_with("it has more than the expected 300000 bytes"));
    let missing = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec();
    assert!(refused(missing).ends_with("the mirror returned 404 Not Found"));
    assert!(refused(b"nonsense\r\n\r\n".to_vec()).starts_with("cannot download "));
    let error = downloaded("ftp://127.0.0.1/debian", &kernel).unwrap_err();
    assert!(error.starts_with("cannot download ftp://127.0.0.1/debian/pool/linux.deb: "), "{error}");
    assert!(downloaded("no address", &kernel).is_err());
}

#[test]
fn a_stop_ends_a_mirror_that_is_silent() {
    static STOP: AtomicBool = AtomicBool::new(false);
    // The head and half of the content: then nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/debian/linux.deb", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&response(7, b"con")).unwrap();
        STOP.store(true, Ordering::SeqCst);
        // Until the client closes.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let directory = tempfile::tempdir().unwrap();
    let request = Request { url: &url, size: 7, stop: &STOP };
    let error = request.run(&directory.path().join("a.deb"), &Silent).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
}

#[test]
fn versions_are_whole_or_series() {
    let version = |wanted| Pinned::of_version(wanted).map(|pinned| pinned.version);
    assert_eq!(version(None).unwrap(), PINNED[0].version);
    for pinned in PINNED {
        assert_eq!(version(Some(pinned.version)).unwrap(), pinned.version);
        assert!(pinned.file().ends_with(&format!("-cloud-amd64_{}_amd64.deb", pinned.version)));
        assert!(pinned.sha256.len() == 64 && pinned.sha256.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
    assert!(version(Some("6.12")).unwrap().starts_with("6.12."));
    assert!(version(Some("6.1")).unwrap().starts_with("6.1."));
    for unknown in ["6.12.11", "6.1-", "5.10", ""] {
        assert!(version(Some(unknown)).is_err(), "{unknown}");
    }
    let error = version(Some("5.10")).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "no kernel of version \"5.10\" is known; known: {}, {}",
            PINNED[0].version, PINNED[1].version
        )
    );
}
