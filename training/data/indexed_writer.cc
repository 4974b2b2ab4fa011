// indexed_writer.cc: tokens go to PREFIX.bin as they come; sizes, byte offsets and document borders are
// kept in memory until finish() writes PREFIX.idx. docs/design/data.md says what a kill in between
// leaves behind.
#include "training/data/indexed_writer.h"

#include <fmt/format.h>

#include <limits>

namespace hdt::training {
namespace {

// Writes tokens as elements of type T. The caller has checked that they fit.
template <typename T>
Status write_narrow(AtomicFile& file, std::span<const int64_t> tokens) {
  std::vector<T> narrow(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) narrow[i] = static_cast<T>(tokens[i]);
  return file.write(narrow.data(), narrow.size() * sizeof(T));
}

template <typename T>
Status write_array(AtomicFile& file, const std::vector<T>& values) {
  return file.write(values.data(), values.size() * sizeof(T));
}

template <typename T>
Status write_number(AtomicFile& file, T value) {
  return file.write(&value, sizeof(T));
}

}  // namespace

Result<std::unique_ptr<IndexedDatasetWriter>> IndexedDatasetWriter::create(const std::string& prefix,
                                                                           ElementType type) {
  if (!holds_tokens(type)) {
    return Status(Code::kInvalidArgument, fmt::format("{}: element type {}, expected an integer type", prefix,
                                                      element_type_name(type)));
  }
  // Both files are opened now, so that a dataset that cannot be written fails before the work.
  auto data = AtomicFile::create(data_path(prefix));
  if (!data.is_ok()) return data.status();
  auto index = AtomicFile::create(index_path(prefix));
  if (!index.is_ok()) return index.status();
  auto writer = std::unique_ptr<IndexedDatasetWriter>(new IndexedDatasetWriter);
  writer->prefix_ = prefix;
  writer->type_ = type;
  writer->data_ = data.take();
  writer->index_ = index.take();
  return writer;
}

Status IndexedDatasetWriter::add_sequence(std::span<const int64_t> tokens) {
  if (finished_) return {Code::kInvalidUsage, prefix_ + ": add_sequence after finish"};
  if (tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return {Code::kInvalidArgument, fmt::format("{}: a sequence of {} tokens, the format allows {}", prefix_,
                                                tokens.size(), std::numeric_limits<int32_t>::max())};
  }
  // All tokens are checked before the first one is written.
  for (const int64_t token : tokens) {
    if (token < element_minimum(type_) || token > element_maximum(type_)) {
      return {Code::kInvalidArgument,
              fmt::format("{}: token {}, expected {} to {} for {}", prefix_, token, element_minimum(type_),
                          element_maximum(type_), element_type_name(type_))};
    }
  }
  // One narrowing copy for each type; the file is written in blocks by AtomicFile.
  switch (type_) {
    case ElementType::kUint8:
      HDT_RETURN_IF_ERROR(write_narrow<uint8_t>(*data_, tokens));
      break;
    case ElementType::kInt8:
      HDT_RETURN_IF_ERROR(write_narrow<int8_t>(*data_, tokens));
      break;
    case ElementType::kInt16:
      HDT_RETURN_IF_ERROR(write_narrow<int16_t>(*data_, tokens));
      break;
    case ElementType::kUint16:
      HDT_RETURN_IF_ERROR(write_narrow<uint16_t>(*data_, tokens));
      break;
    case ElementType::kInt32:
      HDT_RETURN_IF_ERROR(write_narrow<int32_t>(*data_, tokens));
      break;
    case ElementType::kInt64:
      HDT_RETURN_IF_ERROR(write_narrow<int64_t>(*data_, tokens));
      break;
    case ElementType::kFloat32:
    case ElementType::kFloat64:
      return {Code::kInternal, prefix_ + ": floats are refused by create"};
  }
  sizes_.push_back(static_cast<int32_t>(tokens.size()));
  pointers_.push_back(static_cast<int64_t>(token_count_ * element_bytes(type_)));
  token_count_ += tokens.size();
  return Status::ok();
}

Status IndexedDatasetWriter::end_document() {
  if (finished_) return {Code::kInvalidUsage, prefix_ + ": end_document after finish"};
  document_starts_.push_back(static_cast<int64_t>(sizes_.size()));
  return Status::ok();
}

Status IndexedDatasetWriter::prepare() {
  if (finished_) return {Code::kInvalidUsage, prefix_ + ": finish was called before"};
  // A document that was not ended is a mistake of the caller: its sequences would belong to none.
  if (document_starts_.back() != static_cast<int64_t>(sizes_.size())) {
    return {Code::kInvalidUsage, prefix_ + ": finish with an open document, expected end_document first"};
  }
  // The fields in the order of indexed_format.h.
  HDT_RETURN_IF_ERROR(index_->write(kIndexMagic.data(), kIndexMagic.size()));
  HDT_RETURN_IF_ERROR(write_number(*index_, kIndexVersion));
  HDT_RETURN_IF_ERROR(write_number(*index_, static_cast<uint8_t>(type_)));
  HDT_RETURN_IF_ERROR(write_number(*index_, static_cast<uint64_t>(sizes_.size())));
  HDT_RETURN_IF_ERROR(write_number(*index_, static_cast<uint64_t>(document_starts_.size())));
  HDT_RETURN_IF_ERROR(write_array(*index_, sizes_));
  HDT_RETURN_IF_ERROR(write_array(*index_, pointers_));
  HDT_RETURN_IF_ERROR(write_array(*index_, document_starts_));
  // Both files are on the disk before either is in place, so only the renames can still fail. A kill between
  // these leaves a pair that parse_dataset_index() refuses, unless both datasets have the same sizes.
  HDT_RETURN_IF_ERROR(data_->sync());
  HDT_RETURN_IF_ERROR(index_->sync());
  finished_ = true;
  return Status::ok();
}

Status IndexedDatasetWriter::finish() {
  if (placed_) return {Code::kInvalidUsage, prefix_ + ": finish was called before"};
  if (!finished_) HDT_RETURN_IF_ERROR(prepare());
  placed_ = true;
  HDT_RETURN_IF_ERROR(data_->commit());
  return index_->commit();
}

}  // namespace hdt::training
