use std::path::Path;

use neonvm_disk::tree::Kind;
use proptest::prelude::*;

use super::evaluate::{Given, base, evaluate};
use super::ignore::{Ignore, name_matches, parts};
use super::parse::parse;
use super::*;
use crate::source::sample::{self, Form, RecordedProgress};
use crate::source::{Error, Loaded, Source};
use crate::store::Store;

/// A directory with a base image `base`, which has `/etc/name` and `/bin/a`'s settings, and files.
fn context(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let image = sample::image(&sample::layers(), Form::Plain, "amd64");
    Store::open(&directory.path().join("base")).unwrap().put(&image, &"x:1".parse().unwrap()).unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    directory
}

fn build_with(directory: &Path, text: &str, arguments: &[&str]) -> Result<(Loaded, Vec<String>), Error> {
    std::fs::write(directory.join("Dockerfile"), text).unwrap();
    let arguments = arguments.iter().map(|text| (*text).to_owned()).collect();
    let source = Source::Dockerfile { path: directory.join("Dockerfile"), arguments };
    let cache = tempfile::tempdir().unwrap();
    let progress = RecordedProgress::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let loaded = runtime.block_on(crate::source::load(&source, &sample::options(cache.path()), &progress))?;
    Ok((loaded, progress.lines().into_iter().filter(|line| line.starts_with("note")).collect()))
}

fn build(directory: &Path, text: &str) -> Result<Loaded, Error> {
    build_with(directory, text, &[]).map(|(loaded, _)| loaded)
}

/// `Dockerfile:LINE: PROBLEM`, and the remedy.
fn fault(directory: &Path, text: &str) -> (String, String) {
    let error = build(directory, text).err().unwrap_or_else(|| panic!("{text} is built"));
    let shown = error.to_string().replace(&directory.display().to_string(), "D");
    (shown, error.hint().unwrap_or_default())
}

#[test]
fn a_whole_dockerfile_is_carried_out() {
    let directory =
        context(&[("app/run.sh", "#!/bin/sh"), ("app/lib/a.txt", "a"), ("conf.d/x", "1"), ("conf.d/y", "2")]);
    let text = "# syntax=docker/dockerfile:1\n\
        ARG BASE=nothing\n\
        FROM oci:${BASE} AS final\n\
        ARG PORT=80\n\
        ENV PORT=$PORT GREETING=\"hello world\" \\\n    # a comment within\n    A=2\n\
        LABEL org.example.a='$PORT' \"b c\"=\"${NONE:-d}\"\n\
        WORKDIR /srv\n\
        COPY app/ ./app\n\
        COPY --chown=7:8 --chmod=0750 conf.d/* /etc/conf/\n\
        COPY app/run.sh bin/go\n\
        WORKDIR data\n\
        ENV USER=web\n\
        USER $USER\n\
        EXPOSE 80 53/udp\n\
        VOLUME /data\n\
        ENTRYPOINT [\"/srv/bin/go\", \"$PORT\"]\n\
        CMD serve --port \"$PORT\"\n\
        STOPSIGNAL SIGQUIT\n";
    let (loaded, notes) = build_with(directory.path(), text, &["BASE=base", "PORT=81", "OTHER=1"]).unwrap();
    let listed = sample::listed(&loaded);
    for line in [
        "/etc/name upper",
        "/srv/app/run.sh #!/bin/sh",
        "/srv/app/lib/a.txt a",
        "/srv/bin/go #!/bin/sh",
        "/etc/conf/y 2",
    ] {
        assert!(listed.contains(&line.to_owned()), "{line}: {listed:?}");
    }
    let process = &loaded.settings.process;
    assert_eq!(process.entrypoint, ["/srv/bin/go", "$PORT"]);
    assert_eq!(process.cmd, ["/bin/sh", "-c", "serve --port \"$PORT\""]);
    assert_eq!(process.env, ["PORT=81", "GREETING=hello world", "A=2", "USER=web"]);
    assert_eq!((process.user.as_str(), process.working_dir.as_str()), ("web", "/srv/data"));
    assert_eq!(process.stop_signal, "SIGQUIT");
    let labels: Vec<_> =
        loaded.settings.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(labels, ["b c=d", "k=v", "org.example.a=$PORT"]);
    let find = |path: &str| {
        let inode =
            crate::content::find(&loaded.tree, path.as_bytes()).unwrap_or_else(|| panic!("no {path}"));
        loaded.tree.get(inode).unwrap()
    };
    let conf = &find("/etc/conf/x").metadata;
    assert_eq!((conf.uid, conf.gid, conf.mode), (7, 8, 0o750));
    assert_eq!((find("/srv/bin/go").metadata.uid, find("/srv/app/lib").metadata.gid), (0, 0));
    assert!(matches!(find("/srv/data").kind, Kind::Directory(_)));
    assert!(
        loaded.reference.starts_with("dockerfile:") && loaded.reference.contains(" from oci:"),
        "{}",
        loaded.reference
    );
    let notes = notes.join("\n");
    for part in ["line 16", "--port 80 --port 53/udp", "VOLUME has no effect", "--build-arg OTHER"] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
}

