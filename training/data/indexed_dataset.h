// indexed_dataset.h: reads a Megatron indexed dataset (PREFIX.bin, PREFIX.idx) through mmap.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/data/indexed_format.h"
#include "training/data/indexed_index.h"
#include "training/data/mapped_file.h"
#include "training/data/token_source.h"

namespace hdt::training {

// As a TokenSource it is all sequences, one after the other in the order of the index.
class IndexedDataset final : public TokenSource {
 public:
  // Checks every field of the index against the index's and the data's sizes before anything is used; what
  // does not fit is refused with kInvalidArgument and a message that names the file, what was found and what
  // was expected.
  static Result<std::unique_ptr<IndexedDataset>> open(const std::string& prefix);

  ElementType element_type() const { return index_.type; }
  uint64_t sequence_count() const { return index_.token_starts.size() - 1; }
  uint64_t document_count() const { return index_.document_starts.size() - 1; }
  uint64_t token_count() const override { return index_.token_starts.back(); }
  uint64_t data_bytes() const { return data_.size(); }

  uint64_t sequence_size(uint64_t sequence) const;
  // All tokens of a sequence; sequence < sequence_count().
  std::vector<int64_t> sequence_tokens(uint64_t sequence) const;
  // All tokens of a document (of its sequences, one after the other); document < document_count().
  std::vector<int64_t> document_tokens(uint64_t document) const;
  // Tokens first .. first + out.size() - 1; first + out.size() <= token_count().
  void read_tokens(uint64_t first, std::span<int64_t> out) const override;

 private:
  IndexedDataset() = default;

  MappedFile data_;
  DatasetIndex index_;
};

}  // namespace hdt::training
