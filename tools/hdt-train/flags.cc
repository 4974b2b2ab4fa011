// flags.cc: describes, parses and checks the flags. They are named as in Megatron and its mixed-vendor
// forks where these have such a flag.
//
// The checks have three levels: CLI11 checks each value, read_slow_down() and read_devices() turn lists
// into what they mean, and beyond_ranges() checks flags against each other. Each level needs the one
// before.
#include "tools/hdt-train/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "tools/common/flag_checks.h"
#include "tools/common/tokenizer_flags.h"
#include "tools/hdt-train/acceleration.h"
#include "tools/hdt-train/checkpoint_flags.h"
#include "tools/hdt-train/document_flags.h"
#include "tools/hdt-train/emulation.h"
#include "tools/hdt-train/learning_rate_flags.h"
#include "tools/hdt-train/megatron_flags.h"
#include "tools/hdt-train/model_flags.h"
#include "tools/hdt-train/number_flags.h"
#include "tools/hdt-train/output_files.h"
#include "tools/hdt-train/plan_layout.h"
#include "tools/hdt-train/recompute_flags.h"
#include "training/data/tokenizer_process.h"

namespace hdt::tools {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  hdt-train --text book.txt --sample-tokens 200\n"
    "      one process, nothing to set up\n"
    "  mpirun -np 4 hdt-train --data-path data/kjv --use-tp-pp-dp-mapping --num-layers 4 \\\n"
    "      --hetero-pipeline-stages 1 3 1 1 --hetero-pipeline-stages 2 2 2 \\\n"
    "      --micro-batch-size 4 --num-micro-batches-per-dp 1 4 1 2 --global-batch-size 24\n"
    "      two replicas of two stages; layers split 3 + 1 and 2 + 2; one takes twice the micro-batches\n"
    "  hdt-plan search cluster.toml model.toml -p profile.toml --global-batch-size 24 --output plan.toml\n"
    "  hdt-plan export plan.toml -c cluster.toml -- --data-path data/kjv > train.sh\n"
    "      train.sh runs hdt-train --plan plan.toml on the plan's nodes\n"
    "  mpirun -np 4 hdt-train --data-path data/kjv --pipeline-model-parallel-size 2 \\\n"
    "      --save checkpoints --save-interval 100 --load checkpoints\n"
    "      goes on where it was interrupted, also with another number of ranks\n"
    "  mpirun -np 2 hdt-train --load-hf llama/ --data-path data/kjv --pipeline-model-parallel-size 2 \\\n"
    "      --save checkpoints\n"
    "      trains a model of Hugging Face's library; each checkpoint is such a folder as well\n"
    "  mpirun -np 2 hdt-train --profile profile/ --profile-device fast slow:3\n"
    "      measures this machine, and emulates one that is three times slower, for hdt-plan\n"
    "\n"
    "A flag that is given again replaces what was given before; --hetero-pipeline-stages alone adds to it.\n"
    "Exit status: 0 done, or saved and ended after SIGTERM; 1 the run or its last save failed; 2 wrong "
    "usage.";

// A limit for counts that is far above any sensible value, and keeps products within 64 bits.
constexpr int kMost = 1'000'000;
// Bytes of memory will do as weights, too.
constexpr double kMostWeight = 1e18;

// Values that are checked after all flags have been read.
struct RawFlags {
  std::vector<std::string> data_path;
  std::vector<double> slow_down;
  std::vector<std::string> profile_devices;
  std::optional<int64_t> eval_interval;
  std::optional<int64_t> eval_iters;
};

// Flags of replicas and stages. Lists are parsed by training/engine/layout_flags.h.
void add_layout(CLI::App& app, TrainFlags& flags) {
  auto& layout = flags.layout;
  app.add_option("--plan", flags.plan_path,
                 "a plan of hdt-plan search: takes the place of the flags of the layout")
      ->type_name("FILE")
      ->check(path_name());
  app.add_option("--tensor-model-parallel-size", layout.tensor_model_parallel_size, "only 1 is supported")
      ->capture_default_str();
  app.add_option("--pipeline-model-parallel-size", layout.pipeline_model_parallel_size,
                 "stages of every replica");
  app.add_option(
         "--hetero-pipeline-stages", layout.hetero_pipeline_stages,
         "n0 layers_0_0 layers_0_1 ... n1 layers_1_0 ...: for each kind of device the number of its stages, "
         "then their layers, which may be 0 for the first stage and for the last one; given once for every "
         "replica, or once per replica")
      ->type_name("INT ...");
  app.add_option(
         "--num-virtual-stages-per-pipeline-rank", layout.virtual_stages_per_rank,
         "model chunks of every stage, for --schedule interleaved; one number, or one for each "
         "--hetero-pipeline-stages. Its stages then have so many layer counts each: those of the first "
         "stage's chunks, then those of the second one's, ...")
      ->type_name("INT ...")
      ->trigger_on_parse();
  app.add_option("--num-layers-per-virtual-pipeline-stage", layout.layers_per_virtual_stage,
                 "layers of a model chunk, for --schedule interleaved with an even split");
  app.add_option("--pipeline-model-parallel-layout", layout.pipeline_model_parallel_layout,
                 "Megatron's string of every replica's stages, as 'Et*3|(tt|)*4tL'");
  app.add_flag("--use-tp-pp-dp-mapping", layout.use_tp_pp_dp_mapping,
               "number ranks replica by replica instead of stage by stage");
  app.add_option("--micro-batch-size", layout.micro_batch_size, "samples of a micro-batch, on every replica");
  app.add_option("--micro-batch-size-per-dp", layout.micro_batch_size_per_dp,
                 "n0 mbs0 n1 mbs1 ...: the first n0 replicas use mbs0, the next n1 mbs1, ...")
      ->type_name("INT ...")
      ->trigger_on_parse();
  app.add_option("--num-micro-batches-per-dp", layout.num_micro_batches_per_dp,
                 "n0 nmb0 n1 nmb1 ...: micro-batches of a step, as above")
      ->type_name("INT ...")
      ->trigger_on_parse();
  app.add_option_function<std::string>(
         "--schedule",
         [&flags](const std::string& name) {
           const Result<training::ScheduleKind> found = training::schedule_of(name);
           if (!found.is_ok()) throw CLI::ValidationError("--schedule", found.status().message());
           flags.trainer.schedule = found.value();
         },
         fmt::format("order of a stage's forwards and backwards: {}; interleaved needs several chunks of the "
                     "model on a stage",
                     training::schedule_names()))
      ->type_name("NAME")
      ->default_str(training::schedule_name(flags.trainer.schedule));
  app.add_option("--global-batch-size", layout.global_batch_size,
                 "samples of a step over all replicas (default: what the micro-batches make)");
}

// Flags of the training itself.
void add_optimizer(CLI::App& app, TrainFlags& flags) {
  auto& trainer = flags.trainer;
  const CLI::Validator not_negative = float_number(0);
  const CLI::Validator fraction = number(0, 0.999999);
  app.add_option("--train-iters", flags.train_iters, "steps")
      ->check(whole(1, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--weight-decay", trainer.adamw.weight_decay)->check(not_negative)->capture_default_str();
  app.add_option("--adam-beta1", trainer.adamw.beta1)->check(fraction)->capture_default_str();
  app.add_option("--adam-beta2", trainer.adamw.beta2)->check(fraction)->capture_default_str();
  // With 0, parameters whose gradient is 0 would become nan, as those of tokens that the text does not
  // have.
  app.add_option("--adam-eps", trainer.adamw.epsilon)->check(float_number(FLT_MIN))->capture_default_str();
  app.add_option("--clip-grad", trainer.clip_gradient_norm, "greatest gradient norm; 0: no clipping")
      ->check(not_negative)
      ->capture_default_str();
  app.add_option("--seed", trainer.seed, "of start values, sample order and generated text")
      ->check(not_below_zero())
      ->capture_default_str();
  app.add_option("--ddp-bucket-size", trainer.bucket_elements,
                 "gradients reduced by one operation, in elements")
      ->check(whole(1, int64_t{1} << 40))
      ->capture_default_str();
  app.add_flag(
      "--use-distributed-optimizer", trainer.shards.sharded,
      "ranks that hold the same layers keep AdamW's moments once: each has a shard of its own, and updates "
      "that (ZeRO-1)");
  app.add_option(
         "--optimizer-shard-weights", trainer.shards.weights,
         "w0 w1 ...: a weight for each rank, such as the memory that it has left: shards are as large in "
         "proportion; 0: none (default: all alike)")
      ->type_name("W ...")
      ->check(number(0, kMostWeight))
      ->trigger_on_parse();
  app.add_option("--check-weights", flags.check_weights,
                 "every so many steps, compare the parameters of all replicas to the last bit; a difference "
                 "ends the run with its tensor, rank and step. 0: never")
      ->type_name("STEPS")
      ->check(whole(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "threads of a torch operation, of the norm and of the update")
      ->check(whole(1, 1024))
      ->capture_default_str();
}

// Flags of the data and of the outputs.
void add_data_and_reports(CLI::App& app, TrainFlags& flags, RawFlags& raw) {
  auto* data = app.add_option_group("data", "what to train on (one of them)");
  data->add_option("--data-path", raw.data_path,
                   "a Megatron dataset, PREFIX.bin and PREFIX.idx; or several, each after its weight: W0 "
                   "PREFIX0 W1 PREFIX1 ...")
      ->type_name("[W] PREFIX ...")
      ->check(path_name())
      ->trigger_on_parse();
  data->add_option("--text", flags.text, "a text file")->type_name("FILE")->check(path_name());
  add_tokenizer_flags(app, flags.tokenizer_choice, training::tokenizer_types());
  add_document_flags(app, flags);
  // Not required by CLI11, because profiling needs no data; beyond_ranges() checks it.
  data->require_option(0, 1);
  app.add_option("--distributed-timeout-minutes", flags.timeout_minutes,
                 "minutes for all ranks to join, and then for each operation among them (default: "
                 "$HDT_TIMEOUT_MS, or 10)")
      ->check(whole(1, 10'000));
  app.add_option("--log-interval", flags.log_interval, "steps between progress lines when not on a terminal")
      ->check(whole(1, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--tensorboard-dir", flags.tensorboard_dir, "write TensorBoard events there, each step")
      ->type_name("DIR")
      ->check(path_name());
  app.add_option("--loss-curve", flags.loss_curve,
                 "draw the loss there at the end (SVG, by gnuplot), with the data in FILE.gnuplot")
      ->type_name("FILE")
      ->check(path_name());
  app.add_option("--loss-log", flags.loss_log,
                 "write a JSON line a step, in full precision, as the step ends")
      ->type_name("FILE")
      ->check(path_name());
  app.add_option("--sample-tokens", flags.sample_tokens, "tokens to generate from the trained model; 0: none")
      ->check(whole(0, kMost))
      ->capture_default_str();
  app.add_option("--sample-prompt", flags.sample_prompt, "what the generated text continues")
      ->capture_default_str();
  app.add_option("--sample-temperature", flags.sampling.temperature, "0: always the likeliest token")
      ->check(number(0, 100))
      ->capture_default_str();
  app.add_option("--sample-top-k", flags.sampling.top_k,
                 "draw from so many of the likeliest tokens; 0: from all")
      ->check(whole(0, kMost))
      ->capture_default_str();
  app.add_option("--sample-top-p", flags.sampling.top_p,
                 "draw from the likeliest tokens, as few as have together this probability (after "
                 "--sample-top-k); 0 or 1: from all")
      ->check(number(0, 1))
      ->capture_default_str();
}

// Flags of the evaluation, in Megatron's names.
void add_evaluation(CLI::App& app, TrainFlags& flags, RawFlags& raw) {
  app.add_option_function<std::string>(
         "--split",
         [&flags](const std::string& text) {
           const Result<training::DataSplit> split = training::parse_data_split(text);
           if (!split.is_ok()) throw CLI::ValidationError("--split", split.status().message());
           flags.split = split.value();
           flags.has_split = true;
         },
         "T,V,E: how the data is divided into training, validation and test, such as 969,30,1 (default: all "
         "is trained on). The borders are between documents; data of one document is cut at tokens")
      ->type_name("W,W,W");
  app.add_option("--eval-interval", raw.eval_interval,
                 "steps between two evaluations on the validation part; there is one at the end, too "
                 "(default: 1000)")
      ->check(whole(1, 1'000'000'000));
  app.add_option("--eval-iters", raw.eval_iters,
                 "batches of an evaluation, at most those of the part; 0: none (default: 100)")
      ->check(whole(0, 1'000'000'000));
}

// Emulated devices, and profiling.
void add_devices(CLI::App& app, TrainFlags& flags, RawFlags& raw) {
  app.add_option(
         "--slow-down", raw.slow_down,
         "n0 f0 n1 f1 ...: emulates slow devices: the first n0 ranks compute f0 times slower, the next n1 f1 "
         "times (they sleep after each piece of work)")
      ->type_name("N F ...")
      ->trigger_on_parse();
  app.add_option("--profile", flags.profile_folder,
                 "measure this machine for hdt-plan instead of training; writes DIR/profile.toml and "
                 "DIR/model.toml. Two ranks or more measure links, too")
      ->type_name("DIR")
      ->check(path_name());
  app.add_option("--profile-device", raw.profile_devices,
                 "a device to profile: a name, or NAME:F for this machine slowed down F times (default: cpu)")
      ->type_name("NAME[:F] ...")
      ->trigger_on_parse();
  app.add_option("--profile-micro-batch-sizes", flags.profile_micro_batch_sizes,
                 "samples of a micro-batch to measure (default: 1 2 4 8)")
      ->check(whole(1, kMost))
      ->trigger_on_parse();
}

constexpr double kMostSlowDown = 10'000;

// "n0 f0 n1 f1 ..." becomes one factor for each rank. Returns "" or what is wrong.
std::string read_slow_down(const std::vector<double>& raw, TrainFlags& flags) {
  if (raw.size() % 2 != 0) return "--slow-down: expected pairs of a number of ranks and a factor";
  for (size_t i = 0; i < raw.size(); i += 2) {
    const double ranks = raw[i];
    // CLI11 has parsed both sorts of numbers as floating ones; the comparisons refuse nan too.
    if (!(ranks >= 1 && ranks <= kMost && ranks == std::floor(ranks)))
      return fmt::format("--slow-down: {} given, expected a number of ranks", ranks);
    if (!(raw[i + 1] >= 1 && raw[i + 1] <= kMostSlowDown))
      return fmt::format("--slow-down: factor {} given, expected 1 to {}", raw[i + 1], kMostSlowDown);
    flags.slow_down.insert(flags.slow_down.end(), static_cast<size_t>(ranks), raw[i + 1]);
  }
  return "";
}

// "NAME" or "NAME:F" becomes an EmulatedDevice; fills in the defaults. Returns "" or what is wrong.
std::string read_devices(const std::vector<std::string>& raw, TrainFlags& flags) {
  for (const std::string& text : raw) {
    EmulatedDevice device{text, 1};
    // "NAME:F". Without a colon the device is this machine as it is.
    if (const size_t colon = text.find(':'); colon != std::string::npos) {
      const char* end = text.data() + text.size();
      const auto parsed = std::from_chars(text.data() + colon + 1, end, device.slow_down);
      if (parsed.ec != std::errc() || parsed.ptr != end ||
          !(device.slow_down >= 1 && device.slow_down <= kMostSlowDown))
        return fmt::format("--profile-device: '{}' given, expected NAME or NAME:F with F from 1 to {}", text,
                           kMostSlowDown);
      device.name = text.substr(0, colon);
    }
    const bool twice = std::ranges::count(flags.profile_devices, device.name, &EmulatedDevice::name) > 0;
    if (device.name.empty() || twice)
      return fmt::format("--profile-device: '{}' given, expected a name that is not empty, once", text);
    flags.profile_devices.push_back(device);
  }
  if (flags.profile_devices.empty()) flags.profile_devices.push_back({"cpu", 1});
  if (flags.profile_micro_batch_sizes.empty()) flags.profile_micro_batch_sizes = {1, 2, 4, 8};
  return "";
}

// Whether any device is emulated.
bool slows_down(const TrainFlags& flags) {
  return !flags.slow_down.empty() ||
         std::ranges::any_of(flags.profile_devices, [](const auto& device) { return device.slow_down > 1; });
}

// "PREFIX" or "W0 PREFIX0 W1 PREFIX1 ...". Returns "" or what is wrong.
std::string read_data_path(const RawFlags& raw, TrainFlags& flags) {
  const std::vector<std::string>& words = raw.data_path;
  if (words.size() == 1) flags.data_paths.push_back({1, words[0]});
  if (words.size() <= 1) return "";
  if (words.size() % 2 != 0)
    return fmt::format("--data-path: {} words given, expected one prefix, or a weight before each prefix",
                       words.size());
  for (size_t i = 0; i < words.size(); i += 2) {
    double weight = 0;
    const char* end = words[i].data() + words[i].size();
    const auto parsed = std::from_chars(words[i].data(), end, weight);
    if (parsed.ec != std::errc() || parsed.ptr != end || !(weight > 0 && weight <= 1e9))
      return fmt::format("--data-path: '{}' given before {}, expected a weight above 0", words[i],
                         words[i + 1]);
    flags.data_paths.push_back({weight, words[i + 1]});
  }
  return "";
}

// SentencePiece cannot be in one process with libtorch.
Result<std::unique_ptr<training::Tokenizer>> open_by_hdt_data(const training::TokenizerChoice& choice) {
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Status(Code::kSystem, "/proc/self/exe: " + error.message());
  return training::start_tokenizer({here.parent_path() / "hdt-data", "tokenize", "--tokenizer-type",
                                    choice.type, "--tokenizer-model", choice.model});
}

// Opens the tokenizer, and takes the vocabulary from it unless that is given. Returns "" or what is wrong.
std::string read_tokenizer(bool has_vocabulary, TrainFlags& flags) {
  Result<std::unique_ptr<training::Tokenizer>> opened =
      training::open_tokenizer(flags.tokenizer_choice, open_by_hdt_data);
  if (!opened.is_ok()) return opened.status().message();
  flags.tokenizer = opened.take();
  if (!has_vocabulary) flags.shape.vocab_size = flags.tokenizer->vocab_size();
  return take_document_flags(flags);
}

// Evaluation needs data that is not trained on. Returns "" or what is wrong.
std::string read_evaluation(const RawFlags& raw, TrainFlags& flags) {
  if (!flags.has_split && (raw.eval_interval || raw.eval_iters))
    return "--eval-interval and --eval-iters: expected --split, which sets data aside for them, found none";
  flags.eval_interval = raw.eval_interval.value_or(flags.eval_interval);
  flags.eval_iters = raw.eval_iters.value_or(flags.eval_iters);
  return "";
}

// Checks of flags against each other. Returns "" or what is wrong.
std::string beyond_ranges(const TrainFlags& flags) {
  if (std::string problem = training::check_shape(flags.shape); !problem.empty()) return problem;
  if (!flags.trainer.shards.sharded && !flags.trainer.shards.weights.empty())
    return "--optimizer-shard-weights: expected --use-distributed-optimizer, found none";
  if (flags.save.empty() && (flags.save_interval > 0 || flags.keep_checkpoints > 0))
    return "--save-interval and --keep-checkpoints: expected --save, found none";
  if (flags.elastic && (!flags.profile_folder.empty() || !flags.emulate.profile.empty()))
    return "--elastic: expected training, found --profile or --emulate, which have nothing to go on from";
  if (flags.elastic && (flags.save.empty() || flags.save_interval == 0))
    return "--elastic: expected --save and --save-interval, as the ranks that are left go on from the last "
           "checkpoint, found none";
  if (flags.load.empty() && flags.exit_on_missing_checkpoint)
    return "--exit-on-missing-checkpoint: expected --load, found none";
  if (flags.profile_folder.empty() && flags.emulate.profile.empty() && flags.data_paths.empty() &&
      flags.text.empty())
    return "--data-path or --text: expected one of them, found none";
  // Slowing down looks at the processor time of one thread; work on further threads would not be seen.
  if (flags.threads > 1 && slows_down(flags))
    return fmt::format("--threads {}: expected 1 where devices are slowed down", flags.threads);
  if (flags.sample_tokens > 0 && flags.sample_prompt.empty())
    return "--sample-prompt: expected some text, found none";
  return files_in_each_others_way(flags);
}

// One line on standard error; returns the exit status.
int usage_error(std::string message) {
  std::ranges::replace(message, '\n', ' ');
  fmt::print(stderr, "hdt-train: {} (see hdt-train --help)\n", message);
  return 2;
}

}  // namespace

ParsedFlags parse_flags(int argc, char** argv) {
  ParsedFlags parsed;
  TrainFlags& flags = parsed.flags;
  flags.trainer.seed = 1234;
  flags.trainer.learning_rate.peak = 3e-3;

  CLI::App app(
      "Trains a language model (LLaMA or GPT-2), in one process or split over the ranks of a job (mpirun, "
      "srun, "
      "torchrun) "
      "into replicas and pipeline stages of unequal sizes.");
  app.footer(kExamples);
  last_one_counts(app);
  RawFlags raw;
  ModelFlags model;
  add_model(app, flags, model);
  add_layout(app, flags);
  RecomputeFlags recompute;
  add_recomputation(app, recompute);
  LearningRateFlags rate;
  add_learning_rate(app, flags, rate);
  add_optimizer(app, flags);
  NumberFlags numbers;
  add_numbers(app, flags, numbers);
  add_data_and_reports(app, flags, raw);
  add_evaluation(app, flags, raw);
  add_checkpoints(app, flags);
  add_devices(app, flags, raw);
  add_emulation(app, flags);
  add_acceleration(app, flags);
  MegatronFlags megatron;
  add_megatron_flags(app, megatron);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    parsed.exit_status = app.exit(help);
    return parsed;
  } catch (const CLI::ParseError& error) {
    parsed.exit_status = usage_error(error.what());
    return parsed;
  }
  // The plan comes before the defaults, which fill in only what it leaves open; and before the model, whose
  // layers it knows.
  Status taken = flags.plan_path.empty() ? Status::ok() : take_plan(app, flags);
  if (taken.is_ok()) taken = take_model(app, model, flags);
  if (taken.is_ok()) taken = take_recomputation(recompute, flags);
  if (taken.is_ok()) taken = take_learning_rate(rate, flags);
  if (taken.is_ok()) taken = take_megatron_flags(megatron, flags);
  if (taken.is_ok()) taken = take_numbers(app, numbers, flags);
  if (taken.is_ok() && flags.plan)
    flags.trainer.bucket_elements = bucket_elements(*flags.plan, flags.trainer.gradients);
  if (taken.is_ok()) taken = take_emulation(app, flags);
  if (taken.is_ok()) taken = take_acceleration(flags);
  if (!taken.is_ok()) {
    parsed.exit_status = usage_error(taken.message());
    return parsed;
  }
  // The default of 8 samples applies if neither form of the flag was given.
  if (!flags.layout.micro_batch_size && flags.layout.micro_batch_size_per_dp.empty())
    flags.layout.micro_batch_size = 8;
  const bool has_vocabulary =
      app.count("--vocab-size") > 0 || !flags.load_hf.empty() || !model.config.empty();
  // All run, and the first problem is reported.
  for (const std::string& problem :
       {read_slow_down(raw.slow_down, flags), read_devices(raw.profile_devices, flags),
        read_tokenizer(has_vocabulary, flags), read_data_path(raw, flags), read_evaluation(raw, flags)}) {
    if (!problem.empty()) {
      parsed.exit_status = usage_error(problem);
      return parsed;
    }
  }
  if (const std::string problem = beyond_ranges(flags); !problem.empty())
    parsed.exit_status = usage_error(problem);
  return parsed;
}

Status check_slow_down(const TrainFlags& flags, int world_size) {
  if (flags.slow_down.empty() || static_cast<int>(flags.slow_down.size()) == world_size) return Status::ok();
  return {Code::kInvalidArgument, fmt::format("--slow-down: for {} ranks, expected the {} of the job",
                                              flags.slow_down.size(), world_size)};
}

}  // namespace hdt::tools
