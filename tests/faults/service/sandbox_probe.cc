// sandbox_probe.cc: tries what a daemon in its sandbox must not be able to do, and what it must. One line for
// each: what, and the errno value, 0 where it worked.
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

void tell(const char* what, bool worked) { std::printf("%s %d\n", what, worked ? 0 : errno); }

void try_socket(const char* what, int family, int kind, int protocol = 0) {
  const int fd = ::socket(family, kind, protocol);
  tell(what, fd >= 0);
  if (fd >= 0) ::close(fd);
}

void try_write(const char* what, const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  tell(what, fd >= 0);
  if (fd >= 0) ::close(fd);
}

}  // namespace

// The folder of its socket.
int main(int argc, char** argv) {
  const std::string own = argc == 3 ? argv[2] : "/nonexistent/socket";
  std::printf("uid %u\n", ::getuid());
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  ::syscall(SYS_capget, &header, sets);
  std::printf("capabilities %u\n",
              sets[0].effective | sets[0].permitted | sets[1].effective | sets[1].permitted);
  std::printf("groups %d\n", ::getgroups(0, nullptr));
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  std::printf("files %llu\n", static_cast<unsigned long long>(files.rlim_max));
  try_write("write_etc", "/etc/hdt-sandbox-probe");
  try_write("write_usr", "/usr/hdt-sandbox-probe");
  try_write("write_sysctl", "/proc/sys/net/core/somaxconn");
  try_write("write_tmp", "/tmp/hdt-sandbox-probe");
  try_write("write_own", own + ".probe");
  ::unlink((own + ".probe").c_str());
  tell("see_kmsg", ::access("/dev/kmsg", F_OK) == 0);
  tell("see_root", ::access("/root/.profile", F_OK) == 0);
  try_socket("packet", AF_PACKET, SOCK_RAW);
  try_socket("bluetooth", 31, SOCK_RAW);
  try_socket("raw", AF_INET, SOCK_RAW, IPPROTO_ICMP);
  try_socket("tcp", AF_INET, SOCK_STREAM);
  try_socket("tcp6", AF_INET6, SOCK_STREAM);
  try_socket("unix", AF_UNIX, SOCK_SEQPACKET);
  try_socket("netlink", AF_NETLINK, SOCK_RAW);
  tell("ptrace", ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0);
  tell("namespace", ::unshare(CLONE_NEWUSER) == 0);
  tell("mount", ::syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, nullptr) == 0);
  tell("setuid", ::syscall(SYS_setuid, 0) == 0);
  tell("bpf", ::syscall(SYS_bpf, 0, nullptr, 0) == 0);
  tell("keyring", ::syscall(SYS_keyctl, 0, 0, 0, 0, 0) >= 0);
  void* code = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  tell("write_and_execute", code != MAP_FAILED);
  const int memory = static_cast<int>(::syscall(SYS_memfd_create, "probe", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  tell("memfd", memory >= 0);
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0));
  tell("pidfd", process >= 0);
  std::thread([] { std::printf("thread 0\n"); }).join();
  return 0;
}
