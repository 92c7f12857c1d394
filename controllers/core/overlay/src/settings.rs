//! Which addresses there are to give: IPAM settings as upstream keeps them in the `spec.config` of a network attachment.

use std::net::IpAddr;

use neonvm_api::overlay::{FIRST_VM_ADDRESS, NETWORK, RANGE};
use neonvm_types::objects;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::net::{Family, Net, number};

/// Bits of a slice: a pool holds 256 addresses, so that it stays a small object however large the range is.
const SLICE_BITS: u8 = 8;

/// Why settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Not the JSON that is expected.
    #[error("the IPAM settings cannot be read: {0}")]
    Json(String),
    /// A value cannot be used.
    #[error("IPAM settings: {field}: {message}")]
    Value {
        field: String,
        /// Why the field is invalid.
        message: String,
    },
}

fn wrong(field: impl Into<String>, message: impl Into<String>) -> SettingsError {
    SettingsError::Value { field: field.into(), message: message.into() }
}

/// Addresses to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    net: Net,
    first: u128,
    last: u128,
    exclude: Vec<Net>,
}

impl Range {
    /// The network; its mask is that of the addresses.
    #[must_use]
    pub const fn net(&self) -> Net {
        self.net
    }

    /// Number of the first address.
    pub(crate) const fn first(&self) -> u128 {
        self.first
    }

    /// Whether an address may be given.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let at = number(address);
        self.net.contains(address)
            && (self.first..=self.last).contains(&at)
            && !self.exclude.iter().any(|net| net.contains(address))
    }

    /// How many addresses may be given.
    pub(crate) fn size(&self) -> u128 {
        let mut excluded: Vec<&Net> = self.exclude.iter().collect();
        excluded.sort_by_key(|net| net.first());
        let (mut size, mut at) = (0_u128, self.first);
        for net in excluded {
            // One inside of another one ends before.
            size = size.saturating_add(net.first().min(self.last.saturating_add(1)).saturating_sub(at));
            at = at.max(net.last().saturating_add(1));
        }
        size.saturating_add(self.last.saturating_add(1).saturating_sub(at))
    }

    /// The first number from `from` on that is not excluded.
    pub(crate) fn next(&self, from: u128) -> Option<u128> {
        let mut at = from.max(self.first);
        // Each round leaves one excluded network behind for good; there may be one inside of another.
        for _ in 0..=self.exclude.len() {
            let inside = |net: &&Net| net.first() <= at && at <= net.last();
            match self.exclude.iter().find(inside) {
                Some(net) => at = net.last().checked_add(1)?,
                None => return (at <= self.last).then_some(at),
            }
        }
        None
    }

    /// The slice that an address belongs to: one pool.
    pub(crate) fn slice(&self, address: IpAddr) -> Net {
        let bits = self.net.family().bits();
        Net::new(address, self.net.length().max(bits - SLICE_BITS))
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let family = self.net.family();
        write!(f, "{} to {}", family.address(self.first), family.address(self.last))
    }
}

/// All addresses to give, in order of preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What the names of pools begin with; may be empty.
    pub network: String,
    /// Ranges; no address is in two.
    pub ranges: Vec<Range>,
}

#[derive(Deserialize)]
struct Ipam {
    #[serde(default)]
    network_name: String,
    #[serde(default, rename = "ipRanges")]
    ranges: Vec<Words>,
    /// The old form: one range beside the list, or in its place.
    #[serde(flatten)]
    old: Words,
}

#[derive(Clone, Default, Deserialize)]
struct Words {
    #[serde(default)]
    range: String,
    #[serde(default)]
    range_start: String,
    #[serde(default)]
    range_end: String,
    #[serde(default)]
    exclude: Vec<String>,
}

impl Default for Settings {
    /// What upstream deploys: `neonvm`, 10.100.0.0/16 from 10.100.128.0 on.
    fn default() -> Self {
        let words =
            Words { range: RANGE.to_owned(), range_start: FIRST_VM_ADDRESS.to_owned(), ..Words::default() };
        // The constants are a valid range, which a test checks.
        let ranges = range(0, &words).into_iter().collect();
        Self { network: NETWORK.to_owned(), ranges }
    }
}

