# shellcheck shell=bash
# The cases of tests/kubernetes/run, which reads this file once its cluster is up. They use its functions.

failed=0
fail() {
    echo "FAILED: $*"
    failed=$((failed + 1))
}
# plan HOST… : a plan with these lines under `hosts` and a test of $seconds from $from to $to
plan() {
    {
        printf 'version: 1\nname: pods\nhosts:\n'
        printf '  %s\n' "$@"
        echo "tests: {t: {from: ${from:-pod1}, to: ${to:-pod2}, workload: tcp_stream, warmup: 100ms, duration: ${seconds:-1}s, iterations: 1}}"
    } > plan.yaml
}
two='pod: {launch: {kubernetes: {pods: 2, namespace: lab, image: "localhost/plumb:test"}}}'
rows() { cut -d, -f1 rows.csv 2>/dev/null | tail -n +2 | grep -c . || true; }
objects() { kubectl get -n lab pods,configmaps -l plumb.run -o name; }
processes() { pgrep -ax plumb || pgrep -af 'kubectl.*(exec -i|--watch)'; }
no_processes() { ! processes; }
no_objects() { [ -z "$(objects)" ]; }
slowest=0
# gone WHAT: waits until no process and no object is left. The object of a pod outlives its processes until the kubelet confirms their
# end: mostly after 8 s, sometimes with its next round of all pods, a minute later.
gone() {
    local ended took
    ended=$(now)
    await 15 no_processes || fail "$1: 15 s later there still run: $(processes)"
    took=$(since "$ended")
    await 90 no_objects || fail "$1: 90 s later there are still: $(objects)"
    echo "$1: no process after $took s, no object after $(since "$ended") s"
    slowest=$(printf '%s\n' "$slowest" "$(since "$ended")" | sort -n | tail -1)
}
# runs WHAT ARGUMENT…: a plan that must succeed
runs() {
    local began
    began=$(now)
    rm -f rows.*
    if "$PLUMB" run plan.yaml -o rows.csv "${@:2}" >run.log 2>&1 && [ "$(rows)" -gt 0 ]; then
        echo "$1: measured, $(since "$began") s in all; far ends started in $(grep -oE '"start_s": *[0-9.]{1,4}' rows.run.json | grep -oE '[0-9.]+$' | sort -n | tail -1) s"
    else
        fail "$1: $(tail -8 run.log)"
    fi
}
# refuses WHAT WORDS: a plan that must fail with these words
refuses() {
    local began status=0
    began=$(now)
    PATH=${path:-$PATH} "$PLUMB" run plan.yaml >run.log 2>&1 </dev/null || status=$?
    if [ "$status" = 3 ] && grep -qF -- "$2" run.log; then
        echo "$1: exit code 3 after $(since "$began") s, and what to do: $2"
    else
        fail "$1: exit code $status without \`$2\`: $(tail -8 run.log)"
    fi
}
recorded() { grep -q -- "$1" rows.run.json || fail "run.json lacks $1"; }

kubectl create namespace lab >/dev/null
# What a person applies by hand is valid here, and the account of all following runs has no other rights than the role.
for manifest in jobs role; do
    kubectl apply -n lab --dry-run=server -f "$root/deploy/kubernetes/$manifest.yaml" >/dev/null || fail "$manifest.yaml is refused"
done
kubectl apply -n lab -f "$root/deploy/kubernetes/role.yaml" >/dev/null
kubectl create rolebinding plumb -n lab --role=plumb --user=lab >/dev/null
admin=$KUBECONFIG
as() { export KUBECONFIG=$folder/$1.conf; }

echo '== measuring, with the rights of deploy/kubernetes/role.yaml'
as lab
plan "$two"
runs 'between two pods'
echo "  $(grep -m1 clock run.log)"
recorded '"engine": *"kubernetes"'
recorded '"control": *"launcher"'
recorded '"node": *"n1"'
recorded '"node": *"n2"'
recorded '"data_address": *"10.79.'
gone 'between two pods'
from=local to=pod1 plan 'pod: {control: address, launch: {kubernetes: {namespace: lab, image: "localhost/plumb:test", host_network: true}}}'
runs "to a pod in its node's network, control by its address"
recorded '"data_address": *"10.78.0.'
echo "  $(grep -m1 clock run.log)"
from=local to=pod1 plan 'pod: {launch: {kubernetes: {namespace: lab, image: "localhost/shell:test", copy: true}}}'
runs 'to a pod whose image is a shell, with a copy of the program'
sed 's#image: plumb  #image: localhost/plumb:test  #' "$root/deploy/kubernetes/jobs.yaml" | KUBECONFIG=$admin kubectl apply -n lab -f - >/dev/null
kubectl wait -n lab --for=condition=Ready pod -l plumb.example=yes --timeout=60s >/dev/null || fail 'the pods of jobs.yaml do not run'
by_hand='network: 10.79.0.0/16, launch: {command: [kubectl, exec, -n, lab, -i, "pod/{host}", --]}}'
mapfile -t pods < <(kubectl get pods -n lab -l plumb.example=yes -o 'jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}')
from=${pods[0]} to=${pods[1]} plan "${pods[0]}: {control: launcher, $by_hand" "${pods[1]}: {control: launcher, $by_hand"
runs 'between pods that were made by hand (jobs.yaml)'
KUBECONFIG=$admin kubectl delete -n lab job plumb-a plumb-b >/dev/null
gone 'after all of these'

