//! What is checked in a host, in order: each is a script, and passes if it ends with status 0.

#[derive(Clone, Copy, Debug)]
pub(super) struct Check {
    pub(super) name: &'static str,
    /// Also in the short form.
    pub(super) short: bool,
    /// Those after it need it.
    pub(super) needed: bool,
    script: &'static str,
}

/// What every script begins with: where things are, and functions that more than one of them uses.
const BEFORE: &str = r#"set -euo pipefail
export PATH=/opt/neonvm:$PATH KUBECONFIG=~/.local/state/neonctl/local/local/kubeconfig NO_COLOR=1
cd
fail() { echo "$*" >&2; exit 1; }
has() { grep -Eq -- "$2" <<<"$1" || fail "no line like '$2' in:
$1"; }
# Repeats a command until it succeeds, for at most five minutes.
until_ok() { for _ in $(seq 150); do "$@" >/dev/null 2>&1 && return 0; sleep 2; done; fail "does not come true: $*"; }
get() { neonctl vm get "$1" -o "jsonpath={$2}"; }
# The VM has not been restarted: the status counts none, or has no count.
restarts() { [[ "$(get "$1" .status.restartCount)" =~ ^0?$ ]] || fail "$1 was restarted"; }
size() { test "$(get "$1" .status.cpus) $(get "$1" .status.memorySize)" = "$2 $3"; }
# The cgroup of the vCPU threads of the only VM that runs.
vcpus() { find /sys/fs/cgroup -type d -name vcpus | head -n 1; }
"#;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "doctor", short: true, needed: false, script: DOCTOR },
    Check { name: "up", short: true, needed: true, script: UP },
    Check { name: "boot", short: true, needed: true, script: BOOT },
    Check {
        name: "survives-logout",
        short: true,
        needed: false,
        script: "until_ok neonctl vm ssh pg -- true",
    },
    Check { name: "ssh-cp-console-forward", short: false, needed: false, script: WAYS_IN },
    Check { name: "cpu", short: true, needed: false, script: CPU },
    Check { name: "memory", short: true, needed: false, script: MEMORY },
    Check { name: "cgroup", short: false, needed: false, script: CGROUP },
    Check { name: "migrate", short: true, needed: false, script: MIGRATE },
    Check { name: "migrate-with-tcp-session", short: false, needed: false, script: SESSION },
    Check { name: "migrate-loaded", short: false, needed: false, script: LOADED },
    Check { name: "migrate-cancelled", short: false, needed: false, script: CANCELLED },
    Check { name: "migrate-post-copy", short: false, needed: false, script: POST_COPY },
    Check { name: "pause", short: false, needed: false, script: PAUSE },
    Check { name: "plugged-cpus", short: false, needed: false, script: PLUGGED },
    Check { name: "kills", short: false, needed: false, script: KILLS },
    Check { name: "confinement", short: false, needed: false, script: CONFINEMENT },
    Check { name: "down", short: true, needed: false, script: DOWN },
    Check { name: "without-root", short: false, needed: false, script: WITHOUT_ROOT },
];

pub(super) fn script(check: &Check) -> String {
    format!("{BEFORE}{}", check.script)
}

const DOCTOR: &str = r#"
sysctl -qw vm.unprivileged_userfaultfd=1
out=$(neonctl doctor --local) || fail "$out"
has "$out" 'kvm +local +ok +runs guests'
has "$out" 'cgroup +local +ok +version 2'
has "$out" 'vhost-net +local +ok'
has "$out" 'wireguard +local +ok'
has "$out" 'userfaultfd +local +ok'
"#;

const UP: &str = r#"
neonctl local up --nodes 2 --cpus 4 --memory 3Gi --timeout 300s
until_ok bash -c 'neonctl local status 2>&1 | grep -qw healthy'
again=$(neonctl local up 2>&1)
has "$again" 'already running'
"#;

const BOOT: &str = r#"
mkdir -p bb/bin bb/etc
cp /bin/busybox bb/bin/
for a in sh sleep cat nc echo ls dd seq date head true false kill ps mount free nproc uptime md5sum tail; do ln -sf busybox bb/bin/$a; done
echo 'root:x:0:0:root:/:/bin/sh' > bb/etc/passwd
neonctl vm build --progress none --from bb -t hello:1 -- /bin/sleep 1000000
neonctl vm create pg --image hello:1 --cpu 1..2 --memory 512Mi..1536Mi --memory-step 128Mi --no-autoscale --overlay --wait --timeout 300s
out=$(neonctl vm describe pg)
has "$out" 'Machine +kvm '
has "$out" 'network tap, vhost'
"#;

