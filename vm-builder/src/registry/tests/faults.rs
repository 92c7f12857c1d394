//! A registry that drops, lies, stalls and refuses.

use std::time::Duration;

use super::*;
use crate::source::Pull;

struct Bench {
    fake: Fake,
    reference: Reference,
    /// Path of the blob of the first layer, and its length.
    blob: String,
    length: usize,
    cache: tempfile::TempDir,
    options: Options,
}

fn bench(form: Form) -> Bench {
    let fake = Fake::new();
    let image = sample::image(&sample::layers(), form, "amd64");
    let reference = fake.add("a/b", "v1", &image);
    let layer = &image.layers[0].descriptor;
    let cache = tempfile::tempdir().unwrap();
    let options = sample::options(cache.path());
    Bench {
        fake,
        reference,
        blob: format!("blobs/{}", layer.digest),
        length: usize::try_from(layer.size).unwrap(),
        cache,
        options,
    }
}

impl Bench {
    fn pull(&self) -> Result<Loaded, Error> {
        pull(&self.reference, &self.options)
    }

    /// The error, and that the first layer has got no final name.
    fn fails(&self) -> Error {
        let error = self.pull().expect_err("it must fail");
        assert_eq!(error.to_string().lines().count(), 1);
        assert!(error.hint().is_some(), "{error}");
        let diff_id = crate::reference::Digest::from_bytes(&sample::layers()[0]).hex();
        assert_eq!(files(self.cache.path(), &diff_id), 0);
        error
    }
}

#[test]
fn every_form_of_layer_is_loaded_and_then_needs_no_network() {
    for form in [Form::Plain, Form::Gzip, Form::Zstd] {
        let mut bench = bench(form);
        let loaded = bench.pull().unwrap();
        assert_eq!(sample::listed(&loaded), sample::expected(), "{form:?}");
        assert_eq!(loaded.settings.process.env, ["A=b c"]);
        assert_eq!((loaded.layers.len(), loaded.settings.process.working_dir.as_str()), (2, "/w"));
        bench.fake.log();
        assert_eq!(sample::listed(&bench.pull().unwrap()), sample::expected());
        let log = bench.fake.log();
        assert_eq!(log, ["GET /v2/", "GET /v2/a/b/manifests/v1"], "by tag only the manifest is asked for");
        bench.options.pull = Pull::Missing;
        bench.pull().unwrap();
        let by_digest = bench.reference.with_digest(loaded.digest);
        bench.options.pull = Pull::Always;
        assert_eq!(pull(&by_digest, &bench.options).unwrap().digest, loaded.digest);
        bench.options.pull = Pull::Never;
        bench.options.verify = true;
        assert_eq!(bench.pull().unwrap().reference, by_digest.to_string());
        assert_eq!(bench.fake.log(), Vec::<String>::new());
        let unknown = format!("{}/a/b:other", bench.fake.address).parse().unwrap();
        assert!(matches!(pull(&unknown, &bench.options).unwrap_err(), Error::NotCached(_)));
    }
}

#[test]
fn a_broken_transfer_goes_on_where_it_broke() {
    let bench = bench(Form::Gzip);
    bench.fake.fault(&bench.blob, Fault::Drop(100_000));
    bench.fake.fault(&bench.blob, Fault::Unsized(50_000));
    bench.fake.fault(&bench.blob, Fault::Whole);
    let recorded = RecordedProgress::default();
    let source = Source::Registry(bench.reference.clone());
    let loaded = run(load(&source, &bench.options, &recorded)).unwrap();
    assert_eq!(sample::listed(&loaded), sample::expected());
    let ranges: Vec<_> = bench.fake.log().into_iter().filter(|line| line.contains(&bench.blob)).collect();
    assert_eq!(ranges.len(), 3, "{ranges:?}");
    assert!(ranges[0].ends_with(&bench.blob));
    assert!(ranges[1].ends_with("bytes=100000-"), "{ranges:?}");
    assert!(ranges[2].ends_with("bytes=150000-"), "{ranges:?}");
    assert!(recorded.lines().iter().any(|line| line.contains("resuming")));
}

