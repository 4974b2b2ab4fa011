// token_input.cc: a dataset or a text file as tokens, checked against the model's vocabulary.
#include "tools/hdt-train/token_input.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "training/data/indexed_format.h"
#include "training/data/mapped_tokens.h"
#include "training/data/text_source.h"

namespace hdt::tools {

namespace {

// Megatron's data has no tokens that are left out of the loss. Other tools mark such labels by -100,
// which is 65436 if the file is read as uint16. Both deserve a message of their own.
constexpr int64_t kIgnored = -100;
constexpr int64_t kIgnoredAsUint16 = (1 << 16) + kIgnored;

// Why a token is none of the model's. `greatest`: the largest token that is known of the data.
std::string foreign_token_text(const std::string& file, int64_t vocabulary,
                               const training::PlacedToken& foreign, int64_t greatest) {
  const std::string where =
      fmt::format("token {} at position {} of {}", foreign.token, foreign.position, file);
  if (foreign.token < 0) {
    return fmt::format("{} is negative: expected 0 to {}{}", where, vocabulary - 1,
                       foreign.token == kIgnored ? "; -100 marks labels that are left out of the loss, which "
                                                   "hdt-train cannot do: make the dataset of input tokens"
                                                 : "; make the dataset again");
  }
  return fmt::format(
      "--vocab-size {}: {} is beyond it: expected {}", vocabulary, where,
      foreign.token == kIgnoredAsUint16
          ? std::string("tokens; -100, which marks labels that are left out of the loss, is 65436 as "
                        "uint16: make the dataset of input tokens")
          : fmt::format("--vocab-size {} or more, or another dataset", greatest + 1));
}

// Passes tokens on that the model knows, and throws ForeignToken for others. The embedding would read
// beyond its rows for them.
class CheckedTokens final : public training::TokenSource {
 public:
  CheckedTokens(std::shared_ptr<const training::TokenSource> source, std::string file, int64_t vocabulary)
      : source_(std::move(source)), file_(std::move(file)), vocabulary_(vocabulary) {}

  uint64_t token_count() const override { return source_->token_count(); }
  void read_tokens(uint64_t first, std::span<int64_t> out) const override {
    source_->read_tokens(first, out);
    for (size_t i = 0; i < out.size(); ++i) {
      if (out[i] >= 0 && out[i] < vocabulary_) continue;
      throw ForeignToken(foreign_token_text(file_, vocabulary_, {out[i], first + i}, out[i]));
    }
  }

 private:
  std::shared_ptr<const training::TokenSource> source_;
  std::string file_;
  int64_t vocabulary_;
};

// The sample of the start shows the commonest mistake, a vocabulary of another tokenizer, before the model is
// made. The place of the first foreign token is searched for then.
Status check_vocabulary(const std::string& file, int64_t vocabulary, const training::TokenSource& tokens,
                        const training::TokenStatistics& statistics) {
  if (statistics.tokens == 0 || (statistics.least >= 0 && statistics.greatest < vocabulary))
    return Status::ok();
  const auto foreign = training::first_foreign_token(tokens, vocabulary);
  if (!foreign) return {Code::kInternal, "the statistics found a token that the data does not hold"};
  return {Code::kInvalidArgument, foreign_token_text(file, vocabulary, *foreign, statistics.greatest)};
}

// The borders of --split in tokens: between the sequences of a dataset, which are its documents, as Megatron
// places them. One document has no such border, so it is cut at tokens. `dataset` is null for a text.
Result<std::array<uint64_t, training::kDataParts + 1>> borders_of(const training::DataSplit& split,
                                                                  const training::MappedDataset* dataset,
                                                                  const std::string& file, uint64_t tokens) {
  if (dataset == nullptr || dataset->sequence_count() <= 1) return training::split_borders(split, tokens);
  auto borders = training::split_borders(split, dataset->sequence_count());
  uint64_t least = 0;
  for (uint64_t& border : borders) {
    const Result<uint64_t> start = dataset->sequence_start(border);
    if (!start.is_ok()) return start.status();
    // Each was checked against its neighbour only.
    if (start.value() < least) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("the index of {}: sequence {} begins before an earlier one: damaged", file, border));
    }
    border = least = start.value();
  }
  return borders;
}

