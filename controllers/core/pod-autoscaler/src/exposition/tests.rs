use super::*;

fn value(text: &str, query: &str) -> Result<f64, MissingReason> {
    let query = Query::parse(query).unwrap();
    let scrape = read(text, std::slice::from_ref(&query));
    match query.evaluate(&scrape.extracts[0], None) {
        Ok(Measure::Value(value)) => Ok(value.get()),
        Ok(Measure::Histogram(_)) => panic!("a histogram"),
        Err(missing) => Err(missing.reason),
    }
}

const TEXT: &str = r#"
# HELP queue Requests that wait.
# TYPE queue gauge
queue{model="a",rank="0"} 3
queue{model="a",rank="1"} 4 1700000000000
queue{model="b \"q\"\n"} 5.5
no_type 7
# TYPE broken gauge
broken{a="1" 3
broken{a=1} 3
broken nonsense
odd NaN
huge 1e999
"#;

#[test]
fn series_are_added_and_chosen_by_labels() {
    assert_eq!(value(TEXT, "queue"), Ok(12.5));
    assert_eq!(value(TEXT, r#"queue{model="a"}"#), Ok(7.0));
    assert_eq!(value(TEXT, r#"queue{model="a", rank!="0"}"#), Ok(4.0));
    assert_eq!(value(TEXT, r#"queue{model="b \"q\"\n"}"#), Ok(5.5));
    assert_eq!(value(TEXT, r#"queue{rank=""}"#), Ok(5.5));
    assert_eq!(value(TEXT, "no_type"), Ok(7.0));
    let mut query = Query::parse("queue").unwrap();
    for (aggregation, expected) in [
        (SeriesAggregation::Average, 12.5 / 3.0),
        (SeriesAggregation::Maximum, 5.5),
        (SeriesAggregation::Minimum, 3.0),
    ] {
        query.aggregation = Some(aggregation);
        let extract = &read(TEXT, std::slice::from_ref(&query)).extracts[0];
        assert_eq!(query.evaluate(extract, None), Ok(Measure::Value(Finite::saturating(expected))));
    }
}

#[test]
fn what_a_line_is_follows_from_its_first_bytes() {
    let lines = |text: &str| Lines::new(text).map(|(_, line)| format!("{line:?}")).collect::<Vec<_>>();
    for kind in
        ["# TYPE a_b counter", "#TYPE a_b counter", "#  TYPE\ta_b\tcounter more", "\t # TYPE a_b counter\r"]
    {
        assert_eq!(lines(kind), [r#"Kind { name: "a_b", kind: Counter }"#], "{kind}");
    }
    for nothing in [
        "",
        " \t",
        "#",
        "# TYPE",
        "# TYPE a_b",
        "# TYPEa a_b counter",
        "# HELP TYPE a_b counter",
        "# type a b",
    ] {
        assert!(lines(nothing).is_empty(), "{nothing}");
    }
    for sample in ["a 1", "a:b_c.d-e/f{} 1", "a\t1", "a{", "9 9"] {
        assert!(lines(sample)[0].starts_with("Sample"), "{sample}");
    }
    for unreadable in ["a", "{} 1", "a;b 1", "é 1", "aé{} 1", "a\u{7f} 1", "<html>", "a,1"] {
        assert_eq!(lines(unreadable), ["Unreadable"], "{unreadable}");
    }
}

#[test]
fn what_is_missing_is_not_zero() {
    assert_eq!(value(TEXT, "absent"), Err(MissingReason::NoSuchMetric));
    assert_eq!(value(TEXT, r#"queue{model="z"}"#), Err(MissingReason::NoSuchMetric));
    assert_eq!(value(TEXT, "broken"), Err(MissingReason::Unreadable));
    assert_eq!(value(TEXT, "odd"), Err(MissingReason::NotFinite));
    assert_eq!(value(TEXT, "huge"), Err(MissingReason::NotFinite));
    let garbage = "queue 1\n<html>\n}{\nqueue{x=\"1\"} 2\n";
    let scrape = read(garbage, &[Query::parse("queue").unwrap()]);
    assert_eq!((scrape.unreadable, scrape.first_unreadable), (2, Some(2)));
    assert_eq!(scrape.extracts[0].series.len(), 2);
}

#[test]
fn one_reading_serves_all_queries() {
    let queries = ["queue", "no_type", "absent"].map(|name| Query::parse(name).unwrap());
    let scrape = read(TEXT, &queries);
    assert_eq!(scrape.extracts.iter().map(|one| one.series.len()).collect::<Vec<_>>(), [3, 1, 0]);
}

fn rate(before: &str, now: &str) -> Result<Measure, Missing> {
    let query = Query::parse("hits_total").unwrap();
    let read = |text| read(text, std::slice::from_ref(&query)).extracts.remove(0);
    query.evaluate(&read(now), Some(Before { extract: &read(before), seconds: 10.0 }))
}

#[test]
fn counters_give_rates_and_survive_resets() {
    let is = |value: f64| Ok(Measure::Value(Finite::saturating(value)));
    assert_eq!(
        rate(
            "hits_total{c=\"a\"} 100\nhits_total{c=\"b\"} 5\n",
            "hits_total{c=\"a\"} 150\nhits_total{c=\"b\"} 5\n"
        ),
        is(5.0)
    );
    // One series was reset, one is new.
    assert_eq!(
        rate("hits_total{c=\"a\"} 100\n", "hits_total{c=\"a\"} 30\nhits_total{c=\"b\"} 20\n"),
        is(5.0)
    );
    assert_eq!(rate("other 1\n", "hits_total 30\n").map_err(|m| m.reason), Err(MissingReason::FirstReading));
    assert_eq!(value("hits_total 30\n", "hits_total"), Err(MissingReason::FirstReading));
    // The type in the text overrides the one implied by the name; OpenMetrics names a counter without its suffix.
    assert_eq!(value("# TYPE hits_total gauge\nhits_total 30\n", "hits_total"), Ok(30.0));
    assert_eq!(
        value("# TYPE hits counter\nhits_total 3 # {id=\"1\"} 1\n", "hits_total"),
        Err(MissingReason::FirstReading)
    );
}

const BEFORE: &str = "# TYPE ttft histogram
ttft_bucket{m=\"a\",le=\"0.1\"} 10
ttft_bucket{m=\"a\",le=\"1.0\"} 10
ttft_bucket{m=\"a\",le=\"+Inf\"} 10
ttft_sum{m=\"a\"} 1
ttft_count{m=\"a\"} 10
";
const AFTER: &str = "# TYPE ttft histogram
ttft_bucket{m=\"a\",le=\"0.1\"} 12
ttft_bucket{m=\"a\",le=\"1.0\"} 20
ttft_bucket{m=\"a\",le=\"+Inf\"} 20
ttft_sum{m=\"a\"} 5
ttft_count{m=\"a\"} 20
";

#[test]
fn histograms_count_what_came_since() {
    let mut query = Query::parse("ttft").unwrap();
    let read = |text| read(text, std::slice::from_ref(&query)).extracts.remove(0);
    let (before, after) = (read(BEFORE), read(AFTER));
    let before = Some(Before { extract: &before, seconds: 10.0 });
    let Ok(Measure::Histogram(histogram)) = query.evaluate(&after, before) else { panic!() };
    assert_eq!((histogram.count, histogram.mean().unwrap().get()), (10.0, 0.4));
    query.quantile = Some(0.5);
    let Ok(Measure::Histogram(same)) = query.evaluate(&after, before) else { panic!() };
    // Two are below 0.1, eight between 0.1 and 1; the fifth is three eighths of the way.
    assert!((same.quantile(0.5).unwrap().get() - (0.1 + 0.9 * 3.0 / 8.0)).abs() < 1e-9);
    assert_eq!(query.evaluate(&after, None).unwrap_err().reason, MissingReason::FirstReading);
    let gauge = super::read("ttft 3\n", std::slice::from_ref(&query)).extracts.remove(0);
    assert_eq!(query.evaluate(&gauge, before).unwrap_err().reason, MissingReason::NoSuchMetric);
}

#[test]
fn names_of_engines_come_first() {
    let source: neonvm_api::pod_autoscaler::MetricSource = serde_json::from_value(serde_json::json!({
        "metricSourceType": "pod", "targetMetric": "kv_cache_usage_perc", "targetValue": "0.5",
        "selector": {"matchLabels": {"m": "a"}, "matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]},
    }))
    .unwrap();
    let query = Query::from_source(&source, "sglang").unwrap();
    assert_eq!(query.to_string(), "sglang:token_usage or kv_cache_usage_perc{m=\"a\",x=\"\"}");
    let text = "sglang:token_usage{m=\"a\"} 0.4\nsglang:token_usage{m=\"a\",r=\"1\"} 0.8\nsglang:token_usage{m=\"b\"} 1\n";
    let extract = &read(text, std::slice::from_ref(&query)).extracts[0];
    let Ok(Measure::Value(value)) = query.evaluate(extract, None) else { panic!() };
    // A share of a whole is averaged: two half-full caches are not one full cache.
    assert!((value.get() - 0.6).abs() < 1e-9);
    // The engine's own name takes the place of the shared one, in whichever order they come.
    for text in [
        "kv_cache_usage_perc{m=\"a\"} 9\nsglang:token_usage{m=\"a\",r=\"0\"} 1\n",
        "sglang:token_usage{m=\"a\",r=\"0\"} 1\nkv_cache_usage_perc{m=\"a\"} 9\n",
    ] {
        let extract = &read(text, std::slice::from_ref(&query)).extracts[0];
        assert_eq!(query.evaluate(extract, None), Ok(Measure::Value(Finite::saturating(1.0))));
    }
}

#[test]
fn queries_that_cannot_be_read() {
    for bad in ["", "a b", "a{", "a{x}", "a{x=1}", "a{x=\"1\"} 2", "a{x=~\"1\"}", "é"] {
        assert!(Query::parse(bad).is_err(), "{bad}");
    }
    for good in ["a", "vllm:a_b", "a{}", "a{x=\"1\",}", "a { x = \"1\" }"] {
        assert!(Query::parse(good).is_ok(), "{good}");
    }
}

#[test]
fn limits_hold() {
    let many: String = (0..MOST_SERIES + 5).map(|index| format!("a{{i=\"{index}\"}} 1\n")).collect();
    assert_eq!(value(&many, "a"), Err(MissingReason::TooLarge));
    let wide: String = (0..50).map(|index| format!("a{{i=\"{index}{}\"}} 1\n", "x".repeat(8000))).collect();
    assert_eq!(value(&wide, "a"), Err(MissingReason::TooLarge));
    assert_eq!(value(&"a{i=\"1\"} 2\n".repeat(MOST_SERIES + 5), "a"), Ok(2.0));
    let labels: String = (0..100).map(|index| format!("l{index}=\"1\",")).collect();
    assert_eq!(value(&format!("a{{{labels}}} 1\n"), "a"), Err(MissingReason::Unreadable));
    let long = format!("a{{x=\"{}\"}} 1\nb 2\n", "y".repeat(line::MOST_LINE));
    assert_eq!(value(&long, "a"), Err(MissingReason::NoSuchMetric));
    assert_eq!(value(&long, "b"), Ok(2.0));
}