#[test]
fn what_an_earlier_run_fetched_is_resumed_and_damage_in_it_found() {
    let bench = bench(Form::Zstd);
    bench.fake.fault(&bench.blob, Fault::Drop(60_000));
    // Then no byte of progress any more.
    for _ in 0..3 {
        bench.fake.fault(&bench.blob, Fault::Drop(0));
    }
    let error = bench.fails();
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
    let layers = bench.cache.path().join("layers/sha256");
    assert_eq!(files(&layers, ".partial"), 1);
    bench.fake.state.lock().unwrap().faults.clear();
    bench.fake.log();
    assert_eq!(sample::listed(&bench.pull().unwrap()), sample::expected());
    let log = bench.fake.log();
    assert!(log.iter().any(|line| line.ends_with("bytes=60000-")), "{log:?}");
    assert_eq!(files(&layers, ".partial"), 0);
    // Again, with a partial file that holds something else.
    for entry in std::fs::read_dir(&layers).unwrap().flatten() {
        std::fs::remove_file(entry.path()).unwrap();
    }
    let hex = bench.blob.rsplit(':').next().unwrap();
    std::fs::write(layers.join(format!("{hex}.partial")), vec![0; 5000]).unwrap();
    assert_eq!(sample::listed(&bench.pull().unwrap()), sample::expected());
}

#[test]
fn lies_about_length_are_errors() {
    for (form, fault) in
        [(Form::Gzip, Fault::Short(1000)), (Form::Plain, Fault::Long(1000)), (Form::Zstd, Fault::Long(1))]
    {
        let bench = bench(form);
        bench.fake.fault(&bench.blob, fault);
        let error = bench.fails();
        let length = bench.length as u64;
        assert!(matches!(error, Error::LengthMismatch { expected, .. } if expected == length), "{error}");
    }
}

#[test]
fn other_content_is_an_error_and_nothing_is_kept() {
    for form in [Form::Plain, Form::Gzip, Form::Zstd] {
        let bench = bench(form);
        bench.fake.fault(&bench.blob, Fault::Wrong);
        let error = bench.fails();
        assert!(matches!(error, Error::DigestMismatch { .. }), "{form:?}: {error}");
        let hex = bench.blob.rsplit(':').next().unwrap();
        assert_eq!(files(bench.cache.path(), &format!("{hex}.partial")), 0);
        assert_eq!(sample::listed(&bench.pull().unwrap()), sample::expected());
    }
    let bench = bench(Form::Gzip);
    let reference = bench.reference.with_digest(crate::reference::Digest::from_bytes(b"other"));
    let path = format!("/v2/a/b/manifests/{}", reference.target());
    let mut state = bench.fake.state.lock().unwrap();
    let wrong = state.routes["/v2/a/b/manifests/v1"].clone();
    state.routes.insert(path, wrong);
    drop(state);
    assert!(matches!(pull(&reference, &bench.options).unwrap_err(), Error::DigestMismatch { .. }));
}

#[test]
fn a_wrong_diff_id_is_an_error() {
    let fake = Fake::new();
    let image = sample::image(&sample::layers(), Form::Gzip, "amd64");
    let other = sample::image(&[vec![0; 1024], sample::layers()[1].clone()], Form::Gzip, "amd64");
    let crate::store::BlobContent::Bytes(config) = &image.config.content else { panic!("bytes") };
    let config: serde_json::Value = serde_json::from_slice(config).unwrap();
    let image = crate::store::Image::new(&config, other.layers, &std::collections::BTreeMap::new()).unwrap();
    let reference = fake.add("a/b", "v1", &image);
    let cache = tempfile::tempdir().unwrap();
    let error = pull(&reference, &sample::options(cache.path())).unwrap_err();
    assert!(error.to_string().starts_with("uncompressed layer"), "{error}");
}

