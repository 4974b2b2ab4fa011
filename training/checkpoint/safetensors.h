// safetensors.h: writes files in the safetensors format, and reads tensors or parts of them from such files.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "training/checkpoint/safetensors_header.h"
#include "training/numbers/number_type.h"

namespace hdt::training {

// A tensor in memory, which the caller keeps as it is while it is written.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::kF32;
  Shape shape;
  std::span<const std::byte> bytes;
};
// The view of numbers, with the dtype of their type (dtype_of()).
TensorView typed_view(std::string name, Shape shape, ConstTypedSpan values);

// The outcome of a write.
struct WrittenTensors {
  uint64_t file_bytes = 0;
  std::vector<std::string> hashes;  // SHA-256 as 64 hex digits, in the order of the tensors
};

// Writes `path` and waits until the file is on the disk (its name is durable only when its folder is synced).
// An existing file is replaced. The tensors are written from where they are, without another copy. A failure
// leaves no file. kSystem names the path, the bytes that the file needs and the reason, such as a full disk;
// kInvalidArgument: bytes and shape of a tensor differ, or a name is none or comes twice; kAborted: `stop`
// became true (it may be null; it is read every few MB).
Result<WrittenTensors> write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                                         const std::map<std::string, std::string>& metadata = {},
                                         const std::atomic<bool>* stop = nullptr);

// A file that is open for reading. read() and hash() are const and use pread, so any number of threads may
// call them. The file may be removed meanwhile; one that is cut meanwhile makes reads fail.
class SafetensorsFile {
 public:
  // Reads and checks the header. kSystem: the file cannot be opened or read. kInvalidArgument: it is no such
  // file, or a damaged one; the message begins with the path.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  // Null if there is none of this name.
  const TensorEntry* find(const std::string& name) const;

  // Fills `out` with elements from `first_element` on, as many as fit; out.size() must be a multiple of the
  // element's size. Nothing is verified but the range (kInvalidArgument).
  Status read(const std::string& name, uint64_t first_element, std::span<std::byte> out) const;
  // Reads the whole tensor piece by piece, and keeps the elements from `first_element` on in `out`. Returns
  // the SHA-256 of the whole tensor as hex digits.
  Result<std::string> read_hashed(const std::string& name, uint64_t first_element,
                                  std::span<std::byte> out) const;

 private:
  SafetensorsFile() = default;
  Result<const TensorEntry*> entry_of(const std::string& name, uint64_t first_element, size_t bytes) const;
  Status read_at(uint64_t offset, std::span<std::byte> out) const;  // offset: of the file

  std::string path_;
  UniqueFd descriptor_;
  SafetensorsHeader header_;
  uint64_t data_begin_ = 0;  // offset of the data in the file
};

}  // namespace hdt::training
