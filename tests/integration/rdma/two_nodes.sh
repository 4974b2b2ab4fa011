#!/bin/bash
# two_nodes: in the virtual machine of tools/rdma-vm (one guest or two): a hdtcommd on each of two hosts with
# two RDMA NICs, and every collective over the rdma backend, verified; then one of two cables fails under
# running jobs and comes back.
# two_nodes.sh BIN_FOLDER
set -uo pipefail
bin=$1
folder=$(mktemp -d /tmp/two-nodes-XXXXXX)
# Nodes know only rdma: nothing can go another way unnoticed.
export HDT_CLASS_DEFAULT_BACKENDS=rdma HDT_SIZE=2 HDT_RENDEZVOUS=10.77.0.1:18520

fail() {
  echo "FAILED: $*"
  tail -n 30 "$folder"/*.log
  exit 1
}

# job NAME ARGUMENT...: hdt-commbench, one rank on each host.
job() {
  local name=$1
  shift
  HDT_RANK=1 HDT_SOCKET=$folder/1.sock as-host 1 timeout 200 "$bin/hdt-commbench" "$@" \
    >"$folder/$name-1.log" 2>&1 &
  local other=$!
  HDT_RANK=0 HDT_SOCKET=$folder/0.sock as-host 0 timeout 200 "$bin/hdt-commbench" "$@" \
    >"$folder/$name-0.log" 2>&1 ||
    fail "$name: rank 0 ended with $?"
  wait $other || fail "$name: rank 1 ended with $?"
  host-barrier "$name"
}

for host in 0 1; do
  as-host $host "$bin/hdtcommd" --node.name "h$host" --node.socket "$folder/$host.sock" \
    --nics.addresses "10.77.0.$((host + 1)),10.77.1.$((host + 1))" --security.insecure true \
    >"$folder/daemon-$host.log" 2>&1 &
done
for host in 0 1; do
  [ "$RDMA_VM_LINK" != guests ] || [ "$RDMA_VM_HOST" = $host ] || continue
  for _ in {1..300}; do ! grep -q ' serves ' "$folder/daemon-$host.log" || continue 2; sleep 0.1; done
  fail "the hdtcommd of host $host does not start"
done
host-barrier daemons

job collectives all -d float32,bfloat16 -b 64 -e 64K -f 1024 -n 2 -w 0
if [ "$RDMA_VM_HOST" = 0 ]; then
  grep -q 'Out of bounds values : 0 OK' "$folder/collectives-0.log" || fail "wrong values"
  for nic in eth0 eth1; do
    grep -q "rail to node h1 up: .* on $nic" "$folder/daemon-0.log" || fail "no rail on $nic"
  done
  grep -q 'link to node h1 over rdma' "$folder/daemon-0.log" || fail "the nodes are not linked over rdma"
  grep '^ .*float32.*sum' "$folder/collectives-0.log"
fi

# wait_for WHAT COMMAND...: until it succeeds, for a minute.
wait_for() {
  local what=$1
  shift
  for _ in {1..600}; do ! "$@" || return 0; sleep 0.1; done
  echo "$what did not happen within a minute" >"$folder/problem"
  exit 1
}
rails() { grep -h 'rail to node' "$folder"/daemon-*.log | grep -c "$1"; }
more_rails() { [ "$(rails "$1")" -gt "$2" ]; }

# The second cable loses everything under running jobs, and is whole again: values stay right, its rail is
# lost and taken up again. (A NIC that is down for soft-RoCE of Linux 6.1 makes no connections any more; see
# rdma_conformance.cc.)
lose_and_restore() {
  modprobe sch_netem
  for nic in eth1 ethb1; do tc qdisc replace dev $nic root netem loss 100%; done
  wait_for "the loss of the rail" more_rails 'lost: .* on eth1' 0
  for nic in eth1 ethb1; do tc qdisc del dev $nic root; done
  wait_for "the return of the rail" more_rails 'back: .* on eth1' 0
  touch "$folder/done"
}
if [ "$RDMA_VM_LINK" = veth ]; then
  lose_and_restore &
  for number in {1..100}; do
    [ ! -e "$folder/done" ] || break
    [ ! -e "$folder/problem" ] || fail "$(cat "$folder/problem")"
    job "allreduce$number" allreduce -b 512K -e 512K -n 5 -w 0
    grep -q 'Out of bounds values : 0 OK' "$folder/allreduce$number-0.log" ||
      fail "wrong values after a cable was lost"
  done
  [ -e "$folder/done" ] || fail "the jobs ended before the rail was back"
  grep -h 'rail to node' "$folder/daemon-0.log"
fi
kill $(jobs -p) 2>/dev/null
rm -rf "$folder"
echo PASSED
