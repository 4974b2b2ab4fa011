// indexed_writer.h: writes a Megatron indexed dataset (PREFIX.bin, PREFIX.idx), all or nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/status.h"
#include "training/data/indexed_format.h"

namespace hdt::training {

// Both files are written under temporary names beside their place. finish() syncs them and puts .bin,
// then .idx in place. A writer that is destroyed before leaves nothing behind and an older dataset as it
// was. Not thread-safe.
class IndexedDatasetWriter {
 public:
  // kInvalidArgument: `type` is no integer type, or a file's place is taken by something else.
  static Result<std::unique_ptr<IndexedDatasetWriter>> create(const std::string& prefix, ElementType type);

  // Adds one sequence to the open document. kInvalidArgument: a token does not fit the element type, or
  // there are more than 2^31 - 1 of them; nothing is then added.
  Status add_sequence(std::span<const int64_t> tokens);
  // Ends the open document; the next sequence begins another one. Documents may be empty.
  Status end_document();
  // Writes the index and syncs both files, under their temporary names still; only the renames of finish()
  // can fail after that. For several datasets that are to appear together. kInvalidUsage: a document is still
  // open, or prepare() or finish() was called before. Nothing can be added afterwards.
  Status prepare();
  // Does what prepare() does if that was not called, and puts the files in place. kInvalidUsage: as
  // prepare(), or finish() was called before.
  Status finish();

  uint64_t sequence_count() const { return sizes_.size(); }
  uint64_t document_count() const { return document_starts_.size() - 1; }
  uint64_t token_count() const { return token_count_; }

 private:
  IndexedDatasetWriter() = default;

  std::string prefix_;
  ElementType type_ = ElementType::kUint16;
  std::unique_ptr<AtomicFile> data_;
  std::unique_ptr<AtomicFile> index_;
  std::vector<int32_t> sizes_;                  // tokens of each sequence
  std::vector<int64_t> pointers_;               // byte offset of each sequence
  std::vector<int64_t> document_starts_ = {0};  // first sequence of each document, and of the open one
  uint64_t token_count_ = 0;
  bool finished_ = false;  // nothing can be added any more
  bool placed_ = false;    // finish() was called
};

}  // namespace hdt::training
