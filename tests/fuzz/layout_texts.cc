// layout_texts.cc: layouts as other frameworks write them: Megatron's layout string (training/engine), and
// scripts with flags of SynerFuse, Megatron and FlagScale (training/plan/convert). The first byte says which,
// the second one the number of ranks, and whether there is a cluster.
#include <iterator>
#include <string>

#include "tests/fuzz/target.h"
#include "training/engine/layout_string.h"
#include "training/plan/convert/forms.h"

namespace hdt::fuzz_layout_texts {

using fuzz::Bytes;
using fuzz::Choices;

bool take_string(const std::string& text) {
  const auto stages = training::parse_layout_string(text);
  if (!stages.is_ok()) {
    HDT_HOLDS(stages.status().code() == Code::kInvalidArgument && !stages.status().message().empty());
    return false;
  }
  // The first stage may have the embedding alone, and the last one the head.
  const std::vector<int>& layers = stages.value();
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool is_end = i == 0 || i + 1 == layers.size();
    HDT_HOLDS(layers[i] >= (is_end && layers.size() > 1 ? 0 : 1));
  }
  const std::string written = training::layout_string(stages.value());
  const auto again = training::parse_layout_string(written);
  HDT_HOLDS(again.is_ok() && again.value() == stages.value());
  return true;
}

// Each form that can say a strategy gives it back.
void check(const plan::Strategy& strategy) {
  const training::Layout& layout = strategy.layout;
  HDT_HOLDS(layout.world_size() >= 1 && layout.world_size() <= 65'536);
  HDT_HOLDS(strategy.workers.size() == static_cast<size_t>(layout.num_replicas()));
  for (int r = 0; r < layout.num_replicas(); ++r)
    HDT_HOLDS(strategy.workers[static_cast<size_t>(r)].size() ==
              static_cast<size_t>(layout.replica(r).stages()));
  for (const auto& [form, name] : plan::kForms) {
    const auto written = plan::write_form(form, strategy);
    HDT_HOLDS(written.is_ok() || !written.status().message().empty());
    if (!written.is_ok() || form == plan::Form::kToml) continue;
    plan::FormContext context;
    context.ranks = layout.world_size();
    const auto again = plan::read_flag_form(form, written.value().value, {}, context);
    if (!again.is_ok())
      std::fprintf(stderr, "%s\n%s\n", written.value().value.c_str(), again.status().message().c_str());
    HDT_HOLDS(again.is_ok() && again.value().value.layout.num_replicas() == layout.num_replicas());
    for (int r = 0; r < layout.num_replicas(); ++r) {
      const training::Replica& before = layout.replica(r);
      const training::Replica& after = again.value().value.layout.replica(r);
      HDT_HOLDS(before.stage_layers == after.stage_layers && before.chunks == after.chunks &&
                before.micro_batch_size == after.micro_batch_size &&
                before.num_micro_batches == after.num_micro_batches);
    }
  }
}

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  const auto kind = choices.get<uint8_t>() % 4;
  const auto job = choices.get<uint8_t>();
  const std::string text = fuzz::to_text(choices.rest());
  if (kind == 0) return take_string(text);
  static const plan::Cluster cluster = {
      {{"a", "A", 4, 1 << 20}, {"b", "B", 4, 1 << 20}, {"c", "A", 4, 1 << 20}, {"d", "B", 4, 1 << 20}}};
  plan::FormContext context;
  if ((job & 0x7f) > 0) context.ranks = job & 0x7f;
  if ((job & 0x80) != 0) context.cluster = &cluster;
  const auto read = plan::read_flag_form(plan::kForms[kind].form, text, {}, context);
  if (!read.is_ok()) {
    HDT_HOLDS((read.status().code() == Code::kInvalidArgument || read.status().code() == Code::kConfig) &&
              !read.status().message().empty());
    return false;
  }
  for (const std::string& warning : read.value().warnings) HDT_HOLDS(!warning.empty());
  check(read.value().value);
  return true;
}

// Kinds of inputs, as the first byte has them.
constexpr uint8_t kString = 0, kFork = 1, kLayout = 2, kFlagScale = 3;

Bytes seed(uint8_t kind, uint8_t job, const std::string& text) {
  Bytes bytes = fuzz::to_bytes(text);
  bytes.insert(bytes.begin(), {std::byte{kind}, std::byte{job}});
  return bytes;
}

