// memory_file.h: an input as a file, for parsers that read one by its path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "base/unique_fd.h"
#include "tests/fuzz/target.h"

namespace hdt::fuzz {

class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> content) : fd_(::memfd_create("input", MFD_CLOEXEC)) {
    HDT_HOLDS(fd_.valid());
    for (size_t at = 0; at < content.size();) {
      const ssize_t written = ::write(fd_.get(), content.data() + at, content.size() - at);
      HDT_HOLDS(written > 0);
      at += static_cast<size_t>(written);
    }
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

 private:
  UniqueFd fd_;
};

}  // namespace hdt::fuzz