echo '== ended in every phase'
began_exec() { pgrep -f 'kubectl.*exec -i' >/dev/null; }
measuring() { grep -q 'iteration 1' run.log; }
# phase NAME: waits until the run is in it
phase() {
    case $1 in
        creating) await 20 pgrep -f 'kubectl.*create' ;;
        waiting) await 20 pgrep -f 'kubectl.*--watch' ;;
        starting) await 30 began_exec ;;
        measuring) await 30 measuring && sleep .5 ;;
    esac
}
seconds=30 plan "$two"
for phase in creating waiting starting measuring; do
    for signal in INT TERM KILL; do
        "$PLUMB" run plan.yaml -o rows.csv >run.log 2>&1 </dev/null &
        pid=$!
        phase "$phase" || fail "no $phase: $(tail -3 run.log)"
        kill "-$signal" "$pid"
        status=0
        # The shell of a test reports what was killed.
        wait "$pid" 2>/dev/null || status=$?
        gone "SIG$signal while $phase (exit code $status)"
    done
done
for what in 'exec -i' 'pod'; do
    "$PLUMB" run plan.yaml -o rows.csv >run.log 2>&1 </dev/null &
    pid=$!
    phase measuring || fail "not measuring: $(tail -3 run.log)"
    began=$(now) status=0
    if [ "$what" = pod ]; then
        kubectl delete -n lab pod --wait=false "$(kubectl get pods -n lab -l plumb.run -o 'jsonpath={.items[0].metadata.name}')" >/dev/null
    else
        kill -KILL "$(pgrep -f 'kubectl.*exec -i' | head -1)"
    fi
    wait "$pid" || status=$?
    [ "$status" = 3 ] || fail "$what gone: exit code $status: $(tail -5 run.log)"
    echo "$what gone while measuring: exit code $status after $(since "$began") s: $(grep -m1 kubectl run.log)"
    gone "$what gone while measuring"
done
"$PLUMB" run plan.yaml -o rows.csv >run.log 2>&1 </dev/null &
pid=$!
phase measuring || fail "not measuring: $(tail -3 run.log)"
pgrep -f plumb-guardian | xargs -r kill -KILL
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true
sleep 3
[ -n "$(objects)" ] || fail 'the pods went without a guardian: this case tests nothing'
seconds=1 plan "$two"
runs 'after SIGKILL of plumb and of its guardian, the next run'
gone 'what both had left'

echo '== what is wrong'
options() { plan "pod: {launch: {kubernetes: {pods: 2, namespace: ${2:-lab}, $1}}}"; }
options 'image: "localhost/none:1"'
refuses 'no such image' 'check `image` as the nodes must name it'
options 'image: "localhost/plumb:test", nodes: {zone: mars}, wait: 3s'
refuses 'no such node' 'no node fits: check `nodes`'
options 'image: "localhost/plumb:test", program: /none'
refuses 'no such program' 'name its path with `program`'
options 'image: "localhost/plumb:test", args: ["--context=other"]'
refuses 'no such context' 'kubectl config get-contexts'
options 'image: "localhost/plumb:test", args: ["--server=https://10.78.0.254:1"]'
refuses 'no API server' 'no cluster answers: check your context'
as none
options 'image: "localhost/plumb:test"'
refuses 'no rights' 'deploy/kubernetes/role.yaml'
as admin
options 'image: "localhost/plumb:test"' nowhere
refuses 'no such namespace' 'check `namespace`'
options 'image: "localhost/plumb:test"'
mkdir few
for program in sh cat sleep; do ln -s "$(command -v $program)" few/; done
path=$folder/few refuses 'no kubectl' 'must be installed here'
gone 'after all of these'

if [ "$failed" = 0 ]; then echo "passed in $SECONDS s; the slowest end took $slowest s"; else echo "$failed failed"; exit 1; fi
