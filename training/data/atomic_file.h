// atomic_file.h: a file that appears whole or not at all: written under a temporary name, synced, renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hdt::training {

class AtomicFile {
 public:
  // Creates PATH.tmp.<pid>.<n>. Refuses a `path` that exists and is no regular file.
  static Result<std::unique_ptr<AtomicFile>> create(const std::string& path);
  // Removes the temporary file unless commit() succeeded.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Buffered.
  Status write(const void* bytes, size_t count);
  // Writes out and syncs what is buffered: after this only the rename of commit() can fail.
  Status sync();
  // Syncs, then replaces `path`.
  Status commit();

 private:
  AtomicFile() = default;
  Status write_out();

  std::string path_;
  std::string temporary_;
  std::string buffer_;
  int descriptor_ = -1;
};

// Whether a file at `path` could be written now; for what is written at the end of long work. Leaves nothing
// behind.
Status check_writable(const std::string& path);

// Replaces `path` by a file with these contents.
Status write_file_atomically(const std::string& path, std::string_view contents);

}  // namespace hdt::training