// Bytes stay in their file; other tokens are made of the whole text, and kept in memory.
Result<std::shared_ptr<const training::TokenSource>> open_text(const TrainFlags& flags) {
  if (flags.tokenizer_choice.is_bytes()) {
    Result<std::unique_ptr<training::MappedBytes>> opened = training::MappedBytes::open(flags.text);
    if (!opened.is_ok()) return opened.status();
    return std::shared_ptr<const training::TokenSource>(opened.take());
  }
  const Result<training::Document> document = training::read_text_file(flags.text);
  if (!document.is_ok()) return document.status();
  Result<std::vector<int64_t>> tokens = flags.tokenizer->encode(document.value().text);
  if (!tokens.is_ok()) return Status(tokens.status().code(), flags.text + ": " + tokens.status().message());
  return std::shared_ptr<const training::TokenSource>(
      std::make_shared<training::MemoryTokens>(tokens.take()));
}

// Checks what was opened, and cuts it into parts. `dataset` is null for a text.
Result<TokenSet> make_set(const TrainFlags& flags, std::string flag, const std::string& file,
                          const std::shared_ptr<const training::TokenSource>& tokens,
                          const training::MappedDataset* dataset) {
  TokenSet set;
  set.flag = std::move(flag);
  set.statistics = training::sampled_statistics(*tokens);
  HDT_RETURN_IF_ERROR(check_vocabulary(file, flags.shape.vocab_size, *tokens, set.statistics));
  const auto borders = borders_of(flags.split, dataset, file, tokens->token_count());
  if (!borders.is_ok()) return Status(borders.status().code(), set.flag + ": " + borders.status().message());
  const auto checked = std::make_shared<CheckedTokens>(tokens, file, flags.shape.vocab_size);
  for (size_t part = 0; part < training::kDataParts; ++part) {
    if (flags.split.weights[part] == 0) continue;
    set.parts[part] =
        std::make_shared<training::TokenRange>(checked, borders.value()[part], borders.value()[part + 1]);
  }
  return set;
}

}  // namespace

std::string TokenInput::identity() const {
  std::string text;
  for (const TokenSet& set : sets) {
    const training::TokenStatistics& statistics = set.statistics;
    if (sets.size() > 1) text += fmt::format("{}weight {}: ", text.empty() ? "" : "; ", set.weight);
    text +=
        fmt::format("{} tokens with CRC-32C {:08x} of {}", statistics.tokens, statistics.checksum,
                    statistics.counted == statistics.tokens ? "all" : fmt::format("{}", statistics.counted));
    // Without --split all is trained on.
    if (set.parts[0]->token_count() == statistics.tokens) continue;
    for (const auto& part : set.parts)
      text += fmt::format("{} {}", &part == set.parts.data() ? ", parts" : " +",
                          part == nullptr ? 0 : part->token_count());
  }
  return text;
}

double TokenInput::unigram_entropy() const {
  return sets.size() == 1 ? sets[0].statistics.unigram_entropy : std::numeric_limits<double>::quiet_NaN();
}

Result<TokenInput> open_tokens(const TrainFlags& flags) {
  TokenInput input;
  if (!flags.text.empty()) {
    Result<std::shared_ptr<const training::TokenSource>> tokens = open_text(flags);
    if (!tokens.is_ok()) return Status(tokens.status().code(), "--text: " + tokens.status().message());
    Result<TokenSet> set = make_set(flags, "--text " + flags.text, flags.text, tokens.value(), nullptr);
    if (!set.is_ok()) return set.status();
    input.sets.push_back(set.take());
  }
  for (const TrainFlags::DataPath& data : flags.data_paths) {
    Result<std::unique_ptr<training::MappedDataset>> opened = training::MappedDataset::open(data.prefix);
    if (!opened.is_ok()) return Status(opened.status().code(), "--data-path: " + opened.status().message());
    const std::shared_ptr<const training::MappedDataset> tokens = opened.take();
    Result<TokenSet> set =
        make_set(flags, "--data-path " + data.prefix, training::data_path(data.prefix), tokens, tokens.get());
    if (!set.is_ok()) return set.status();
    input.sets.push_back(set.take());
    input.sets.back().weight = data.weight;
  }
  return input;
}

Result<training::BlendedSampler> make_sampler(const TrainFlags& flags, const TokenInput& input,
                                              training::DataPart part, int64_t global_batch_size) {
  std::vector<training::WeightedSource> sources;
  for (const TokenSet& set : input.sets)
    sources.push_back({set.parts[static_cast<size_t>(part)], set.weight});
  size_t failed = 0;
  Result<training::BlendedSampler> sampler =
      training::BlendedSampler::create(sources,
                                       {.seed = flags.trainer.seed,
                                        .sequence_length = flags.shape.sequence_length,
                                        .global_batch_size = global_batch_size},
                                       &failed);
  if (sampler.is_ok()) return sampler;
  std::string where = input.sets[failed].flag;
  if (flags.has_split) where += fmt::format(", {} part of --split", training::data_part_name(part));
  return Status(sampler.status().code(), where + ": " + sampler.status().message());
}

}  // namespace hdt::tools
