//! `dashboard`: the live view as a web page on loopback, with the caller's own rights.
//!
//! The page is three files within this program. Its data come as server-sent events from the same model as `top`.

mod guard;
mod server;

use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use guard::Guard;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior};

use super::job::Stop;
use super::live::{Feed, now};
use crate::args::Dashboard as Args;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::live::input::Input;
use crate::live::model::Fleet;
use crate::report::{API_VERSION, Document, Report};
use crate::settings::Settings;

/// Least time between two states that are sent.
const PACE: Duration = Duration::from_millis(500);
/// Time between two looks at the clock.
const CLOCK: Duration = Duration::from_secs(1);

/// The fleet, and the number of states that pages were notified of.
pub(super) struct Shared {
    fleet: Mutex<Fleet>,
    changed: tokio::sync::watch::Sender<u64>,
}

impl Shared {
    fn new(fleet: Fleet) -> Arc<Self> {
        Arc::new(Self { fleet: Mutex::new(fleet), changed: tokio::sync::watch::Sender::new(0) })
    }

    fn with<T>(&self, look: impl FnOnce(&mut Fleet) -> T) -> T {
        look(&mut self.fleet.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn notify(&self) {
        self.changed.send_modify(|state| *state = state.wrapping_add(1));
    }
}

pub(super) fn run(settings: &Settings, args: &Args) -> Result<Report> {
    let listener = listen(args.port)?;
    let address = listener.local_addr().map_err(|error| unusable(args.port, &error))?;
    let token = Token::random()?;
    let url = format!("http://{address}/?token={}", token.text());
    let guard = Guard::new(address, token);
    let (opened, open) = std::sync::mpsc::channel();
    let (settings, live) = (settings.clone(), args.live.clone());
    let server = std::thread::spawn(move || {
        block_on(async {
            let (feed, fleet) = match Feed::open(&settings, &live).await {
                Ok(open) => open,
                Err(error) => {
                    let _ = opened.send(Err(error));
                    return Ok(());
                }
            };
            let _ = opened.send(Ok(()));
            serve(listener, guard, feed, Shared::new(fleet)).await
        })
    });
    // What fails at once is an error as elsewhere.
    open.recv().unwrap_or_else(|_| Err(Error::new(Code::Failed, "cannot start the server")))?;
    let then = move || match server.join() {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.code.number(),
        Err(_) => Code::Failed.number(),
    };
    let note = "open the URL in a browser on this host; Ctrl-C ends it";
    Ok(Report { then: Some(Box::new(then)), ..Report::document(document(&url)).note(note) })
}

fn document(url: &str) -> Document {
    Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "Dashboard", "url": url }),
        names: vec!["dashboard".to_owned()],
        text: Some(url.to_owned()),
        columns: vec![crate::report::left("URL")],
        rows: vec![vec![url.to_owned()]],
    }
}

fn listen(port: u16) -> Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| unusable(port, &error))?;
    listener.set_nonblocking(true).map_err(|error| unusable(port, &error))?;
    Ok(listener)
}

fn unusable(port: u16, error: &std::io::Error) -> Error {
    Error::new(Code::Conflict, format!("cannot listen on 127.0.0.1:{port}"))
        .cause(crate::error::reason(error))
        .hint("choose another port with --port, or omit it for one that is free")
}

/// Takes in inputs and answers requests until the process is interrupted.
async fn serve(listener: TcpListener, guard: Guard, mut feed: Feed, shared: Arc<Shared>) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)
        .map_err(|error| Error::new(Code::Failed, "cannot serve").cause(crate::error::reason(&error)))?;
    let mut stop = Stop::listen()?;
    tokio::select! {
        () = stop.requested() => {}
        () = take_in(&mut feed, &shared) => {}
        () = server::serve(listener, Arc::new(guard), Arc::clone(&shared)) => {}
    }
    Ok(())
}

#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Event {
    Input(Option<Input>),
    Clock,
    Due,
}

async fn take_in(feed: &mut Feed, shared: &Shared) {
    let mut clock = tokio::time::interval(CLOCK);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut sent, mut changed) = (Instant::now(), false);
    loop {
        let event = tokio::select! {
            () = tokio::time::sleep_until(sent + PACE), if changed => Event::Due,
            input = feed.next() => Event::Input(input),
            _ = clock.tick() => Event::Clock,
        };
        match event {
            Event::Input(None) => return,
            Event::Input(Some(input)) => {
                shared.with(|fleet| feed.apply(fleet, input));
                changed = true;
            }
            Event::Clock => {
                shared.with(|fleet| fleet.tick(now()));
                changed = true;
            }
            Event::Due => {
                shared.notify();
                (sent, changed) = (Instant::now(), false);
            }
        }
    }
}

/// Random bytes of a token.
const BYTES: usize = 24;

struct Token(String);

impl Token {
    /// A new one.
    fn random() -> Result<Self> {
        let mut bytes = [0; BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| Error::new(Code::Failed, "no random numbers"))?;
        let mut text = String::with_capacity(2 * BYTES);
        for byte in bytes {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }

    /// As it is written.
    fn text(&self) -> &str {
        &self.0
    }

    /// Whether a text is this token. How long it takes does not depend on how many characters are right.
    fn is(&self, text: &str) -> bool {
        let pairs = self.0.bytes().zip(text.bytes());
        let differing = pairs.fold(0, |differing, (one, other)| differing | (one ^ other));
        self.0.len() == text.len() && differing == 0
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod token_tests {
    use super::*;

    #[test]
    fn tokens_are_long_and_differ() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(one.text().len(), 2 * BYTES);
        assert!(one.is(one.text()) && !one.is(other.text()));
        assert!(!one.is("") && !one.is(&one.text()[1..]) && !one.is(&format!("{}0", one.text())));
    }
}
