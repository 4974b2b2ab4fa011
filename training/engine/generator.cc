// generator.cc: token after token: forward through the stages, the last one draws, and a broadcast gives the
// token to all stages. The stages work one after the other, so generation is no faster with more of them.
// Each keeps the keys and values of its own layers, so only what is new goes through the pipeline.
#include "training/engine/generator.h"

#include <array>
#include <cmath>
#include <random>

namespace hdt::training {

Result<std::vector<int64_t>> generate(const Layout& layout, const ChunksOf<TextCompute>& chunks,
                                      Messenger& messenger, std::span<const int64_t> prompt,
                                      const GenerationOptions& options) {
  const Position position = layout.position_of(messenger.rank());
  const int stages = layout.replica(position.replica).stages();
  const int last_stage = stages - 1;
  const auto context = static_cast<size_t>(chunks[0].sequence_length());
  // Memory of the compute's type for the activations of as many tokens as are new.
  const auto resized = [](std::vector<std::byte>& memory, const TextCompute& compute, int unit,
                          size_t fresh) {
    const size_t elements = compute.activation_elements(unit, fresh);
    memory.resize(elements * bytes_of(compute.type()));
    return TypedSpan(compute.type(), memory.data(), elements);
  };
  std::vector<std::byte> input_memory;
  std::vector<std::byte> output_memory;
  std::vector<float> logits(position.stage == last_stage ? chunks[0].vocab_size() : 0);
  std::mt19937_64 random(options.seed);
  std::vector<int64_t> tokens(prompt.begin(), prompt.end());
  size_t known = 0;  // tokens that the stages have got
  for (int i = 0; i < options.tokens; ++i) {
    // Steps for each token: receive, compute, send, draw, broadcast.
    // Where the text is longer than the context, every token moves the window and so the positions of all
    // tokens in it, on which keys and values depend: the whole window is computed again.
    const bool moves = tokens.size() > context;
    const auto position_in_text = static_cast<int64_t>(moves ? 0 : known);
    const std::span<const int64_t> fresh =
        moves ? std::span(tokens).last(context) : std::span(tokens).subspan(known);
    known = tokens.size();
    // What is new goes through the first chunks of all stages, then through the second ones, and so on.
    for (TextCompute* const compute : chunks) {
      const UnitRange units = compute->units();
      const bool last = units.end == layout.head_unit() + 1;
      TypedSpan input;
      TypedSpan output;
      if (units.first != layout.embedding_unit()) {
        input = resized(input_memory, *compute, units.first - 1, fresh.size());
        // Activations of the virtual stage before, whose size depends on the tokens that are new.
        Result<Pending> received =
            messenger.receive_from_stage((position.stage + stages - 1) % stages, input);
        if (!received.is_ok()) return received.status();
        HDT_RETURN_IF_ERROR(received.value()->wait());
      }
      if (!last) output = resized(output_memory, *compute, units.end - 1, fresh.size());
      compute->infer(fresh, position_in_text, input, output, last ? std::span(logits) : std::span<float>());
      if (last) continue;
      Result<Pending> sent = messenger.send_to_stage((position.stage + 1) % stages, output);
      if (!sent.is_ok()) return sent.status();
      HDT_RETURN_IF_ERROR(sent.value()->wait());
    }
    // Every stage draws a number, so that all generators stay in step; only the last one's counts. 53
    // random bits make a double in [0, 1).
    const double uniform = std::ldexp(static_cast<double>(random() >> 11), -53);
    std::array<int64_t, 1> drawn = {
        position.stage == last_stage ? sample_token(logits, options.sampling, uniform) : 0};
    HDT_RETURN_IF_ERROR(messenger.broadcast_in_replica(last_stage, drawn));
    tokens.push_back(drawn[0]);
  }
  return std::vector<int64_t>(tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end());
}

}  // namespace hdt::training
