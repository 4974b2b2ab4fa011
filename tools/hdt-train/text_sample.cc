// text_sample.cc: turns text into tokens and back, around the engine's generator.
#include "tools/hdt-train/text_sample.h"

#include <fmt/format.h>

#include <vector>

#include "training/data/tokenizer.h"
#include "training/engine/generator.h"

namespace hdt::tools {

Result<std::string> sample_text(const TrainFlags& flags, const training::Layout& layout,
                                const training::ChunksOf<training::TextCompute>& chunks,
                                training::Messenger& messenger) {
  const Result<std::vector<int64_t>> encoded = flags.tokenizer->encode(flags.sample_prompt);
  if (!encoded.is_ok())
    return Status(encoded.status().code(), "--sample-prompt: " + encoded.status().message());
  const std::vector<int64_t>& prompt = encoded.value();
  for (const int64_t token : prompt) {
    if (token >= flags.shape.vocab_size) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("--sample-prompt: token {} is none of --vocab-size {}", token, flags.shape.vocab_size));
    }
  }
  const Result<std::vector<int64_t>> tokens = training::generate(
      layout, chunks, messenger, prompt,
      {.tokens = flags.sample_tokens, .sampling = flags.sampling, .seed = flags.trainer.seed});
  if (!tokens.is_ok()) return tokens.status();
  return flags.sample_prompt + flags.tokenizer->decode(tokens.value());
}

}  // namespace hdt::tools
