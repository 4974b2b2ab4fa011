"""Every way to meet, on every kind of host, with daemons and without: each works, or is refused at once with
a reason. The table in docs/guide.md ("Where ranks meet") is what this test shows."""

import os
import shutil
import subprocess
import unittest

from meeting_hosts import BUILD, PROGRAM, Network, Rank, skip_without_namespaces

# Within this time a rank succeeds or knows why it cannot; on a busy machine the making of a group takes a
# while.
SOON_S = 30
LOOPBACK = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
V6_FIRST = "::1 localhost ip6-localhost ip6-loopback\n127.0.0.1 localhost\n"
A4, A6 = Network.V4["a"], Network.V6["a"]

# form: families of the network, what host a and b have in /etc/hosts, the text that names rank 0's host, rank
# 1's host.
FORMS = {
    "IPv4": ("4", LOOPBACK, LOOPBACK, A4, "b"),
    "IPv6": ("6", LOOPBACK, LOOPBACK, A6, "b"),
    "dual stack": ("46", LOOPBACK + f"{A6} node0\n{A4} node0\n", LOOPBACK + f"{A6} node0\n{A4} node0\n",
                   "node0", "b"),
    "name": ("4", LOOPBACK + f"{A4} node0\n", LOOPBACK + f"{A4} node0\n", "node0", "b"),
    # Both families are known for the name; only one of them is on the network.
    "name, one family dead": ("4", LOOPBACK + f"{A6} node0\n{A4} node0\n",
                              LOOPBACK + f"{A6} node0\n{A4} node0\n", "node0", "b"),
    "localhost": ("4", V6_FIRST, V6_FIRST, "localhost", "a"),
    "127.0.1.1": ("4", LOOPBACK + "127.0.1.1 node0\n", LOOPBACK + f"{A4} node0\n", "node0", "b"),
}
port = 21000


def next_port():
    global port
    port += 10
    return port


class Matrix(unittest.TestCase):
    def form(self, form, daemons):
        families, home, away, name, second = FORMS[form]
        network = Network(f"x{'d' if daemons else 'e'}", families, {"a": home, "b": away}, daemons)
        self.addCleanup(network.close)
        ways = {
            "hdtGetUniqueId": self.unique_id,
            "HDT_RENDEZVOUS": self.hdt_rendezvous,
            "MASTER_ADDR": self.master_addr,
            "Slurm": self.slurm,
            "mpirun": self.mpirun,
        }
        for way, start in ways.items():
            with self.subTest(form=form, way=way, daemons=daemons):
                for number, rank in enumerate(start(network, name, second)):
                    code, wrong, own, ranks, output, _ = rank.result(SOON_S)
                    self.assertEqual((code, wrong, own, ranks), (0, 0, number, 2), output)

    def unique_id(self, network, _, second):
        file = network.file(f"id.{next_port()}")
        return [network.rank(host, "id", file, str(rank), "2", "5")
                for rank, host in enumerate(("a", second))]

    def by_variables(self, network, second, name_of):
        return [network.rank(host, "job", "5", **name_of(rank))
                for rank, host in enumerate(("a", second))]

    def hdt_rendezvous(self, network, name, second):
        place = f"[{name}]:{next_port()}" if ":" in name else f"{name}:{next_port()}"
        return self.by_variables(network, second, lambda rank: {
            "HDT_RENDEZVOUS": place, "HDT_RANK": str(rank), "HDT_SIZE": "2"})

    def master_addr(self, network, name, second):
        at = str(next_port())
        return self.by_variables(network, second, lambda rank: {
            "MASTER_ADDR": name, "MASTER_PORT": at, "RANK": str(rank), "WORLD_SIZE": "2"})

    def slurm(self, network, name, second):
        job = str(next_port())
        return self.by_variables(network, second, lambda rank: {
            "SLURM_JOB_ID": job, "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": f"{name},node9",
            "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2"})

    # Both ranks on host a: mpirun itself is not what is tested here.
    def mpirun(self, network, *_):
        if shutil.which("mpirun") is None:
            self.skipTest("mpirun is not installed")
        folder = network.file("mpi")
        os.makedirs(folder, exist_ok=True)
        script = os.path.join(folder, "rank.sh")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec "{PROGRAM}" job 5 >"{folder}/$OMPI_COMM_WORLD_RANK" 2>&1\n')
        os.chmod(script, 0o755)
        variables = network.variables("a", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                      OMPI_MCA_rtc="^hwloc")
        done = subprocess.run(network.command("a", "mpirun", "-np", "2", "--oversubscribe", script),
                              env=variables, capture_output=True, text=True, timeout=SOON_S, check=False)
        ranks = []
        for number in range(2):
            path = os.path.join(folder, str(number))
            shown = f'cat "{path}"; rm -f "{path}"' if os.path.exists(path) else "true"
            ranks.append(Rank(subprocess.Popen(["sh", "-c", shown], stdout=subprocess.PIPE, text=True)))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return ranks