const WAYS_IN: &str = r#"
test "$(neonctl vm ssh pg -- echo hello)" = hello
head -c 300000 /dev/urandom > sent
neonctl vm cp sent pg:/sent
neonctl vm cp pg:/sent received
cmp sent received
neonctl vm ssh pg -- '(nc -ll -p 7000 -e /bin/cat < /dev/null > /dev/null 2>&1 &); sleep 1'
neonctl vm port-forward pg 17000:7000 & forward=$!
trap 'kill $forward' EXIT
until_ok bash -c 'exec 3<>/dev/tcp/127.0.0.1/17000; echo ping >&3; read -t 20 line <&3; test "$line" = ping'
neonctl vm logs pg > /dev/null
console=$(timeout 20 neonctl vm console pg </dev/null 2>&1 || true)
! grep -qi 'error' <<<"$console" || fail "$console"
"#;

const CPU: &str = r#"
neonctl vm scale pg --cpu 2 --memory 512Mi --wait --timeout 200s
until_ok size pg 2 512Mi
test "$(neonctl vm ssh pg -- nproc)" = 2
neonctl vm scale pg --cpu 1 --memory 512Mi --wait --timeout 200s
until_ok size pg 1 512Mi
test "$(neonctl vm ssh pg -- nproc)" = 1
"#;

const MEMORY: &str = r#"
neonctl vm scale pg --cpu 1 --memory 1408Mi --wait --timeout 200s
until_ok size pg 1 1408Mi
neonctl vm scale pg --cpu 1 --memory 512Mi --wait --timeout 200s
until_ok size pg 1 512Mi
"#;

const CGROUP: &str = r#"
test "$(cat "$(vcpus)/cpu.max")" = '100000 100000'
test "$(cat "$(vcpus)/../cgroup.type")" = 'domain threaded'
test "$(cat "$(vcpus)/../pids.max")" = 4096
test "$(cat "$(vcpus)/../memory.max")" -gt $((512 << 20))
neonctl vm create small --image hello:1 --cpu 0.25 --memory 256Mi --no-autoscale --wait --timeout 300s
grep -q '^25000 100000' $(find /sys/fs/cgroup -type d -name vcpus -printf '%p/cpu.max ')
neonctl vm delete small --wait
"#;

const MIGRATE: &str = r#"
node=$(get pg .status.node)
out=$(neonctl vm migrate pg --dry-run) || fail "$out"
neonctl vm migrate pg --wait --timeout 400s
test "$(get pg .status.node)" != "$node"
restarts pg
neonctl vm ssh pg -- true
"#;

const SESSION: &str = r#"
neonctl vm ssh pg -- '(nc -l -p 7001 -e /bin/cat < /dev/null > /dev/null 2>&1 &); sleep 1'
ip=$(get pg .status.extraNetIP)
neonctl vm create peer --image hello:1 --cpu 1 --memory 256Mi --no-autoscale --overlay --wait --timeout 300s
neonctl vm ssh peer -- "(i=0; while true; do echo \$i; i=\$((i+1)); sleep 1; done | nc $ip 7001 > /got) < /dev/null > /dev/null 2>&1 & sleep 5; tail -n 1 /got"
for _ in 1 2 3; do neonctl vm migrate pg --wait --timeout 400s; done
sleep 5
before=$(neonctl vm ssh peer -- tail -n 1 /got); sleep 20; after=$(neonctl vm ssh peer -- tail -n 1 /got)
test "$after" -gt "$before" || fail "the session stands still at $before"
lines=$(neonctl vm ssh peer -- 'cat /got' | tail -n +1)
cmp <(echo "$lines") <(seq 0 "$(tail -n 1 <<<"$lines")") || fail "lines are lost, or twice there"
neonctl vm delete peer --wait
"#;

const LOADED: &str = r#"
neonctl vm ssh pg -- '(while true; do dd if=/dev/zero of=/dev/shm/x bs=1M count=60; done < /dev/null > /dev/null 2>&1 &); sleep 1'
neonctl vm migrate pg --wait --timeout 600s
restarts pg
neonctl vm ssh pg -- 'kill $(ps | grep "[w]hile\|[d]d if" | head -n 1 | { read p _; echo $p; }) 2>/dev/null; true'
"#;

const CANCELLED: &str = r#"
node=$(get pg .status.node)
neonctl vm migrate pg --bandwidth 1Mi --no-wait
until_ok bash -c 'neonctl migration list | grep -q Running'
neonctl migration cancel "$(neonctl migration list --no-headers | grep Running | head -n 1 | cut -d' ' -f1)" --wait
test "$(get pg .status.node)" = "$node"
restarts pg
neonctl vm ssh pg -- true
"#;