impl Settings {
    /// Reads settings: the configuration of a network attachment (with `ipam`), or what stands in its `ipam`.
    ///
    /// # Errors
    /// If it is no such JSON, has no range, or ranges share addresses.
    pub fn parse(json: &str) -> Result<Self, SettingsError> {
        let bad = |error: serde_json::Error| SettingsError::Json(error.to_string());
        let mut file: Map<String, Value> = serde_json::from_str(json).map_err(bad)?;
        let ipam = file.remove("ipam").filter(|ipam| !ipam.is_null());
        let ipam: Ipam = objects::from_value(ipam.unwrap_or(Value::Object(file))).map_err(bad)?;
        let old = Some(ipam.old).filter(|old| !old.range.is_empty());
        let words: Vec<Words> = old.into_iter().chain(ipam.ranges).collect();
        let ranges: Vec<Range> =
            words.iter().enumerate().map(|(index, words)| range(index, words)).collect::<Result<_, _>>()?;
        if ranges.is_empty() {
            return Err(wrong("ipRanges", "there is no range"));
        }
        for (index, one) in ranges.iter().enumerate() {
            let shared = ranges.iter().skip(index + 1).find(|other| {
                one.net.family() == other.net.family() && one.first <= other.last && other.first <= one.last
            });
            if let Some(other) = shared {
                return Err(wrong(
                    format!("ipRanges[{index}]"),
                    format!("{one} and {other} share addresses"),
                ));
            }
        }
        let network = ipam.network_name;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if !network.chars().all(plain) || network.starts_with(['-', '.']) || network.len() > 100 {
            return Err(wrong("network_name", format!("{network:?} cannot begin the name of an object")));
        }
        Ok(Self { network, ranges })
    }

    #[must_use]
    pub fn pool_name(&self, net: Net) -> String {
        let net = net.to_string().replace(['/', ':'], "-");
        if self.network.is_empty() { net } else { format!("{}-{net}", self.network) }
    }

    /// The range an address may be given from.
    #[must_use]
    pub fn range_of(&self, address: IpAddr) -> Option<&Range> {
        self.ranges.iter().find(|range| range.contains(address))
    }
}

