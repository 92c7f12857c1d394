#!/bin/sh
# Replicas that follow a load, from nothing, in a cluster of its own that is gone afterwards. Needs neonctl, neond and
# simulated-pods (cargo build -p neonvm-example-replicas) in PATH, and kubectl. KEEP=1 leaves it running.
set -eu
here=$(dirname "$0")
for program in neonctl neond simulated-pods kubectl; do
    command -v "$program" >/dev/null || { echo "$program is not in PATH" >&2; exit 1; }
done

title() { printf '\n== %s\n' "$*"; }
replicas() { kubectl get deployment web -o "jsonpath={.spec.replicas}"; }
annotate() { kubectl annotate deployment web --overwrite "workload.vm.neon.tech/$1" >/dev/null; }
wait_for() { kubectl wait podautoscaler/web "--for=$1" --timeout=90s >/dev/null; }
explain() { neonctl podautoscaler explain web; }

player=
clean() {
    trap - EXIT INT TERM
    title "Clean up"
    [ -z "$player" ] || { kill "$player" 2>/dev/null || true; wait "$player" 2>/dev/null || true; }
    neonctl local down --name replicas --delete
}
trap clean EXIT
trap 'exit 130' INT TERM

title "A cluster, and a workload whose pods are processes on this machine"
eval "$(neonctl local up --name replicas --nodes 1)"
simulated-pods 2>"${TMPDIR:-/tmp}/simulated-pods.log" &
player=$!
kubectl apply -f "$here/deployment.yaml" -f "$here/podautoscaler.yaml"
kubectl rollout status deployment/web --timeout=60s
wait_for condition=MetricsAvailable

title "The load rises: 22 clients, four for each pod"
annotate clients=22
wait_for jsonpath='{.status.actualScale}'=6
kubectl rollout status deployment/web --timeout=60s
kubectl get pods
explain

title "The metrics cannot be read any more, and the load falls: nothing is taken away"
annotate metrics=down
annotate clients=2
wait_for condition=MetricsAvailable=False
# Longer than all windows: nothing happens, so there is nothing to wait for.
sleep 15
explain
echo "replicas: $(replicas)"
[ "$(replicas)" = 6 ]

title "The metrics are back: now there are fewer"
annotate metrics=answer
wait_for jsonpath='{.status.actualScale}'=1
explain
kubectl get podautoscaler web -o jsonpath='{range .status.scalingHistory[*]}{.timestamp}: {.previousScale} to {.newScale}, {.reason}{"\n"}{end}'

if [ -n "${KEEP:-}" ]; then
    trap - EXIT INT TERM
    title "It lives on"
    echo "export KUBECONFIG=$KUBECONFIG"
    echo "kill $player; neonctl local down --name replicas --delete   # the end"
fi
