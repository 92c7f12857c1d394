//! A real browser without a window, driven over two pipes.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use neonvm_test_support::PATIENCE;
use serde_json::{Value, json};

/// The browser reads descriptor 3 and writes 4.
const START: &str = "mkfifo to from && exec \"$0\" --headless=new --no-sandbox --disable-gpu --no-first-run --user-data-dir=data \
                     --window-size=1280,1000 --remote-debugging-pipe about:blank 3<to 4>from";

/// A page in a browser, until dropped.
pub(super) struct Browser {
    child: Child,
    to: File,
    from: Receiver<Value>,
    session: Option<String>,
    last: u64,
    /// What the browser reported without being requested.
    pub(super) events: Vec<Value>,
    _directory: tempfile::TempDir,
}

impl Browser {
    pub(super) fn start(program: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", START]).arg(program).current_dir(directory.path()).env("HOME", directory.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let path = |name: &str| {
            let path = directory.path().join(name);
            neonvm_test_support::eventually_blocking(|| format!("{name} is made"), || path.exists());
            path
        };
        let to = File::options().write(true).open(path("to")).unwrap();
        let from = messages(File::open(path("from")).unwrap());
        let events = Vec::new();
        let mut browser = Self { child, to, from, session: None, last: 0, events, _directory: directory };
        let target =
            browser.call("Target.createTarget", &json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// The result of a command.
    pub(super) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
        loop {
            let message =
                self.from.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no answer to {method}"));
            if message["id"] == json!(self.last) {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    /// The value of an expression in the page.
    pub(super) fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        let result = self.call("Runtime.evaluate", &parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(super) fn until(&mut self, expression: &str) {
        let what = || format!("{expression} is true");
        neonvm_test_support::eventually_blocking(what, || self.value(expression) == json!(true));
    }

    pub(super) fn press(&mut self, key: &str, code: u32, text: &str) {
        let down = json!({ "type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
        self.call("Input.dispatchKeyEvent", &down);
        let up = json!({ "type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", &up);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn messages(from: File) -> Receiver<Value> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for message in BufReader::new(from).split(0) {
            let Ok(Ok(message)) = message.map(|bytes| serde_json::from_slice(&bytes)) else { return };
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}
