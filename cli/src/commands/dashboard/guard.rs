//! Which requests are answered. Pure.
//!
//! A page of another site can let the browser send requests to loopback. It does not know the token. With a name of its own that
//! resolves to 127.0.0.1 (DNS rebinding) it would be of the same origin, but the browser then sends that name as `Host`, which is
//! refused.

use std::net::SocketAddr;

use http::request::Parts;
use http::{Method, StatusCode, header};

use super::Token;
use crate::live::input::Key;

/// Files of the page, which hold no data.
pub(super) const FILES: [&str; 5] = ["style.css", "program.js", "text.js", "nodes.js", "timelines.js"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Page,
    /// A file of the page: its style, or a part of its program.
    File(&'static str),
    Events,
    Why(Key),
}

/// Why a request is refused, with what helps.
pub(super) type Refused = (StatusCode, &'static str);

pub(super) struct Guard {
    hosts: [String; 2],
    token: Token,
}

impl Guard {
    pub(super) fn new(address: SocketAddr, token: Token) -> Self {
        Self { hosts: [address.to_string(), format!("localhost:{}", address.port())], token }
    }

    /// What is wanted, if it may be answered. Files hold no data and need no token.
    pub(super) fn admit(&self, request: &Parts) -> Result<Wanted, Refused> {
        let host = request.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if !self.hosts.iter().any(|own| own == host) {
            return Err((StatusCode::FORBIDDEN, "this server is reached as 127.0.0.1 only"));
        }
        if request.method != Method::GET {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "only GET is answered"));
        }
        let query = request.uri.query().unwrap_or_default();
        if let Some(name) = FILES.iter().find(|name| request.uri.path().strip_prefix('/') == Some(**name)) {
            return Ok(Wanted::File(name));
        }
        let wanted = match request.uri.path() {
            "/" => Wanted::Page,
            "/events" => Wanted::Events,
            "/why" => Wanted::Why(Key::new(value(query, "namespace"), value(query, "name"))),
            _ => return Err((StatusCode::NOT_FOUND, "there is nothing here")),
        };
        if self.token.is(&value(query, "token")) {
            Ok(wanted)
        } else {
            Err((
                StatusCode::FORBIDDEN,
                "the token is missing or wrong: open the URL that neonctl dashboard printed",
            ))
        }
    }
}

/// A value of a query; empty if it is not there.
fn value(query: &str, name: &str) -> String {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next().unwrap_or_default()
}

/// Without percent signs; what is no such encoding stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let code = more.get(..2).filter(|code| code.iter().all(u8::is_ascii_hexdigit));
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok()).filter(|_| *first == b'%');
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { more.get(2..).unwrap_or_default() } else { more };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(guard: &Guard, method: &str, host: &str, target: &str) -> Result<Wanted, StatusCode> {
        let request = http::Request::builder().method(method).uri(target).header("host", host);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        guard.admit(&parts).map_err(|(status, _)| status)
    }

    #[test]
    fn data_need_the_token_and_the_address() {
        let token = Token::random().unwrap();
        let text = token.text().to_owned();
        let guard = Guard::new("127.0.0.1:8080".parse().unwrap(), token);
        let own = |target: &str| ask(&guard, "GET", "127.0.0.1:8080", target);
        assert_eq!(own(&format!("/?token={text}")), Ok(Wanted::Page));
        assert_eq!(own(&format!("/events?x=1&token={text}")), Ok(Wanted::Events));
        assert_eq!(
            own(&format!("/why?token={text}&namespace=a%2Fb&name=%")),
            Ok(Wanted::Why(Key::new("a/b", "%")))
        );
        assert_eq!(
            (own("/style.css"), own("/text.js")),
            (Ok(Wanted::File("style.css")), Ok(Wanted::File("text.js")))
        );
        for bad in [
            "/",
            "/events",
            "/events?token=",
            "/why?token=x",
            &format!("/?token={text}0"),
            &format!("/?xtoken={text}"),
        ] {
            assert_eq!(own(bad), Err(StatusCode::FORBIDDEN), "{bad}");
        }
        assert_eq!(own("/../etc/passwd"), Err(StatusCode::NOT_FOUND));
        let page = format!("/?token={text}");
        assert_eq!(ask(&guard, "GET", "localhost:8080", &page), Ok(Wanted::Page));
        for host in ["", "127.0.0.1", "127.0.0.1:80", "evil.example:8080", "127.0.0.1:8080.evil.example"] {
            assert_eq!(ask(&guard, "GET", host, &page), Err(StatusCode::FORBIDDEN), "{host}");
        }
        assert_eq!(ask(&guard, "POST", "127.0.0.1:8080", &page), Err(StatusCode::METHOD_NOT_ALLOWED));
    }

    #[test]
    fn encodings_that_are_none_stay() {
        for (text, plain) in
            [("a%20b", "a b"), ("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("%+1", "%+1"), ("%ff", "\u{fffd}")]
        {
            assert_eq!(decoded(text), plain);
        }
    }
}
