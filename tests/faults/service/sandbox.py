"""sandbox.py UNIT VISIBLE PROGRAM ARGUMENTS...: runs PROGRAM with the restrictions of a systemd unit, without
systemd.

As root. What the kernel does for the unit is done here: the user, no capabilities, no new privileges, a mount
namespace that can only be read but for the folders of the daemon's socket and state, the filter of system
calls, limits. VISIBLE is a folder that stays visible wherever it lies: the build. Settings of the service
manager's own (restarts, control groups) are left out, each by name: a setting that is in neither list is an
error, so that nothing is left out unseen.
"""

import ctypes
import os
import pwd
import resource
import signal
import struct
import subprocess
import sys

# Settings of the service manager itself, and not of the process.
MANAGER = {"Type", "NotifyAccess", "ExecStart", "ExecReload", "Restart", "RestartSec",
           "RestartPreventExitStatus", "WatchdogSec", "TimeoutStopSec", "MemoryMax", "TasksMax",
           "RuntimeDirectoryPreserve", "KeyringMode", "RemoveIPC", "PrivateMounts", "DevicePolicy"}
# Settings that are implied by others of the unit: no capabilities, the filter of system calls, the read-only
# mounts.
IMPLIED = {"ProtectClock", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules",
           "ProtectControlGroups", "RestrictSUIDSGID", "RestrictRealtime", "LockPersonality",
           "AmbientCapabilities"}
APPLIED = {"User", "Group", "RuntimeDirectory", "RuntimeDirectoryMode", "StateDirectory",
           "StateDirectoryMode", "ConfigurationDirectory", "UMask", "LimitNOFILE", "LimitMEMLOCK",
           "CoredumpFilter", "NoNewPrivileges", "CapabilityBoundingSet", "RestrictNamespaces",
           "MemoryDenyWriteExecute", "ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices",
           "ProtectKernelTunables", "RestrictAddressFamilies", "SystemCallArchitectures",
           "SystemCallFilter", "SystemCallErrorNumber"}
# All that this program does is what these say; another value is an error.
EXPECTED = {"NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "RestrictNamespaces": "yes",
            "MemoryDenyWriteExecute": "yes", "ProtectSystem": "strict", "ProtectHome": "yes",
            "PrivateTmp": "yes", "PrivateDevices": "yes", "ProtectKernelTunables": "yes",
            "SystemCallArchitectures": "native", "SystemCallErrorNumber": "EPERM", "LimitMEMLOCK": "infinity"}

FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
NOBODY = 65534
EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue", "hugepages")

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
MOUNT_SETATTR, OPEN_TREE, MOVE_MOUNT = 442, 428, 429
AT_FDCWD, AT_RECURSIVE, AT_EMPTY_PATH = -100, 0x8000, 0x1000
MOUNT_ATTR_RDONLY = 1
CLONE_NEWNS = 0x20000
MS_RDONLY, MS_NOSUID, MS_REMOUNT, MS_REC, MS_SLAVE = 1, 2, 32, 16384, 1 << 19
PR_SET_PDEATHSIG, PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 1, 23, 24, 38, 22


def read_service(path):
    """The settings of [Service], each a list of values; an empty one takes back those before it."""
    settings, section = {}, ""
    with open(path, encoding="utf-8") as file:
        for line in map(str.strip, file):
            if line.startswith("["):
                section = line
            elif section == "[Service]" and line and line[0] not in "#;":
                key, value = (part.strip() for part in line.split("=", 1))
                settings[key] = settings.get(key, []) + [value] if value else [""]
    unknown = set(settings) - MANAGER - IMPLIED - APPLIED
    if unknown:
        raise ValueError(f"{path}: {', '.join(sorted(unknown))}: sandbox.py does not know what that does to "
                         f"a process")
    for key, value in EXPECTED.items():
        if settings.get(key, [value]) != [value]:
            raise ValueError(f"{path}: {key} is {settings[key]}; sandbox.py knows '{value}' only")
    return settings


def call_numbers():
    """System calls of this machine, by name, as the C compiler knows them."""
    done = subprocess.run(["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", os.devnull],
                          capture_output=True, text=True, check=True, timeout=60)
    numbers = {}
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) == 3 and words[1].startswith("__NR_") and words[2].isdigit():
            numbers[words[1][5:]] = int(words[2])
    return numbers


def call_groups():
    """@name -> what is in it, as systemd says."""
    done = subprocess.run(["systemd-analyze", "--no-pager", "syscall-filter"], capture_output=True, text=True,
                          check=True, timeout=60)
    groups, name = {}, None
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            name = line.strip()
            groups[name] = []
        elif line.startswith("#"):
            name = None
        elif name and line.strip() and not line.strip().startswith("#"):
            groups[name].append(line.strip())
    return groups


