"""endpoints_test.py: strangers at the ports of ofi and ucx, who name endpoints: no library is asked about
them."""

import os

import attackers
from daemons import BUILD, SANITIZERS, SECONDS, HostileTest, main

MODULES = os.path.join(BUILD, "lib", "hdt", "transports")


class Endpoints(HostileTest):
    backend = ""

    def setUp(self):
        if not self.backend:
            self.skipTest("a backend is tested, not none")
        if not os.path.exists(os.path.join(MODULES, f"libhdt-transport-{self.backend}.so")):
            self.skipTest(f"{self.backend} is not built")
        if SANITIZERS:
            self.skipTest(f"the libraries below {self.backend} do not bear the sanitizers")
        self.flags = ("--class.default.backends", self.backend)
        super().setUp()

    def test_no_library_hears_of_them(self):
        for daemon in self.daemons:
            self.assertGreater(self.attack(attackers.name_endpoints, daemon.ports(), SECONDS),
                               len(daemon.ports()))
        self.assert_unharmed()


class Ofi(Endpoints):
    backend = "ofi"


class Ucx(Endpoints):
    backend = "ucx"


if __name__ == "__main__":
    main()
