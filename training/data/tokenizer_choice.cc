// tokenizer_choice.cc: reads vocabularies and merges of GPT-2, and tokenizer.json of Hugging Face's
// library. The files are foreign. A feature that is not known is refused by its name: its text would become
// other tokens unnoticed.
#include "training/data/tokenizer_choice.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "training/data/bpe_tokenizer.h"
#include "training/data/mapped_file.h"

namespace hdt::training {
namespace {

using nlohmann::json;

constexpr size_t kMostFileBytes = size_t{256} << 20U;

Status refuse(std::string why) { return {Code::kInvalidArgument, std::move(why)}; }

// A copy of the file.
Result<std::string> read_file(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file.is_ok()) return file.status();
  if (file.value().size() > kMostFileBytes)
    return refuse(
        fmt::format("{} has {} bytes, expected at most {}", path, file.value().size(), kMostFileBytes));
  return std::string(reinterpret_cast<const char*>(file.value().data()), file.value().size());
}

Result<json> read_json(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.is_ok()) return text.status();
  json parsed = json::parse(text.value(), nullptr, false);
  if (parsed.is_discarded()) return refuse(path + " is no JSON");
  return parsed;
}

// {"token": number, ...}
Result<std::map<std::string, int64_t>> read_vocabulary(const json& object) {
  if (!object.is_object()) return refuse("the vocabulary is no object of tokens and numbers");
  std::map<std::string, int64_t> vocabulary;
  for (const auto& [token, id] : object.items()) {
    if (!id.is_number_integer()) return refuse(fmt::format("token '{}' has no whole number", token));
    vocabulary[token] = id.get<int64_t>();
  }
  return vocabulary;
}

// "left right"
Result<std::pair<std::string, std::string>> read_merge(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string_view::npos)
    return refuse(fmt::format("'{}', expected two tokens with a space between them", line));
  return std::pair(std::string(line.substr(0, space)), std::string(line.substr(space + 1)));
}

Result<std::unique_ptr<Tokenizer>> open_gpt2(const TokenizerChoice& choice) {
  if (choice.vocab_file.empty() || choice.merge_file.empty())
    return refuse("--tokenizer-type GPT2BPETokenizer: expected --vocab-file and --merge-file");
  const auto named = [](const char* flag, const std::string& path, const Status& status) {
    return Status(status.code(), fmt::format("{} {}: {}", flag, path, status.message()));
  };
  BpeParts parts;
  const Result<json> vocabulary = read_json(choice.vocab_file);
  if (!vocabulary.is_ok()) return named("--vocab-file", choice.vocab_file, vocabulary.status());
  auto tokens = read_vocabulary(vocabulary.value());
  if (!tokens.is_ok()) return named("--vocab-file", choice.vocab_file, tokens.status());
  parts.vocabulary = tokens.take();
  const Result<std::string> merges = read_file(choice.merge_file);
  if (!merges.is_ok()) return named("--merge-file", choice.merge_file, merges.status());
  size_t number = 0;
  for (std::string_view rest = merges.value(); !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    auto merge = read_merge(line);
    if (!merge.is_ok())
      return refuse(
          fmt::format("--merge-file {}: line {}: {}", choice.merge_file, number, merge.status().message()));
    parts.merges.push_back(merge.take());
  }
  if (const auto end = parts.vocabulary.find("<|endoftext|>"); end != parts.vocabulary.end())
    parts.end_of_document = end->second;
  Result<TextPattern> pattern = TextPattern::compile(kGpt2Pattern);
  if (!pattern.is_ok()) return pattern.status();
  parts.patterns.push_back(pattern.take());
  auto made = BpeTokenizer::create(std::move(parts));
  if (!made.is_ok()) return named("--vocab-file", choice.vocab_file, made.status());
  return made;
}

// Whether a key is absent, null, false, empty or 0: a feature that is not used.
bool is_unused(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return true;
  if (found->is_boolean()) return !found->get<bool>();
  if (found->is_string()) return found->get<std::string>().empty();
  return found->is_number() && found->get<double>() == 0;
}

