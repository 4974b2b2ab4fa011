// indexed_dataset.h: reads a Megatron indexed dataset (PREFIX.bin, PREFIX.idx) through mmap.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/data/indexed_format.h"
#include "training/data/mapped_file.h"
#include "training/data/token_source.h"

namespace hdt::training {

// As a TokenSource it is all sequences, one after the other in the order of the index.
class IndexedDataset final : public TokenSource {
 public:
  // Checks every field of the index against the index's and the data's sizes before anything is used; what
  // does not fit is refused with kConfig and a message that names the file, what was found and what was
  // expected.
  static Result<std::unique_ptr<IndexedDataset>> open(const std::string& prefix);

  ElementType element_type() const { return type_; }
  uint64_t sequence_count() const { return pointers_.size(); }
  uint64_t document_count() const { return document_starts_.size() - 1; }
  uint64_t token_count() const override { return token_starts_.back(); }
  uint64_t data_bytes() const { return data_.size(); }

  uint64_t sequence_size(uint64_t sequence) const;
  // All tokens of a sequence; sequence < sequence_count().
  std::vector<int64_t> sequence_tokens(uint64_t sequence) const;
  // All tokens of a document (of its sequences, one after the other); document < document_count().
  std::vector<int64_t> document_tokens(uint64_t document) const;
  void read_tokens(uint64_t first, std::span<int64_t> out) const override;

 private:
  IndexedDataset() = default;
  void convert(uint64_t byte_offset, std::span<int64_t> out) const;

  ElementType type_ = ElementType::kUint16;
  MappedFile data_;
  std::vector<uint64_t> pointers_;         // byte offset of each sequence in data_
  std::vector<uint64_t> token_starts_;     // tokens before each sequence, then the count of all
  std::vector<uint64_t> document_starts_;  // first sequence of each document, then sequence_count()
};

}  // namespace hdt::training
