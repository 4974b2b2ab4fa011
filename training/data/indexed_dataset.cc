// indexed_dataset.cc: maps both files, has the index checked, and reads tokens by arithmetic from then
// on.
#include "training/data/indexed_dataset.h"

#include <cstring>

namespace hdt::training {
namespace {

// Copies elements to int64. By memcpy, as a value need not be aligned.
template <typename T>
void widen(const std::byte* from, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): Megatron's int8 is a number with a sign
    out[i] = static_cast<int64_t>(value);
  }
}

// Maps one of the two files. If the user has given the name of a file instead of the prefix, the error
// says that the prefix is wanted.
Result<MappedFile> open_file(const std::string& path, const std::string& prefix) {
  auto file = MappedFile::open(path);
  if (file.is_ok() || !(prefix.ends_with(".bin") || prefix.ends_with(".idx"))) return file;
  return Status(file.status().code(), file.status().message() + "; expected the prefix " +
                                          prefix.substr(0, prefix.size() - 4) + ", without .bin and .idx");
}

}  // namespace

Result<std::pair<MappedFile, MappedFile>> open_dataset_files(const std::string& prefix) {
  auto index_file = open_file(index_path(prefix), prefix);
  if (!index_file.is_ok()) return index_file.status();
  auto data_file = open_file(data_path(prefix), prefix);
  if (!data_file.is_ok()) return data_file.status();
  return std::pair(index_file.take(), data_file.take());
}

Result<std::unique_ptr<IndexedDataset>> IndexedDataset::open(const std::string& prefix) {
  auto files = open_dataset_files(prefix);
  if (!files.is_ok()) return files.status();
  auto [index_file, data_file] = files.take();
  // Nothing of the index is used before this has checked all of it.
  auto index = parse_dataset_index(index_file.bytes(), data_file.size(), prefix);
  if (!index.is_ok()) return index.status();
  auto dataset = std::unique_ptr<IndexedDataset>(new IndexedDataset);
  dataset->data_ = std::move(data_file);
  dataset->index_ = index.take();
  return dataset;
}

uint64_t IndexedDataset::sequence_size(uint64_t sequence) const {
  return index_.token_starts[sequence + 1] - index_.token_starts[sequence];
}

std::vector<int64_t> IndexedDataset::sequence_tokens(uint64_t sequence) const {
  std::vector<int64_t> tokens(sequence_size(sequence));
  read_tokens(index_.token_starts[sequence], tokens);
  return tokens;
}

std::vector<int64_t> IndexedDataset::document_tokens(uint64_t document) const {
  const uint64_t first = index_.token_starts[index_.document_starts[document]];
  std::vector<int64_t> tokens(index_.token_starts[index_.document_starts[document + 1]] - first);
  read_tokens(first, tokens);
  return tokens;
}

void IndexedDataset::read_tokens(uint64_t first, std::span<int64_t> out) const {
  // Sequences follow each other without gaps (parse_dataset_index), so the stream is the data file.
  if (out.empty()) return;
  read_elements(index_.type, data_.data() + first * element_bytes(index_.type), out);
}

void read_elements(ElementType type, const std::byte* from, std::span<int64_t> out) {
  switch (type) {
    case ElementType::kUint8:
      return widen<uint8_t>(from, out);
    case ElementType::kInt8:
      return widen<int8_t>(from, out);
    case ElementType::kInt16:
      return widen<int16_t>(from, out);
    case ElementType::kUint16:
      return widen<uint16_t>(from, out);
    case ElementType::kInt32:
      return widen<int32_t>(from, out);
    case ElementType::kInt64:
      return widen<int64_t>(from, out);
    case ElementType::kFloat32:
    case ElementType::kFloat64:
      break;  // refused by parse_header()
  }
}

}  // namespace hdt::training