def allowed_calls(filters, groups):
    def names(word):
        return set().union(*map(names, groups[word])) if word.startswith("@") else {word}
    allowed = names("@default")  # systemd's own, always
    for line in filters:
        words = line.removeprefix("~").split()
        of_line = set().union(*map(names, words))
        allowed = allowed - of_line if line.startswith("~") else allowed | of_line
    return allowed | names("@default")


class Filter:
    """A filter of system calls in the kernel's own language: (code, jump if true, jump if false, value)."""
    LOAD, EQUAL, SET, RETURN, AND = 0x20, 0x15, 0x45, 0x06, 0x54
    ALLOW, ERROR, KILL = 0x7fff0000, 0x00050000, 0x80000000

    def __init__(self, numbers):
        self.numbers = numbers
        self.code = [(self.LOAD, 0, 0, 4),  # the architecture
                     (self.EQUAL, 1, 0, {"x86_64": 0xc000003e, "aarch64": 0xc00000b7}[os.uname().machine]),
                     (self.RETURN, 0, 0, self.KILL),
                     (self.LOAD, 0, 0, 0)]  # the call's number

    def answer(self, name, verdict):
        if name in self.numbers:
            self.code += [(self.EQUAL, 0, 1, self.numbers[name]), (self.RETURN, 0, 0, verdict)]

    def refuse_bits(self, name, argument, mask, exactly=None, error=EPERM):
        """Where that argument has any bit of the mask set, or all of them."""
        if name not in self.numbers:
            return
        test = [(self.AND, 0, 0, mask), (self.EQUAL, 0, 1, mask)] if exactly else [(self.SET, 0, 1, mask)]
        self.code += [(self.EQUAL, 0, 3 + len(test), self.numbers[name]),
                      (self.LOAD, 0, 0, 16 + 8 * argument), *test, (self.RETURN, 0, 0, self.ERROR | error),
                      (self.LOAD, 0, 0, 0)]

    def only_values(self, name, argument, values, error):
        tests = [(self.EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
        self.code += [(self.EQUAL, 0, 3 + len(tests), self.numbers[name]),
                      (self.LOAD, 0, 0, 16 + 8 * argument), *tests, (self.RETURN, 0, 0, self.ERROR | error),
                      (self.LOAD, 0, 0, 0)]

    def install(self, otherwise):
        code = self.code + [(self.RETURN, 0, 0, otherwise)]
        text = b"".join(struct.pack("HBBI", *line) for line in code)
        buffer = ctypes.create_string_buffer(text, len(text))
        program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(buffer))
        checked(LIBC.prctl(PR_SET_SECCOMP, 2, ctypes.c_char_p(program), 0, 0), "seccomp")


def filter_of(settings):
    made = Filter(call_numbers())
    # its flags cannot be seen: the C library takes clone() instead
    made.answer("clone3", Filter.ERROR | ENOSYS)
    made.answer("setns", Filter.ERROR | EPERM)
    for name in ("clone", "unshare"):
        made.refuse_bits(name, 0, 0x7e020080)  # a namespace
    made.refuse_bits("mmap", 2, 6, exactly=True)  # memory to write and to execute
    made.refuse_bits("mprotect", 2, 4)
    made.refuse_bits("pkey_mprotect", 2, 4)
    made.refuse_bits("shmat", 2, 0x8000)
    families = [FAMILIES[name] for name in settings["RestrictAddressFamilies"][-1].split()]
    made.only_values("socket", 0, families, EAFNOSUPPORT)
    for name in sorted(allowed_calls(settings["SystemCallFilter"], call_groups())):
        made.answer(name, Filter.ALLOW)
    return made


def checked(result, what):
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


def mount(source, target, kind, flags, data=""):
    checked(LIBC.mount(source.encode(), target.encode(), kind.encode(), flags, data.encode()),
            f"mount {target}")


def copy_of(path):
    """A mount of what is at the path now, which can be put anywhere later."""
    return checked(LIBC.syscall(OPEN_TREE, AT_FDCWD, path.encode(), 1 | AT_RECURSIVE | os.O_CLOEXEC),
                   f"open_tree {path}")


def put(tree, path, is_folder=True):
    if is_folder:
        os.makedirs(path, exist_ok=True)
    elif not os.path.exists(path):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    checked(LIBC.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, path.encode(), 4), f"move_mount {path}")
    os.close(tree)


def set_read_only(path, read_only, flags=0):
    attributes = struct.pack("QQQQ", *((MOUNT_ATTR_RDONLY, 0) if read_only else (0, MOUNT_ATTR_RDONLY)), 0, 0)
    checked(LIBC.syscall(MOUNT_SETATTR, AT_FDCWD, path.encode(), flags, ctypes.c_char_p(attributes),
                         len(attributes)),
            f"mount_setattr {path}")


