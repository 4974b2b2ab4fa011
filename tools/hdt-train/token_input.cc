// token_input.cc: a dataset or a text file as tokens, checked against the model's vocabulary.
#include "tools/hdt-train/token_input.h"

#include <fmt/format.h>

#include <utility>

#include "training/data/indexed_dataset.h"
#include "training/data/text_source.h"
#include "training/data/tokenizer.h"

namespace hdt::tools {

namespace {

// Megatron's data has no tokens that are left out of the loss. Other tools mark such labels by -100,
// which is 65436 if the file is read as uint16. Both deserve a message of their own.
constexpr int64_t kIgnored = -100;
constexpr int64_t kIgnoredAsUint16 = (1 << 16) + kIgnored;

// The statistics tell quickly whether all tokens are known. Only if not, the first foreign one is
// searched for.
Status check_vocabulary(const TrainFlags& flags, const TokenInput& input) {
  const int64_t vocabulary = flags.shape.vocab_size;
  const auto& statistics = input.statistics;
  if (statistics.tokens == 0 || (statistics.least >= 0 && statistics.greatest < vocabulary))
    return Status::ok();
  // The statistics say that there is one; it is searched for only to name its place.
  const auto foreign = training::first_foreign_token(*input.tokens, vocabulary);
  if (!foreign) return {Code::kInternal, "the statistics found a token that the data does not hold"};
  const std::string where =
      fmt::format("token {} at position {} of {}", foreign->token, foreign->position,
                  flags.text.empty() ? training::data_path(flags.data_path) : flags.text);
  if (foreign->token < 0) {
    return {
        Code::kInvalidArgument,
        fmt::format("{} is negative: expected 0 to {}{}", where, vocabulary - 1,
                    foreign->token == kIgnored ? "; -100 marks labels that are left out of the loss, which "
                                                 "hdt-train cannot do: make the dataset of input tokens"
                                               : "; make the dataset again")};
  }
  return {Code::kInvalidArgument,
          fmt::format(
              "--vocab-size {}: {} is beyond it: expected {}", vocabulary, where,
              foreign->token == kIgnoredAsUint16
                  ? std::string("tokens; -100, which marks labels that are left out of the loss, is 65436 as "
                                "uint16: make the dataset of input tokens")
                  : fmt::format("--vocab-size {} or more, or another dataset", statistics.greatest + 1))};
}

}  // namespace

Result<TokenInput> open_tokens(const TrainFlags& flags) {
  TokenInput input;
  if (!flags.text.empty()) {
    Result<training::Document> document = training::read_text_file(flags.text);
    if (!document.is_ok()) return Status(document.status().code(), "--text: " + document.status().message());
    input.tokens =
        std::make_shared<training::MemoryTokens>(training::ByteTokenizer::encode(document.value().text));
  } else {
    Result<std::unique_ptr<training::IndexedDataset>> dataset =
        training::IndexedDataset::open(flags.data_path);
    if (!dataset.is_ok())
      return Status(dataset.status().code(), "--data-path: " + dataset.status().message());
    // The dataset is mapped, not read.
    input.tokens = std::shared_ptr<const training::TokenSource>(dataset.take());
  }
  input.statistics = training::token_statistics(*input.tokens);
  HDT_RETURN_IF_ERROR(check_vocabulary(flags, input));
  return input;
}

}  // namespace hdt::tools
