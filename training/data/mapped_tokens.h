// mapped_tokens.h: tokens that stay in their files until a step reads them, so that a run starts at once
// however large its data is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "training/data/indexed_index.h"
#include "training/data/mapped_file.h"
#include "training/data/token_source.h"

namespace hdt::training {

// A Megatron dataset as one stream. Nothing is copied into memory. open() checks what costs the same for
// every size (IndexSketch); IndexedDataset checks everything. Const, so any number of threads may read it.
// The files must not be cut while they are mapped.
class MappedDataset final : public TokenSource {
 public:
  // kInvalidArgument: something does not fit; the message names the file, what was found and what was
  // expected. kSystem: a file cannot be opened.
  static Result<std::unique_ptr<MappedDataset>> open(const std::string& prefix);

  uint64_t sequence_count() const { return sketch_.sequences; }
  uint64_t token_count() const override { return sketch_.tokens; }
  void read_tokens(uint64_t first, std::span<int64_t> out) const override;
  // The number of tokens before a sequence; sequence <= sequence_count(), which gives that of all.
  // kInvalidArgument: the index is damaged there.
  Result<uint64_t> sequence_start(uint64_t sequence) const;

 private:
  MappedDataset() = default;

  std::string prefix_;
  MappedFile data_;
  MappedFile index_;
  IndexSketch sketch_;
};

// The bytes of a file, each a token (ByteTokenizer).
class MappedBytes final : public TokenSource {
 public:
  // kInvalidArgument: the file is empty, or no regular file. kSystem: it cannot be opened.
  static Result<std::unique_ptr<MappedBytes>> open(const std::string& path);

  uint64_t token_count() const override { return file_.size(); }
  void read_tokens(uint64_t first, std::span<int64_t> out) const override;

 private:
  MappedBytes() = default;

  MappedFile file_;
};

}  // namespace hdt::training
