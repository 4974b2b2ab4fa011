"""Two hosts with several NICs each, their daemons, and two ranks: for bench/striping, bench/failover and
tests/faults/rails."""
