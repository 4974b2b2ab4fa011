// datasets.cc: see datasets.h.
#include "tests/training/train_command/datasets.h"

#include <gtest/gtest.h>

#include "training/data/indexed_writer.h"

namespace hdt::training::testing {

void write_dataset(const std::string& prefix, ElementType type, const std::vector<int64_t>& tokens) {
  auto writer = IndexedDatasetWriter::create(prefix, type);
  ASSERT_TRUE(writer.is_ok()) << writer.status().to_string();
  ASSERT_TRUE(writer.value()->add_sequence(tokens).is_ok());
  ASSERT_TRUE(writer.value()->end_document().is_ok());
  ASSERT_TRUE(writer.value()->finish().is_ok());
}

void write_documents(const std::string& prefix, const std::vector<std::vector<int64_t>>& documents) {
  auto writer = IndexedDatasetWriter::create(prefix, ElementType::kUint16);
  ASSERT_TRUE(writer.is_ok()) << writer.status().to_string();
  for (const std::vector<int64_t>& tokens : documents) {
    ASSERT_TRUE(writer.value()->add_sequence(tokens).is_ok());
    ASSERT_TRUE(writer.value()->end_document().is_ok());
  }
  ASSERT_TRUE(writer.value()->finish().is_ok());
}

std::vector<int64_t> counting_tokens(size_t count, int64_t vocabulary) {
  std::vector<int64_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int64_t>(i) % vocabulary;
  return tokens;
}

}  // namespace hdt::training::testing