#[test]
fn an_entry_point_drops_the_arguments_of_the_base_image() {
    let directory = context(&[]);
    let cmd = |text: &str| build(directory.path(), text).unwrap().settings.process.cmd;
    assert_eq!(cmd("FROM oci:base\nCMD [\"x\"]\nENTRYPOINT [\"y\"]\n"), ["x"]);
    assert!(cmd("FROM oci:base\nENTRYPOINT [\"y\"]\n").is_empty());
    let process = build(directory.path(), "FROM oci:base\nSHELL [\"/bin/bash\", \"-c\"]\nENTRYPOINT a b\n")
        .unwrap()
        .settings
        .process;
    assert_eq!(process.entrypoint, ["/bin/bash", "-c", "a b"]);
    assert_eq!(process.env, ["A=b c"]);
}

#[test]
fn what_cannot_be_done_is_named_with_its_line_and_a_remedy() {
    let directory = context(&[("a", "1"), ("b", "2"), ("d/e", "3")]);
    std::os::unix::fs::symlink("/etc", directory.path().join("out")).unwrap();
    for (text, line, problem, remedy) in [
        ("FROM oci:base\n\nRUN apt-get \\\n update\n", 3, "RUN cannot be carried out", "--from IMAGE"),
        ("FROM oci:base\nCOPY ../x /\n", 2, "leads out of the context", "context"),
        ("FROM oci:base\nCOPY out/passwd /\n", 2, "leads out of the context", "context"),
        ("FROM oci:base\nCOPY missing /\n", 2, "does not exist", "relative to"),
        ("FROM oci:base\nCOPY m* /\n", 2, "matches nothing", ""),
        ("FROM oci:base\nCOPY a b /file\n", 2, "several sources", ""),
        ("FROM oci:base\nCOPY a\n", 2, "needs a source and a target", "COPY SOURCE"),
        ("FROM oci:base\nCOPY d /etc/name\n", 2, "is not a directory", ""),
        ("FROM oci:base\nCOPY a /etc/name/x\n", 2, "is not a directory", ""),
        ("FROM oci:base\nCOPY --from=x a b\n", 2, "COPY --from", "--from IMAGE"),
        ("FROM oci:base\nCOPY --chmod=9 a b\n", 2, "--chmod", "0755"),
        ("FROM oci:base\nCOPY --chown=web a b\n", 2, "no user \"web\"", "numbers"),
        ("FROM oci:base\nCOPY <<EOF /x\nEOF\n", 2, "here-documents", "file"),
        ("FROM oci:base\nADD http://x /\n", 2, "ADD", "COPY"),
        ("FROM oci:base\nFROM scratch\n", 2, "second FROM", "--from IMAGE"),
        ("FROM dir:../x\n", 1, "leads out of the context", "context"),
        ("FROM dir:out\n", 1, "leads out of the context", "context"),
        ("FROM $NONE\n", 1, "names no image", "--build-arg"),
        ("FROM --platform=linux/arm64 x\n", 1, "no flag", "--arch"),
        ("ENV A=1\nFROM x\n", 1, "only ARG", "FROM IMAGE"),
        ("# nothing\n", 1, "no FROM", "FROM IMAGE"),
        ("FROM oci:base\nENTRYPOINT ['x']\n", 2, "ENTRYPOINT: this is not a JSON array", "double quotes"),
        ("FROM oci:base\nENV A=\"x\n", 2, "a quote is not closed", ""),
        ("FROM oci:base\nENV A=${B:?no}\n", 2, "is none of", ""),
        ("FROM oci:base\nENV A\n", 2, "has no value", ""),
        ("FROM oci:base\nCMD\n", 2, "CMD has no arguments", ""),
        ("FROM oci:base\nEXPOSE eighty\n", 2, "is not a port", "8080"),
        ("FROM oci:base\nBOGUS x\n", 2, "no instruction \"BOGUS\"", "known are"),
        ("# escape=x\nFROM oci:base\n", 1, "escape", "# escape="),
    ] {
        let (shown, hint) = fault(directory.path(), text);
        assert!(
            shown.starts_with(&format!("D/Dockerfile:{line}: ")) && shown.contains(problem),
            "{text}: {shown}"
        );
        assert!(hint.contains(remedy) && hint.is_empty() == remedy.is_empty(), "{text}: {hint}");
    }
}