std::vector<Bytes> seeds() {
  const std::string meshes =
      "--enable-hetero --hetero-device-types A B --micro-batch-size 1 --hetero-process-meshes ";
  return {
      seed(kString, 0, "E,t*3|(tt|)*29,tL"),
      seed(kString, 0, "Et(|t*2)*3,t|*1tL"),
      seed(kString, 0, "E|ttL"),
      seed(kString, 0, "Et|t|L"),
      seed(kFork, 3, "--hetero-pipeline-stages 3 0 4 0 --micro-batch-size 1"),
      seed(kFork, 6,
           "--hetero-pipeline-stages 1 6 2 1 1 --micro-batch-size 2 --global-batch-size 16 --lr $LR"),
      seed(kFork, 0x80, "--hetero-pipeline-stages 1 3 1 1 --micro-batch-size 1 --use-tp-pp-dp-mapping"),
      seed(kFork, 0,
           "A=(\n # none\n --num-layers=4 \\\n --micro-batch-size-per-dp 2 \"4\" 1 '2'\n)\n"
           "run ${A[@]} $(b) -x 1 --num-micro-batches-per-dp 2 3 1 2 --use-tp-pp-dp-mapping > log; c \\x\n"),
      seed(kFork, 0, "--num-layers 2 --micro-batch-size-per-dp 1 6 1 2"),
      seed(kFork, 0, "--num-layers 2 --micro-batch-size 1 --num-micro-batches-per-dp 1 4 1 4"),
      seed(kFork, 0, "--num-layers 2 --micro-batch-size-per-dp 2 2 --num-micro-batches-per-dp 1 4 1 2"),
      seed(kFork, 0,
           "--num-layers 2 --micro-batch-size-per-dp 1 1 2 1 --num-micro-batches-per-dp 1 1 1 2 1 3"),
      seed(kFork, 0,
           "--num-layers 2 --micro-batch-size-per-dp 1 1 1 1 1 1 --num-micro-batches-per-dp 1 1 1 2 1 3"),
      seed(kFork, 0, "--hetero-pipeline-stages 1 2 --hetero-pipeline-stages 2 1 1 --micro-batch-size 1"),
      seed(kFork, 0,
           "--hetero-pipeline-stages 2 1 1 --micro-batch-size-per-dp 1 1 1 2 --use-tp-pp-dp-mapping"),
      seed(kFork, 2,
           "--hetero-pipeline-stages 1 2 1 1 1 1 --num-virtual-stages-per-pipeline-rank 2 --micro-batch-size "
           "1"),
      seed(kFork, 4,
           "--num-layers 8 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 "
           "--micro-batch-size 1 --global-batch-size 4 --recompute-granularity full --recompute-method block "
           "--recompute-num-layers 3 --tensor-model-parallel-size 1"),
      seed(kFork, 1,
           "--num-layers 2 --micro-batch-size 1 --recompute-granularity full --recompute-method uniform"),
      seed(kFork, 1, "--num-layers 2 --micro-batch-size 1 --recompute-granularity selective"),
      seed(kLayout, 4,
           "--pipeline-model-parallel-layout 'Et*3|tt|tt|tL' --pipeline-model-parallel-size 2 "
           "--micro-batch-size 1 "
           "--global-batch-size 4"),
      seed(kFlagScale, 0, meshes + "1 1 1 2 1 1 1 1 2 1 --hetero-pipeline-layer-split 18 14"),
      seed(kFlagScale, 0x80, meshes + "1 1 1 2 1 1 1 1 2 1 --num-layers 4 --use-tp-pp-dp-mapping"),
      seed(kFlagScale, 0,
           "--hetero-process-meshes 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 --hetero-device-types A B A "
           "--num-layers 3 --micro-batch-size 1 --lr 1"),
      seed(
          kFlagScale, 0,
          "a:\n  hetero_process_meshes: [1, 1, 1, 2, 1, 1, 1, 1, 2, 1]\n  enable_hetero: True\n  seed: null\n"
          "  hetero_device_types: [\"A\", 'B']\nb: {num_layers: 4, micro_batch_size: 1, c: [[1], {d: 2}]}\n"
          "recompute_granularity: full\nrecompute_granularity_per_stage_micro_batch:\n  - [1, 2]\n"),
  };
}

