#include "training/data/indexed_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstring>

#include "tests/training/data/temporary_folder.h"
#include "training/data/indexed_writer.h"

namespace hdt::training {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Tokens = std::vector<int64_t>;

// Sequences of {3, 0, 2} tokens in documents of {2, 1} sequences, packed by hand after Megatron's
// description.
constexpr char kIndexHex[] =
    "4d4d4944494458000001000000000000000803000000000000000300000000000000030000000000000002000000000000000000"
    "00000600"
    "0000000000000600000000000000000000000000000002000000000000000300000000000000";
constexpr char kDataHex[] = "01000001ffff07000000";

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

void write_example(const std::string& prefix, ElementType type) {
  auto writer = IndexedDatasetWriter::create(prefix, type);
  ASSERT_TRUE(writer.is_ok()) << writer.status().to_string();
  ASSERT_TRUE(writer.value()->add_sequence(Tokens{1, 256, 65535}).is_ok());
  ASSERT_TRUE(writer.value()->add_sequence(Tokens{}).is_ok());
  ASSERT_TRUE(writer.value()->end_document().is_ok());
  ASSERT_TRUE(writer.value()->add_sequence(Tokens{7, 0}).is_ok());
  ASSERT_TRUE(writer.value()->end_document().is_ok());
  const Status status = writer.value()->finish();
  ASSERT_TRUE(status.is_ok()) << status.to_string();
}

std::string refusal(const std::string& prefix) {
  const auto dataset = IndexedDataset::open(prefix);
  return dataset.is_ok() ? "accepted" : dataset.status().message();
}

TEST(IndexedDataset, WritesTheDocumentedBytes) {
  const TemporaryFolder folder;
  write_example(folder.file("d"), ElementType::kUint16);
  EXPECT_EQ(read_all(folder.file("d.idx")), from_hex(kIndexHex));
  EXPECT_EQ(read_all(folder.file("d.bin")), from_hex(kDataHex));
  EXPECT_THAT(folder.names(), ElementsAre("d.bin", "d.idx"));
}

TEST(IndexedDataset, ReadsTheDocumentedBytes) {
  const TemporaryFolder folder;
  write_all(folder.file("d.idx"), from_hex(kIndexHex));
  write_all(folder.file("d.bin"), from_hex(kDataHex));
  const auto opened = IndexedDataset::open(folder.file("d"));
  ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
  const IndexedDataset& data = *opened.value();
  EXPECT_EQ(data.element_type(), ElementType::kUint16);
  EXPECT_EQ(data.sequence_count(), 3u);
  EXPECT_EQ(data.document_count(), 2u);
  EXPECT_EQ(data.token_count(), 5u);
  EXPECT_THAT(data.sequence_tokens(0), ElementsAre(1, 256, 65535));
  EXPECT_THAT(data.sequence_tokens(1), IsEmpty());
  EXPECT_THAT(data.document_tokens(0), ElementsAre(1, 256, 65535));
  EXPECT_THAT(data.document_tokens(1), ElementsAre(7, 0));
  Tokens middle(3);
  data.read_tokens(1, middle);
  EXPECT_THAT(middle, ElementsAre(256, 65535, 7));
}

TEST(IndexedDataset, EveryIntegerTypeKeepsItsExtremes) {
  for (const ElementType type : {ElementType::kUint8, ElementType::kInt8, ElementType::kInt16,
                                 ElementType::kInt32, ElementType::kInt64, ElementType::kUint16}) {
    SCOPED_TRACE(element_type_name(type));
    const TemporaryFolder folder;
    const Tokens tokens = {element_minimum(type), 0, 1, element_maximum(type)};
    {
      auto writer = IndexedDatasetWriter::create(folder.file("d"), type);
      ASSERT_TRUE(writer.is_ok());
      ASSERT_TRUE(writer.value()->add_sequence(tokens).is_ok());
      ASSERT_TRUE(writer.value()->end_document().is_ok());
      ASSERT_TRUE(writer.value()->finish().is_ok());
    }
    const auto data = IndexedDataset::open(folder.file("d"));
    ASSERT_TRUE(data.is_ok()) << data.status().to_string();
    EXPECT_EQ(data.value()->sequence_tokens(0), tokens);
    EXPECT_EQ(data.value()->data_bytes(), 4 * element_bytes(type));
  }
}

TEST(IndexedDataset, NoSequencesIsADataset) {
  const TemporaryFolder folder;
  auto writer = IndexedDatasetWriter::create(folder.file("d"), ElementType::kInt32);
  ASSERT_TRUE(writer.is_ok() && writer.value()->finish().is_ok());
  const auto data = IndexedDataset::open(folder.file("d"));
  ASSERT_TRUE(data.is_ok()) << data.status().to_string();
  EXPECT_EQ(data.value()->token_count(), 0u);
  EXPECT_EQ(data.value()->document_count(), 0u);
}

TEST(IndexedDataset, RefusalsNameFileFoundAndExpected) {
  const TemporaryFolder folder;
  const std::string prefix = folder.file("d");
  const std::string good = from_hex(kIndexHex);
  const auto with = [&](size_t offset, auto value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
    write_all(prefix + ".idx", bytes);
    return refusal(prefix);
  };
  EXPECT_THAT(refusal(prefix), HasSubstr(prefix + ".idx: No such file"));
  write_all(prefix + ".idx", good);
  EXPECT_THAT(refusal(prefix), HasSubstr(prefix + ".bin: No such file"));
  write_all(prefix + ".bin", from_hex(kDataHex));
  EXPECT_EQ(refusal(prefix), "accepted");

  EXPECT_THAT(with(0, 'X'),
              HasSubstr("d.idx: not a Megatron index: starts with \"XMIDIDX\\x00\\x00\", expected"));
  EXPECT_THAT(with(9, uint64_t{2}), HasSubstr("d.idx: version 2, expected 1"));
  EXPECT_THAT(with(17, uint8_t{9}), HasSubstr("element type code 9, expected 1 to 8"));
  EXPECT_THAT(with(17, uint8_t{0}), HasSubstr("element type code 0, expected 1 to 8"));
  EXPECT_THAT(with(17, uint8_t{6}), HasSubstr("elements are float64, expected integers"));
  EXPECT_THAT(with(17, uint8_t{7}), HasSubstr("elements are float32, expected integers"));
  EXPECT_THAT(with(17, uint8_t{4}), HasSubstr("sequence 0 ends at byte 12, but"));
  EXPECT_THAT(with(18, uint64_t{1} << 60), HasSubstr("1152921504606846976 sequences need 12 bytes each"));
  EXPECT_THAT(with(18, ~uint64_t{0} / 12 + 1), HasSubstr("sequences need 12 bytes each, but only 60 follow"));
  EXPECT_THAT(with(26, ~uint64_t{0} / 8 + 1), HasSubstr("document entries need 8 bytes each, but only 24"));
  EXPECT_THAT(with(26, uint64_t{2}), HasSubstr("8 bytes follow the document entries, expected none"));
  EXPECT_THAT(with(34, int32_t{-1}), HasSubstr("sequence 0 has size -1, expected 0 or more"));
  EXPECT_THAT(with(34, int32_t{1000}), HasSubstr("sequence 0 ends at byte 2000, but"));
  EXPECT_THAT(with(17, uint8_t{1}), HasSubstr("sequence 1 is at byte 6, expected 3"));
  EXPECT_THAT(with(54, int64_t{4}),
              HasSubstr("sequence 1 is at byte 4, expected 6, the end of the one before"));
  EXPECT_THAT(with(46, int64_t{-6}), HasSubstr("sequence 0 is at byte -6, expected 0"));
  EXPECT_THAT(with(70, int64_t{1}), HasSubstr("document entry 0 is 1, expected 0 to 0"));
  EXPECT_THAT(with(78, int64_t{4}), HasSubstr("document entry 1 is 4, expected 0 to 3"));
  EXPECT_THAT(with(78, int64_t{-1}), HasSubstr("document entry 1 is -1, expected 0 to 3"));
  EXPECT_THAT(with(86, int64_t{2}), HasSubstr("the last document entry is 2, expected 3"));

  write_all(prefix + ".idx", good + std::string(3, '\0'));
  EXPECT_THAT(refusal(prefix),
              HasSubstr("has a mode for each sequence (a multimodal dataset), expected text only"));
  write_all(prefix + ".idx", "");
  EXPECT_THAT(refusal(prefix), HasSubstr("truncated: 0 bytes, expected at least the 34"));
  write_all(prefix + ".idx", good);
  write_all(prefix + ".bin", from_hex(kDataHex).substr(0, 8));
  EXPECT_THAT(refusal(prefix), HasSubstr("d.bin has only 8: one of the two is truncated"));
  write_all(prefix + ".bin", from_hex(kDataHex) + "zz");
  EXPECT_THAT(refusal(prefix), HasSubstr("the sequences fill 10 bytes, but " + prefix + ".bin has 12"));
  std::filesystem::remove(prefix + ".bin");
  std::filesystem::create_directory(prefix + ".bin");
  EXPECT_THAT(refusal(prefix), HasSubstr("d.bin is not a regular file"));
}

TEST(IndexedDatasetWriter, RefusesWhatTheTypeCannotHold) {
  const TemporaryFolder folder;
  EXPECT_FALSE(IndexedDatasetWriter::create(folder.file("d"), ElementType::kFloat32).is_ok());
  auto writer = IndexedDatasetWriter::create(folder.file("d"), ElementType::kUint8);
  ASSERT_TRUE(writer.is_ok());
  EXPECT_THAT(writer.value()->add_sequence(Tokens{256}).message(),
              HasSubstr("token 256, expected 0 to 255 for uint8"));
  EXPECT_FALSE(writer.value()->add_sequence(Tokens{-1}).is_ok());
  EXPECT_EQ(writer.value()->sequence_count(), 0u);
}

TEST(IndexedDatasetWriter, NotFinishedLeavesTheOldDataset) {
  const TemporaryFolder folder;
  write_example(folder.file("d"), ElementType::kUint16);
  const std::string old_index = read_all(folder.file("d.idx"));
  {
    auto writer = IndexedDatasetWriter::create(folder.file("d"), ElementType::kInt64);
    ASSERT_TRUE(writer.is_ok());
    ASSERT_TRUE(writer.value()->add_sequence(Tokens(1000000, 1)).is_ok());
    EXPECT_EQ(folder.names().size(), 4u);
    EXPECT_EQ(writer.value()->finish().code(), Code::kInvalidUsage);  // the document is open
  }
  EXPECT_THAT(folder.names(), ElementsAre("d.bin", "d.idx"));
  EXPECT_EQ(read_all(folder.file("d.idx")), old_index);
}

TEST(IndexedDatasetWriter, AFullDiskLeavesNothing) {
  const TemporaryFolder folder;
  struct sigaction ignore {};
  struct sigaction old_action {};
  ignore.sa_handler = SIG_IGN;
  rlimit old_limit{};
  ASSERT_EQ(::sigaction(SIGXFSZ, &ignore, &old_action), 0);
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit small = {4096, old_limit.rlim_max};
  Status added;
  Status finished;
  {
    auto writer = IndexedDatasetWriter::create(folder.file("d"), ElementType::kInt64);
    ASSERT_TRUE(writer.is_ok());
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    added = writer.value()->add_sequence(Tokens(1000, 1));
    (void)writer.value()->end_document();
    finished = writer.value()->finish();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  ASSERT_EQ(::sigaction(SIGXFSZ, &old_action, nullptr), 0);
  EXPECT_TRUE(added.is_ok());
  EXPECT_THAT(finished.message(), HasSubstr("File too large"));
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(IndexedDatasetWriter, RefusesAPlaceItCannotReplace) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("d.idx"));
  const auto writer = IndexedDatasetWriter::create(folder.file("d"), ElementType::kUint16);
  ASSERT_FALSE(writer.is_ok());
  EXPECT_THAT(writer.status().message(), HasSubstr("d.idx: it exists and is not a regular file"));
  EXPECT_THAT(folder.names(), ElementsAre("d.idx"));
}

}  // namespace
}  // namespace hdt::training
