// Damaged indexes: every one is refused with a reason, or says the same as the whole one. Run under the
// address sanitizer this also shows that no byte outside is read: the bytes lie in a block of exactly their
// size.
#include <gtest/gtest.h>

#include <cstring>
#include <iostream>
#include <limits>
#include <random>

#include "tests/training/data/temporary_folder.h"
#include "training/data/indexed_dataset.h"
#include "training/data/indexed_writer.h"

namespace hdt::training {
namespace {

using Bytes = std::vector<std::byte>;

constexpr uint64_t kSequences = 7;
constexpr size_t kDocumentsAt = kIndexHeaderBytes + kSequences * 12;

// Seven sequences of different sizes in four documents.
class IndexCorruption : public ::testing::Test {
 protected:
  void SetUp() override {
    auto writer = IndexedDatasetWriter::create(prefix_, ElementType::kUint16);
    ASSERT_TRUE(writer.is_ok());
    for (uint64_t sequence = 0; sequence < kSequences; ++sequence) {
      ASSERT_TRUE(writer.value()->add_sequence(std::vector<int64_t>(5 + 3 * sequence, 11)).is_ok());
      if (sequence % 2 == 0) {
        ASSERT_TRUE(writer.value()->end_document().is_ok());
      }
    }
    ASSERT_TRUE(writer.value()->finish().is_ok());
    const std::string text = read_all(index_path(prefix_));
    whole_.resize(text.size());
    std::memcpy(whole_.data(), text.data(), text.size());
    data_bytes_ = std::filesystem::file_size(data_path(prefix_));
    const auto parsed = parse(whole_);
    ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string();
    expected_ = parsed.value();
  }

  Result<DatasetIndex> parse(const Bytes& bytes) const {
    return parse_dataset_index(bytes, data_bytes_, prefix_);
  }

  static void expect_refused(const Result<DatasetIndex>& result) {
    ASSERT_FALSE(result.is_ok());
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_NE(result.status().message().find("d.idx: "), std::string::npos) << result.status().message();
  }

  // These properties hold for every index that is accepted, damaged or not.
  void expect_consistent(const DatasetIndex& index) const {
    ASSERT_FALSE(index.token_starts.empty());
    ASSERT_FALSE(index.document_starts.empty());
    EXPECT_EQ(index.token_starts.front(), 0u);
    EXPECT_EQ(index.token_starts.back() * element_bytes(index.type), data_bytes_);
    EXPECT_TRUE(std::is_sorted(index.token_starts.begin(), index.token_starts.end()));
    EXPECT_EQ(index.document_starts.front(), 0u);
    EXPECT_EQ(index.document_starts.back(), index.token_starts.size() - 1);
    EXPECT_TRUE(std::is_sorted(index.document_starts.begin(), index.document_starts.end()));
    EXPECT_TRUE(holds_tokens(index.type));
  }

  TemporaryFolder folder_;
  std::string prefix_ = folder_.file("d");
  Bytes whole_;
  uint64_t data_bytes_ = 0;
  DatasetIndex expected_;
};

TEST_F(IndexCorruption, EveryTruncationIsRefused) {
  for (size_t size = 0; size < whole_.size(); ++size) {
    SCOPED_TRACE(size);
    expect_refused(parse(Bytes(whole_.begin(), whole_.begin() + static_cast<ptrdiff_t>(size))));
  }
}

TEST_F(IndexCorruption, EveryChangeOfAByteIsRefusedOrOnlyMovesADocument) {
  size_t refused = 0;
  for (size_t at = 0; at < whole_.size(); ++at) {
    for (int change = 1; change < 256; ++change) {
      Bytes bytes = whole_;
      bytes[at] ^= static_cast<std::byte>(change);
      const auto result = parse(bytes);
      SCOPED_TRACE(testing::Message() << "byte " << at << " changed by " << change);
      if (!result.is_ok()) {
        expect_refused(result);
        ++refused;
        continue;
      }
      // int16 and uint16 differ in one byte and in nothing else that an index says.
      if (at == 17) {
        EXPECT_EQ(result.value().type, ElementType::kInt16);
      } else {
        EXPECT_GE(at, kDocumentsAt);
        EXPECT_EQ(result.value().type, expected_.type);
      }
      EXPECT_EQ(result.value().token_starts, expected_.token_starts);
      expect_consistent(result.value());
    }
  }
  EXPECT_GT(refused, whole_.size() * 250);
}

TEST_F(IndexCorruption, DamagedFilesNeverCrashTheReader) {
  std::vector<int64_t> tokens(expected_.token_starts.back());
  const std::string good = read_all(index_path(prefix_));
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(~bytes[at]);
    write_all(index_path(prefix_), bytes);
    const auto dataset = IndexedDataset::open(prefix_);
    if (!dataset.is_ok()) continue;
    ASSERT_EQ(dataset.value()->token_count(), tokens.size());
    dataset.value()->read_tokens(0, tokens);
    EXPECT_EQ(tokens, std::vector<int64_t>(tokens.size(), 11)) << "byte " << at;
  }
}

TEST_F(IndexCorruption, RandomDamageIsRefusedOrConsistent) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t bound) { return random() % bound; };
  const std::vector<int64_t> interesting = {0,
                                            1,
                                            -1,
                                            7,
                                            8,
                                            std::numeric_limits<int32_t>::max(),
                                            std::numeric_limits<int32_t>::min(),
                                            std::numeric_limits<int64_t>::max(),
                                            std::numeric_limits<int64_t>::min(),
                                            int64_t{1} << 60,
                                            static_cast<int64_t>(~uint64_t{0} / 12 + 1)};
  size_t accepted = 0;
  constexpr int kRounds = 100000;
  for (int round = 0; round < kRounds; ++round) {
    Bytes bytes = whole_;
    for (uint64_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) {
      const size_t at = below(bytes.size());
      const auto here = bytes.begin() + static_cast<ptrdiff_t>(at);
      switch (below(6)) {
        case 0:
          bytes[at] ^= static_cast<std::byte>(1 << below(8));
          break;
        case 1:
          bytes[at] = static_cast<std::byte>(below(256));
          break;
        case 2: {  // a whole number, most often at the start of a field
          const size_t field = below(2) == 0 ? 18 + 8 * below(2) : at;
          const int64_t value = interesting[below(interesting.size())];
          const size_t size = below(2) == 0 ? 4 : 8;
          if (field + size <= bytes.size()) std::memcpy(bytes.data() + field, &value, size);
          break;
        }
        case 3:
          bytes.resize(at);
          break;
        case 4:
          bytes.insert(here, 1 + below(24), static_cast<std::byte>(below(3)));
          break;
        case 5:
          bytes.erase(here, here + static_cast<ptrdiff_t>(1 + below(bytes.size() - at)));
          break;
      }
    }
    bytes.shrink_to_fit();  // so that the sanitizer sees a read past the end
    const auto result = parse(bytes);
    if (result.is_ok()) {
      ++accepted;
      expect_consistent(result.value());
    } else {
      expect_refused(result);
    }
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  // Some changes undo each other or move a document; most do not.
  EXPECT_LT(accepted, size_t{kRounds} / 5);
}

}  // namespace
}  // namespace hdt::training