#[test]
fn what_dockerignore_leaves_out_is_not_copied() {
    let directory = context(&[
        ("app/keep", "1"),
        ("app/secret/key", "2"),
        ("app/secret/readme", "3"),
        ("app/tmp/x", "4"),
        ("app/log.txt", "5"),
        (".dockerignore", "# comment\n**/*.txt\napp/secret\n!app/secret/readme\napp/tmp\n"),
    ]);
    let loaded = build(directory.path(), "FROM scratch\nCOPY app /app\n").unwrap();
    assert_eq!(sample::listed(&loaded), ["/app/keep 1", "/app/secret/readme 3"]);
    assert!(crate::content::find(&loaded.tree, b"/app/tmp").is_none());
    let (shown, _) = fault(directory.path(), "FROM scratch\nCOPY app/log.txt /\n");
    assert!(shown.contains(".dockerignore"), "{shown}");
}

#[test]
fn links_in_the_context_are_copied_and_not_followed() {
    let directory = context(&[("app/x", "1")]);
    std::os::unix::fs::symlink("/etc/shadow", directory.path().join("app/link")).unwrap();
    std::os::unix::fs::symlink("x", directory.path().join("app/inside")).unwrap();
    let loaded = build(directory.path(), "FROM scratch\nCOPY app /app/\nCOPY app/inside /y\n").unwrap();
    let link =
        crate::content::find(&loaded.tree, b"/app").and_then(|app| loaded.tree.child(app, b"link")).unwrap();
    assert_eq!(loaded.tree.get(link).unwrap().kind, Kind::Symlink(b"/etc/shadow".to_vec()));
    assert!(sample::listed(&loaded).contains(&"/y 1".to_owned()));
}

#[test]
fn the_same_context_has_the_same_digest() {
    let directory = context(&[("app/x", "1")]);
    let digest = |text: &str| build(directory.path(), text).unwrap().digest;
    let first = digest("FROM oci:base\nCOPY app /app\n");
    std::fs::write(directory.path().join("disk.qcow2"), "an output").unwrap();
    assert_eq!(digest("# a comment\nFROM oci:base\nCOPY app /app\n"), first);
    assert_ne!(digest("FROM oci:base\nCOPY app /other\n"), first);
    assert_ne!(digest("FROM scratch\nCOPY app /app\n"), first);
    std::fs::write(directory.path().join("app/x"), "2").unwrap();
    assert_ne!(digest("FROM oci:base\nCOPY app /app\n"), first);
}

#[test]
fn dockerfiles_are_recognised() {
    let directory = context(&[("Dockerfile", "FROM scratch"), ("web/Containerfile.dev", "FROM scratch")]);
    let at = |name: &str| directory.path().join(name).display().to_string();
    let text = |name: &str| Source::parse(name).unwrap().text();
    assert_eq!(text(&at("")), format!("dockerfile:{}", at("Dockerfile")));
    assert_eq!(text(&at("web/Containerfile.dev")), format!("dockerfile:{}", at("web/Containerfile.dev")));
    assert_eq!(text(&format!("dockerfile:{}", at("Dockerfile"))), format!("dockerfile:{}", at("Dockerfile")));
    assert_eq!(text(&format!("dir:{}", at(""))), format!("dir:{}", at("")));
    assert!(Source::parse(&format!("dockerfile:{}", at("web"))).is_err());
}