fn range(index: usize, words: &Words) -> Result<Range, SettingsError> {
    let field = |name: &str| format!("ipRanges[{index}].{name}");
    let net: Net = words
        .range
        .parse()
        .map_err(|error| wrong(field("range"), format!("{:?} is {error}", words.range)))?;
    let inside = |name: &str, text: &str| {
        let address: IpAddr =
            text.parse().map_err(|_| wrong(field(name), format!("{text:?} is not an address")))?;
        if net.contains(address) {
            return Ok(number(address));
        }
        Err(wrong(field(name), format!("{address} is not within {net}")))
    };
    let mut first = match words.range_start.as_str() {
        "" => net.first(),
        text => inside("range_start", text)?,
    };
    let last = match words.range_end.as_str() {
        // The last address of a network is its broadcast address, the first its own; where there is no room for them,
        // there is no need either.
        "" if net.last() - net.first() >= 2 => {
            if first == net.first() {
                first += 1;
            }
            net.last() - u128::from(net.family() == Family::V4)
        }
        "" => net.last(),
        text => inside("range_end", text)?,
    };
    if first > last {
        return Err(wrong(field("range_start"), "lies behind the end"));
    }
    let exclude = words.exclude.iter().map(|text| {
        let one = || text.parse::<IpAddr>().ok().map(|address| Net::new(address, u8::MAX));
        let net = text.parse::<Net>().ok().or_else(one);
        net.ok_or_else(|| wrong(field("exclude"), format!("{text:?} is neither a network nor an address")))
    });
    let exclude: Vec<Net> = exclude.collect::<Result<_, _>>()?;
    let exclude = exclude.into_iter().filter(|other| other.family() == net.family()).collect();
    Ok(Range { net, first, last, exclude })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(json: &str) -> String {
        Settings::parse(json).unwrap_err().to_string()
    }

    #[test]
    fn the_default_is_what_upstream_deploys() {
        let json = r#"{"cniVersion": "0.3.1", "name": "overlay", "type": "bridge", "ipam": {"type": "whereabouts",
            "network_name": "neonvm", "range": "10.100.0.0/16", "range_start": "10.100.128.0"}}"#;
        let settings = Settings::parse(json).unwrap();
        assert_eq!(settings, Settings::default());
        let [range] = &settings.ranges[..] else { panic!("{settings:?}") };
        assert_eq!(range.to_string(), "10.100.128.0 to 10.100.255.254");
        let slice = range.slice("10.100.200.7".parse().unwrap());
        assert_eq!(settings.pool_name(slice), "neonvm-10.100.200.0-24");
        assert_eq!(settings.pool_name(range.net()), "neonvm-10.100.0.0-16");
    }

    #[test]
    fn several_ranges_the_old_one_first() {
        let json = r#"{"range": "10.1.0.0/24", "exclude": ["10.1.0.0/30", "10.1.0.9"], "ipRanges": [
            {"range": "10.2.0.0/28", "range_start": "10.2.0.0", "range_end": "10.2.0.15"}, {"range": "fd00::/64"}]}"#;
        let settings = Settings::parse(json).unwrap();
        let texts: Vec<String> = settings.ranges.iter().map(ToString::to_string).collect();
        assert_eq!(texts[..2], ["10.1.0.1 to 10.1.0.254", "10.2.0.0 to 10.2.0.15"]);
        assert_eq!(texts[2], "fd00::1 to fd00::ffff:ffff:ffff:ffff");
        let first = &settings.ranges[0];
        let at = |number| Family::V4.address(number).to_string();
        assert_eq!(at(first.next(0).unwrap()), "10.1.0.4");
        assert_eq!(at(first.next(number("10.1.0.9".parse().unwrap())).unwrap()), "10.1.0.10");
        assert_eq!(first.next(number("10.1.0.255".parse().unwrap())), None);
        assert_eq!(settings.ranges[1].slice("10.2.0.3".parse().unwrap()).to_string(), "10.2.0.0/28");
        assert_eq!(settings.ranges[2].slice("fd00::1:3".parse().unwrap()).to_string(), "fd00::1:0/120");
    }

    /// `[0.7]` is no object, at any depth.
    #[test]
    fn a_list_stands_for_no_object() {
        let ipam = serde_json::json!({ "range": "10.1.0.0/24", "network_name": "n",
            "ipRanges": [{ "range": "10.2.0.0/28", "range_start": "10.2.0.1", "exclude": ["10.2.0.4/30"] }] });
        for document in [serde_json::json!({ "type": "bridge", "ipam": ipam }), ipam] {
            Settings::parse(&document.to_string()).unwrap();
            for (path, changed) in neonvm_test_support::lists::for_objects(&document) {
                assert!(Settings::parse(&changed.to_string()).is_err(), "{path}: {changed}");
            }
        }
    }

    #[test]
    fn mistakes_are_named() {
        assert!(error("[]").starts_with("the IPAM settings cannot be read"));
        assert_eq!(error("{}"), "IPAM settings: ipRanges: there is no range");
        let range = |text: &str| error(&format!("{{\"ipRanges\": [{text}]}}"));
        assert_eq!(
            range(r#"{"range": "10.0.0.0"}"#),
            "IPAM settings: ipRanges[0].range: \"10.0.0.0\" is not a network such as 10.100.0.0/16"
        );
        assert!(range(r#"{"range": "10.0.0.0/24", "range_start": "10.0.1.0"}"#).contains("is not within"));
        assert!(range(r#"{"range": "10.0.0.0/24", "range_end": "x"}"#).contains("is not an address"));
        assert!(range(r#"{"range": "10.0.0.0/24", "exclude": ["y"]}"#).contains("neither"));
        let end = r#"{"range": "10.0.0.0/24", "range_start": "10.0.0.9", "range_end": "10.0.0.8"}"#;
        assert!(range(end).contains("behind the end"));
        let twice = r#"{"range": "10.0.0.0/24"}, {"range": "10.0.0.0/16", "range_start": "10.0.0.200"}"#;
        assert!(range(twice).contains("share addresses"));
        assert!(error(r#"{"network_name": "A b", "range": "10.0.0.0/24"}"#).contains("network_name"));
    }
}
