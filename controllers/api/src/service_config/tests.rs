//! The files that upstream's releases ship, and what contradicts itself.

use serde_json::json;

use super::*;

/// The file in a ConfigMap of a release.
fn shipped(map: &str, key: &str) -> String {
    let maps = serde_saphyr::from_multiple::<Value>(map).unwrap();
    let text = maps.iter().find_map(|map| map["data"][key].as_str());
    text.unwrap().to_owned()
}

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("fixtures/", $name, "-config_map.yaml"))
    };
}

const AGENTS: [&str; 3] = [fixture!("v0.10.0-agent"), fixture!("v0.17.0-agent"), fixture!("v0.31.0-agent")];
const SCHEDULERS: [&str; 3] =
    [fixture!("v0.10.0-scheduler"), fixture!("v0.17.0-scheduler"), fixture!("v0.31.0-scheduler")];

fn agents() -> impl Iterator<Item = Converted> {
    AGENTS.into_iter().map(|map| agent(&shipped(map, "config.json")).unwrap())
}

fn schedulers() -> impl Iterator<Item = Converted> {
    SCHEDULERS.into_iter().map(|map| scheduler(&shipped(map, "autoscale-enforcer-config.json")).unwrap())
}

fn names<'a>(keys: impl Iterator<Item = &'a Meaning>) -> Vec<&'a str> {
    keys.map(|key| key.key.as_str()).collect()
}

#[test]
fn agents_files_of_all_releases_are_read() {
    let [v10, v17, v31] = agents().collect::<Vec<_>>().try_into().unwrap();
    for file in [&v10, &v17, &v31] {
        assert_eq!(file.faults, Vec::<String>::new());
        assert_eq!(file.document["monitor"]["serverPort"], 10301);
        assert_eq!(file.document["neonvm"]["requestTimeoutSeconds"], 10);
        assert_eq!(file.document["metrics"]["system"]["secondsBetweenRequests"], 5);
        assert_eq!(file.document["dumpState"]["port"], 10300);
        assert_eq!(file.document["scheduler"]["requestAtLeastEverySeconds"], 5);
    }
    // The guests of these versions have informants.
    let informants = [&v10, &v17, &v31].map(|file| file.document["informant"]["serverPort"].as_u64());
    assert_eq!(informants, [Some(10301), Some(10301), None]);
    assert_eq!(names(v10.without_effect()), ["metrics.loadMetricPrefix"]);
    assert_eq!(names(v17.without_effect()), ["metrics.loadMetricPrefix"]);
    assert_eq!(names(v31.without_effect()), ["refereshStateIntervalSeconds"]);
    assert_eq!(v10.name_in_file("neonvm.requestTimeoutSeconds"), Some("scaling.requestTimeoutSeconds"));
    // What is missing has a default, and is named as such.
    let targets = |file: &Converted| file.document["scaling"]["defaultConfig"].clone();
    assert_eq!(targets(&v31)["memoryTotalFractionTarget"], 0.9);
    assert_eq!(v31.document["metrics"]["lfc"]["port"], 9399);
    let default = v31.keys.iter().find(|key| key.key == "scaling.defaultConfig.lfcToMemoryRatio").unwrap();
    assert_eq!((&default.effect, &default.value), (&Effect::Default, &json!(0.75)));
    assert!(v31.keys.iter().all(|key| !key.text.is_empty()), "{:#?}", v31.keys);
}

/// Today's form is a fixed point.
#[test]
fn what_was_converted_stays_as_it_is() {
    let again = |file: &Converted, read: fn(&str) -> Result<Converted, NotAnObject>| {
        let twice = read(&file.document.to_string()).unwrap();
        assert_eq!((&twice.document, &twice.faults), (&file.document, &Vec::new()));
        assert!(twice.keys.iter().all(|key| matches!(key.effect, Effect::Used)), "{:#?}", twice.keys);
    };
    agents().for_each(|file| again(&file, agent));
    schedulers().for_each(|file| again(&file, scheduler));
}

