#!/bin/sh
# Stands in for ssh: runs on this machine what mpirun wants to start on the host named first, so that a job
# has several nodes (one launcher daemon, one PMIx server each) without several machines. Each gets a
# temporary folder of its own: launcher daemons that start at once on one machine trip over each other's.
shift
TMPDIR=$(mktemp -d) || exit 1
export TMPDIR
code=0
/bin/sh -c "$*" || code=$?
rm -rf "$TMPDIR"
exit $code
