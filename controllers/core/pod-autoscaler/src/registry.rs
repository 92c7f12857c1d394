//! Names of metrics that serving engines share, and the series that stand for them in each engine.
//!
//! A name that is not here is the name of a series. The table is that of AIBrix at e3e10f9e (`pkg/metrics/metrics.go`), without its queries to
//! Prometheus and the numbers of LoRA adapters, which are in labels.

/// Engine of a pod without an engine label.
pub const DEFAULT_ENGINE: &str = "vllm";
pub const ENGINE_LABEL: &str = "model.aibrix.ai/engine";

/// What a shared name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    pub series: String,
    /// Whether it only grows: its rate is what counts.
    pub counter: bool,
    /// Whether it is a share of a whole: several series are averaged, not added.
    pub share: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gauge,
    Share,
    Counter,
    Histogram,
}

use Kind::{Counter, Gauge, Histogram, Share};

/// Shared name, kind, and the series in vllm, sglang, trtllm and xllm; `=` is the engine's prefix and the same name.
const TABLE: &[(&str, Kind, [&str; 4])] = &[
    ("num_requests_running", Gauge, ["=", "sglang:num_running_reqs", "", ""]),
    ("num_requests_waiting", Gauge, ["=", "sglang:num_queue_reqs", "", ""]),
    ("num_requests_swapped", Gauge, ["=", "sglang:num_retracted_reqs", "", ""]),
    ("engine_sleep_state", Gauge, ["=", "", "", ""]),
    ("num_prefill_prealloc_queue_reqs", Gauge, ["", "=", "", ""]),
    ("num_decode_prealloc_queue_reqs", Gauge, ["", "=", "", ""]),
    ("gpu_cache_usage_perc", Share, ["=", "sglang:token_usage", "", "kv_cache_utilization"]),
    (
        "kv_cache_usage_perc",
        Share,
        ["=", "sglang:token_usage", "trtllm_kv_cache_utilization", "kv_cache_utilization"],
    ),
    ("cpu_cache_usage_perc", Share, ["=", "", "", ""]),
    ("kv_cache_hit_rate", Share, ["", "", "trtllm_kv_cache_hit_rate", ""]),
    ("engine_utilization", Share, ["", "", "", "engine_utilization"]),
    ("avg_prompt_throughput_toks_per_s", Gauge, ["=", "", "", ""]),
    ("avg_generation_throughput_toks_per_s", Gauge, ["=", "sglang:gen_throughput", "", ""]),
    ("http_requests_total", Counter, ["=", "", "", ""]),
    ("num_preemptions_total", Counter, ["=", "", "", ""]),
    ("prompt_tokens_total", Counter, ["=", "", "", ""]),
    ("generation_tokens_total", Counter, ["=", "", "", ""]),
    ("prefix_cache_queries_total", Counter, ["=", "", "", ""]),
    ("prefix_cache_hits_total", Counter, ["=", "", "", ""]),
    ("external_prefix_cache_queries_total", Counter, ["=", "", "", ""]),
    ("external_prefix_cache_hits_total", Counter, ["=", "", "", ""]),
    ("nixl_num_failed_transfers_total", Counter, ["vllm:nixl_num_failed_transfers", "", "", ""]),
    ("nixl_num_failed_notifications_total", Counter, ["vllm:nixl_num_failed_notifications", "", "", ""]),
    (
        "request_success_total",
        Counter,
        ["vllm:num_requests_success_total", "sglang:num_requests_total", "trtllm_request_success_total", ""],
    ),
    ("time_to_first_token_seconds", Histogram, ["=", "=", "trtllm_time_to_first_token_seconds", ""]),
    (
        "time_per_output_token_seconds",
        Histogram,
        ["=", "sglang:inter_token_latency_seconds", "trtllm_time_per_output_token_seconds", ""],
    ),
    ("inter_token_latency_seconds", Histogram, ["=", "=", "trtllm_time_per_output_token_seconds", ""]),
    ("e2e_request_latency_seconds", Histogram, ["=", "=", "trtllm_e2e_request_latency_seconds", ""]),
    ("request_queue_time_seconds", Histogram, ["=", "", "trtllm_request_queue_time_seconds", ""]),
    ("request_prefill_time_seconds", Histogram, ["=", "", "", ""]),
    ("request_decode_time_seconds", Histogram, ["=", "", "", ""]),
    ("request_inference_time_seconds", Histogram, ["=", "", "", ""]),
    ("request_time_per_output_token_seconds", Histogram, ["=", "", "", ""]),
    ("per_stage_req_latency_seconds", Histogram, ["", "=", "", ""]),
    ("http_request_duration_seconds", Histogram, ["http_request_duration_seconds", "", "", ""]),
    ("http_request_duration_highr_seconds", Histogram, ["http_request_duration_highr_seconds", "", "", ""]),
    ("request_prompt_tokens", Histogram, ["=", "", "", ""]),
    ("request_generation_tokens", Histogram, ["=", "", "", ""]),
    ("request_max_num_generation_tokens", Histogram, ["=", "", "", ""]),
    ("iteration_tokens_total", Histogram, ["=", "", "", ""]),
    ("nixl_xfer_time_seconds", Histogram, ["=", "", "", ""]),
    ("nixl_post_time_seconds", Histogram, ["=", "", "", ""]),
    ("nixl_bytes_transferred", Histogram, ["=", "", "", ""]),
    ("nixl_num_descriptors", Histogram, ["=", "", "", ""]),
];

