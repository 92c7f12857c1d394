use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Model = BTreeMap<String, Vec<u8>>;

fn payload(model: &Model) -> Payload {
    use base64::Engine as _;
    let encode = |content: &Vec<u8>| base64::engine::general_purpose::STANDARD.encode(content);
    let body: serde_json::Map<_, _> = model
        .iter()
        .map(|(name, content)| (name.clone(), serde_json::json!({ "data": encode(content) })))
        .collect();
    Payload::parse(serde_json::Value::Object(body).to_string().as_bytes()).unwrap()
}

/// What a program that reads through the links sees.
fn seen(directory: &Path) -> Model {
    let mut files = Model::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with("..") {
            continue;
        }
        if entry.path().is_dir() {
            let below = seen(&entry.path());
            files.extend(below.into_iter().map(|(path, content)| (format!("{name}/{path}"), content)));
        } else if let Ok(content) = fs::read(entry.path()) {
            files.insert(name, content);
        }
    }
    files
}

fn left_over(directory: &Path) -> usize {
    fs::read_dir(directory)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with(".."))
        .count()
}

fn files() -> impl Strategy<Value = Model> {
    let all = proptest::collection::btree_map(
        "[a-d]{1,2}(/[e-h]){0,2}",
        proptest::collection::vec(any::<u8>(), 0..20),
        0..5,
    );
    // A file is no directory of another one.
    all.prop_map(|all: Model| {
        let above = |path: &str| all.keys().any(|other| other.starts_with(&format!("{path}/")));
        all.iter()
            .filter(|(path, _)| !above(path))
            .map(|(path, content)| (path.clone(), content.clone()))
            .collect()
    })
}

#[test]
fn the_layout_is_the_kubelets() {
    let root = tempfile::tempdir().unwrap();
    let directory = Directory::new(root.path().into());
    let model = Model::from([("tls.key".into(), b"secret".to_vec())]);
    directory.update(&payload(&model)).unwrap();
    assert_eq!(fs::read_link(root.path().join("tls.key")).unwrap(), Path::new("..data/tls.key"));
    let data = fs::read_link(root.path().join("..data")).unwrap();
    let mode = fs::metadata(root.path().join(data).join("tls.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o644);
    assert_eq!(directory.checksum().unwrap(), payload(&model).checksum());
}

/// What a kubelet writes for `items` with directories and modes.
#[test]
fn directories_and_modes_are_kept() {
    let root = tempfile::tempdir().unwrap();
    let directory = Directory::new(root.path().into());
    let parse = |text: &str| Payload::parse(text.as_bytes()).unwrap();
    let first = r#"{"sub/deep/p.txt":{"data":"cHc=","mode":256},"sub.x":{},"top":{"mode":288}}"#;
    directory.update(&parse(first)).unwrap();
    let mode = |name: &str| fs::metadata(root.path().join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(fs::read_link(root.path().join("sub")).unwrap(), Path::new("..data/sub"));
    assert_eq!(fs::read_to_string(root.path().join("sub/deep/p.txt")).unwrap(), "pw");
    assert_eq!(
        (mode("sub/deep/p.txt"), mode("top"), mode("sub.x"), mode("sub")),
        (0o400, 0o440, 0o644, 0o755)
    );
    assert_eq!(directory.checksum().unwrap(), parse(first).checksum());
    let before = fs::read_link(root.path().join("..data")).unwrap();
    directory.update(&parse(first)).unwrap();
    assert_eq!(fs::read_link(root.path().join("..data")).unwrap(), before, "the same again");
    directory.update(&parse(&first.replace("256", "384"))).unwrap();
    assert_eq!(mode("sub/deep/p.txt"), 0o600, "a mode alone is a change");
    directory.update(&parse(r#"{"top":{}}"#)).unwrap();
    assert!(fs::symlink_metadata(root.path().join("sub")).is_err());
    assert_eq!(left_over(root.path()), 2);
}

#[test]
fn a_missing_directory_has_an_error_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let directory = Directory::new(root.path().join("none"));
    assert!(matches!(directory.update(&Payload::default()), Err(Error::Target { .. })));
    assert!(directory.checksum().is_err());
}

#[test]
fn a_failed_change_leaves_the_old_files() {
    let root = tempfile::tempdir().unwrap();
    let directory = Directory::new(root.path().into());
    let old = Model::from([("a".into(), b"1".to_vec())]);
    directory.update(&payload(&old)).unwrap();
    fs::create_dir(root.path().join("b")).unwrap();
    let both = Model::from([("a".into(), b"2".to_vec()), ("b".into(), vec![])]);
    assert!(matches!(directory.update(&payload(&both)), Err(Error::Io { .. })));
    assert_eq!(seen(root.path()), old, "the link of `b` failed before the files were swapped");
    fs::remove_dir(root.path().join("b")).unwrap();
    directory.update(&payload(&both)).unwrap();
    assert_eq!(seen(root.path()), both);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Old files, a change that stops after any number of steps, then a change to any third state.
    #[test]
    fn a_kill_at_any_step_leaves_old_or_new_and_heals(
        old in files(), new in files(), third in files(), stop in 0usize..40,
    ) {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::new(root.path().into());
        directory.update(&payload(&old)).unwrap();
        let (next, fresh) = (payload(&new), plan::directory_name(SystemTime::now()));
        let same = old == new;
        let entries = directory.entries().unwrap();
        let steps = plan::plan(&entries, next.names(), (!same).then_some(fresh.as_os_str()));
        for step in steps.iter().take(stop) {
            directory.apply(step, &next).unwrap();
        }
        let (sum, visible) = (directory.checksum().unwrap(), seen(root.path()));
        let whole = if sum == next.checksum() { &new } else { &old };
        prop_assert_eq!(&sum, &payload(whole).checksum());
        for (name, content) in &visible {
            prop_assert_eq!(whole.get(name), Some(content));
        }
        directory.update(&payload(&third)).unwrap();
        prop_assert_eq!(seen(root.path()), third.clone());
        prop_assert_eq!(directory.checksum().unwrap(), payload(&third).checksum());
        prop_assert_eq!(left_over(root.path()), 2);
    }
}
