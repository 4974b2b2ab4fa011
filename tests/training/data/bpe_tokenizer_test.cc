// bpe_tokenizer_test.cc: encodings that are known, and those of a straightforward implementation in Python
// (bpe_reference.py) for random Unicode text.
#include "training/data/bpe_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/training/data/temporary_folder.h"
#include "training/data/command.h"
#include "training/data/sentencepiece_tokenizer.h"
#include "training/data/tokenizer_choice.h"

namespace hdt::training {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// All bytes, then the results of the merges, then the end of a document.
nlohmann::json vocabulary(const std::vector<std::pair<std::string, std::string>>& merges) {
  nlohmann::json tokens = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) tokens[byte_character(static_cast<unsigned char>(byte))] = byte;
  for (const auto& [left, right] : merges) {
    const size_t number = tokens.size();
    tokens[left + right] = number;
  }
  const size_t end = tokens.size();
  tokens["<|endoftext|>"] = end;
  return tokens;
}

// "Ġ" is the character of a space.
const std::vector<std::pair<std::string, std::string>> kMerges = {
    {"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {"Ġ", "w"}, {"Ġw", "o"}, {"l", "o"}};

class BpeFiles : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.file(name), std::ios::binary) << text;
    return folder_.file(name);
  }
  TokenizerChoice gpt2(const std::string& merges = "") const {
    std::string lines = "#version: 0.2\n";
    for (const auto& [left, right] : kMerges) lines.append(left).append(" ").append(right).append("\n");
    return {.type = "GPT2BPETokenizer",
            .vocab_file = file("vocab.json", vocabulary(kMerges).dump()),
            .merge_file = file("merges.txt", merges.empty() ? lines : merges)};
  }
  static nlohmann::json hugging_face() {
    nlohmann::json merges = nlohmann::json::array();
    for (const auto& [left, right] : kMerges) merges.push_back(left + " " + right);
    const nlohmann::json tokens = vocabulary(kMerges);
    return {{"version", "1.0"},
            {"normalizer", nullptr},
            {"added_tokens",
             {{{"id", tokens.at("<|endoftext|>")}, {"content", "<|endoftext|>"}, {"special", true}},
              {{"id", 900}, {"content", "<|x|>"}},
              {{"id", 901}, {"content", "<|x|>>"}}}},
            {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
            {"model", {{"type", "BPE"}, {"vocab", tokens}, {"merges", merges}}}};
  }
  TokenizerChoice choice_of(const nlohmann::json& tokenizer) const {
    return {.type = "HuggingFaceTokenizer", .model = file("tokenizer.json", tokenizer.dump())};
  }
  static std::vector<int64_t> encode(const TokenizerChoice& choice, std::string_view text) {
    const auto tokenizer = open_tokenizer(choice, make_sentencepiece_tokenizer);
    EXPECT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
    if (!tokenizer.is_ok()) return {};
    const auto tokens = tokenizer.value()->encode(text);
    EXPECT_TRUE(tokens.is_ok()) << tokens.status().message();
    return tokens.is_ok() ? tokens.value() : std::vector<int64_t>{-1};
  }
  static std::string refusal(const TokenizerChoice& choice) {
    const auto tokenizer = open_tokenizer(choice, make_sentencepiece_tokenizer);
    return tokenizer.is_ok() ? "taken" : tokenizer.status().message();
  }

  TemporaryFolder folder_;
};

// GPT-2's published map: printable bytes stand for themselves, the others follow from U+0100 on.
TEST(ByteCharacters, AreGpt2s) {
  EXPECT_EQ(byte_character('a'), "a");
  EXPECT_EQ(byte_character(' '), "Ġ");   // U+0120
  EXPECT_EQ(byte_character('\n'), "Ċ");  // U+010A
  EXPECT_EQ(byte_character(0), "Ā");     // U+0100
  EXPECT_EQ(byte_character(0x7F), "ġ");  // U+0121
  EXPECT_EQ(byte_character(0xA0), "ł");  // U+0142
  EXPECT_EQ(byte_character(0xAD), "Ń");  // U+0143
  EXPECT_EQ(byte_character(0xA1), "¡");
  EXPECT_EQ(byte_character(0xFF), "ÿ");
}