/// Where the pods of an engine serve their metrics, when an object names no path or the usual one: TensorRT-LLM serves JSON at
/// `/metrics` and the text format elsewhere.
#[must_use]
pub fn path<'a>(wanted: &'a str, engine: &str) -> &'a str {
    match wanted.trim_start_matches('/') {
        "" | "metrics" if engine == "trtllm" => "/prometheus/metrics",
        "" => "/metrics",
        _ => wanted,
    }
}

/// What a name stands for in an engine; `None` if it is no shared name, or the engine does not have it.
#[must_use]
pub fn alias(name: &str, engine: &str) -> Option<Alias> {
    let (_, kind, series) = TABLE.iter().find(|(shared, ..)| *shared == name)?;
    let column = ["vllm", "sglang", "trtllm", "xllm"].iter().position(|known| *known == engine)?;
    let series = match series.get(column).copied()? {
        "" => return None,
        "=" => format!("{engine}:{name}"),
        series => series.to_owned(),
    };
    Some(Alias { series, counter: *kind == Counter, share: *kind == Share })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_engine() {
        let series = |name, engine| alias(name, engine).map(|alias| alias.series);
        assert_eq!(series("num_requests_waiting", "vllm").as_deref(), Some("vllm:num_requests_waiting"));
        assert_eq!(series("num_requests_waiting", "sglang").as_deref(), Some("sglang:num_queue_reqs"));
        assert_eq!(series("num_requests_waiting", "trtllm"), None);
        assert_eq!(series("my_own", "vllm"), None);
        assert!(alias("http_requests_total", "vllm").is_some_and(|alias| alias.counter && !alias.share));
        assert!(alias("kv_cache_usage_perc", "sglang").is_some_and(|alias| alias.share));
        assert_eq!(series("num_requests_waiting", "unknown"), None);
    }

    /// Every name, series and type of AIBrix' registry at e3e10f9e.
    #[test]
    fn names_are_those_of_aibrix() {
        let facts = include_str!("../tests/registry.txt");
        let mut count = 0;
        for line in facts.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, kind, series @ ..] = words.as_slice() else { panic!("{line}") };
            for engine in ["vllm", "sglang", "trtllm", "xllm"] {
                let wanted = series.iter().find_map(|pair| pair.strip_prefix(engine)?.strip_prefix('='));
                let found = alias(name, engine);
                assert_eq!(found.as_ref().map(|alias| alias.series.as_str()), wanted, "{name} in {engine}");
                assert!(found.is_none_or(|alias| alias.counter == (*kind == "counter")), "{name}: {kind}");
            }
            count += 1;
        }
        assert_eq!(count, TABLE.len(), "names that AIBrix does not have");
    }

    #[test]
    fn each_engine_has_its_path() {
        let paths = [("", "/metrics"), ("/metrics", "/metrics"), ("own", "own")];
        assert!(paths.iter().all(|(wanted, found)| path(wanted, "vllm") == *found));
        let paths = [("", "/prometheus/metrics"), ("metrics", "/prometheus/metrics"), ("/own", "/own")];
        assert!(paths.iter().all(|(wanted, found)| path(wanted, "trtllm") == *found));
    }
}
