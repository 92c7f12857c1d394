//! Logins: from files, from helpers, by password, token and identity token.

use base64::Engine as _;

use super::*;
use crate::registry::credentials::helper::ask_program;
use crate::registry::credentials::{Credentials, auth_files};
use crate::source::Login;

fn encoded(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

struct Bench {
    fake: Fake,
    reference: Reference,
    directory: tempfile::TempDir,
    options: Options,
}

fn bench(kind: &'static str, secret: &str) -> Bench {
    let fake = Fake::new();
    let reference = fake.add("a/b", "v1", &sample::image(&sample::layers(), Form::Gzip, "amd64"));
    fake.state.lock().unwrap().login = Some((kind, secret.to_owned()));
    let directory = tempfile::tempdir().unwrap();
    let mut options = sample::options(&directory.path().join("cache"));
    options.network.auth_files =
        vec![directory.path().join("missing.json"), directory.path().join("config.json")];
    Bench { fake, reference, directory, options }
}

impl Bench {
    fn file(&self, text: &str) {
        let text = text.replace("HOST", &self.fake.address);
        std::fs::write(self.directory.path().join("config.json"), text).unwrap();
    }

    fn pull(&self) -> Result<Loaded, Error> {
        pull(&self.reference, &self.options)
    }
}

#[test]
fn a_login_is_found_in_files_of_docker_and_podman() {
    let secret = encoded("user:pa:ss");
    for (kind, text) in [
        ("basic", r#"{"auths":{"HOST":{"auth":"SECRET"}}}"#),
        ("bearer", r#"{"auths":{"https://HOST/v1/":{"auth":"SECRET"}}}"#),
        ("bearer", r#"{"auths":{"HOST/a/b":{"username":"user","password":"pa:ss"},"HOST":{"auth":"eDp5"}}}"#),
        ("bearer", r#"{"auths":{"other":{},"HOST/a":{"auth":"SECRET"}},"credHelpers":{},"more":1}"#),
    ] {
        let bench = bench(kind, &secret);
        bench.file(&text.replace("SECRET", &secret));
        assert_eq!(sample::listed(&bench.pull().unwrap()), sample::expected(), "{text}");
    }
    let bench = bench("identity", "refresh-me");
    bench.file(r#"{"auths":{"HOST":{"auth":"","identitytoken":"refresh-me"}}}"#);
    bench.pull().unwrap();
}

#[test]
fn without_a_login_the_error_names_the_searched_places() {
    for kind in ["basic", "bearer"] {
        let mut bench = bench(kind, &encoded("user:pass"));
        let error = bench.pull().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Unauthorized { .. }), "{text}");
        for part in [bench.fake.address.as_str(), "missing.json, ", "config.json"] {
            assert!(text.contains(part), "{text}");
        }
        bench.file(&format!(r#"{{"auths":{{"HOST":{{"auth":"{}"}}}}}}"#, encoded("user:wrong")));
        let text = bench.pull().unwrap_err().to_string();
        assert!(text.contains("the login in ") && !text.contains("wrong"), "{text}");
        bench.options.network.login = Some(Login { username: "user".into(), password: "pass".into() });
        bench.pull().unwrap();
    }
}

#[test]
fn a_damaged_file_is_an_error_without_secrets() {
    let bench = bench("basic", "x");
    bench.file(r#"{"auths":{"HOST":{"auth":"c2VjcmV0"},}"#);
    let text = bench.pull().unwrap_err().to_string();
    assert!(text.contains("config.json is malformed: line 1") && !text.contains("c2Vj"), "{text}");
}

#[test]
fn the_usual_files_are_known() {
    let environment = |name: &str| match name {
        "HOME" => Some("/home/x".to_owned()),
        "XDG_RUNTIME_DIR" => Some("/run/user/1".to_owned()),
        "DOCKER_CONFIG" => Some(String::new()),
        _ => None,
    };
    let files = auth_files(&environment);
    let files: Vec<_> = files.iter().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(
        files,
        [
            "/run/user/1/containers/auth.json",
            "/home/x/.config/containers/auth.json",
            "/home/x/.docker/config.json"
        ]
    );
}

#[test]
fn helpers_are_asked_and_may_fail() {
    let bench = bench("basic", "x");
    bench.file(r#"{"credHelpers":{"HOST":"neonvm-test-missing"}}"#);
    let error = bench.pull().unwrap_err();
    assert!(
        matches!(&error, Error::Helper { program, .. } if program == "docker-credential-neonvm-test-missing")
    );
    bench.file(r#"{"credsStore":"../../bin/sh"}"#);
    let text = bench.pull().unwrap_err().to_string();
    assert!(text.contains("its name is not that of a helper"), "{text}");
    let script = r#"#!/bin/sh
read -r host || true
case $host in
127*) echo '{"ServerURL":"x","Username":"u","Secret":"p"}' ;;
id) echo '{"Username":"<token>","Secret":"t"}' ;;
bad) exit 3 ;;
*) echo 'credentials not found in native keychain'; exit 1 ;;
esac
"#;
    let helper = bench.directory.path().join("docker-credential-test");
    // Another process writes it: a child that this process starts meanwhile would inherit the open file, and the kernel
    // refuses to execute a file that a process has open for writing.
    let write = r#"printf %s "$1" > "$0" && chmod 755 "$0""#;
    let written = std::process::Command::new("/bin/sh").args(["-c", write]).arg(&helper).arg(script).status();
    assert!(written.unwrap().success());
    let ask = |host: &str| run(ask_program(&helper, host));
    let Ok(Some(Credentials::Password(login))) = ask("127.0.0.1:5") else { panic!("no password") };
    assert_eq!((login.username.as_str(), login.password.as_str()), ("u", "p"));
    assert!(matches!(ask("id"), Ok(Some(Credentials::IdentityToken(_)))));
    assert!(matches!(ask("unknown"), Ok(None)));
    let Err(error) = ask("bad") else { panic!("no error") };
    assert!(error.to_string().contains("it ended with"), "{error}");
}

#[test]
fn logins_of_others_are_named_and_run_no_program() {
    use crate::source::Logins;
    let secret = encoded("user:right");
    let mut bench = bench("basic", &secret);
    let host = bench.fake.address.clone();
    let logins = |name: &str, text: &str| Logins {
        name: format!("pull secret {name:?}"),
        content: Ok(text.replace("HOST", &host).replace("SECRET", &secret).into_bytes()),
    };
    bench.options.network.files_name = Some("a login file of the node".to_owned());
    let missing =
        Logins { name: "pull secret \"gone\"".to_owned(), content: Err("does not exist".to_owned()) };
    let message = |bench: &Bench, all: &[Logins]| {
        let mut options = bench.options.clone();
        options.network.logins = all.to_vec();
        pull(&bench.reference, &options).map(|_| ()).map_err(|error| {
            let text = error.to_string();
            assert!(!text.contains(&bench.directory.path().display().to_string()), "{text}");
            text
        })
    };
    let good = logins("a", r#"{"auths":{"HOST":{"auth":"SECRET"}}}"#);
    assert_eq!(message(&bench, &[missing.clone(), good.clone()]), Ok(()));
    let wrong = logins("wrong", r#"{"auths":{"HOST":{"username":"user","password":"no"}}}"#);
    let text = message(&bench, &[wrong, good]).unwrap_err();
    assert!(text.contains("the login in pull secret \"wrong\""), "{text}");
    let other = logins("other", r#"{"auths":{"elsewhere.example":{"auth":"SECRET"}}}"#);
    let broken = logins("broken", "{");
    let helpers = logins("helpers", r#"{"credHelpers":{"HOST":"x"},"credsStore":"x"}"#);
    let text = message(&bench, &[missing, other, broken, helpers]).unwrap_err();
    for expected in [
        "pull secret \"gone\" does not exist",
        &format!("pull secret \"other\" has none for {host}"),
        "pull secret \"broken\" cannot be read at line 1",
        &format!("pull secret \"helpers\" has none for {host}"),
    ] {
        assert!(text.contains(expected), "{text}");
    }
    let text = message(&bench, &[]).unwrap_err();
    assert!(text.contains("no login was found in a login file of the node"), "{text}");
    bench.file(r#"{"auths":{"HOST":{"username":"root","password":"no"}}}"#);
    let text = message(&bench, &[]).unwrap_err();
    assert!(text.contains("the login in a login file of the node"), "{text}");
}
