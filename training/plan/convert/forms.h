// forms.h: the forms that a layout has in this and in other frameworks, and the way from one to another.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "training/plan/convert/megatron_form.h"
#include "training/plan/convert/strategy.h"

namespace hdt::plan {

enum class Form { kToml, kMegatronFork, kMegatronLayout, kFlagScale };

struct FormName {
  Form form;
  const char* name;
};
inline constexpr FormName kForms[] = {{Form::kToml, "toml"},
                                      {Form::kMegatronFork, "megatron-fork"},
                                      {Form::kMegatronLayout, "megatron-layout"},
                                      {Form::kFlagScale, "flagscale"}};

// The name of a form: one of kForms.
const char* form_name(Form form);

// Reads a text of flags: a script, or words of a script. A text of kMegatronLayout without any flag is the
// layout string itself, and one of kFlagScale may be a YAML file. `words` are flags of a command line that
// count after those of the text. Not for kToml.
Result<Warned<Strategy>> read_flag_form(Form form, std::string_view text, std::span<const std::string> words,
                                        const FormContext& context);

// Reads a file, or for other forms than kToml only `words` if the path is empty. Errors begin with the path.
Result<Warned<Strategy>> read_form(Form form, const std::string& path, std::span<const std::string> words,
                                   const FormContext& context);

// The text of the form, with an end of line. kConfig with the reason if the form cannot say it.
Result<Warned<std::string>> write_form(Form form, const Strategy& strategy);

}  // namespace hdt::plan