TEST_F(BpeFiles, MergeByRankWithinWords) {
  // hello is one token (259), " w" + "o" is 261, and r, l, d are bytes.
  EXPECT_THAT(encode(gpt2(), "hello world"), ElementsAre(259, 261, 'r', 'l', 'd'));
  // "ll" is of a lower rank than "lo".
  EXPECT_THAT(encode(gpt2(), "llo"), ElementsAre(257, 'o'));
  EXPECT_THAT(encode(gpt2(), "hello  wo"), ElementsAre(259, ' ', 261));
  EXPECT_THAT(encode(gpt2(), "'lle"), ElementsAre('\'', 257, 'e'));
  EXPECT_THAT(encode(gpt2(), ""), ElementsAre());
  const auto tokenizer = open_tokenizer(gpt2(), make_sentencepiece_tokenizer);
  EXPECT_EQ(tokenizer.value()->vocab_size(), 264);
  EXPECT_EQ(tokenizer.value()->end_of_document(), 263);
  EXPECT_EQ(tokenizer.value()->decode(std::vector<int64_t>{259, 261, 263, 264, -1, 'r'}), "hello wor");
}

TEST_F(BpeFiles, HuggingFacesFileMakesTheSameTokens) {
  const std::string text = "hello world, hello  1234 \xC3\xA9t\xC3\xA9\n\n";
  EXPECT_EQ(encode(choice_of(hugging_face()), text), encode(gpt2(), text));
  // Merges as pairs, in newer files.
  nlohmann::json pairs = hugging_face();
  pairs["model"]["merges"] = kMerges;
  EXPECT_EQ(encode(choice_of(pairs), text), encode(gpt2(), text));
  // Added tokens are found first, the longest one.
  EXPECT_THAT(encode(choice_of(hugging_face()), "he<|x|>><|x|>he<|endoftext|>"),
              ElementsAre(256, 901, 900, 256, 263));
  // A pattern of its own, and words that are tokens.
  nlohmann::json split = hugging_face();
  split["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", R"(\p{N}{1,3}|l)"}}}, {"behavior", "Isolated"}},
        {{"type", "ByteLevel"}, {"use_regex", false}}}}};
  EXPECT_THAT(encode(choice_of(split), "hello"), ElementsAre(256, 'l', 'l', 'o'));
  nlohmann::json prefixed = hugging_face();
  prefixed["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_THAT(encode(choice_of(prefixed), "wo"), ElementsAre(261));
}

