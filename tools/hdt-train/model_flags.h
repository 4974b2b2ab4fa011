// model_flags.h: the flags of the model: its sizes, and which model it is. Part of flags.h.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "training/engine/layout.h"

namespace hdt::tools {

// What the command line says of the model beyond TrainFlags::shape, until take_model() has read it.
struct ModelFlags {
  std::string config;  // a config.json of Hugging Face's library
  bool group_query_attention = false;
  double interpolation_factor = 1;  // --rotary-seq-len-interpolation-factor
  bool use_rope_scaling = false;
  double rope_scaling_factor = 8;
  bool tied = false;
  bool untied = false;
  std::optional<int64_t> kv_channels;
  std::string position_embedding = "rope";
  std::string normalization = "RMSNorm";
  bool swiglu = false;
  bool rotary_positions = false;
  bool no_biases = false;
};

// Adds the flags, in Megatron's names where it has such a flag. `flags` and `model` must outlive the parsing.
void add_model(CLI::App& app, TrainFlags& flags, ModelFlags& model);

// After parsing, and after --plan: fills in flags.shape, from config.json where one is named.
// kInvalidArgument names the flags that contradict each other, the plan or config.json, with both values.
Status take_model(const CLI::App& app, const ModelFlags& model, TrainFlags& flags);

}  // namespace hdt::tools
