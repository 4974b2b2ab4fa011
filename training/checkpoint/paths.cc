// paths.cc: names are made and read in one place.
#include "training/checkpoint/paths.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/whole_number.h"

namespace hdt::training {
namespace {

constexpr std::string_view kIteration = "iter_";
constexpr size_t kStepDigits = 7;
constexpr size_t kMostFileName = 255;

}  // namespace

std::string iteration_name(int64_t step) { return fmt::format("{}{:0{}}", kIteration, step, kStepDigits); }

std::optional<int64_t> step_of_iteration(std::string_view name) {
  if (!name.starts_with(kIteration)) return std::nullopt;
  const auto step = whole_number<int64_t>(name.substr(kIteration.size()));
  // Only the form that is written: "iter_5" and "iter_-000005" are somebody else's.
  if (!step || *step < 0 || iteration_name(*step) != name) return std::nullopt;
  return step;
}

std::string hidden_folder(const std::string& save, int64_t step, const char* suffix) {
  return fmt::format("{}/.{}{}", save, iteration_name(step), suffix);
}

bool is_shard_file_name(std::string_view name) {
  return !name.empty() && name.size() <= kMostFileName && name.front() != '.' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                  c == '_' || c == '.';
         });
}

std::string shard_name(std::string_view kind, size_t number, size_t count) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", kind, number, count);
}

std::string unpublished_shard_name(std::string_view kind, int rank) {
  return fmt::format("{}.rank-{:05}.safetensors", kind, rank);
}

}  // namespace hdt::training
