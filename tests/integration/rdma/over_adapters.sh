#!/bin/bash
# over_adapters: in the virtual machine of tools/rdma-vm (one guest): what runs over loopback elsewhere, over
# RDMA adapters.
# over_adapters.sh PART BUILD_FOLDER, PART is
#   ofi, ucx      the conformance suite over libfabric's verbs provider, or over UCX's rc, between the two
#                 ends of a cable
#   collectives   calls, types, reductions and shapes over the rdma backend
#   change        running groups go through tcp, rdma, and ofi and ucx over the adapters
set -uo pipefail
part=$1 build=$2
# One for the first node, one for the second at the other end of the cable, the third is beside the first.
export HDT_TEST_ADDRESSES="10.77.0.1 10.77.0.2 10.77.0.1" UCX_LOG_LEVEL=error
suite=("$build/bin/hdt-backend-test" --nic eth0,ethb0 --silent-address 10.77.0.99:4000)
modules="ofi ucx rdma"
calls='All/*/nodes_0_1:Async.*:Split.*:All/*/nodes_1_0_0_0'
# On an emulated processor a hundred endpoints of these libraries take minutes, and UCX ten seconds to look at
# the adapters.
if [ "$RDMA_VM_ACCEL" = tcg ]; then
  modules="ofi rdma"
  # Nothing of these depends on the backend: they run over tcp.
  calls+=':-All/Deterministic.*:Split.EqualKeys*:Split.NoColor*:Split.Negative*'
  suite+=(--gtest_filter=-*ManyConnectionsAtOnce*)
  case $part in
    ofi | ucx) echo "LEFT OUT on an emulated processor: ManyConnectionsAtOnce" ;;
    collectives) echo "LEFT OUT on an emulated processor: deterministic reductions, most splits of groups" ;;
    change) echo "LEFT OUT on an emulated processor: changes to ucx" ;;
  esac
fi
case $part in
  ofi) exec "${suite[@]}" ofi --option "provider=verbs;ofi_rxm" ;;
  ucx) exec "${suite[@]}" ucx --option tls=rc ;;
  collectives)
    export HDT_TEST_BACKEND=rdma
    exec "$build/tests/communicator_test" --gtest_filter="$calls"
    ;;
  change)
    export HDT_TEST_MODULES_USED=$modules UCX_TLS=rc HDT_TEST_FLAGS="--backend.ofi.provider verbs;ofi_rxm"
    exec "$build/tests/change_test" --gtest_filter=Change.RunningGroupsGoThroughTheModulesOfThisBuild
    ;;
  *) echo "over_adapters: '$part' given; expected ofi, ucx, collectives or change" && exit 2 ;;
esac
