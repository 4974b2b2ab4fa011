// mapped_tokens_test.cc: data that is opened without reading it gives the same tokens, and damage is found
// at the start or when it is used.
#include "training/data/mapped_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/training/data/temporary_folder.h"
#include "training/data/indexed_dataset.h"
#include "training/data/indexed_writer.h"

namespace hdt::training {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kManySequences = 20'000;  // more than the start looks at

class MappedTokens : public ::testing::Test {
 protected:
  // Sequence i has 1 + i % 3 tokens, which are i % 60000.
  void write(uint64_t sequences) {
    auto writer = IndexedDatasetWriter::create(prefix_, ElementType::kUint16);
    ASSERT_TRUE(writer.is_ok());
    for (uint64_t i = 0; i < sequences; ++i) {
      const std::vector<int64_t> tokens(1 + i % 3, static_cast<int64_t>(i % 60'000));
      ASSERT_TRUE(writer.value()->add_sequence(tokens).is_ok());
      ASSERT_TRUE(writer.value()->end_document().is_ok());
    }
    ASSERT_TRUE(writer.value()->finish().is_ok());
  }
  // Overwrites a field of the index.
  template <typename T>
  void damage(uint64_t at, T value) {
    std::fstream file(index_path(prefix_), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.write(reinterpret_cast<const char*>(&value), sizeof(value));
    ASSERT_TRUE(file.flush().good());
  }
  static uint64_t pointer_at(uint64_t sequence) {
    return kIndexHeaderBytes + kManySequences * sizeof(int32_t) + sequence * sizeof(int64_t);
  }
  std::string refusal() const {
    const auto opened = MappedDataset::open(prefix_);
    return opened.is_ok() ? "opened" : opened.status().message();
  }

  TemporaryFolder folder_;
  const std::string prefix_ = folder_.file("d");
};

TEST_F(MappedTokens, AreThoseOfTheCheckedDataset) {
  for (const uint64_t sequences : {uint64_t{0}, uint64_t{1}, uint64_t{50}, kManySequences}) {
    write(sequences);
    const auto whole = IndexedDataset::open(prefix_);
    const auto mapped = MappedDataset::open(prefix_);
    ASSERT_TRUE(whole.is_ok() && mapped.is_ok()) << mapped.status().message();
    ASSERT_EQ(mapped.value()->token_count(), whole.value()->token_count());
    ASSERT_EQ(mapped.value()->sequence_count(), sequences);
    std::vector<int64_t> expected(whole.value()->token_count());
    std::vector<int64_t> found(expected.size());
    whole.value()->read_tokens(0, expected);
    mapped.value()->read_tokens(0, found);
    EXPECT_EQ(found, expected);
    uint64_t start = 0;
    for (uint64_t i = 0; i <= sequences; ++i) {
      const Result<uint64_t> mine = mapped.value()->sequence_start(i);
      ASSERT_TRUE(mine.is_ok()) << mine.status().message();
      ASSERT_EQ(mine.value(), start);
      if (i < sequences) start += whole.value()->sequence_size(i);
    }
  }
}

TEST_F(MappedTokens, DamageOfBothEndsIsFoundAtTheStart) {
  write(kManySequences);
  ASSERT_EQ(refusal(), "opened");
  damage<int64_t>(pointer_at(0), 2);
  EXPECT_THAT(refusal(), HasSubstr("d.idx: sequence 0 is at byte 2, expected 0"));
  write(kManySequences);
  damage<int32_t>(kIndexHeaderBytes + (kManySequences - 1) * 4, 7);
  EXPECT_THAT(refusal(), HasSubstr("the last sequence is 7 tokens from byte "));
  write(kManySequences);
  damage<int64_t>(pointer_at(kManySequences), 1);
  EXPECT_THAT(refusal(), HasSubstr("document entry 0 is 1, expected 0"));
  write(kManySequences);
  damage<int64_t>(pointer_at(2 * kManySequences), 1);
  EXPECT_THAT(refusal(), HasSubstr("the last document entry is 1, expected 20000"));
  write(kManySequences);
  std::ofstream(data_path(prefix_), std::ios::app) << "xx";
  EXPECT_THAT(refusal(), HasSubstr("the two are not of one dataset"));
  write(kManySequences);
  std::filesystem::resize_file(index_path(prefix_), pointer_at(10));
  EXPECT_THAT(refusal(), HasSubstr("truncated or damaged"));
}

TEST_F(MappedTokens, DamageBetweenIsFoundWhenItIsUsed) {
  for (const int64_t value : {int64_t{-1}, int64_t{3}, int64_t{4}, int64_t{1} << 62}) {
    write(kManySequences);
    damage<int64_t>(pointer_at(201), value);  // of no run that the start looks at
    const auto mapped = MappedDataset::open(prefix_);
    ASSERT_TRUE(mapped.is_ok()) << mapped.status().message();
    EXPECT_TRUE(mapped.value()->sequence_start(200).is_ok());
    EXPECT_THAT(mapped.value()->sequence_start(201).status().message(),
                HasSubstr("d.idx: sequence 201 is at byte " + std::to_string(value)));
    EXPECT_FALSE(mapped.value()->sequence_start(202).is_ok());
  }
}

TEST_F(MappedTokens, BytesOfAFileAreTokens) {
  std::string text;
  for (int i = 0; i < 256; ++i) text.push_back(static_cast<char>(i));
  std::ofstream(folder_.file("t"), std::ios::binary) << text;
  const auto bytes = MappedBytes::open(folder_.file("t"));
  ASSERT_TRUE(bytes.is_ok());
  ASSERT_EQ(bytes.value()->token_count(), 256u);
  std::vector<int64_t> tokens(200);
  bytes.value()->read_tokens(56, tokens);
  for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], static_cast<int64_t>(56 + i));
  std::ofstream(folder_.file("empty"));
  EXPECT_THAT(MappedBytes::open(folder_.file("empty")).status().message(), HasSubstr("empty is empty"));
  EXPECT_EQ(MappedBytes::open(folder_.file("none")).status().code(), Code::kSystem);
}

}  // namespace
}  // namespace hdt::training
