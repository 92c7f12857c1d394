//! Completion in real shells: each loads the script that `neonctl completion` prints and completes lines.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::{Command, Output};

use neonvm_test_support::{need, needs};

/// Lines up to the cursor, and some of what completes their last word.
const LINES: [(&str, &[&str]); 6] = [
    ("neonctl vm ", &["create", "list", "ssh-config"]),
    ("neonctl completion ", &["bash", "zsh", "fish"]),
    ("neonctl vm list --outp", &["--output"]),
    // Names that are known without a cluster: of a local cluster, of a setting.
    ("neonctl local down --name ", &["dev"]),
    ("neonctl config set data", &["data-dir"]),
    // Flags of the cluster may stand before the command.
    ("neonctl -n x --context=y vm li", &["list"]),
];

/// A home directory with a local cluster, and `neonctl` in `PATH`.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let cluster = home.path().join(".local/state/neonctl/local/dev");
        std::fs::create_dir_all(&cluster).unwrap();
        std::fs::write(cluster.join("kubeconfig"), "").unwrap();
        Self(home)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs a shell, which has a minute.
    fn run(&self, shell: &Path, arguments: &[&str]) -> Output {
        let programs = Path::new(env!("CARGO_BIN_EXE_neonctl")).parent().unwrap();
        let mut command = Command::new("timeout");
        command.arg("60").arg(shell).args(arguments).env_clear().env("HOME", self.path());
        command.env("PATH", format!("{}:/usr/bin:/bin", programs.display())).env("TERM", "dumb");
        command.current_dir(self.path()).output().unwrap()
    }

    /// Writes the script of a shell into a file.
    fn script(&self, shell: &str, file: &str) {
        let output = Command::new(env!("CARGO_BIN_EXE_neonctl"))
            .args(["completion", shell])
            .env("HOME", self.path())
            .output()
            .unwrap();
        assert!(output.status.success());
        let file = self.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, output.stdout).unwrap();
    }

    /// Completes each line by a function that prints one candidate a line.
    fn check(&self, complete: impl Fn(&Self, &str) -> Output) {
        for (line, wanted) in LINES {
            let output = complete(self, line);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let found: Vec<&str> = text.lines().map(|line| line.split('\t').next().unwrap_or(line)).collect();
            for word in wanted {
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(found.contains(word), "{line:?}: {word} is not in {found:?}; {errors}");
            }
            let last = line.rsplit(' ').next().unwrap_or_default();
            let fits = |word: &&str| word.is_empty() || word.starts_with(last);
            assert!(found.iter().all(fits), "{line:?}: {found:?}");
        }
    }
}

/// Calls the function as Bash does when a key is pressed.
const BASH: &str = r#"
source ./script
line=$1
read -ra COMP_WORDS <<< "$line"
[[ $line != *' ' ]] || COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line} COMP_TYPE=9
[[ $(complete -p neonctl) =~ ' -F '([^ ]+)' ' ]] || exit 1
"${BASH_REMATCH[1]}" neonctl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

#[test]
fn bash_completes() {
    let bash = need!(needs::program("bash"));
    let home = Home::new();
    home.script("bash", "script");
    home.check(|home, line| home.run(&bash, &["--norc", "--noprofile", "-c", BASH, "bash", line]));
}

#[test]
fn fish_completes() {
    let fish = need!(needs::program("fish"));
    let home = Home::new();
    home.script("fish", "script.fish");
    home.check(|home, line| {
        let ask = format!("source script.fish; complete -C '{line}'");
        home.run(&fish, &["--no-config", "-c", &ask])
    });
}

/// Completion exists only in the line editor: a second zsh has one on a terminal. What it offers is read where it is added, and
/// the functions behind a completion report that it is done.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner 'PROMPT=; autoload -Uz compinit; '$1
zpty -w inner 'compadd() { local -a found; builtin compadd -A found "$@"; print -rl -- $found >> found; builtin compadd "$@" }'
zpty -w inner 'after() { print "comp""leted" }; comppostfuncs=(after); bindkey "^I" list-choices'
zpty -n -w inner $2$'\t'
zpty -r inner shown '*completed*'
zpty -d inner
cat found && rm found
"#;

fn zsh_completes_after(setup: &str, file: &str) {
    let zsh = need!(needs::program("zsh"));
    let home = Home::new();
    home.script("zsh", file);
    home.check(|home, line| home.run(&zsh, &["-f", "-c", ZSH, "zsh", setup, line]));
}

#[test]
fn zsh_completes_with_a_sourced_script() {
    zsh_completes_after("compinit -u -D; source ./script", "script");
}

/// As packages install it: in a directory of `fpath`, where the script is read at the first completion.
#[test]
fn zsh_completes_with_an_autoloaded_script() {
    zsh_completes_after("fpath=($PWD/functions $fpath); compinit -u -D", "functions/_neonctl");
}
