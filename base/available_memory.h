// available_memory.h: how much memory a process may still take before the kernel ends one, and how much it
// has had at most.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hdt {

// Bytes that this process and others of its cgroup can still take: the smallest of what the machine has
// available (MemAvailable) and of what the limits of the cgroup and its ancestors leave, page cache that can
// be dropped included. Swap does not count. Nothing if the kernel does not say. Reads /proc and /sys at each
// call.
std::optional<int64_t> available_memory_bytes();

// The same from files of another place, for tests. `meminfo` and `self_cgroup` are the texts of /proc/meminfo
// and /proc/self/cgroup; `mount` is the folder with the hierarchies, "/sys/fs/cgroup". Version 2 of cgroups,
// and the memory controller of version 1.
std::optional<int64_t> available_memory_bytes(const std::string& meminfo, const std::string& self_cgroup,
                                              const std::string& mount);

// The most resident memory that this process has had, in bytes (VmHWM); shared memory that it has touched
// counts. Unlike ru_maxrss of getrusage() it knows nothing of the program that started this one. Nothing if
// the kernel does not say. Reads /proc at each call.
std::optional<int64_t> peak_memory_bytes();

// The resident memory that this process has of its own, in bytes (RssAnon): neither files nor shared memory.
// Nothing if the kernel does not say. Reads /proc at each call.
std::optional<int64_t> own_memory_bytes();

}  // namespace hdt
