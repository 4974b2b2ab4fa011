"""nodes.py: the hosts of a soak and their daemons, which can be killed and started again, and whose bytes
can be damaged."""

import json
import mmap
import os
import signal
import struct
import subprocess
import time

from processes import LIMIT_S, clean_environment
from rails.two_hosts import Hosts

LOG_LINES = 30


class Nodes(Hosts):
    def __init__(self, build, folder, count, nics, rate):
        super().__init__(build, folder, count, str(nics), rate, ["--handover", "--link.checksum", "crc32c"])
        self.nic_count = nics
        self.damage_library = os.path.join(build, "lib", "libhdt-soak-damage.so")
        self.damage = []
        for host in range(count):
            with open(self._damage_file(host), "wb+") as file:
                file.write(bytes(8))
                file.flush()
                self.damage.append(mmap.mmap(file.fileno(), 8))

    def _damage_file(self, host):
        return os.path.join(self.folder, f"damage-{host}")

    def can_damage(self):
        return os.path.exists(self.damage_library)

    def environment(self, host):
        more = {"LD_PRELOAD": self.damage_library,
                "HDT_SOAK_DAMAGE": self._damage_file(host)} if self.can_damage() else {}
        return clean_environment(**more)

    def damage_reads(self, host, count, limit_s):
        """How many of the next reads of payload were damaged."""
        self.damage[host][:] = struct.pack("<q", count)
        deadline = time.monotonic() + limit_s
        while (left := struct.unpack("<q", self.damage[host][:])[0]) > 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        self.damage[host][:] = bytes(8)
        return count - left

    def kill_daemon(self, host):
        """Returns when it has ended."""
        self.daemons[host].kill()
        self.daemons[host].wait(LIMIT_S)

    def hand_over(self, host):
        """Ends it for an upgrade; returns when it has ended."""
        self.daemons[host].terminate()
        if code := self.daemons[host].wait(LIMIT_S):
            raise RuntimeError(f"the daemon of h{host} ended with {code} at SIGTERM")

    def replace_daemon(self, host):
        before = self.starts(host)
        self.daemons[host] = self.start_daemon(host)
        self.await_serving(host, before)

    def heal_daemons(self):
        for daemon in self.daemons:
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGCONT)

    def rails_down(self):
        """Rails that do not work, in words."""
        return [f"h{host} to {peer['node']} (class {peer['class']}): {rail['local']} on {rail['nic']}, "
                f"{rail['state']}: {rail['last_error']}"
                for host in range(self.count) for peer in self.control(host, "status")["peers"]
                for rail in peer["rails"]
                if rail["state"] != "up"]

    def groups_left(self):
        return {f"h{host}": len(groups) for host in range(self.count)
                if (groups := self.control(host, "status")["groups"])}

    def use(self, host):
        """Memory in KiB and open files of a daemon."""
        pid = self.daemons[host].pid
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            resident = next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
        return {"resident_kib": resident, "open_files": len(os.listdir(f"/proc/{pid}/fd"))}

    def waiting_links(self, host):
        try:
            peers = self.control(host, "status")["peers"]
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return [str(error)]
        return [json.dumps(peer) for peer in peers if peer["writes_pending"] or peer["bytes_queued"]]

    def diagnosis(self):
        """Every node's report of its groups, and the ends of the logs."""
        self.heal_daemons()
        told = []
        for host in range(self.count):
            told.append(f"--- h{host}: hdtctl why")
            try:
                done = subprocess.run([os.path.join(self.bin, "hdtctl"), "--socket", self.socket(host),
                                       "why"],
                                      capture_output=True, text=True, timeout=LIMIT_S, check=False)
                told.append((done.stdout + done.stderr).strip())
            except subprocess.TimeoutExpired:
                told.append(f"no answer in {LIMIT_S} s")
            told.append(f"--- h{host}: links with something to send")
            told += self.waiting_links(host)
            code = self.daemons[host].poll() if host < len(self.daemons) else None
            told.append(f"--- h{host}: daemon {'runs' if code is None else f'has ended with {code}'}; last "
                        f"lines of its log")
            told += self.read_log(host).splitlines()[-LOG_LINES:]
        return "\n".join(told)