#[test]
fn busy_registries_are_asked_again_after_their_delay() {
    let busy = bench(Form::Gzip);
    busy.fake.fault("/manifests/", Fault::Status(429, Some(0)));
    busy.fake.fault(&busy.blob, Fault::Status(503, None));
    busy.fake.fault(&busy.blob, Fault::Status(500, None));
    assert_eq!(sample::listed(&busy.pull().unwrap()), sample::expected());
    let bench = bench(Form::Gzip);
    bench.fake.fault("/manifests/", Fault::Status(429, Some(3600)));
    let error = bench.fails();
    assert!(matches!(error, Error::Answer { status: 429, .. }), "{error}");
    assert_eq!(error.hint().unwrap(), "it asks to be tried again in 3600 s");
    for _ in 0..3 {
        bench.fake.fault("/manifests/", Fault::Status(502, None));
    }
    assert!(matches!(bench.fails(), Error::Answer { status: 502, .. }));
    bench.fake.log();
    bench.fake.fault("/manifests/", Fault::Status(418, None));
    assert!(matches!(bench.fails(), Error::Answer { status: 418, .. }));
    assert_eq!(bench.fake.log().len(), 2, "once");
}

#[test]
fn a_stall_ends_at_the_deadline_and_the_transfer_goes_on() {
    let mut bench = bench(Form::Gzip);
    // Longer than a busy machine delays an answer.
    bench.options.network.stall = Duration::from_secs(3);
    bench.fake.fault(&bench.blob, Fault::Stall(40_000));
    assert_eq!(sample::listed(&bench.pull().unwrap()), sample::expected());
    assert!(bench.fake.log().iter().any(|line| line.ends_with("bytes=40000-")));
    bench.options.network.stall = Duration::from_secs(1);
    for _ in 0..3 {
        bench.fake.fault("/manifests/", Fault::Stall(3));
    }
    let error = bench.pull().unwrap_err();
    assert!(error.to_string().contains("nothing arrived in time"), "{error}");
}

/// A byte in time is not enough: such a registry would hold a build for ever.
#[test]
fn a_registry_that_drips_is_given_up() {
    let mut bench = bench(Form::Gzip);
    bench.options.network.stall = Duration::from_secs(1);
    for _ in 0..8 {
        bench.fake.fault(&bench.blob, Fault::Drip(Duration::from_millis(20)));
    }
    let error = bench.fails();
    // On a very busy machine it may stall as well.
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
}

#[test]
fn errors_distinguish_what_does_not_exist() {
    let bench = bench(Form::Gzip);
    let named = |text: &str| format!("{}/{text}", bench.fake.address).parse().unwrap();
    let error = pull(&named("a/b:nope"), &bench.options).unwrap_err();
    assert!(error.to_string().ends_with("has no tag nope"), "{error}");
    let error = pull(&named("other:v1"), &bench.options).unwrap_err();
    assert!(matches!(error, Error::RepositoryNotFound { .. }), "{error}");
    bench.fake.state.lock().unwrap().routes.retain(|path, _| !path.contains(&bench.blob));
    assert!(matches!(bench.fails(), Error::BlobMissing { .. }));
    let unreachable: Reference = "127.0.0.1:1/a:b".parse().unwrap();
    let error = pull(&unreachable, &bench.options).unwrap_err();
    assert!(error.to_string().contains("connection refused"), "{error}");
}

#[test]
fn a_layer_wanted_twice_at_a_time_is_fetched_once() {
    let bench = bench(Form::Gzip);
    let results = run(async {
        let source = Source::Registry(bench.reference.clone());
        let one = load(&source, &bench.options, &crate::source::Quiet);
        let two = load(&source, &bench.options, &crate::source::Quiet);
        futures_util::future::join(one, two).await
    });
    assert_eq!(sample::listed(&results.0.unwrap()), sample::listed(&results.1.unwrap()));
    let log = bench.fake.log();
    assert_eq!(log.iter().filter(|line| line.contains(&bench.blob)).count(), 1, "{log:?}");
}

#[test]
fn redirections_are_followed_without_the_login() {
    let mut bench = bench(Form::Gzip);
    let store = Fake::new();
    let body = bench.fake.state.lock().unwrap().routes[&format!("/v2/a/b/{}", bench.blob)].clone();
    store.state.lock().unwrap().routes.insert("/elsewhere".into(), body);
    bench.fake.state.lock().unwrap().login = Some(("basic", "dTpw".into()));
    bench.fake.fault(&bench.blob, Fault::Redirect(format!("http://{}/elsewhere", store.address)));
    bench.options.network.login = Some(crate::source::Login { username: "u".into(), password: "p".into() });
    assert_eq!(sample::listed(&bench.pull().unwrap()), sample::expected());
    assert_eq!(store.log(), ["GET /elsewhere"], "and not with an authorization");
}
