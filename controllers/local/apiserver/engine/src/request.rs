//! A request as the engine sees it: method, path, query, and what they mean.

use std::borrow::Cow;

use crate::context::User;
use crate::status::ApiError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
    Other,
}

impl Method {
    /// From its HTTP name; HEAD counts as GET.
    pub fn parse(name: &str) -> Self {
        match name {
            "GET" | "HEAD" => Self::Get,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            _ => Self::Other,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub method: Method,
    pub path: &'a str,
    pub query: &'a str,
    pub accept: &'a str,
    pub content_type: &'a str,
    pub user_agent: &'a str,
    pub body: &'a [u8],
    pub user: &'a User,
}

#[derive(Clone, Debug, Default)]
pub struct Query<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Query<'a> {
    pub fn parse(text: &'a str) -> Self {
        let pairs = text
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(key), decode(value))
            })
            .collect();
        Self { pairs }
    }

    pub fn text(&self, key: &str) -> &str {
        self.pairs.iter().find(|(k, _)| k == key).map_or("", |(_, value)| value)
    }

    pub fn all(&self, key: &str) -> Vec<&str> {
        self.pairs.iter().filter(|(k, _)| k == key).map(|(_, v)| v.as_ref()).collect()
    }

    pub fn has(&self, key: &str) -> bool {
        self.pairs.iter().any(|(k, _)| k == key)
    }

    /// A boolean parameter as Go parses it: present means true, unless the value is `false` or `0`.
    pub fn flag(&self, key: &str) -> bool {
        self.has(key) && !matches!(self.text(key), "false" | "0")
    }

    /// A whole number, if given.
    ///
    /// # Errors
    /// 400 if it is no number.
    pub fn number(&self, key: &str) -> Result<Option<i64>, ApiError> {
        let text = self.text(key);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse()
            .map(Some)
            .map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
    }
}

pub fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => match tail {
                [a, b, after @ ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                    bytes.push(hex(*a) * 16 + hex(*b));
                    rest = after;
                }
                _ => bytes.push(b'%'),
            },
            other => bytes.push(other),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        _ => 0,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// What follows the subresource (proxies).
    pub rest: String,
    /// The path itself requests a watch (`/api/v1/watch/…`), as old clients do.
    pub watch: bool,
}

impl Target {
    /// Reads a path; `None` if it is no resource path (discovery, health, …).
    pub fn parse(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let (group, version) = match parts.next()? {
            "api" => (String::new(), parts.next()?.to_owned()),
            "apis" => (parts.next()?.to_owned(), parts.next()?.to_owned()),
            _ => return None,
        };
        let mut parts: Vec<Cow<'_, str>> = parts.map(decode_path).collect();
        let watch = parts.len() > 1 && parts.first().is_some_and(|part| part == "watch");
        if watch {
            parts.remove(0);
        }
        let text = |at: usize| parts.get(at).map(|p| p.clone().into_owned()).unwrap_or_default();
        let mut target = Self { group, version, watch, ..Self::default() };
        match parts.first()?.as_ref() {
            "" => return None,
            // `namespaces/x`, and its subresources, name the namespace itself.
            "namespaces" if parts.len() <= 2 || matches!(text(2).as_str(), "status" | "finalize") => {
                target.resource = "namespaces".into();
                target.name = text(1);
                target.namespace.clone_from(&target.name);
                target.subresource = text(2);
            }
            "namespaces" => {
                target.namespace = text(1);
                target.resource = text(2);
                target.name = text(3);
                target.subresource = text(4);
                target.rest = parts.iter().skip(5).map(AsRef::as_ref).collect::<Vec<_>>().join("/");
            }
            _ => {
                target.resource = text(0);
                target.name = text(1);
                target.subresource = text(2);
                target.rest = parts.iter().skip(3).map(AsRef::as_ref).collect::<Vec<_>>().join("/");
            }
        }
        Some(target)
    }

    pub fn verb(&self, method: Method, watch: bool) -> &'static str {
        match (method, self.name.is_empty()) {
            (Method::Get, true) if watch => "watch",
            (Method::Get, true) => "list",
            (Method::Get, false) => "get",
            (Method::Post, _) => "create",
            (Method::Put, _) => "update",
            (Method::Patch, _) => "patch",
            (Method::Delete, true) => "deletecollection",
            (Method::Delete, false) => "delete",
            (Method::Other, _) => "",
        }
    }
}

/// Percent-decodes a path segment, where `+` stands for itself.
fn decode_path(text: &str) -> Cow<'_, str> {
    if text.contains('%') {
        Cow::Owned(decode(&text.replace('+', "%2B")).into_owned())
    } else {
        Cow::Borrowed(text)
    }
}
