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

// "--data-path PREFIX" or "--text FILE".
std::string data_flag(const TrainFlags& flags) {
  return flags.text.empty() ? "--data-path " + flags.data_path : "--text " + flags.text;
}

// The borders of --split in tokens: between the sequences of a dataset, which are its documents, as Megatron
// places them. One document has no such border, so it is cut at tokens. `dataset` is null for a text.
std::array<uint64_t, training::kDataParts + 1> borders_of(const TrainFlags& flags,
                                                          const training::IndexedDataset* dataset,
                                                          uint64_t tokens) {
  if (dataset == nullptr || dataset->sequence_count() <= 1)
    return training::split_borders(flags.split, tokens);
  auto borders = training::split_borders(flags.split, dataset->sequence_count());
  for (uint64_t& border : borders) border = dataset->sequence_start(border);
  return borders;
}

}  // namespace

std::string TokenInput::identity() const {
  std::string text = fmt::format("{} tokens with CRC-32C {:08x}", statistics.tokens, statistics.checksum);
  // Without --split all is trained on.
  if (parts[0]->token_count() == statistics.tokens) return text;
  for (const auto& part : parts)
    text += fmt::format("{} {}", &part == parts.data() ? ", parts" : " +",
                        part == nullptr ? 0 : part->token_count());
  return text;
}

Result<TokenInput> open_tokens(const TrainFlags& flags) {
  TokenInput input;
  const training::IndexedDataset* dataset = nullptr;
  if (!flags.text.empty()) {
    Result<training::Document> document = training::read_text_file(flags.text);
    if (!document.is_ok()) return Status(document.status().code(), "--text: " + document.status().message());
    input.tokens =
        std::make_shared<training::MemoryTokens>(training::ByteTokenizer::encode(document.value().text));
  } else {
    Result<std::unique_ptr<training::IndexedDataset>> opened =
        training::IndexedDataset::open(flags.data_path);
    if (!opened.is_ok()) return Status(opened.status().code(), "--data-path: " + opened.status().message());
    // The dataset is mapped, not read.
    dataset = opened.value().get();
    input.tokens = std::shared_ptr<const training::TokenSource>(opened.take());
  }
  input.statistics = training::token_statistics(*input.tokens);
  HDT_RETURN_IF_ERROR(check_vocabulary(flags, input));
  const auto borders = borders_of(flags, dataset, input.tokens->token_count());
  for (size_t part = 0; part < training::kDataParts; ++part) {
    if (flags.split.weights[part] == 0) continue;
    input.parts[part] =
        std::make_shared<training::TokenRange>(input.tokens, borders[part], borders[part + 1]);
  }
  return input;
}

Result<training::BatchSampler> make_sampler(const TrainFlags& flags, const TokenInput& input,
                                            training::DataPart part, int64_t global_batch_size) {
  Result<training::BatchSampler> sampler = training::BatchSampler::create(
      input.parts[static_cast<size_t>(part)], {.seed = flags.trainer.seed,
                                               .sequence_length = flags.shape.sequence_length,
                                               .global_batch_size = global_batch_size});
  if (sampler.is_ok()) return sampler;
  const std::string where = flags.has_split ? fmt::format("{}, {} part of --split", data_flag(flags),
                                                          training::data_part_name(part))
                                            : data_flag(flags);
  return Status(sampler.status().code(), where + ": " + sampler.status().message());
}

}  // namespace hdt::tools