TEST_F(BpeFiles, WhatIsNotKnownIsRefusedByName) {
  const auto with = [&](const char* path, const nlohmann::json& value) {
    nlohmann::json changed = hugging_face();
    changed[nlohmann::json::json_pointer(path)] = value;
    return refusal(choice_of(changed));
  };
  EXPECT_THAT(with("/model/type", "Unigram"), HasSubstr("model 'Unigram', expected BPE"));
  EXPECT_THAT(with("/model/byte_fallback", true), HasSubstr("byte_fallback is not known here"));
  EXPECT_THAT(with("/model/dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(with("/normalizer", {{"type", "NFC"}}), HasSubstr("normalizer 'NFC' is not known here"));
  EXPECT_THAT(with("/pre_tokenizer", {{"type", "Metaspace"}}), HasSubstr("pre_tokenizer 'Metaspace'"));
  EXPECT_THAT(with("/pre_tokenizer", nullptr), HasSubstr("pre_tokenizer ''"));
  EXPECT_THAT(with("/added_tokens/0/lstrip", true), HasSubstr("lstrip"));
  EXPECT_THAT(with("/added_tokens/0/id", -1), HasSubstr("has number -1"));
  EXPECT_THAT(with("/model/vocab/he", 257), HasSubstr("number 257 has two tokens"));
  EXPECT_THAT(with("/model/vocab/he", "x"), HasSubstr("'he' has no whole number"));
  EXPECT_THAT(with("/model/vocab/he", 1 << 30), HasSubstr("has number 1073741824, expected 0 to"));
  EXPECT_THAT(with("/model/merges/0", "he"), HasSubstr("merge 1: 'he', expected two tokens"));
  EXPECT_THAT(with("/model/merges/2", "h q"),
              HasSubstr("merge 3 ('h' and 'q'): 'hq' is not in the vocabulary"));
  EXPECT_THAT(with("/model", 5), HasSubstr("expected BPE"));
  EXPECT_THAT(refusal({.type = "HuggingFaceTokenizer", .model = file("broken", "{\"a\":")}),
              HasSubstr("broken is no JSON"));
  EXPECT_THAT(refusal({.type = "HuggingFaceTokenizer", .model = file("list", "[1]")}),
              HasSubstr("expected an object"));
  EXPECT_THAT(refusal({.type = "HuggingFaceTokenizer", .model = folder_.file("")}),
              HasSubstr("/tokenizer.json"));
  EXPECT_THAT(refusal({.type = "HuggingFaceTokenizer"}), HasSubstr("expected --tokenizer-model"));
  EXPECT_THAT(refusal({.type = "Word"}), HasSubstr("'Word' given, expected bytes, GPT2BPETokenizer"));
  EXPECT_THAT(refusal({.vocab_file = "x"}), HasSubstr("expected --tokenizer-type GPT2BPETokenizer"));
  EXPECT_THAT(refusal(gpt2("h e\nhe\n")), HasSubstr("merges.txt: line 2: 'he', expected two tokens"));
  TokenizerChoice few = gpt2();
  few.vocab_file = file("few.json", "{\"a\":0}");
  EXPECT_THAT(refusal(few), HasSubstr("byte 0 ('Ā') has no token"));
}

TEST_F(BpeFiles, TextThatIsNoUtf8IsRefusedWithItsPlace) {
  const auto tokenizer = open_tokenizer(gpt2(), make_sentencepiece_tokenizer);
  const auto tokens = tokenizer.value()->encode("hello \xFF");
  ASSERT_FALSE(tokens.is_ok());
  EXPECT_THAT(tokens.status().message(), HasSubstr("byte 6 of the text is no UTF-8"));
}

// The reference makes its own vocabulary of 300 merges, random text in many scripts, and the encodings.
TEST_F(BpeFiles, EqualTheReferenceOnRandomText) {
  const auto made = run_command({"/usr/bin/python3", "-B", HDT_BPE_REFERENCE, folder_.file("")}, {});
  ASSERT_TRUE(made.is_ok()) << made.status().message();
  ASSERT_EQ(made.value().exit_code, 0) << made.value().err;
  std::cout << made.value().out;
  const auto tokenizer = open_tokenizer({.type = "GPT2BPETokenizer",
                                         .vocab_file = folder_.file("vocab.json"),
                                         .merge_file = folder_.file("merges.txt")},
                                        make_sentencepiece_tokenizer);
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  std::ifstream cases(folder_.file("cases.jsonl"));
  size_t count = 0;
  size_t merged = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    const nlohmann::json entry = nlohmann::json::parse(line);
    const std::string text = entry.at("text");
    const auto tokens = tokenizer.value()->encode(text);
    ASSERT_TRUE(tokens.is_ok()) << tokens.status().message();
    ASSERT_EQ(tokens.value(), entry.at("tokens").get<std::vector<int64_t>>()) << line;
    ASSERT_EQ(tokenizer.value()->decode(tokens.value()), text);
    merged += tokens.value().size() < text.size();
  }
  EXPECT_EQ(count, 500u);
  EXPECT_GT(merged, 250u);
}

#ifdef HDT_SPM_TRAIN
TEST_F(BpeFiles, SentencePieceModelsGiveTheTextBack) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "line " + std::to_string(i) + " of the text says hello\n";
  const auto trained =
      run_command({HDT_SPM_TRAIN, "--input=" + file("text", text), "--model_prefix=" + folder_.file("m"),
                   "--vocab_size=80", "--minloglevel=2"},
                  {});
  ASSERT_TRUE(trained.is_ok()) << trained.status().message();
  ASSERT_EQ(trained.value().exit_code, 0) << trained.value().err;
  const auto tokenizer = open_tokenizer({.type = "SentencePieceTokenizer", .model = folder_.file("m.model")},
                                        make_sentencepiece_tokenizer);
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer.value()->vocab_size(), 80);
  EXPECT_EQ(tokenizer.value()->end_of_document(), 2);  // </s>
  const auto tokens = tokenizer.value()->encode("line 17 of the text");
  ASSERT_TRUE(tokens.is_ok());
  EXPECT_LT(tokens.value().size(), 19u);
  EXPECT_EQ(tokenizer.value()->decode(tokens.value()), "line 17 of the text");
  const TokenizerChoice other{.type = "SentencePieceTokenizer", .model = folder_.file("text")};
  EXPECT_THAT(open_tokenizer(other, make_sentencepiece_tokenizer).status().message(),
              HasSubstr("no SentencePiece model"));
  // Llama2Tokenizer is the same model, with the token that begins a text.
  const auto llama2 = open_tokenizer({.type = "Llama2Tokenizer", .model = folder_.file("m.model")},
                                     make_sentencepiece_tokenizer);
  ASSERT_TRUE(llama2.is_ok()) << llama2.status().message();
  auto with_begin = tokens.value();
  with_begin.insert(with_begin.begin(), 1);  // <s>
  EXPECT_EQ(llama2.value()->encode("line 17 of the text").value(), with_begin);
  EXPECT_EQ(llama2.value()->decode(with_begin), "line 17 of the text");
  EXPECT_EQ(refusal({.type = "Llama2Tokenizer"}),
            "--tokenizer-type Llama2Tokenizer: expected --tokenizer-model, a .model file");
}
#endif

}  // namespace
}  // namespace hdt::training
