// token_input.cc: a dataset or a text file as tokens.
#include "tools/hdt-train/token_input.h"

#include <fmt/format.h>

#include <utility>

#include "training/data/indexed_dataset.h"
#include "training/data/text_source.h"
#include "training/data/tokenizer.h"

namespace hdt::tools {

Result<TokenInput> open_tokens(const TrainFlags& flags) {
  TokenInput input;
  if (!flags.text.empty()) {
    Result<training::Document> document = training::read_text_file(flags.text);
    if (!document.is_ok()) return document.status();
    input.tokens =
        std::make_shared<training::MemoryTokens>(training::ByteTokenizer::encode(document.value().text));
  } else {
    Result<std::unique_ptr<training::IndexedDataset>> dataset =
        training::IndexedDataset::open(flags.data_path);
    if (!dataset.is_ok()) return dataset.status();
    input.tokens = std::shared_ptr<const training::TokenSource>(dataset.take());
  }
  input.statistics = training::token_statistics(*input.tokens);
  if (input.statistics.tokens > 0 &&
      (input.statistics.least < 0 || input.statistics.greatest >= flags.shape.vocab_size)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("--vocab-size {}: the data has tokens from {} to {}; expected at least {}",
                              flags.shape.vocab_size, input.statistics.least, input.statistics.greatest,
                              input.statistics.greatest + 1));
  }
  return input;
}

}  // namespace hdt::tools
