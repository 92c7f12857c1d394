//! Messages.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::error::QmpError;
use crate::installation::Version;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Name, such as `SHUTDOWN`.
    pub name: String,
    /// QEMU's data about it.
    pub data: Map<String, Value>,
}

impl Event {
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.data.get(key).and_then(Value::as_str)
    }

    /// A number of the data.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        self.data.get(key).and_then(Value::as_u64)
    }

    #[must_use]
    pub fn truth(&self, key: &str) -> Option<bool> {
        self.data.get(key).and_then(Value::as_bool)
    }
}

/// First words of a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    pub version: Version,
}

/// What a line holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    Greeting(Greeting),
    Event(Event),
    Answer { id: Option<u64>, result: Result<Value, Refusal> },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    pub(super) class: String,
    pub(super) desc: String,
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "QMP")]
    greeting: Option<Value>,
    event: Option<String>,
    #[serde(default)]
    data: Map<String, Value>,
    #[serde(rename = "return", default, deserialize_with = "present")]
    result: Option<Value>,
    error: Option<Refusal>,
    #[serde(default)]
    id: Value,
}

/// `null` is a result as well.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

pub(super) fn parse(line: &[u8]) -> Result<Message, QmpError> {
    let garbage = || QmpError::Garbage(excerpt(line));
    let read: Line = serde_json::from_slice(line).map_err(|_| garbage())?;
    if let Some(greeting) = read.greeting {
        return Ok(Message::Greeting(Greeting { version: version(&greeting) }));
    }
    if let Some(name) = read.event {
        return Ok(Message::Event(Event { name, data: read.data }));
    }
    let id = read.id.as_u64();
    match (read.result, read.error) {
        (_, Some(refusal)) => Ok(Message::Answer { id, result: Err(refusal) }),
        (Some(result), None) => Ok(Message::Answer { id, result: Ok(result) }),
        (None, None) => Err(garbage()),
    }
}

fn version(greeting: &Value) -> Version {
    let number = |name: &str| {
        let value = greeting.pointer(&format!("/version/qemu/{name}")).and_then(Value::as_u64);
        value.and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
    };
    Version { major: number("major"), minor: number("minor"), micro: number("micro") }
}

pub(super) fn render(id: u64, command: &str, arguments: &Value) -> Vec<u8> {
    let mut message = json!({"execute": command, "id": id});
    if !arguments.is_null()
        && let Some(map) = message.as_object_mut()
    {
        map.insert("arguments".to_owned(), arguments.clone());
    }
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// The beginning of a line, fit to be shown.
pub(super) fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().take(120).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_are_distinguished() {
        let greeting = br#"{"QMP":{"version":{"qemu":{"micro":22,"minor":2,"major":7},"package":"x"},"capabilities":["oob"]}}"#;
        let version = Version { major: 7, minor: 2, micro: 22 };
        assert_eq!(parse(greeting), Ok(Message::Greeting(Greeting { version })));
        let event = parse(br#"{"timestamp":{"seconds":1,"microseconds":2},"event":"STOP"}"#).unwrap();
        assert_eq!(event, Message::Event(Event { name: "STOP".into(), data: Map::new() }));
        assert_eq!(
            parse(br#"{"return":{},"id":7}"#),
            Ok(Message::Answer { id: Some(7), result: Ok(json!({})) })
        );
        assert_eq!(
            parse(br#"{"return":null,"id":7}"#),
            Ok(Message::Answer { id: Some(7), result: Ok(Value::Null) })
        );
        let refusal = Refusal { class: "GenericError".into(), desc: "no".into() };
        assert_eq!(
            parse(br#"{"id":1,"error":{"class":"GenericError","desc":"no"}}"#),
            Ok(Message::Answer { id: Some(1), result: Err(refusal) })
        );
        assert!(matches!(parse(b"{}"), Err(QmpError::Garbage(_))));
        assert!(matches!(parse(b"(qemu) "), Err(QmpError::Garbage(text)) if text == "(qemu) "));
    }

    #[test]
    fn commands_are_lines() {
        assert_eq!(render(3, "cont", &Value::Null), b"{\"execute\":\"cont\",\"id\":3}\n");
        let line = String::from_utf8(render(4, "qom-get", &json!({"path": "a\nb"}))).unwrap();
        assert_eq!(line.matches('\n').count(), 1);
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line: Vec<u8>) {
            let _ = parse(&line);
        }
    }
}
