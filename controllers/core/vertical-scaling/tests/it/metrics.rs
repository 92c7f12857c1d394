//! Reading the Prometheus text format.

use neonvm_core_vertical_scaling::agent::metrics::{MAX_BODY_BYTES, parse_lfc, parse_system};
use proptest::prelude::*;

const HOST: &str = r#"
# HELP host_load1 System load averaged over the last 1 second.
# TYPE host_load1 gauge
host_load1{collector="load",host="vm"} 1.25 1720000000000
# TYPE host_load5 gauge
host_load5 0.5
# TYPE host_memory_total_bytes gauge
host_memory_total_bytes{collector="memory"} 4294967296
# TYPE host_memory_available_bytes gauge
host_memory_available_bytes 3.221225472e9
# TYPE host_memory_cached_bytes gauge
host_memory_cached_bytes 1073741824
# TYPE host_cpu_seconds_total counter
host_cpu_seconds_total{cpu="0",mode="idle"} 100
host_cpu_seconds_total{cpu="0",mode="steal"} 1.5
host_cpu_seconds_total{cpu="0",mode="user"} 4
host_cpu_seconds_total{cpu="0",mode="io_wait"} 9
host_cpu_seconds_total{cpu="1",mode="system"} 2.25
host_cpu_seconds_total{cpu="1",mode="steal",note="a \"quoted\", {brace} and \\ back\nslash"} 2
# TYPE host_pressure_cpu_some_avg10 gauge
host_pressure_cpu_some_avg10 12.5
# TYPE host_pressure_memory_some_avg10 gauge
host_pressure_memory_some_avg10 0
# TYPE queue_depth gauge
queue_depth{queue="a"} 3
queue_depth{queue="b"} 4
"#;

#[test]
fn all_series_of_our_guest() {
    let metrics = parse_system(HOST.as_bytes(), Some("queue_depth")).unwrap();
    assert_eq!((metrics.load1, metrics.load5), (1.25, 0.5));
    assert_eq!(metrics.memory_usage_bytes, f64::from(1 << 30) + 104_857_600.0);
    assert_eq!(metrics.memory_cached_bytes, f64::from(1 << 30));
    assert_eq!((metrics.cpu_pressure, metrics.memory_pressure), (Some(12.5), Some(0.0)));
    assert_eq!((metrics.steal_seconds, metrics.user), (Some(3.5), Some(7.0)));
    // Neither idle nor stolen nor waiting.
    assert_eq!(metrics.busy_seconds, Some(6.25));
    assert_eq!(parse_system(HOST.as_bytes(), Some("missing")).unwrap().user, None);
}

#[test]
fn names_of_node_exporter() {
    let text = HOST
        .replace("host_load", "node_load")
        .replace("host_memory_total_bytes", "node_memory_MemTotal_bytes")
        .replace("host_memory_available_bytes", "node_memory_MemAvailable_bytes")
        .replace("host_memory_cached_bytes", "node_memory_Cached_bytes")
        .replace("host_cpu_seconds", "node_cpu_seconds");
    let (host, node) =
        (parse_system(HOST.as_bytes(), None).unwrap(), parse_system(text.as_bytes(), None).unwrap());
    assert_eq!(host, node);
}

#[test]
fn every_fault_is_named() {
    let text = HOST
        .replace("# TYPE host_load1 gauge", "# TYPE host_load1 counter")
        .replace("host_load5 0.5", "host_load5 0.5\nhost_load5{a=\"b\"} 1")
        .replace("host_memory_total_bytes{collector=\"memory\"} 4294967296", "host_memory_total_bytes NaN")
        .replace("host_memory_available_bytes 3.221225472e9", "host_memory_available_bytes -1")
        .replace("host_memory_cached_bytes 1073741824", "host_memory_cached_bytes{ 3");
    let error = parse_system(text.as_bytes(), None).unwrap_err();
    assert_eq!(
        error.problems,
        [
            "host_memory_total_bytes is NaN",
            "host_memory_available_bytes is -1",
            "host_load1 is declared counter, not gauge",
            "host_load5 has 2 samples, not one",
            "host_memory_cached_bytes: line 13 cannot be read",
        ]
    );
    let error = parse_system(b"", None).unwrap_err();
    assert_eq!(error.problems.len(), 5);
    assert!(error.to_string().contains("host_load1 is missing; "), "{error}");
}

#[test]
fn what_is_optional_never_makes_a_scrape_fail() {
    let text = HOST
        .replace("host_pressure_cpu_some_avg10 12.5", "host_pressure_cpu_some_avg10 oops")
        .replace("host_pressure_memory_some_avg10 0", "host_pressure_memory_some_avg10 NaN")
        .replace("mode=\"steal\"} 1.5", "mode=\"steal\"} +Inf")
        .replace("queue_depth{queue=\"b\"} 4", "queue_depth{queue=\"b\"} -400");
    let metrics = parse_system(text.as_bytes(), Some("queue_depth")).unwrap();
    assert_eq!((metrics.cpu_pressure, metrics.memory_pressure), (None, None));
    assert_eq!((metrics.steal_seconds, metrics.user), (None, None));
}

#[test]
fn bodies_that_are_none() {
    let long = vec![b'\n'; MAX_BODY_BYTES + 1];
    assert!(parse_system(&long, None).unwrap_err().to_string().contains("longer than"));
    assert!(parse_lfc(&[0xff]).unwrap_err().to_string().contains("not UTF-8"));
}

fn lfc(windows: &str) -> String {
    let gauge = |name: &str| format!("# TYPE {name} gauge\n{name} 1\n");
    let name = "lfc_approximate_working_set_size_windows";
    let samples: String = windows
        .split_whitespace()
        .map(|pair| {
            let (seconds, value) = pair.split_once('=').unwrap();
            format!("{name}{{duration_seconds=\"{seconds}\"}} {value}\n")
        })
        .collect();
    format!(
        "{}{}{}# TYPE {name} gauge\n{samples}",
        gauge("lfc_hits"),
        gauge("lfc_misses"),
        gauge("lfc_writes")
    )
}

#[test]
fn windows_of_the_file_cache() {
    let windows = |text: &str| parse_lfc(lfc(text).as_bytes()).map(|metrics| metrics.windows);
    assert_eq!(windows("120=20 60=10 180=25").unwrap(), [10.0, 20.0, 25.0], "sorted");
    // Defect 22, issue #1011: windows need not lie on the minute.
    assert_eq!(windows("30=10 90=30 240=60").unwrap(), [20.0, 36.0, 48.0, 60.0]);
    for wrong in ["60=1 60=2", "x=1", "0=1", "90000=1", "60=NaN", "60=-1", "6e1=1", ""] {
        assert!(windows(wrong).is_err(), "{wrong}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(body: Vec<u8>, user in "[a-z]{0,4}") {
        let _ = parse_system(&body, Some(&user));
        let _ = parse_lfc(&body);
    }

    /// Broken at any place: never a panic, and never an invalid value.
    #[test]
    fn broken_texts_are_read_or_refused(cut in 0usize..1400, put in "[\\PC\n{}\"\\\\=, ]{0,6}") {
        let cut = cut.min(HOST.len());
        let text = format!("{}{put}{}", &HOST[..cut], &HOST[cut..]);
        if let Ok(metrics) = parse_system(text.as_bytes(), Some("queue_depth")) {
            prop_assert!(metrics.sane().is_some());
        }
        let _ = parse_lfc(text.as_bytes());
    }
}