std::vector<Bytes> spoilt() {
  const std::string job = "--num-layers 4 --micro-batch-size 1 ";
  const std::string meshes = "--hetero-device-types A --micro-batch-size 1 --hetero-process-meshes ";
  std::vector<Bytes> all;
  for (const char* text : {"",
                           "E",
                           "Et|x",
                           "Et \x01L",
                           "Et*3|m|L",
                           "tEL",
                           "EtLt",
                           "EtE",
                           "EtL*2",
                           "*3",
                           "Et*L",
                           "Et*0L",
                           "Et*2*3L",
                           "E(t)*2*3L",
                           "E(tt|",
                           "Ett)*2",
                           "E((t|)*2)*2L",
                           "E(tt)L",
                           "E()*2L",
                           "E|L",
                           "|EtL",
                           "Et||tL",
                           "EL",
                           "E(t*999999)*999999L",
                           "Et(|*1000000t)*1000000L"})
    all.push_back(seed(kString, 0, text));
  all.push_back(seed(kString, 0, "E" + std::string(65'536, 't')));
  for (const std::string& text : std::initializer_list<std::string>{
           "",
           "--num-layers",
           "--num-layers 1 2",
           "--num-layers x",
           "--num-layers $N",
           "--num-layers `n`",
           "'",
           "\"\\",
           "--num-layers 4",
           "--num-layers -1 --micro-batch-size 1",
           "--hetero-pipeline-stages",
           "--hetero-pipeline-stages 0 --micro-batch-size 1",
           "--hetero-pipeline-stages 2147483647 1 --micro-batch-size-per-dp 1 1",
           "--hetero-pipeline-stages 1 0 --micro-batch-size 1",
           job + "--tensor-model-parallel-size 2",
           job + "--context-parallel-size 2",
           job + "--rampup-batch-size 1",
           job + "--pipeline-model-parallel-layout EtL",
           job + "--pipeline-model-parallel-size 0",
           job + "--pipeline-model-parallel-size 3",
           job + "--micro-batch-size-per-dp 1 1",
           job + "--num-micro-batches-per-dp 1",
           job + "--num-micro-batches-per-dp 1 0",
           job + "--num-micro-batches-per-dp 1 1 --global-batch-size 3",
           job + "--global-batch-size 0",
           "--num-layers 1 --micro-batch-size 2 --global-batch-size 3",
           "--num-layers 1 --micro-batch-size-per-dp 2147483647 1",
           job + "--num-virtual-stages-per-pipeline-rank 3",
           job + "--num-virtual-stages-per-pipeline-rank 1 1",
           job + "--num-virtual-stages-per-pipeline-rank 0",
           job + "--num-virtual-stages-per-pipeline-rank 2 --num-layers-per-virtual-pipeline-stage 1",
           "--hetero-pipeline-stages 1 4 --hetero-pipeline-stages 1 3 --micro-batch-size 1",
           "--hetero-pipeline-stages 1 4 --pipeline-model-parallel-size 2 --micro-batch-size 1",
           "--num-layers 5 --hetero-pipeline-stages 1 4 --micro-batch-size 1"})
    all.push_back(seed(kFork, 1, text));
  all.push_back(seed(kFork, 0, job));
  all.push_back(seed(kFork, 1, "--hetero-pipeline-stages 3 1 --micro-batch-size 1"));
  all.push_back(seed(kFork, 2, "--num-layers 5 --pipeline-model-parallel-size 2 --micro-batch-size 1"));
  all.push_back(
      seed(kFork, 0, "--num-layers 1 --micro-batch-size-per-dp 2 1 --num-micro-batches-per-dp 1 1"));
  all.push_back(seed(kFork, 3, job + "--pipeline-model-parallel-size 2"));
  all.push_back(seed(kFork, 5, "--num-layers 1 --micro-batch-size-per-dp 3 1"));
  all.push_back(seed(kFork, 0x80, "--num-layers 1 --micro-batch-size-per-dp 99 1"));
  for (const char* text :
       {"EtL", "--micro-batch-size 1", "--hetero-pipeline-stages 1 4", "--pipeline-model-parallel-layout x",
        "--pipeline-model-parallel-layout EtL --num-layers 2 --micro-batch-size 1",
        "--pipeline-model-parallel-layout 'Et|t|tL' --pipeline-model-parallel-size 2 --micro-batch-size 1",
        "--pipeline-model-parallel-layout EtL --num-layers-per-virtual-pipeline-stage 1 --micro-batch-size 1",
        "--pipeline-model-parallel-layout 'E(t|)*900000tL' --pipeline-model-parallel-size 1 "
        "--micro-batch-size 1"})
    all.push_back(seed(kLayout, 2, text));
  for (const std::string& text : std::initializer_list<std::string>{
           "",
           meshes,
           meshes + "1",
           meshes + "2 1 1 1 1",
           meshes + "1 1 1 0 1",
           meshes + "1 1 1 1 1 1 1 1 2 1",
           meshes + "1 1 1 2147483647 2147483647",
           meshes + "1 1 1 1 2",
           meshes + "1 1 1 1 2 --num-layers 3",
           meshes + "1 1 1 1 2 --hetero-pipeline-layer-split 3",
           meshes + "1 1 1 1 2 --hetero-pipeline-layer-split 3 1 --num-layers 5",
           meshes + "1 1 1 1 2 --hetero-pipeline-layer-split 3 -1",
           meshes + "1 1 1 1 1 1 1 1 1 1 --num-layers 2",
           meshes + "1 1 1 1 1 --num-layers 2 --hetero-device-types ''",
           meshes + "1 1 1 1 1 --num-layers 2 --hetero-device-types $A",
           meshes + "1 1 1 1 1 --num-layers 2 --num-virtual-stages-per-pipeline-rank 2",
           "hetero_process_meshes",
           "hetero_process_meshes: [1",
           "hetero_process_meshes: *x",
           "a: 1\nhetero_process_meshes: {a: 1}",
           "hetero_process_meshes: []\nb: {hetero_process_meshes: []}",
           "? [hetero_process_meshes]\n: 1",
           "hetero_process_meshes: " + std::string(40, '[')})
    all.push_back(seed(kFlagScale, 0, text));
  all.push_back(seed(kFlagScale, 3, meshes + "1 1 1 1 1 --num-layers 2"));
  all.push_back(seed(kFlagScale, 0x80, meshes + "1 1 1 9 1 --num-layers 2"));
  return all;
}

HDT_FUZZ_TARGET(layout_texts, take, seeds, spoilt)

}  // namespace hdt::fuzz_layout_texts
