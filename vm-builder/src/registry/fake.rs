//! A registry on loopback with configurable faults.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::reference::Reference;
use crate::store::{BlobContent, Image};

/// What goes wrong with one answer.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The connection is closed after so many bytes of the body.
    Drop(usize),
    /// The body ends after so many bytes, as if that were all.
    Short(usize),
    /// So many zeros after the body.
    Long(usize),
    /// One byte of the body is another.
    Wrong,
    /// Nothing comes after so many bytes.
    Stall(usize),
    /// One byte after another, with so long a pause between them.
    Drip(Duration),
    /// Another answer, with `Retry-After` in seconds.
    Status(u16, Option<u64>),
    /// `Range` is ignored.
    Whole,
    /// A body without a length that ends after so many bytes.
    Unsized(usize),
    Redirect(String),
}

#[derive(Default)]
pub(crate) struct State {
    /// Content type and bytes by path.
    pub(crate) routes: BTreeMap<String, (String, Vec<u8>)>,
    /// Faults for the next requests with this text in their path.
    pub(crate) faults: VecDeque<(String, Fault)>,
    /// Requests: method, path, and `Range`.
    pub(crate) log: Vec<String>,
    /// User and password; with the name of the way they are requested: `basic`, `bearer`, `identity`.
    pub(crate) login: Option<(&'static str, String)>,
}

/// A registry; it ends with its listener when it is dropped.
pub(crate) struct Fake {
    pub(crate) address: String,
    pub(crate) state: Arc<Mutex<State>>,
}

impl Fake {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let fake = Self { address: address.clone(), state: Arc::clone(&state) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // The owner knocks when it goes.
                if Arc::strong_count(&state) == 1 {
                    return;
                }
                let (state, address) = (Arc::clone(&state), address.clone());
                std::thread::spawn(move || {
                    let _ = answer(stream, &state, &address);
                });
            }
        });
        fake
    }

    pub(crate) fn add(&self, repository: &str, tag: &str, image: &Image) -> Reference {
        let mut state = self.state.lock().unwrap();
        let manifest = (image.media_type.clone(), image.manifest.clone());
        for target in [tag.to_owned(), image.digest().to_string()] {
            state.routes.insert(format!("/v2/{repository}/manifests/{target}"), manifest.clone());
        }
        for blob in image.layers.iter().chain([&image.config]) {
            let BlobContent::Bytes(bytes) = &blob.content else { panic!("bytes only") };
            let path = format!("/v2/{repository}/blobs/{}", blob.descriptor.digest);
            state.routes.insert(path, ("application/octet-stream".into(), bytes.clone()));
        }
        format!("{}/{repository}:{tag}", self.address).parse().unwrap()
    }

    pub(crate) fn fault(&self, path: impl Into<String>, fault: Fault) {
        self.state.lock().unwrap().faults.push_back((path.into(), fault));
    }

    pub(crate) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.state = Arc::default();
        let _ = TcpStream::connect(&self.address);
    }
}

struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut parts = line.split(' ');
    let (method, path) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path, headers, body })
}