const POST_COPY: &str = r#"
sysctl -qw vm.unprivileged_userfaultfd=1
node=$(get pg .status.node)
neonctl vm migrate pg --postcopy after-first-pass --wait --timeout 600s
test "$(get pg .status.node)" != "$node"
restarts pg
neonctl vm ssh pg -- true
"#;

const PAUSE: &str = r#"
neonctl vm pause pg --wait
! timeout 10 neonctl vm ssh pg -- true 2>/dev/null || fail "a paused guest answers"
neonctl vm resume pg --wait
until_ok neonctl vm ssh pg -- true
restarts pg
"#;

const PLUGGED: &str = r#"
neonctl vm create q --image hello:1 --cpu 1..3 --memory 256Mi --no-autoscale --dry-run=client -o yaml > q.yaml
sed -i 's/^spec:/spec:\n  cpuScalingMode: QmpScaling/' q.yaml
neonctl vm create -f q.yaml --wait --timeout 300s
for cpu in 2 3 2 1 3; do
  neonctl vm scale q --cpu $cpu --memory 256Mi --wait --timeout 200s ||
    fail "$(neonctl vm describe q; neonctl vm logs q --tail 40)"
  until_ok size q $cpu 256Mi
  test "$(neonctl vm ssh q -- nproc)" = $cpu
done
restarts q
neonctl vm delete q --wait
"#;

const KILLS: &str = r#"
pkill -KILL -f '[n]eond kubelet .*n1' || true
sleep 5
restarts pg
pkill -KILL -f '[q]emu-system.*guest=default/pg'
until_ok bash -c 'test "$(neonctl vm get pg -o "jsonpath={.status.restartCount}")" = 1'
has "$(get pg .status.lastExit.message)" 'signal 9'
until_ok neonctl vm ssh pg -- true
pkill -KILL -f '[n]eonvm-runner'
until_ok bash -c 'test "$(neonctl vm get pg -o "jsonpath={.status.restartCount}")" = 2'
until_ok neonctl vm ssh pg -- true
"#;

const CONFINEMENT: &str = r#"
pid=$(pgrep -f '[q]emu-system.*guest=default/pg' | head -n 1)
test "$(cut -d' ' -f1 /sys/module/apparmor/parameters/enabled)" = Y
grep -q '^Seccomp:.*2' /proc/$pid/status
grep -q '^CapEff:.*0000000000000000' /proc/$pid/status
test "$(stat -c %u /proc/$pid)" != 0
huge=$(awk '/AnonHugePages/ { sum += $2 } END { print sum }' /proc/$pid/smaps)
test "$huge" -gt 0 || fail "no huge pages behind the guest"
"#;

const DOWN: &str = r#"
neonctl local down --delete
! pgrep -fa '[n]eond |[n]eonvm-runner|[q]emu-system' || fail "processes are left"
test -z "$(ip netns list)" || fail "namespaces are left: $(ip netns list)"
test -z "$(ip -o link | grep -v ' lo: \| e[a-z0-9]*: ')" || fail "links are left: $(ip -o link)"
! nft list ruleset | grep -i neonvm || fail "rules are left"
test -z "$(find /sys/fs/cgroup -maxdepth 2 -name 'neonvm*')" || fail "cgroups are left"
"#;

const WITHOUT_ROOT: &str = r#"
id guest-owner > /dev/null 2>&1 || useradd -m -G kvm guest-owner
home=$(eval echo ~guest-owner)
mkdir -p "$home/.local/share"
cp -a ~/.local/share/neonvm "$home/.local/share/"
cp -a bb "$home/bb"
cat > "$home/try.sh" <<'S'
set -euo pipefail
export PATH=/opt/neonvm:$PATH NO_COLOR=1 KUBECONFIG=$HOME/.local/state/neonctl/local/local/kubeconfig
cd
neonctl local up --timeout 300s
trap 'neonctl local down --delete' EXIT
neonctl vm build --progress none --from bb -t hello:1 -- /bin/sleep 1000000
neonctl vm create mine --image hello:1 --cpu 0.5 --memory 256Mi --no-autoscale --wait --timeout 300s
neonctl vm describe mine | grep -E 'Machine +kvm .*network user'
neonctl vm ssh mine -- true
S
chown -R guest-owner: "$home"
su guest-owner -c "NEONVM_DEADLINE_FACTOR=$NEONVM_DEADLINE_FACTOR bash '$home/try.sh'"
"#;
