//! How sources are named.

use super::*;

fn parsed(text: &str) -> String {
    match Source::parse(text) {
        Ok(source) => source.text(),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn references_and_paths_are_distinguished() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    std::fs::create_dir(at("root")).unwrap();
    layout(Path::new(&at("layout")), Form::Plain);
    let tar = crate::layer::writer::Writer::default().file("etc/x", b"1").end();
    std::fs::write(at("root.tar"), &tar).unwrap();
    std::fs::write(at("root.tgz"), sample::compressed(Form::Gzip, &tar)).unwrap();
    let saved = crate::layer::writer::Writer::default().file("./manifest.json", b"[]").end();
    std::fs::write(at("a:b.tar"), saved).unwrap();
    let archive =
        crate::layer::writer::Writer::default().file("index.json", b"").file("oci-layout", b"").end();
    std::fs::write(at("oci.tar"), archive).unwrap();
    for (text, expected) in [
        ("postgres".to_owned(), "docker.io/library/postgres:latest".to_owned()),
        ("docker://ghcr.io/a/b:1".into(), "ghcr.io/a/b:1".into()),
        (at("root"), format!("dir:{}", at("root"))),
        (at("layout"), format!("oci:{}", at("layout"))),
        (format!("oci:{}:v1", at("layout")), format!("oci:{}:v1", at("layout"))),
        (format!("oci:{}:example.com/x:v1", at("layout")), format!("oci:{}:example.com/x:v1", at("layout"))),
        (at("root.tar"), format!("tar:{}", at("root.tar"))),
        (at("root.tgz"), format!("tar:{}", at("root.tgz"))),
        (at("a:b.tar"), format!("docker-archive:{}", at("a:b.tar"))),
        (format!("docker-archive:{}:x:1", at("a:b.tar")), format!("docker-archive:{}:x:1", at("a:b.tar"))),
        (at("oci.tar"), format!("oci-archive:{}", at("oci.tar"))),
        (at("nothing"), format!("error: no image source at {}", at("nothing"))),
        ("oci:/nowhere:x".into(), "error: no image source at /nowhere".into()),
        ("dir:".into(), "error: no image source at ".into()),
        (String::new(), "error: invalid reference \"\": it is empty".into()),
    ] {
        assert_eq!(parsed(&text), expected, "{text}");
    }
}