std::string type_of(const json& object) {
  if (!object.is_object()) return "";
  const auto found = object.find("type");
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// One step of the pre-tokenizer.
Status add_step(const json& step, BpeParts& parts) {
  const std::string type = type_of(step);
  std::string expression;
  if (type == "ByteLevel") {
    parts.space_before = parts.space_before || !is_unused(step, "add_prefix_space");
    if (parts.space_before && !parts.patterns.empty())
      return refuse("pre_tokenizer: add_prefix_space after another step is not known here");
    if (step.contains("use_regex") && is_unused(step, "use_regex")) return Status::ok();
    expression = kGpt2Pattern;
  } else if (type == "Split") {
    const auto pattern = step.find("pattern");
    if (pattern == step.end() || !pattern->is_object() || !pattern->contains("Regex") ||
        !pattern->at("Regex").is_string() || step.value("behavior", json()) != "Isolated" ||
        !is_unused(step, "invert"))
      return refuse("pre_tokenizer: Split other than by a Regex, Isolated, is not known here");
    expression = pattern->at("Regex").get<std::string>();
  } else {
    return refuse(fmt::format("pre_tokenizer '{}' is not known here, expected ByteLevel or Split", type));
  }
  Result<TextPattern> compiled = TextPattern::compile(expression);
  if (!compiled.is_ok()) return compiled.status();
  parts.patterns.push_back(compiled.take());
  return Status::ok();
}

Status add_pre_tokenizer(const json& file, BpeParts& parts) {
  const json steps = file.value("pre_tokenizer", json());
  if (type_of(steps) != "Sequence") return add_step(steps, parts);
  const auto list = steps.find("pretokenizers");
  if (list == steps.end() || !list->is_array() || list->empty() || list->size() > 16)
    return refuse("pre_tokenizer: Sequence without 1 to 16 pretokenizers");
  for (const json& step : *list) HDT_RETURN_IF_ERROR(add_step(step, parts));
  // Without it bytes would not be characters of the vocabulary.
  if (type_of(list->back()) != "ByteLevel") return refuse("pre_tokenizer: expected ByteLevel at the end");
  return Status::ok();
}

Status add_model(const json& file, BpeParts& parts) {
  const json model = file.value("model", json());
  // Old files have no type.
  const std::string type = type_of(model);
  if (!model.is_object() || (type != "BPE" && model.contains("type")))
    return refuse(fmt::format("model '{}', expected BPE", type));
  for (const char* feature : {"dropout", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix"})
    if (!is_unused(model, feature)) return refuse(fmt::format("model: {} is not known here", feature));
  parts.whole_words_first = !is_unused(model, "ignore_merges");
  auto tokens = read_vocabulary(model.value("vocab", json()));
  if (!tokens.is_ok()) return tokens.status();
  parts.vocabulary = tokens.take();
  const json merges = model.value("merges", json());
  if (!merges.is_array()) return refuse("model: merges is no list");
  for (const json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      parts.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    if (!merge.is_string()) return refuse(fmt::format("merge {} is no pair", parts.merges.size() + 1));
    auto pair = read_merge(merge.get<std::string>());
    if (!pair.is_ok())
      return refuse(fmt::format("merge {}: {}", parts.merges.size() + 1, pair.status().message()));
    parts.merges.push_back(pair.take());
  }
  return Status::ok();
}

Status add_added_tokens(const json& file, BpeParts& parts) {
  const json added = file.value("added_tokens", json::array());
  if (!added.is_array()) return refuse("added_tokens is no list");
  for (const json& token : added) {
    if (!token.is_object() || !token.value("id", json()).is_number_integer() ||
        !token.value("content", json()).is_string())
      return refuse("added_tokens: expected an id and a content for each");
    const std::string content = token.at("content").get<std::string>();
    for (const char* feature : {"lstrip", "rstrip", "single_word"})
      if (!is_unused(token, feature))
        return refuse(fmt::format("added token '{}': {} is not known here", content, feature));
    parts.added_tokens.emplace_back(content, token.at("id").get<int64_t>());
  }
  return Status::ok();
}

// The token that a folder's tokenizer_config.json names, or one that is commonly used.
Status find_end(const std::string& folder, BpeParts& parts) {
  std::vector<std::string> names = {"<|endoftext|>", "<|end_of_text|>", "</s>"};
  const std::string path = folder + "/tokenizer_config.json";
  if (!folder.empty() && std::filesystem::exists(path)) {
    const Result<json> config = read_json(path);
    if (!config.is_ok()) return config.status();
    json end = config.value().is_object() ? config.value().value("eos_token", json()) : json();
    if (end.is_object()) end = end.value("content", json());
    if (end.is_string()) names.insert(names.begin(), end.get<std::string>());
  }
  for (const std::string& name : names) {
    for (const auto& [content, id] : parts.added_tokens) {
      if (content != name) continue;
      parts.end_of_document = id;
      return Status::ok();
    }
  }
  return Status::ok();
}

Result<std::unique_ptr<Tokenizer>> open_hugging_face(const TokenizerChoice& choice) {
  if (choice.model.empty())
    return refuse("--tokenizer-type HuggingFaceTokenizer: expected --tokenizer-model, a folder or a file");
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(choice.model, ignored);
  const std::string path = is_folder ? choice.model + "/tokenizer.json" : choice.model;
  const auto read = [&]() -> Result<std::unique_ptr<Tokenizer>> {
    const Result<json> file = read_json(path);
    if (!file.is_ok()) return file.status();
    if (!file.value().is_object()) return refuse("expected an object");
    BpeParts parts;
    HDT_RETURN_IF_ERROR(add_model(file.value(), parts));
    if (!is_unused(file.value(), "normalizer")) {
      return refuse(fmt::format("normalizer '{}' is not known here, expected none",
                                type_of(file.value().at("normalizer"))));
    }
    HDT_RETURN_IF_ERROR(add_pre_tokenizer(file.value(), parts));
    HDT_RETURN_IF_ERROR(add_added_tokens(file.value(), parts));
    HDT_RETURN_IF_ERROR(find_end(is_folder ? choice.model : "", parts));
    return BpeTokenizer::create(std::move(parts));
  };
  auto made = read();
  if (!made.is_ok())
    return Status(made.status().code(),
                  fmt::format("--tokenizer-model {}: {}", path, made.status().message()));
  return made;
}

}  // namespace

const char* tokenizer_types() {
  return "bytes, GPT2BPETokenizer, SentencePieceTokenizer, Llama2Tokenizer or HuggingFaceTokenizer";
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const TokenizerChoice& choice,
                                                  OpenSentencePiece open_sentencepiece) {
  const bool gpt2 = choice.type == "GPT2BPETokenizer";
  if (!gpt2 && !(choice.vocab_file.empty() && choice.merge_file.empty()))
    return refuse("--vocab-file and --merge-file: expected --tokenizer-type GPT2BPETokenizer");
  if ((gpt2 || choice.is_bytes()) && !choice.model.empty())
    return refuse(fmt::format("--tokenizer-model: --tokenizer-type {} has none", choice.type));
  if (gpt2) return open_gpt2(choice);
  if (choice.is_bytes()) return make_byte_tokenizer();
  if (choice.type == "HuggingFaceTokenizer") return open_hugging_face(choice);
  if (choice.type == "SentencePieceTokenizer" || choice.is_llama2()) {
    if (choice.model.empty())
      return refuse(
          fmt::format("--tokenizer-type {}: expected --tokenizer-model, a .model file", choice.type));
    auto made = open_sentencepiece(choice);
    if (!made.is_ok())
      return Status(made.status().code(),
                    fmt::format("--tokenizer-model {}: {}", choice.model, made.status().message()));
    return made;
  }
  return refuse(fmt::format("--tokenizer-type: '{}' given, expected {}", choice.type, tokenizer_types()));
}

}  // namespace hdt::training
