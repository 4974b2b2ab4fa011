// forms.cc: finds the reader and the writer of a form.
#include "training/plan/convert/forms.h"

#include <fmt/format.h>

#include <algorithm>

#include "training/data/mapped_file.h"
#include "training/plan/convert/flagscale_form.h"
#include "training/plan/convert/yaml_values.h"
#include "training/plan/describe/refuse.h"
#include "training/plan/describe/toml_files.h"

namespace hdt::plan {
namespace {

// Without blanks at its ends.
std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

const char* form_name(Form form) { return std::ranges::find(kForms, form, &FormName::form)->name; }

Result<Warned<Strategy>> read_flag_form(Form form, std::string_view text, std::span<const std::string> words,
                                        const FormContext& context) {
  FlagValues values;
  if (form == Form::kMegatronLayout && !trimmed(text).empty() && text.find("--") == std::string_view::npos) {
    values.set("--pipeline-model-parallel-layout", {std::string(trimmed(text))});
  } else {
    // A script has the flag's name, and a YAML file that of the key.
    const bool yaml = form == Form::kFlagScale &&
                      text.find("hetero_process_meshes") != std::string_view::npos &&
                      text.find("--hetero-process-meshes") == std::string_view::npos;
    Result<FlagValues> read = yaml ? yaml_values(text) : FlagValues::of_script(text);
    if (!read.is_ok()) return read.status();
    values = read.take();
  }
  const Result<FlagValues> more = FlagValues::of_words(words);
  if (!more.is_ok()) return more.status();
  values.append(more.value());
  switch (form) {
    case Form::kMegatronFork:
      return read_fork(values, context);
    case Form::kMegatronLayout:
      return read_megatron_layout(values, context);
    case Form::kFlagScale:
      return read_flagscale(values, context);
    case Form::kToml:
      break;
  }
  return Status(Code::kInvalidArgument, "toml is no form of flags");
}

Result<Warned<Strategy>> read_form(Form form, const std::string& path, std::span<const std::string> words,
                                   const FormContext& context) {
  const auto in_file = [&path](const Status& status) {
    return path.empty() ? status : Status(status.code(), path + ": " + status.message());
  };
  if (form == Form::kToml) {
    if (path.empty()) return refuse("--from toml", "no file given");
    if (!words.empty()) return refuse("--from toml", "takes no flags behind --");
    const Result<Plan> plan = read_plan(path);
    if (!plan.is_ok()) return plan.status();
    Result<Warned<Strategy>> read = strategy_of_plan(plan.value(), context.cluster);
    return read.is_ok() ? std::move(read) : in_file(read.status());
  }
  if (path.empty()) return read_flag_form(form, "", words, context);
  const auto file = training::MappedFile::open(path);
  if (!file.is_ok()) return in_file(file.status());
  const auto bytes = file.value().bytes();
  Result<Warned<Strategy>> read = read_flag_form(
      form, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), words, context);
  return read.is_ok() ? std::move(read) : in_file(read.status());
}

Result<Warned<std::string>> write_form(Form form, const Strategy& strategy) {
  switch (form) {
    case Form::kMegatronFork:
      return write_fork(strategy);
    case Form::kMegatronLayout:
      return write_megatron_layout(strategy);
    case Form::kFlagScale:
      return write_flagscale(strategy);
    case Form::kToml:
      break;
  }
  const Result<Plan> plan = plan_of_strategy(strategy);
  if (!plan.is_ok()) return plan.status();
  return Warned<std::string>{to_toml(plan.value())};
}

}  // namespace hdt::plan
