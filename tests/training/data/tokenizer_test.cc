#include "training/data/tokenizer.h"

#include <gtest/gtest.h>

namespace hdt::training {
namespace {

TEST(Tokenizer, EveryByteIsItsOwnToken) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  const auto tokens = ByteTokenizer::encode(text);
  ASSERT_EQ(tokens.size(), 256u);
  for (int64_t byte = 0; byte < 256; ++byte) EXPECT_EQ(tokens[static_cast<size_t>(byte)], byte);
  EXPECT_EQ(ByteTokenizer::decode(tokens), text);
}

TEST(Tokenizer, EndOfDocumentAndPaddingDecodeToNothing) {
  EXPECT_EQ(ByteTokenizer::vocab_size(), 257);
  EXPECT_EQ(
      ByteTokenizer::decode(std::vector<int64_t>{'a', ByteTokenizer::end_of_document(), 'b', 300, -1, 'c'}),
      "abc");
  EXPECT_TRUE(ByteTokenizer::encode("").empty());
}

}  // namespace
}  // namespace hdt::training
