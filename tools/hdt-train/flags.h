// flags.h: the command line of hdt-train.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/data/data_split.h"
#include "training/data/tokenizer_choice.h"
#include "training/engine/layout_flags.h"
#include "training/engine/sampling.h"
#include "training/engine/trainer.h"
#include "training/plan/describe/plan.h"
#include "training/torch/dropout_rates.h"
#include "training/torch/model_shape.h"

namespace hdt::tools {

// A device to profile: this machine as it is (1), or slowed down by a factor.
struct EmulatedDevice {
  std::string name;
  double slow_down = 1;
};

// Files that describe the devices and the model of a plan. All are paths; without a profile none is set.
struct DeviceFiles {
  std::string profile;
  std::string cluster;
  std::string model;

  // The files beside the profile in the place of those that are not set.
  void add_defaults();
};

// All flags, checked and with their defaults. The same on all ranks; run_identity.h checks that for
// those that matter.
struct TrainFlags {
  // The model, its layout and the optimizer.
  training::ModelShape shape;
  // A folder of Hugging Face's library, whose parameters take the place of the start values; empty: none.
  std::string load_hf;
  training::LayoutFlags layout;
  std::string plan_path;
  // The contents of plan_path, if there is one. It takes the place of the layout's flags.
  std::optional<plan::Plan> plan;
  training::TrainerOptions trainer;
  // The type of parameters and activations. That of gradients and the loss scale are in `trainer`.
  training::NumberType type = training::NumberType::kFloat32;
  training::NumberTypes types() const { return {type, trainer.gradients}; }
  // The first layers of each stage that are computed again for their backward; a stage with fewer recomputes
  // all. A plan has a number for each stage instead, and says of each whether it is of whole layers or of
  // attention (recomputed_layers() and recomputed_attentions() in plan_layout.h). Ranks may differ:
  // it changes no result.
  int recomputed_layers = 0;
  // All layers keep queries, keys and values, and compute attention again. It changes no result, either.
  bool recompute_attention = false;
  training::DropoutRates dropout;
  // Steps.
  int64_t train_iters = 500;
  // For all ranks to join, and for each operation; 0: the library's default.
  int64_t timeout_minutes = 0;
  // Threads of a torch operation.
  int threads = 1;

  // Datasets. Either these or `text` is set, except for profiling.
  struct DataPath {
    double weight = 1;
    std::string prefix;
  };
  std::vector<DataPath> data_paths;
  // A text file.
  std::string text;
  // Makes tokens of the text and of the prompt, and text of what is generated. Never null after parsing.
  training::TokenizerChoice tokenizer_choice;
  std::shared_ptr<const training::Tokenizer> tokenizer;
  // The parts for training, validation and test. Without --split training has all.
  training::DataSplit split;
  bool has_split = false;
  // The loss of the token after the end of a document does not count.
  bool eod_mask_loss = false;
  // Positions begin again with each document, and attention stays within one.
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  // Steps between two evaluations, and batches of one; 0: no evaluation.
  int64_t eval_interval = 1000;
  int64_t eval_iters = 100;

  // Checkpoints. A folder; empty: none are saved.
  std::string save;
  // Steps between two of them; 0: only the end of the run is saved.
  int64_t save_interval = 0;
  // The newest ones that stay; 0: all.
  int keep_checkpoints = 0;
  // The folder of the checkpoint from which the run goes on; empty: it starts anew.
  std::string load;
  bool exit_on_missing_checkpoint = false;
  // After a loss the ranks that are left go on from the last checkpoint (elastic.h).
  bool elastic = false;

  // Steps between two lines of progress if standard output is not a terminal.
  int64_t log_interval = 10;
  int64_t check_weights = 0;  // steps between comparisons of the replicas' parameters; 0: none
  // Outputs; empty: not wanted.
  std::string tensorboard_dir;
  std::string loss_curve;
  std::string loss_log;
  // Tokens to generate after training; 0: none.
  int sample_tokens = 0;
  // The generated text continues it.
  std::string sample_prompt = "And the ";
  // How its tokens are drawn.
  training::Sampling sampling = {.temperature = 0.8};

  // Flags of Megatron that change nothing here, each with the reason; rank 0 prints them.
  std::vector<std::string> without_effect;

  // How many times slower each rank computes. Empty: no rank does. check_slow_down() compares its size
  // with the number of ranks.
  std::vector<double> slow_down;

  // With a profile: emulate devices instead of training (emulation.h).
  DeviceFiles emulate;
  // With a profile: compare the run with what its devices reach alone (acceleration.h).
  DeviceFiles acceleration;

  // If not empty: measure instead of training.
  std::string profile_folder;
  // At least one, and at least one micro-batch size, after parsing.
  std::vector<EmulatedDevice> profile_devices;
  std::vector<int> profile_micro_batch_sizes;
};

// kInvalidArgument if --slow-down is given for another number of ranks.
Status check_slow_down(const TrainFlags& flags, int world_size);

// The flags, or the exit status of a process that has nothing more to do: 0 after --help, 2 after wrong
// usage, which has been reported.
struct ParsedFlags {
  TrainFlags flags;
  std::optional<int> exit_status;
};
// Prints help and usage errors itself. Every rank parses the same command line, so each prints them.
ParsedFlags parse_flags(int argc, char** argv);

}  // namespace hdt::tools
