// print_logits.cc: print_logits FOLDER TOKEN...: loads a folder of Hugging Face's library as hdt-train does,
// and prints the logits after each token, one line a token, so that tests can compare them with those of
// others.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <map>
#include <vector>

#include "base/run_main.h"
#include "base/whole_number.h"
#include "training/torch/pretrained_model.h"
#include "training/torch/torch_stage.h"

namespace hdt::training::testing {
namespace {

int fail(const std::string& message) {
  fmt::print(stderr, "print_logits: {}\n", message);
  return 1;
}

int print_logits(const std::string& folder, const std::vector<int64_t>& tokens) {
  const Result<PretrainedModel> model = PretrainedModel::open(folder);
  if (!model.is_ok()) return fail(model.status().message());
  ModelShape shape = model.value().shape();
  shape.sequence_length = static_cast<int64_t>(tokens.size());
  const UnitRange units{0, shape.num_layers + 2};
  const auto stage = make_torch_stage(shape, units);
  std::map<int, std::vector<float>> parameters;
  std::map<int, std::vector<float>> gradients;
  for (int unit = stage->has_tied_unit() ? kTiedUnit : 0; unit < units.end; ++unit) {
    parameters[unit].resize(elements_of(stage->tensors(unit)));
    gradients[unit].resize(parameters[unit].size());
    stage->bind(unit, parameters[unit], gradients[unit]);
    std::span<float> rest = parameters[unit];
    for (const TensorInfo& tensor : stage->tensors(unit)) {
      const Status read = model.value().read(tensor, rest.first(tensor.elements()));
      if (!read.is_ok()) return fail(read.message());
      rest = rest.subspan(tensor.elements());
    }
  }
  std::vector<float> logits(shape.vocab_size);
  for (size_t seen = 1; seen <= tokens.size(); ++seen) {
    // Each token by itself, on the keys and values of those before.
    const auto position = static_cast<int64_t>(seen) - 1;
    stage->infer(std::span(tokens).subspan(seen - 1, 1), position, {}, {}, logits);
    fmt::print("{}\n", fmt::join(logits, " "));
  }
  return 0;
}

}  // namespace
}  // namespace hdt::training::testing

int main(int argc, char** argv) {
  return hdt::run_main("print_logits", 1, [&] {
    if (argc < 3) return hdt::training::testing::fail("expected FOLDER TOKEN...");
    std::vector<int64_t> tokens;
    for (int i = 2; i < argc; ++i) {
      const auto token = hdt::whole_number<int64_t>(argv[i]);
      if (!token) return hdt::training::testing::fail(fmt::format("'{}' is no token", argv[i]));
      tokens.push_back(*token);
    }
    return hdt::training::testing::print_logits(argv[1], tokens);
  });
}
