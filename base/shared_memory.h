// shared_memory.h: a sealed memfd and its mapping. Sealed against shrinking and growing, so that a mapping
// never faults because another process changed the file; the receiving side checks the seals before it maps.
// Children of fork() do not have the mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hdt {

class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // Zeroed memory of `bytes`; pages are taken when first touched. `name` shows in /proc/*/maps.
  static Result<SharedMemory> create(const std::string& name, size_t bytes);
  // Maps a file that another process made: refused unless it is sealed and of exactly the size it says.
  static Result<SharedMemory> map(UniqueFd fd);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  int fd() const { return fd_.get(); }
  // The mapping stays. For memory that is handed on to nobody: a process may map more than it may have open.
  void close_fd();
  bool valid() const { return data_ != nullptr; }

  // What this process has mapped so.
  struct Use {
    uint64_t memories = 0;
    uint64_t bytes = 0;
  };
  static Use in_use();

 private:
  static Result<SharedMemory> map_sealed(UniqueFd fd, size_t bytes);
  UniqueFd fd_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hdt
