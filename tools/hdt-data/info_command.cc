// info_command.cc: `hdt-data info`: reads a whole dataset once and prints what is in it, as a table or
// as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "tools/hdt-data/commands.h"
#include "training/data/indexed_dataset.h"
#include "training/data/progress_line.h"
#include "training/data/token_statistics.h"
#include "training/data/tokenizer.h"

namespace hdt::tools {
namespace {

using training::ByteTokenizer;

// How many tokens of the beginning are shown.
constexpr uint64_t kShownTokens = 72;

// As a JSON string, which is on one line whatever the tokens are. Bytes that are no UTF-8 are replaced.
std::string one_line(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Status info_command(const InfoOptions& options) {
  const auto opened = training::IndexedDataset::open(options.prefix);
  if (!opened.is_ok()) return opened.status();
  const training::IndexedDataset& data = *opened.value();
  const training::TokenStatistics statistics = training::token_statistics(data);
  // Fewer than kShownTokens if the dataset is short.
  std::vector<int64_t> first(std::min(kShownTokens, data.token_count()));
  data.read_tokens(0, first);
  // Larger or negative tokens come from another tokenizer, and their bytes would be nonsense.
  const bool byte_level = statistics.least >= 0 && statistics.greatest < ByteTokenizer::kVocabSize;

  // Negative tokens are labels that are left out of the loss, or the file was read with a wrong element
  // type. The first one is looked up, so that the user can find it.
  const bool has_negative = statistics.least < 0;
  training::PlacedToken negative;
  if (has_negative) {
    constexpr int64_t kAnyVocabulary = std::numeric_limits<int64_t>::max();
    negative = training::first_foreign_token(data, kAnyVocabulary).value_or(negative);
  }

  // The same facts as below, with plain numbers; fields that do not apply are left out.
  if (options.json) {
    nlohmann::ordered_json json = {{"prefix", options.prefix},
                                   {"element_type", training::element_type_name(data.element_type())},
                                   {"data_bytes", data.data_bytes()},
                                   {"sequences", data.sequence_count()},
                                   {"documents", data.document_count()},
                                   {"tokens", data.token_count()},
                                   {"vocabulary_used", statistics.distinct},
                                   {"least_token", statistics.least},
                                   {"greatest_token", statistics.greatest},
                                   {"unigram_entropy_nats", statistics.unigram_entropy},
                                   {"first_tokens", first}};
    if (has_negative) json["first_negative"] = {{"token", negative.token}, {"position", negative.position}};
    if (byte_level) json["first_text"] = ByteTokenizer::decode(first);
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return Status::ok();
  }
  const auto grouped = [](uint64_t number) { return training::format_grouped(static_cast<int64_t>(number)); };
  fmt::print("dataset          {}\n", options.prefix);
  fmt::print("element type     {}, {} bytes of data\n", training::element_type_name(data.element_type()),
             grouped(data.data_bytes()));
  fmt::print("sequences        {}\n", grouped(data.sequence_count()));
  fmt::print("documents        {}\n", grouped(data.document_count()));
  fmt::print("tokens           {}\n", grouped(data.token_count()));
  fmt::print("vocabulary used  {} tokens, {} to {}\n", statistics.distinct, statistics.least,
             statistics.greatest);
  if (has_negative) {
    fmt::print("negative         the first is token {} at position {}: hdt-train refuses the dataset\n",
               negative.token, negative.position);
  }
  fmt::print("unigram entropy  {:.4f} nats per token\n", statistics.unigram_entropy);
  fmt::print("first tokens     {}\n",
             byte_level ? one_line(ByteTokenizer::decode(first)) : fmt::format("{}", fmt::join(first, " ")));
  return Status::ok();
}

}  // namespace hdt::tools
