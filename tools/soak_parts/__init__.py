"""The parts of tools/soak: hosts, jobs, faults, report; and the C++ rank."""
