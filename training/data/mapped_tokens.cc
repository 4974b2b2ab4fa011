// mapped_tokens.cc: a token is read by arithmetic, and its page comes from the disk then.
#include "training/data/mapped_tokens.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "training/data/indexed_dataset.h"

namespace hdt::training {

Result<std::unique_ptr<MappedDataset>> MappedDataset::open(const std::string& prefix) {
  auto files = open_dataset_files(prefix);
  if (!files.is_ok()) return files.status();
  auto dataset = std::unique_ptr<MappedDataset>(new MappedDataset);
  dataset->prefix_ = prefix;
  std::tie(dataset->index_, dataset->data_) = files.take();
  auto sketch = sketch_dataset_index(dataset->index_.bytes(), dataset->data_.size(), prefix);
  if (!sketch.is_ok()) return sketch.status();
  dataset->sketch_ = sketch.take();
  return dataset;
}

void MappedDataset::read_tokens(uint64_t first, std::span<int64_t> out) const {
  if (out.empty()) return;
  read_elements(sketch_.type, data_.data() + first * element_bytes(sketch_.type), out);
}

Result<uint64_t> MappedDataset::sequence_start(uint64_t sequence) const {
  return token_start(index_.bytes(), sketch_, sequence, prefix_);
}

Result<std::unique_ptr<MappedBytes>> MappedBytes::open(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file.is_ok()) return file.status();
  if (file.value().size() == 0) return Status(Code::kInvalidArgument, path + " is empty, expected text");
  auto bytes = std::unique_ptr<MappedBytes>(new MappedBytes);
  bytes->file_ = file.take();
  return bytes;
}

void MappedBytes::read_tokens(uint64_t first, std::span<int64_t> out) const {
  std::ranges::transform(file_.bytes().subspan(first, out.size()), out.begin(),
                         [](std::byte byte) { return std::to_integer<int64_t>(byte); });
}

}  // namespace hdt::training
