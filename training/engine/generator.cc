// generator.cc: token after token: forward through the stages, the last one draws, and a broadcast gives the
// token to all stages. The stages work one after the other, so generation is no faster with more of them.
#include "training/engine/generator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

namespace hdt::training {

// Inverse transform sampling: walks through the weights until `uniform` of their sum is used up. The
// largest logit is subtracted first, so that exp() cannot overflow.
int64_t sample_token(std::span<const float> logits, double temperature, double uniform) {
  const auto likeliest = std::ranges::max_element(logits);
  if (temperature <= 0) return likeliest - logits.begin();
  double total = 0;
  std::vector<double> weights;
  for (const float logit : logits) {
    weights.push_back(std::exp((double{logit} - *likeliest) / temperature));
    total += weights.back();
  }
  double left = uniform * total;
  for (size_t token = 0; token < weights.size(); ++token) {
    left -= weights[token];
    if (left < 0) return static_cast<int64_t>(token);
  }
  return likeliest - logits.begin();  // rounding ate the last of it
}

Result<std::vector<int64_t>> generate(const Layout& layout, const ChunksOf<TextCompute>& chunks,
                                      Messenger& messenger, std::span<const int64_t> prompt,
                                      const GenerationOptions& options) {
  const Position position = layout.position_of(messenger.rank());
  const int stages = layout.replica(position.replica).stages();
  const int last_stage = stages - 1;
  const auto context = static_cast<size_t>(chunks[0].sequence_length());
  std::vector<float> input;
  std::vector<float> output;
  std::vector<float> logits(position.stage == last_stage ? chunks[0].vocab_size() : 0);
  std::mt19937_64 random(options.seed);
  std::vector<int64_t> tokens(prompt.begin(), prompt.end());
  for (int i = 0; i < options.tokens; ++i) {
    // Steps for each token: receive, compute, send, draw, broadcast.
    const std::span<const int64_t> seen = std::span(tokens).last(std::min(tokens.size(), context));
    // The token goes through the first chunks of all stages, then through the second ones, and so on.
    for (TextCompute* const compute : chunks) {
      const UnitRange units = compute->units();
      const bool last = units.end == layout.head_unit() + 1;
      input.clear();
      output.clear();
      if (units.first != layout.embedding_unit()) {
        input.resize(compute->activation_elements(units.first - 1, seen.size()));
        // Activations of the virtual stage before, whose size depends on the tokens seen.
        Result<Pending> received =
            messenger.receive_from_stage((position.stage + stages - 1) % stages, input);
        if (!received.is_ok()) return received.status();
        HDT_RETURN_IF_ERROR(received.value()->wait());
      }
      if (!last) output.resize(compute->activation_elements(units.end - 1, seen.size()));
      compute->infer(seen, input, output, last ? std::span(logits) : std::span<float>());
      if (last) continue;
      Result<Pending> sent = messenger.send_to_stage((position.stage + 1) % stages, output);
      if (!sent.is_ok()) return sent.status();
      HDT_RETURN_IF_ERROR(sent.value()->wait());
    }
    // Every stage draws a number, so that all generators stay in step; only the last one's counts. 53
    // random bits make a double in [0, 1).
    const double uniform = std::ldexp(static_cast<double>(random() >> 11), -53);
    std::array<int64_t, 1> drawn = {
        position.stage == last_stage ? sample_token(logits, options.temperature, uniform) : 0};
    HDT_RETURN_IF_ERROR(messenger.broadcast_in_replica(last_stage, drawn));
    tokens.push_back(drawn[0]);
  }
  return std::vector<int64_t>(tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end());
}

}  // namespace hdt::training
