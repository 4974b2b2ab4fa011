// mapped_file.h: a whole file, mapped read-only.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"

namespace hdt::training {

// Owns a mapping and removes it when it is destroyed. The file must not be shortened while it is mapped (an
// access would end the process with SIGBUS); that is why the writers here replace files and never cut them.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { swap(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    swap(other);
    return *this;
  }
  ~MappedFile();

  // Maps the file. An empty file gives an object without memory. kInvalidArgument: not a regular file.
  // kSystem: it cannot be opened or mapped.
  static Result<MappedFile> open(const std::string& path);

  // Null for an empty file.
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  void swap(MappedFile& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hdt::training