def add(form, daemons):
    name = f"test_{form.replace(' ', '_')}_{'with_daemons' if daemons else 'embedded'}"
    setattr(Matrix, name, lambda self: self.form(form, daemons))


for each in FORMS:
    add(each, True)
    add(each, False)


class BootOrder(unittest.TestCase):
    def test_a_daemon_that_started_before_its_nic_had_a_carrier(self):
        network = Network("b", "4", {"a": LOOPBACK, "b": LOOPBACK}, False)
        self.addCleanup(network.close)
        network.cable("b", "down")
        network.daemons = True
        network.start_daemon("a")
        network.cable("b", "up")
        network.start_daemon("b")
        file = network.file("id")
        ranks = [network.rank(host, "id", file, str(rank), "2", "5") for rank, host in enumerate("ab")]
        for number, rank in enumerate(ranks):
            code, wrong, own, count, output, _ = rank.result(SOON_S)
            self.assertEqual((code, wrong, own, count), (0, 0, number, 2), output)


class Refused(unittest.TestCase):
    """What cannot work says so at once, on every rank that hears of it."""

    def refused(self, variables, words, host="a"):
        network = Network("r", "4", {"a": LOOPBACK, "b": LOOPBACK}, True)
        self.addCleanup(network.close)
        code, _, _, _, output, _ = network.rank(host, "job", "5", **variables).result(SOON_S)
        self.assertNotIn(code, (0, None), output)
        for word in words:
            self.assertIn(word, output)

    def test_a_name_that_nobody_knows(self):
        self.refused({"MASTER_ADDR": "node77.invalid", "MASTER_PORT": "5000", "RANK": "0", "WORLD_SIZE": "2"},
                     ["MASTER_ADDR", "node77.invalid"])

    def test_an_address_of_another_host_for_rank_0(self):
        self.refused({"MASTER_ADDR": Network.V4["b"], "MASTER_PORT": "5000", "RANK": "0", "WORLD_SIZE": "2"},
                     [Network.V4["b"] + ":5001", "no address of its host"])

    def test_every_address_of_a_host_is_no_place(self):
        self.refused({"MASTER_ADDR": "0.0.0.0", "MASTER_PORT": "5000", "RANK": "1", "WORLD_SIZE": "2"},
                     ["MASTER_ADDR"])

    def test_variables_that_contradict_each_other(self):
        self.refused({"MASTER_ADDR": "10.9.0.1", "MASTER_PORT": "5000", "RANK": "1", "WORLD_SIZE": "2",
                      "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"},
                     ["RANK=1", "WORLD_SIZE=2", "SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=4"])


if __name__ == "__main__":
    skip_without_namespaces()
    assert os.path.exists(os.path.join(BUILD, "bin", "hdtcommd")), BUILD
    unittest.main()
