//! The live view on a terminal: it shows hostile texts as what they are, and leaves the terminal as it was.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use neonvm_test_support::needs::program;
use neonvm_test_support::{PATIENCE, need};

use crate::Home;
use crate::server::{HOSTILE, Manner};

/// What begins and ends the full screen.
const SCREEN: (&str, &str) = ("\u{1b}[?1049h", "\u{1b}[?1049l");

/// The program on a terminal of its own.
struct Shown {
    child: Child,
    bytes: Receiver<Vec<u8>>,
    all: Vec<u8>,
}

impl Shown {
    fn start(home: &Home, script: &std::path::Path, more: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_neonctl");
        let line = format!(
            "stty cols 120 rows 40; {program} top {more}; echo ended $?; stty -a | grep -c ' -icanon'"
        );
        let mut command = Command::new(script);
        command.args(["-qefc", &line, "/dev/null"]).env_clear().env("HOME", home.path(""));
        command.env("PATH", "/usr/bin:/bin").env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        command.env("KUBECONFIG", home.path("kubeconfig")).env("NEONCTL_REQUEST_TIMEOUT", "5s");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let (sender, bytes) = channel();
        std::thread::spawn(move || {
            let mut block = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut block) {
                if sender.send(block[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, bytes, all: Vec::new() }
    }

    fn until(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.all).contains(text) {
            let more = self.bytes.recv_timeout(PATIENCE);
            self.all.extend(
                more.unwrap_or_else(|_| panic!("no {text:?} in {:?}", String::from_utf8_lossy(&self.all))),
            );
        }
    }

    fn press(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// All that was written, once the program has ended well and the terminal edits lines again.
    fn ended(mut self) -> String {
        self.until("ended 0\r\n0\r\n");
        self.child.wait().unwrap();
        String::from_utf8_lossy(&self.all).into_owned()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_live_view_shows_hostile_texts_and_restores_the_terminal() {
    let script = need!(program("script"));
    let home = Home::new(Manner::Objects);
    let mut shown = Shown::start(&home, &script, "");
    shown.until("pg\\x1b[2J");
    for keys in ["\r", "\u{1b}", "?", "q", "d"] {
        shown.press(keys);
    }
    shown.until("\\nand");
    shown.press("\u{3}");
    let all = shown.ended();
    assert!(all.contains(SCREEN.0) && all.trim_end().contains(SCREEN.1), "{all:?}");
    for part in HOSTILE.split("owned").chain(["\u{9b}", "\u{202e}", "\u{2066}", "\u{90}", "\u{85}"]) {
        assert!(!all.contains(part), "{part:?} in {all:?}");
    }
}

#[test]
fn colours_are_left_out_on_request() {
    let script = need!(program("script"));
    let home = Home::new(Manner::Objects);
    for (flag, colored) in [("--color=never", false), ("--color=always", true)] {
        let mut shown = Shown::start(&home, &script, flag);
        shown.until("pg\\x1b[2J");
        shown.press("q");
        let all = shown.ended();
        assert_eq!(all.contains("[38;5;6"), colored, "{all:?}");
    }
}
