#!/bin/bash
# in_rdma_vm: runs a test in the virtual machine of tools/rdma-vm. in_rdma_vm.sh RDMA_VM OPTION... --
# COMMAND... exits with 77 (skipped) and the reason if no machine can be started.
set -uo pipefail
"$@"
code=$?
[ $code -eq 125 ] || exit $code
cat <<'END'
################################################################################
# SKIPPED: no virtual machine with RDMA devices could be started here, so the
# rdma backend was not tested on real verbs. The reason is in the lines above.
################################################################################
END
exit 77
