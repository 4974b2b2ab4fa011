// shared_memory.h: a sealed memfd and its mapping. The seals forbid to shrink or to grow the file, so an
// access to the mapping never faults because another process changed the file. The receiving side checks
// the seals before it maps. Children of fork() do not have the mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hdt {

// Owns a descriptor and a mapping, and releases both when it is destroyed. It can be moved, not copied.
// The object is not thread-safe; the memory is as safe as its contents are.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // Zeroed memory of `bytes`. Pages are taken when they are first touched. `name` shows in
  // /proc/PID/maps. kSystem: the kernel refuses, or `bytes` are more than RLIMIT_FSIZE allows.
  static Result<SharedMemory> create(const std::string& name, size_t bytes);
  // Maps the whole of a file that another process made, with the size that the kernel reports.
  // kInvalidArgument: the file is not sealed against shrinking. The caller compares size() with what it
  // expects.
  static Result<SharedMemory> map(UniqueFd fd);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  int fd() const { return fd_.get(); }
  // Closes the descriptor; the mapping stays. For memory that is not passed on any more: a process may
  // map more than it may have open.
  void close_fd();
  // False for a default-made object and for one that was moved from.
  bool valid() const { return data_ != nullptr; }

  // Number and bytes of all mappings of this class in this process.
  struct Use {
    uint64_t memories = 0;
    uint64_t bytes = 0;
  };
  // From any thread. The two numbers are read one after the other, so they may belong to different moments.
  static Use in_use();

 private:
  // Maps `bytes` of a file whose seals were checked, and keeps the mapping out of forked children.
  static Result<SharedMemory> map_sealed(UniqueFd fd, size_t bytes);
  UniqueFd fd_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hdt
