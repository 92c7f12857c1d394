//! Layouts and archives, as we and other programs write them.

use super::*;

#[test]
fn layouts_and_archives_are_one_image() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for form in Form::ALL {
        let name = format!("{form:?}");
        let image = layout(&at(&name), form);
        let options = sample::options(&at(&format!("cache{name}")));
        let found = loaded(&Source::parse(at(&name).to_str().unwrap()).unwrap(), &options).unwrap();
        assert_eq!((found.digest, sample::listed(&found)), (image.digest(), sample::expected()));
        assert_eq!(found.settings.process.entrypoint, ["/bin/a"]);
        let tar = at(&format!("{name}.tar"));
        need!(run(Command::new("tar").arg("-C").arg(at(&name)).arg("-cf").arg(&tar).arg(".")));
        let by_tar = loaded(&Source::parse(tar.to_str().unwrap()).unwrap(), &options).unwrap();
        assert_eq!(by_tar.digest, found.digest);
        assert_eq!(sample::listed(&by_tar), sample::expected());
    }
}

#[test]
fn faults_of_a_layout_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("layout");
    let image = layout(&path, Form::Gzip);
    let mut options = sample::options(&directory.path().join("cache"));
    let source = |name: Option<&str>| Source::OciLayout { path: path.clone(), name: name.map(str::to_owned) };
    let error = loaded(&source(Some("other")), &options).unwrap_err().to_string();
    assert!(error.contains(r#"has no image "other" (it has example.com/x:v1)"#), "{error}");
    options.platform = "linux/arm64".parse().unwrap();
    let error = loaded(&source(None), &options).unwrap_err();
    assert!(matches!(error, Error::WrongPlatform { .. }), "{error}");
    options.platform = "linux/amd64".parse().unwrap();
    let blob = path.join("blobs/sha256").join(image.layers[0].descriptor.digest.hex());
    let bytes = std::fs::read(&blob).unwrap();
    let mut wrong = bytes.clone();
    let middle = wrong.len() / 2;
    wrong[middle] ^= 1;
    for (content, expected) in [
        (Some(wrong), "has digest"),
        (Some(bytes[..1000].to_vec()), "has 1000 bytes instead of"),
        (None, "lacks blob"),
    ] {
        match content {
            Some(content) => std::fs::write(&blob, content).unwrap(),
            None => std::fs::remove_file(&blob).unwrap(),
        }
        let error = loaded(&source(None), &options).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(
            !options
                .cache
                .join("layers/sha256")
                .join(crate::reference::Digest::from_bytes(&sample::layers()[0]).hex())
                .exists()
        );
    }
    let name: Reference = "example.com/second".parse().unwrap();
    Store::open(&path).unwrap().put(&image_of(b"x"), &name).unwrap();
    assert!(matches!(loaded(&source(None), &options).unwrap_err(), Error::Ambiguous { .. }));
}

fn image_of(content: &[u8]) -> crate::store::Image {
    sample::image(&[crate::layer::writer::Writer::default().file("a", content).end()], Form::Plain, "amd64")
}

#[test]
fn archives_of_docker_are_loaded_also_as_skopeo_writes_them() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    layout(&at("layout"), Form::Gzip);
    let to = format!("docker-archive:{}:example.com/x:v1", at("saved.tar").display());
    let from = format!("oci:{}:example.com/x:v1", at("layout").display());
    need!(run(Command::new("skopeo").args(["copy", "--insecure-policy", &from, &to])));
    let options = sample::options(&at("cache"));
    for text in [at("saved.tar").display().to_string(), to] {
        let found = loaded(&Source::parse(&text).unwrap(), &options).unwrap();
        assert_eq!(sample::listed(&found), sample::expected());
        assert_eq!(found.settings.process.user, "1:2");
    }
    let other = Source::DockerArchive { path: at("saved.tar"), name: Some("nope".into()) };
    assert!(matches!(loaded(&other, &options).unwrap_err(), Error::ImageNotFound { .. }));
}

#[test]
fn what_umoci_unpacks_is_what_we_load() {
    use crate::layer::writer::Writer;
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let layers = [
        Writer::default()
            .directory("usr/lib", 0o755)
            .symlink("lib", "usr/lib")
            .file("usr/lib/a", b"1")
            .directory("var/old", 0o755)
            .file("var/old/x", b"x")
            .file("var/kind", b"file")
            .file("gone", b"")
            .end(),
        Writer::default()
            .file("lib/b", b"through a link")
            .hard_link("hard", "usr/lib/a")
            .file(".wh.gone", b"")
            .directory("var/old", 0o700)
            .file("var/old/.wh..wh..opq", b"")
            .file("var/old/y", b"y")
            .directory("var/kind", 0o755)
            .file("var/kind/z", b"z")
            .end(),
        Writer::default().file("usr/lib/a", b"2").file("lib/.wh.b", b"").symlink("dangling", "/a/b").end(),
    ];
    let image = sample::image(&layers, Form::Gzip, "amd64");
    Store::open(&at("layout")).unwrap().put(&image, &"x:v1".parse().unwrap()).unwrap();
    // Names with a slash are not for umoci.
    let index = std::fs::read_to_string(at("layout/index.json")).unwrap();
    std::fs::write(at("layout/index.json"), index.replace("docker.io/library/x:v1", "v1")).unwrap();
    let name = format!("{}:v1", at("layout").display());
    need!(run(Command::new("umoci").args(["unpack", "--rootless", "--image", &name]).arg(at("bundle"))));
    let options = sample::options(&at("cache"));
    let ours = loaded(&Source::OciLayout { path: at("layout"), name: None }, &options).unwrap();
    let theirs = loaded(&Source::RootTree(at("bundle/rootfs")), &options).unwrap();
    let found = sample::listed(&ours);
    assert_eq!(found, sample::listed(&theirs));
    assert!(found.contains(&"/hard 1".to_owned()) && found.contains(&"/usr/lib/a 2".to_owned()), "{found:?}");
}
