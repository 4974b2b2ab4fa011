// indexed_dataset.h: reads a Megatron indexed dataset (PREFIX.bin, PREFIX.idx) through mmap.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "training/data/indexed_format.h"
#include "training/data/indexed_index.h"
#include "training/data/mapped_file.h"
#include "training/data/token_source.h"

namespace hdt::training {

// Maps the two files of a dataset: index, then data. kSystem: a file cannot be opened. kInvalidArgument:
// not a regular file. If the user has given the name of a file instead of the prefix, the error says so.
Result<std::pair<MappedFile, MappedFile>> open_dataset_files(const std::string& prefix);
// Copies elements to int64. `from` need not be aligned. `type` holds tokens.
void read_elements(ElementType type, const std::byte* from, std::span<int64_t> out);

// A dataset whose index is in memory and checked to the last entry, for tools (mapped_tokens.h is for
// training). As a TokenSource the dataset is all sequences, one after the other in the order of the index.
// Const and free of shared state, so any number of threads may read it. The files must not be cut while
// they are mapped.
class IndexedDataset final : public TokenSource {
 public:
  // Checks every field of the index against the sizes of the index and of the data before anything is
  // used. kInvalidArgument: something does not fit; the message names the file, what was found and what
  // was expected. kSystem: a file cannot be opened.
  static Result<std::unique_ptr<IndexedDataset>> open(const std::string& prefix);

  ElementType element_type() const { return index_.type; }
  uint64_t sequence_count() const { return index_.token_starts.size() - 1; }
  uint64_t document_count() const { return index_.document_starts.size() - 1; }
  uint64_t token_count() const override { return index_.token_starts.back(); }
  uint64_t data_bytes() const { return data_.size(); }

  // The number of tokens of a sequence; sequence < sequence_count().
  uint64_t sequence_size(uint64_t sequence) const;
  // All tokens of a sequence; sequence < sequence_count().
  std::vector<int64_t> sequence_tokens(uint64_t sequence) const;
  // All tokens of a document, which are those of its sequences; document < document_count().
  std::vector<int64_t> document_tokens(uint64_t document) const;
  // Tokens first .. first + out.size() - 1, where first + out.size() <= token_count().
  void read_tokens(uint64_t first, std::span<int64_t> out) const override;

 private:
  IndexedDataset() = default;

  MappedFile data_;
  DatasetIndex index_;
};

}  // namespace hdt::training