fn answer(stream: TcpStream, state: &Mutex<State>, address: &str) -> std::io::Result<()> {
    let Some(request) = read(&stream) else { return Ok(()) };
    let (path, fault, route, refused) = {
        let mut state = state.lock().unwrap();
        let range = request.headers.get("range").map(|range| format!(" {range}")).unwrap_or_default();
        state.log.push(format!("{} {}{range}", request.method, request.path));
        let path = request.path.split('?').next().unwrap_or_default().to_owned();
        let position = state.faults.iter().position(|(part, _)| path.contains(part.as_str()));
        let fault = position.and_then(|position| state.faults.remove(position)).map(|(_, fault)| fault);
        let refused = login(&state, &request, address);
        (path.clone(), fault, state.routes.get(&path).cloned(), refused)
    };
    if path == "/token" {
        return token(stream, state, &request);
    }
    if let Some(challenge) = refused {
        return reply(
            stream,
            401,
            &[("WWW-Authenticate", &challenge)],
            br#"{"errors":[{"code":"UNAUTHORIZED"}]}"#,
        );
    }
    if path == "/v2/" {
        return reply(stream, 200, &[], b"{}");
    }
    let Some((content_type, body)) = route else {
        let repository = ["/manifests/", "/blobs/", "/tags/"]
            .iter()
            .find_map(|part| path.split_once(part))
            .map(|(repository, _)| format!("{repository}/"));
        let state = state.lock().unwrap();
        let known = repository.is_some_and(|part| state.routes.keys().any(|key| key.starts_with(&part)));
        drop(state);
        let code = if known { "MANIFEST_UNKNOWN" } else { "NAME_UNKNOWN" };
        let body = format!(r#"{{"errors":[{{"code":"{code}","message":"not here"}}]}}"#);
        return reply(stream, 404, &[], body.as_bytes());
    };
    serve(stream, &request, &content_type, body, fault)
}

fn serve(
    mut stream: TcpStream,
    request: &Request,
    content_type: &str,
    mut body: Vec<u8>,
    fault: Option<Fault>,
) -> std::io::Result<()> {
    let total = body.len();
    let start = request.headers.get("range").filter(|_| !matches!(fault, Some(Fault::Whole)));
    let start =
        start.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let status = if start.is_some() { 206 } else { 200 };
    let range = start.map(|start| format!("bytes {start}-{}/{total}", total - 1)).unwrap_or_default();
    body.drain(..start.unwrap_or(0));
    let mut length = body.len();
    match fault {
        Some(Fault::Status(status, wait)) => {
            let wait = wait.map(|wait| wait.to_string()).unwrap_or_default();
            return reply(
                stream,
                status,
                &[("Retry-After", &wait)],
                br#"{"errors":[{"code":"X","message":"busy"}]}"#,
            );
        }
        Some(Fault::Redirect(to)) => return reply(stream, 307, &[("Location", &to)], b""),
        Some(Fault::Unsized(count)) => {
            write!(stream, "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Range: {range}\r\n\r\n")?;
            return stream.write_all(&body[..count.min(body.len())]);
        }
        Some(Fault::Wrong) => {
            let middle = body.len() / 2;
            body[middle] ^= 1;
        }
        Some(Fault::Short(count)) => {
            body.truncate(count);
            length = count;
        }
        Some(Fault::Long(count)) => {
            body.resize(body.len() + count, 0);
            length = body.len();
        }
        _ => {}
    }
    write!(
        stream,
        "HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n"
    )?;
    if status == 206 {
        write!(stream, "Content-Range: {range}\r\n")?;
    }
    write!(stream, "\r\n")?;
    if request.method == "HEAD" {
        return Ok(());
    }
    match fault {
        Some(Fault::Drop(count)) => stream.write_all(&body[..count.min(body.len())]),
        Some(Fault::Drip(pause)) => body.iter().try_for_each(|byte| {
            std::thread::sleep(pause);
            stream.write_all(std::slice::from_ref(byte))
        }),
        Some(Fault::Stall(count)) => {
            stream.write_all(&body[..count.min(body.len())])?;
            // Until the other side closes the connection.
            stream.read(&mut [0]).map(|_| ())
        }
        _ => stream.write_all(&body),
    }
}

fn reply(mut stream: TcpStream, status: u16, headers: &[(&str, &str)], body: &[u8]) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n", body.len())?;
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        write!(stream, "{name}: {value}\r\n")?;
    }
    stream.write_all(b"\r\n")?;
    stream.write_all(body)
}

/// The challenge, if a login is wanted and not given.
fn login(state: &State, request: &Request, address: &str) -> Option<String> {
    let (kind, basic) = state.login.as_ref()?;
    let given = request.headers.get("authorization").map(String::as_str).unwrap_or_default();
    match *kind {
        "basic" if given == format!("Basic {basic}") => None,
        "basic" => Some(r#"Basic realm="x""#.into()),
        _ if given == "Bearer good" => None,
        _ => Some(format!(
            r#"Bearer realm="http://{address}/token",service="fake",scope="repository:a/b:pull""#
        )),
    }
}

fn token(stream: TcpStream, state: &Mutex<State>, request: &Request) -> std::io::Result<()> {
    let login = state.lock().unwrap().login.clone();
    let Some((kind, secret)) = login else { return reply(stream, 404, &[], b"") };
    let given = request.headers.get("authorization").map(String::as_str).unwrap_or_default();
    let form = String::from_utf8_lossy(&request.body).into_owned();
    let good = match kind {
        "identity" => request.method == "POST" && form.contains(&format!("refresh_token={secret}")),
        _ => given == format!("Basic {secret}") && request.path.contains("scope=repository%3Aa%2Fb%3Apull"),
    };
    if good {
        return reply(stream, 200, &[], br#"{"access_token":"good","expires_in":60}"#);
    }
    reply(stream, 401, &[], br#"{"errors":[{"code":"DENIED","message":"who are you"}]}"#)
}