#[test]
fn schedulers_files_of_all_releases_are_read() {
    let [v10, v17, v31] = schedulers().collect::<Vec<_>>().try_into().unwrap();
    for (file, watermark, migrates) in [(&v10, 0.7, false), (&v17, 0.9, false), (&v31, 0.9, true)] {
        assert_eq!(file.faults, Vec::<String>::new());
        assert_eq!(file.document["nodeConfig"]["cpu"]["watermark"], watermark);
        assert_eq!(file.document["nodeConfig"]["memory"]["watermark"], watermark);
        assert_eq!(file.document["doMigration"], migrates);
        assert_eq!(file.document["dumpState"]["port"], 10298);
    }
    for file in [&v10, &v17] {
        assert_eq!(file.document["computeUnit"], json!({ "vCPUs": 0.25, "mem": "1Gi" }));
        assert!(names(file.without_effect()).contains(&"memBlockSize"));
    }
    assert!(names(v10.without_effect()).contains(&"nodeDefaults.cpu.system"));
    assert_eq!(v31.document["scoring"]["randomize"], true);
    // Null and absent are true until v0.31; a file of today leaves it open.
    for (text, migrates) in [
        (r#"{"nodeConfig":{"cpu":{"watermark":0.5}},"doMigration":null}"#, json!(true)),
        (r#"{"nodeDefaults":{"cpu":{"watermark":0.5}}}"#, json!(true)),
        (r#"{"nodeConfig":{"cpu":{"watermark":0.5}},"doMigration":false}"#, json!(false)),
        (r#"{"watermark":0.5}"#, Value::Null),
    ] {
        assert_eq!(scheduler(text).unwrap().document["doMigration"], migrates, "{text}");
    }
}

/// Keys that few releases had: v0.18.2 to v0.21.0 of the agent, v0.16.0 of the scheduler.
#[test]
fn keys_of_releases_in_between_are_read() {
    let file =
        agent(r#"{"monitor":{"retryDeniedDownscaleSeconds":7,"deniedDownscaleFollowUpWaitSeconds":1}}"#)
            .unwrap();
    assert_eq!(file.faults, Vec::<String>::new());
    assert_eq!(names(file.without_effect()), ["monitor.deniedDownscaleFollowUpWaitSeconds"]);
    assert_eq!(file.document["monitor"]["retryDeniedDownscaleSeconds"], 7);
    assert!(file.document["monitor"].get("deniedDownscaleFollowUpWaitSeconds").is_none());
    let text = r#"{"nodeDefaults":{"cpu":{"watermark":0.9},"minUsageScore":0.5,"maxUsageScore":0,"scoreMidpoint":0.8}}"#;
    let file = scheduler(text).unwrap();
    assert_eq!(file.faults, Vec::<String>::new());
    assert_eq!(
        file.document["scoring"],
        json!({ "minUsageScore": 0.5, "maxUsageScore": 0, "scorePeak": 0.8 })
    );
    assert_eq!(file.name_in_file("scoring.scorePeak"), Some("nodeDefaults.scoreMidpoint"));
}

#[test]
fn what_contradicts_itself_is_named() {
    for (text, part) in [
        ("", "not a JSON object: EOF"),
        ("[]", "expected an object"),
        (r#"{"neonvm":{},"neonvm":{}}"#, "neonvm is set twice"),
        (r#"{"monitor":{"serverPort":1,"serverPort":1}}"#, "serverPort is set twice"),
    ] {
        let error = agent(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    let faults = |text: &str| agent(text).unwrap().faults.join("; ");
    let two = r#"{"scaling":{"requestTimeoutSeconds":10},"neonvm":{"requestTimeoutSeconds":5}}"#;
    let text =
        "scaling.requestTimeoutSeconds is 10, and neonvm.requestTimeoutSeconds, which means the same, is 5";
    assert!(faults(two).contains(text), "{}", faults(two));
    assert_eq!(faults(&two.replace("10", "5")), "");
    for (text, fault) in [
        (r#"{"monitor":{"colour":1}}"#, "monitor.colour: unknown key; remove it"),
        (r#"{"monitor.serverPort":1}"#, "monitor.serverPort: unknown key; remove it"),
        (r#"{"monitor":7}"#, "monitor: must be an object"),
        (r#"{"scaling":{"defaultConfig":{"targets":1}}}"#, "scaling.defaultConfig.targets: unknown key"),
    ] {
        assert!(faults(text).starts_with(fault), "{}", faults(text));
    }
    let slot = scheduler(r#"{"memBlockSize":"big"}"#).unwrap().faults;
    assert!(slot[0].starts_with("memBlockSize: \"big\" is no size"), "{slot:?}");
}

/// Go's readers ignore the case of keys, and read null as if it was not there.
#[test]
fn go_s_spelling_is_understood() {
    let file = agent(r#"{"Monitor":{"SERVERPORT":7},"metrics":null,"dumpState":null}"#).unwrap();
    assert_eq!(file.faults, Vec::<String>::new());
    assert_eq!(file.document["monitor"]["serverPort"], 7);
    assert!(file.document.get("dumpState").is_none());
    assert_eq!(file.document["metrics"]["system"]["port"], 9100);
}

/// Billing as it was: one server, in v0.10 without a limit of a batch.
#[test]
fn billing_of_earlier_versions_goes_to_a_client() {
    let old = r#"{"billing":{"url":"http://b","cpuMetricName":"c","activeTimeMetricName":"a","collectEverySeconds":4,
        "pushEverySeconds":24,"pushTimeoutSeconds":2}}"#;
    let billing = agent(old).unwrap().document["billing"].clone();
    assert_eq!(billing["accumulateEverySeconds"], 24);
    let client = json!({ "url": "http://b", "pushEverySeconds": 24, "pushRequestTimeoutSeconds": 2,
        "maxBatchSize": 1_000_000 });
    assert_eq!(billing["clients"]["http"], client);
}

/// Nothing panics, and what is not refused is an object.
#[test]
fn any_text_is_read_or_refused() {
    let deep = format!("{}1{}", "{\"a\":".repeat(200), "}".repeat(200));
    for text in
        ["{\"\":1}", "{\"é\":{}}", "{\"monitor\":{\"\":null}}", "{\"a.\":1}", "{\"monito\u{301}\":{}}", &deep]
    {
        for read in [agent, scheduler] {
            assert!(read(text).is_err() || read(text).unwrap().document.is_object(), "{text}");
        }
    }
}
