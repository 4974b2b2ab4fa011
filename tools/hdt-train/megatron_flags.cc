// megatron_flags.cc: the tables of Megatron's flags (arguments.py of Megatron-LM core 0.6 to 0.9, and of the
// mixed-vendor forks of it).
#include "tools/hdt-train/megatron_flags.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "base/join.h"

namespace hdt::tools {
namespace {

constexpr const char* kGroup = "Flags of Megatron without effect here";

// A flag without a value that changes nothing, with the reason.
struct Switch {
  const char* name;
  const char* reason;
};
constexpr const char* kFaster = "it changes how fast Megatron is";
constexpr Switch kSwitches[] = {
    {"--use-mcore-models", "there is one implementation"},
    {"--use-legacy-models", "there is one implementation"},
    {"--no-position-embedding", "rotary positions have no parameters"},
    {"--use-flash-attn", kFaster},
    {"--use-cpu-initialization", "start values are the same on every device"},
    {"--attention-softmax-in-fp32", "it is in fp32 anyway"},
    {"--sequence-parallel", "it divides among tensor-parallel ranks, of which there is one"},
    {"--overlap-grad-reduce", "gradients are reduced under the backward anyway"},
    {"--overlap-param-gather", "parameters are gathered under the next step anyway"},
    {"--overlap-p2p-communication", "it is overlapped anyway"},
    {"--no-overlap-p2p-communication", "it is overlapped anyway"},
    {"--log-throughput", "it is shown anyway"},
    {"--log-validation-ppl-to-tensorboard", "it is written anyway"},
    {"--no-masked-softmax-fusion", kFaster},
    {"--no-bias-gelu-fusion", kFaster},
    {"--no-bias-swiglu-fusion", kFaster},
    {"--no-bias-dropout-fusion", kFaster},
    {"--no-rope-fusion", kFaster},
    {"--no-persist-layer-norm", kFaster},
    {"--no-gradient-accumulation-fusion", kFaster},
    {"--no-async-tensor-model-parallel-allreduce", kFaster},
    {"--no-scatter-gather-tensors-in-pipeline", kFaster},
    {"--no-create-attention-mask-in-dataloader", kFaster},
};

// A flag with a value that changes nothing.
constexpr Switch kValues[] = {
    {"--transformer-impl", "there is one implementation"},
    {"--attention-backend", "there is one implementation"},
    {"--distributed-backend", "hdt-train communicates by HDT"},
    {"--num-workers", "data is mapped, not loaded"},
    {"--timing-log-level", "there are no levels"},
    {"--timing-log-option", "there are no options"},
    {"--tensorboard-log-interval", "every step is written"},
    {"--tensorboard-queue-size", "every step is written"},
};

// A flag of which hdt-train has one value.
struct OneValue {
  const char* name;
  const char* value;
};
constexpr OneValue kOneValues[] = {
    {"--context-parallel-size", "1"},
    {"--expert-model-parallel-size", "1"},
    {"--make-vocab-size-divisible-by", "1"},
    {"--init-method-std", "0.02"},
    {"--optimizer", "adam"},
    {"--weight-decay-incr-style", "constant"},
    {"--dataloader-type", "single"},
};

// A flag that hdt-train does not have and that changes the training or its checkpoints. `arguments` is the
// number of its values.
struct Missing {
  const char* name;
  int arguments;
  const char* reason;
};
constexpr Missing kMissing[] = {
    {"--fp8-format", 1, "there is no fp8"},
    {"--num-experts", 1, "there are no mixtures of experts"},
    {"--qk-layernorm", 0, "queries and keys have no norm"},
    {"--add-qkv-bias", 0, "LLaMA has no biases, and GPT-2 has all"},
    {"--squared-relu", 0, "LLaMA has SwiGLU, and GPT-2 has GELU"},
    {"--apply-query-key-layer-scaling", 0, "scores are computed in fp32, also with --fp16"},
    {"--train-samples", 1, "expected --train-iters: a step's samples are fixed"},
    {"--lr-decay-samples", 1, "expected --lr-decay-iters"},
    {"--lr-warmup-samples", 1, "expected --lr-warmup-iters"},
    {"--rampup-batch-size", 3, "a step's samples are fixed"},
    {"--finetune", 0, "expected --load-hf: it starts from parameters alone"},
    {"--no-load-optim", 0, "a run goes on exactly; --load-hf starts from parameters alone"},
    {"--no-load-rng", 0, "a run goes on exactly; --load-hf starts from parameters alone"},
    {"--no-save-optim", 0, "a checkpoint is whole"},
    {"--no-save-rng", 0, "a checkpoint is whole"},
    {"--exit-interval", 1, "expected --train-iters; SIGTERM saves and ends, too"},
    {"--exit-duration-in-mins", 1, "SIGTERM saves and ends: let a timer send it"},
    {"--ckpt-format", 1, "checkpoints are safetensors"},
};

void add_value(CLI::App& app, MegatronFlags& megatron, const char* name, const std::string& text,
               const char* group) {
  app.add_option_function<std::string>(
         name, [&megatron, name](const std::string& value) { megatron.values[name] = value; }, text)
      ->type_name("VALUE")
      ->group(group)
      ->trigger_on_parse();
}

}  // namespace

void add_megatron_flags(CLI::App& app, MegatronFlags& megatron) {
  const auto note = [&megatron](const char* name) {
    return [&megatron, name](int64_t /*times*/) { megatron.values[name]; };
  };
  for (const Switch& flag : kSwitches)
    app.add_flag_function(flag.name, note(flag.name), flag.reason)->group(kGroup);
  for (const Switch& flag : kValues) add_value(app, megatron, flag.name, flag.reason, kGroup);
  for (const OneValue& flag : kOneValues)
    add_value(app, megatron, flag.name, fmt::format("only {}", flag.value), kGroup);
  for (const Missing& flag : kMissing) {
    if (flag.arguments == 0) {
      app.add_flag_function(flag.name, note(flag.name), flag.reason)->group("");
    } else {
      app.add_option_function<std::vector<std::string>>(
             flag.name,
             [&megatron, name = flag.name](const std::vector<std::string>& values) {
               megatron.values[name] = join(values, " ");
             },
             flag.reason)
          ->expected(flag.arguments)
          ->group("");
    }
  }
}

Status take_megatron_flags(const MegatronFlags& megatron, TrainFlags& flags) {
  std::vector<std::string> refused;
  for (const OneValue& flag : kOneValues) {
    const auto given = megatron.values.find(flag.name);
    if (given != megatron.values.end() && given->second != flag.value)
      refused.push_back(fmt::format("{} {} (only {})", flag.name, given->second, flag.value));
  }
  for (const Missing& flag : kMissing) {
    if (megatron.values.contains(flag.name))
      refused.push_back(fmt::format("{} ({})", flag.name, flag.reason));
  }
  if (!refused.empty())
    return {Code::kInvalidArgument,
            fmt::format("hdt-train does not have what Megatron has by {}", join(refused, "; "))};
  for (const auto& table : {std::span<const Switch>(kSwitches), std::span<const Switch>(kValues)}) {
    for (const Switch& flag : table) {
      if (megatron.values.contains(flag.name))
        flags.without_effect.push_back(fmt::format("{} ({})", flag.name, flag.reason));
    }
  }
  return Status::ok();
}

}  // namespace hdt::tools
