//! The status document: what the guest program is and how the workload fares.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::{Map, Value, json};

/// Where init keeps the state of the workload.
pub const STATUS_FILE: &str = "run/neonvm/status.json";
/// More of it is not read.
const LARGEST: u64 = 64 * 1024;

pub(super) fn document(root: &Path) -> String {
    let uptime = crate::metrics::read(&root.join("proc/uptime"));
    render(uptime_ms(&uptime), &init_status(&root.join(STATUS_FILE)).unwrap_or_default())
}

/// An object with a key `workload` gives its keys to the document; any other object is the workload.
fn render(uptime: Option<u64>, init: &[u8]) -> String {
    let mut document = match serde_json::from_slice(init) {
        Ok(Value::Object(status)) if status.contains_key("workload") => status,
        Ok(workload @ Value::Object(_)) => Map::from_iter([("workload".to_owned(), workload)]),
        _ => Map::from_iter([("workload".to_owned(), Value::Null)]),
    };
    document.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    document.insert("protocolVersions".into(), json!({ "daemon": [1] }));
    document.insert("uptimeMs".into(), json!(uptime));
    Value::Object(document).to_string()
}

fn init_status(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(LARGEST).read_to_end(&mut content)?;
    Ok(content)
}

/// `/proc/uptime` has seconds with two decimal places.
fn uptime_ms(text: &str) -> Option<u64> {
    let (seconds, hundredths) = text.split_ascii_whitespace().next()?.split_once('.')?;
    let hundredths: u64 = hundredths.parse().ok().filter(|_| hundredths.len() == 2)?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(hundredths * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workload_is_shown_as_init_reports_it() {
        let text = render(uptime_ms("12.34 40.00\n"), br#"{"state":"running","pid":7}"#);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["uptimeMs"], 12_340);
        assert_eq!(value["workload"]["pid"], 7);
        assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
        let value: Value = serde_json::from_str(&render(None, br#"{"workload":{"pid":8}}"#)).unwrap();
        assert_eq!(value["workload"]["pid"], 8);
    }

    #[test]
    fn a_broken_file_is_no_workload() {
        for text in [&b""[..], b"{", b"[]", b"\xff"] {
            let value: Value = serde_json::from_str(&render(None, text)).unwrap();
            assert_eq!(value["workload"], Value::Null);
        }
        assert_eq!(uptime_ms(""), None);
        assert_eq!(uptime_ms("99999999999999999999.00"), None);
    }
}
