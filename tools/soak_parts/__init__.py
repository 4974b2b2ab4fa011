"""What tools/soak is made of: hosts, jobs, faults, report; and the C++ rank."""