def is_in(path, folder):
    return os.path.commonpath([path, folder]) == folder


def make_mounts(visible, writable):
    checked(LIBC.unshare(CLONE_NEWNS), "unshare")
    mount("none", "/", "", MS_REC | MS_SLAVE)
    # PrivateTmp, ProtectHome, PrivateDevices: what is seen of these is what is put there again.
    masked = [folder for folder in ("/tmp", "/var/tmp", "/home", "/root", "/run/user")
              if os.path.isdir(folder)]
    shown = [(path, copy_of(path)) for path in [*writable, visible]
             if any(is_in(path, folder) for folder in masked)]
    devices = [(name, copy_of("/dev/" + name)) for name in DEVICES if os.path.exists("/dev/" + name)]
    folders = {name for name, _ in devices if os.path.isdir("/dev/" + name)}
    # ProtectSystem=strict; what the kernel shows of itself is left to ProtectKernelTunables.
    set_read_only("/", True, AT_RECURSIVE)
    set_read_only("/proc", False)
    mount("/proc/sys", "/proc/sys", "", 4096)
    set_read_only("/proc/sys", True)
    for folder in masked:
        mount("none", folder, "tmpfs", MS_NOSUID, "mode=1777" if folder.endswith("tmp") else "mode=0755")
    mount("none", "/dev", "tmpfs", MS_NOSUID, "mode=0755")
    for name, tree in devices:
        put(tree, "/dev/" + name, name in folders)
    for path, tree in shown:
        put(tree, path)
    for folder in ("/home", "/root", "/run/user", "/dev"):
        if folder in masked or folder == "/dev":
            mount("none", folder, "", MS_REMOUNT | MS_RDONLY | 4096)
    for path in writable:
        if not any(is_in(path, folder) for folder in masked):
            mount(path, path, "", 4096)
            set_read_only(path, False)
    if any(is_in(visible, folder) for folder in masked):
        set_read_only(visible, True, AT_RECURSIVE)


def user_of(settings):
    """The unit's user where it has been made (sysusers.d), else nobody's number."""
    try:
        user = pwd.getpwnam(settings["User"][-1])
        return user.pw_uid, user.pw_gid
    except KeyError:
        return NOBODY, NOBODY


def flag(arguments, name):
    for at, word in enumerate(arguments):
        if word == name and at + 1 < len(arguments):
            return arguments[at + 1]
        if word.startswith(name + "="):
            return word[len(name) + 1:]
    return None


def own_folders(arguments):
    """Where the tests have the daemon's socket and state: they stand for RuntimeDirectory and
    StateDirectory."""
    folders = []
    if flag(arguments, "--node.socket"):
        folders.append(os.path.dirname(flag(arguments, "--node.socket")))
    if flag(arguments, "--node.state_folder"):
        folders.append(flag(arguments, "--node.state_folder"))
    return [os.path.realpath(folder) for folder in folders if os.path.isdir(folder)]


def limit(which, value):
    number = resource.RLIM_INFINITY if value == "infinity" else int(value)
    try:
        resource.setrlimit(which, (number, number))
    except ValueError:  # a container may not let root raise it: what is allowed then is less
        hard = resource.getrlimit(which)[1]
        resource.setrlimit(which, (hard, hard))


def enter(settings, visible, arguments):
    made = filter_of(settings)
    uid, gid = user_of(settings)
    parent = os.getppid()
    writable = own_folders(arguments)
    for folder in writable:
        os.chown(folder, uid, gid)
        os.chmod(folder, 0o755)
    # A predecessor's files, which a restart finds.
    for folder in writable:
        for entry in os.scandir(folder):
            if entry.name.endswith(".sock") or entry.name == "measurements.json":
                os.chown(entry.path, uid, gid, follow_symlinks=False)
    core = os.open("/proc/self/coredump_filter", os.O_WRONLY | os.O_CLOEXEC)
    os.write(core, b"0x11")
    os.close(core)
    make_mounts(visible, writable)  # from now on Python may not find its own files
    os.umask(int(settings["UMask"][-1], 8))
    limit(resource.RLIMIT_NOFILE, settings["LimitNOFILE"][-1])
    limit(resource.RLIMIT_MEMLOCK, settings["LimitMEMLOCK"][-1])
    number = 0
    while LIBC.prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0:
        checked(LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0), f"dropping capability {number}")
        number += 1
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    # The process that has started it ends it. The kernel forgot that when the user changed.
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)
    checked(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    made.install(Filter.ERROR | EPERM)


def main():
    unit, visible, program, *arguments = sys.argv[1:]
    enter(read_service(unit), os.path.realpath(visible), arguments)
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    main()
