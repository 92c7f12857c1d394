//! M3: the author of a VM against the terminal of a user who looks at it.

use serde_json::json;

use crate::cluster::Cluster;

/// A title, a bell, a question that a terminal answers by typing, and a text in another order.
const HOSTILE: &str = "x\u{1b}]0;owned\u{7}\u{1b}[6n\u{202e}y";

#[test]
fn fields_of_a_vm_do_not_steer_the_terminal_of_an_administrator() {
    let cluster = Cluster::start(0);
    let vm = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": "evil"},
        "spec": {"guest": {"cpus": {"min": 1, "max": 1, "use": 1}, "memorySlotSize": "1Gi",
            "memorySlots": {"min": 1, "max": 1, "use": 1}, "rootDisk": {"image": HOSTILE}}}});
    cluster.client().apply(&vm.to_string()).unwrap();
    let mut seen = false;
    for command in [
        "vm list",
        "vm list -o wide",
        "vm get evil -o yaml",
        "vm get evil -o json",
        "vm describe evil",
        "vm history evil",
    ] {
        let output = cluster.neonctl(command);
        for bytes in [output.stdout, output.stderr] {
            let text = String::from_utf8(bytes).unwrap();
            let steers = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202a}'..='\u{202e}');
            assert!(!text.contains(steers), "{command}: {text:?}");
            seen |= text.contains("\\x1b]0;owned\\x07\\x1b[6n\\u{202e}y");
        }
    }
    assert!(seen, "the image is shown");
}
