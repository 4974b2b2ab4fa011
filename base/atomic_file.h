// atomic_file.h: a file that appears whole or not at all, also after a power loss. It is written under a
// temporary name in the same folder, synced to the disk, then renamed. A reader that has the old file mapped
// keeps it. A process that is killed meanwhile leaves the temporary file behind.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hdt {

// The mode of a file that is nobody's secret.
inline constexpr mode_t kForAll = 0666;

// One file that is being written. Not thread-safe. After a failure the object can only be destroyed.
class AtomicFile {
 public:
  // Creates PATH.tmp.<pid>.<n> with this mode, less the umask. kInvalidArgument: `path` exists and is not a
  // regular file. kSystem: the file cannot be created.
  static Result<std::unique_ptr<AtomicFile>> create(const std::string& path, mode_t mode = kForAll);
  // Removes the temporary file unless it has got its final name.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends bytes. They are buffered, so an error may be reported by a later call.
  Status write(const void* bytes, size_t count);
  // Writes out what is buffered and waits until it is on the disk. After this only the rename of
  // commit() can fail.
  Status sync();
  // Syncs, then replaces `path`. To be called once, and not with commit_new().
  Status commit();
  // Syncs, then gives the file its name if no other has it. Otherwise kInvalidUsage, and the other one stays.
  Status commit_new();

 private:
  AtomicFile() = default;
  // Hands the buffer to the kernel.
  Status write_out();

  std::string path_;       // the final name
  std::string temporary_;  // empty once it is renamed
  std::string buffer_;
  UniqueFd descriptor_;
};

// Makes names in a folder durable: those of new files, and renames.
Status sync_folder(const std::string& folder);

// Whether a file could be written at `path` now. For files that are written at the end of long work.
// Leaves nothing behind.
Status check_writable(const std::string& path);

// Replaces `path` by a file with these contents.
Status write_file_atomically(const std::string& path, std::string_view contents, mode_t mode = kForAll);

}  // namespace hdt