#[test]
fn patterns_match_as_with_docker() {
    for (pattern, name, wanted) in [
        ("*.txt", "a.txt", true),
        ("*.txt", "a.txt.gz", false),
        ("a*b*c", "axxbyyc", true),
        ("a*b*c", "axxbyy", false),
        ("?", "ab", false),
        ("[a-c]x", "bx", true),
        ("[^a-c]x", "bx", false),
        ("[", "[", true),
        ("\\*", "*", true),
        ("\\*", "x", false),
        ("**", "anything", true),
        ("", "", true),
    ] {
        assert_eq!(name_matches(pattern.as_bytes(), name.as_bytes()), wanted, "{pattern} {name}");
    }
    let out = |text: &str, path: &str| Ignore::parse(text).leaves_out(&parts(path));
    assert!(out("**/x", "a/b/x") && out("**/x", "x") && out("a/**", "a/b/c") && out("/a", "a/b"));
    assert!(!out("x", "a/x") && !out("*\n!a", "a") && !out("", "a") && out("*\n!a\na/b", "a/b/c"));
}

/// Parses and evaluates; whatever the text, without a panic.
fn attempt(bytes: &[u8]) -> Result<(), Fault> {
    let file = parse(bytes)?;
    let given = Given::default();
    base(&file, &given)?;
    evaluate(&file, &given, Default::default(), Default::default()).map(drop)
}

/// Lines of instructions that are nearly right.
fn nearly() -> impl Strategy<Value = String> {
    let keyword = prop::sample::select(vec![
        "FROM",
        "ARG",
        "ENV",
        "LABEL",
        "COPY",
        "WORKDIR",
        "USER",
        "ENTRYPOINT",
        "CMD",
        "EXPOSE",
        "SHELL",
        "RUN",
        "from",
    ]);
    let rest = "[ -~]{0,20}|(\\$\\{?[A-C](:[-+])?\\}?[ =\"'\\\\]{0,2}){1,4}|\\[\"a\", ?\"[b$]*\"\\]|A=[$\\\\\"'{}A-C]{0,9}";
    let line = (keyword, rest).prop_map(|(keyword, rest)| format!("{keyword} {rest}"));
    prop::collection::vec(line, 0..8).prop_map(|lines| format!("FROM x\n{}", lines.join("\n")))
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_with_a_line(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Err(fault) = attempt(&bytes) {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
            prop_assert!((1..=lines).contains(&fault.line), "{fault:?}");
            prop_assert!(!fault.problem.is_empty());
        }
    }

    #[test]
    fn nearly_right_text_is_read_or_refused_with_a_line(text in nearly()) {
        if let Err(fault) = attempt(text.as_bytes()) {
            prop_assert!((1..=text.lines().count().max(1)).contains(&fault.line), "{fault:?}");
        }
    }

    #[test]
    fn continued_lines_are_one(words in prop::collection::vec("[a-z]{1,5}", 1..6)) {
        let one = parse(format!("FROM x\nCMD {}\n", words.join(" ")).as_bytes()).unwrap();
        let many = parse(format!("FROM x\nCMD {}\n", words.join(" \\\n")).as_bytes()).unwrap();
        prop_assert_eq!(one, many);
    }

    #[test]
    fn a_path_never_leaves_the_image(path in "[a./]{0,20}") {
        let text = format!("FROM x\nWORKDIR /w\nWORKDIR {}\n", if path.trim().is_empty() { "." } else { &path });
        let file = parse(text.as_bytes()).unwrap();
        let process = evaluate(&file, &Given::default(), Default::default(), Default::default()).unwrap().process;
        prop_assert!(process.working_dir.starts_with('/') && !process.working_dir.split('/').any(|part| part == ".."));
    }
}

#[test]
fn deep_and_growing_variables_are_refused() {
    let deep = format!("FROM x\nENV A={}y{}\n", "${B:-".repeat(10_000), "}".repeat(10_000));
    assert!(attempt(deep.as_bytes()).unwrap_err().problem.contains("nested"));
    let double = "ENV A=$A$A\n".repeat(64);
    let fault = attempt(format!("FROM x\nENV A=xx\n{double}").as_bytes()).unwrap_err();
    assert!(fault.problem.contains("more than"), "{fault:?}");
}
