//! The server by plain requests, and the page in a browser.

mod browser;
mod page;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use super::guard::Guard;
use super::{Shared, Token, listen, server};
use crate::live::model::Fleet;

/// A server with a fleet of its own, for as long as the process of the test lives.
pub(super) struct Served {
    pub(super) address: SocketAddr,
    pub(super) token: String,
    pub(super) shared: Arc<Shared>,
}

impl Served {
    pub(super) fn start(fleet: Fleet) -> Self {
        let listener = listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let (token, shared) = (Token::random().unwrap(), Shared::new(fleet));
        let text = token.text().to_owned();
        let (guard, served) = (Arc::new(Guard::new(address, token)), Arc::clone(&shared));
        std::thread::spawn(move || {
            let _ = crate::connect::block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                server::serve(listener, guard, served).await;
                Ok(())
            });
        });
        Self { address, token: text, shared }
    }

    pub(super) fn target(&self, path: &str) -> String {
        format!("{path}{}token={}", if path.contains('?') { '&' } else { '?' }, self.token)
    }

    /// Changes the fleet, and notifies the pages.
    pub(super) fn change(&self, change: impl FnOnce(&mut Fleet)) {
        self.shared.with(change);
        self.shared.notify();
    }

    fn open(&self, target: &str, host: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(neonvm_test_support::PATIENCE)).unwrap();
        write!(stream, "GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        stream
    }

    fn get(&self, target: &str) -> String {
        let mut text = String::new();
        self.open(target, &self.address.to_string()).read_to_string(&mut text).unwrap();
        text
    }
}

/// Reads until a text has come.
fn until(stream: &mut TcpStream, text: &str) -> String {
    let (mut all, mut block) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&all).contains(text) {
        let count = stream.read(&mut block).unwrap();
        assert!(count > 0, "no {text:?} in {:?}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&block[..count]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn the_page_may_request_nothing_from_elsewhere() {
    let served = Served::start(Fleet::default());
    for path in ["/", "/style.css", "/program.js", "/text.js", "/nodes.js", "/timelines.js"] {
        let answer = served.get(&served.target(path)).to_lowercase();
        assert!(answer.starts_with("http/1.1 200 ok\r\n"), "{path}: {answer}");
        assert!(answer.contains("content-security-policy: default-src 'none'; script-src 'self';"), "{path}");
        let addresses: Vec<&str> = answer.matches("http://").chain(answer.matches("https://")).collect();
        // The name of SVG's namespace is requested by no browser.
        assert_eq!(addresses.len(), usize::from(path == "/timelines.js"), "{path}");
        assert!(!answer.contains("innerhtml") && !answer.contains("eval("), "{path}");
    }
}

#[test]
fn strangers_get_no_data() {
    let served = Served::start(crate::live::tests::fixture::fleet());
    for path in ["/", "/events", "/why?namespace=default&name=pg"] {
        let answer = served.get(path);
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("open the URL that"), "{answer}");
        let mut text = String::new();
        served.open(&served.target(path), "rebound.example").read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 403 ") && text.contains("127.0.0.1 only"), "{text}");
    }
}

#[test]
fn a_stream_begins_with_the_history_and_goes_on_with_changes() {
    let served = Served::start(crate::live::tests::fixture::fleet());
    let mut stream = served.open(&served.target("/events"), &served.address.to_string());
    let first = until(&mut stream, "\"cluster\":\"dev\"");
    assert!(first.contains("retry: 500\n"), "{first}");
    let (history, state) = (first.find("event: history\n"), first.find("event: state\n"));
    assert!(history.is_some() && history < state, "{first}");
    served.change(|fleet| "other".clone_into(&mut fleet.cluster));
    until(&mut stream, "\"cluster\":\"other\"");
}

#[test]
fn a_vm_is_explained() {
    let served = Served::start(crate::live::tests::fixture::fleet());
    let answer = served.get(&served.target("/why?namespace=default&name=pg"));
    assert!(
        answer.contains("the scheduler permits 5 of 8 compute units") && answer.contains("node full"),
        "{answer}"
    );
    let answer = served.get(&served.target("/why?namespace=default&name=none"));
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}
