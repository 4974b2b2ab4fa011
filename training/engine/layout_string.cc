// layout_string.cc: the parser goes through the text once and never writes repetitions out as text. It
// refuses what Megatron's regular expressions would take for something that its writer cannot have meant: a
// repetition of a repetition, and parentheses in parentheses.
#include "training/engine/layout_string.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/whole_number.h"

namespace hdt::training {
namespace {

constexpr size_t kLongestText = 65'536;
// The limit of layers, of stages, and of one repetition.
constexpr int kMost = 1'000'000;

// The position is an index; messages count from 1.
Status refused(size_t position, const std::string& reason) {
  return {Code::kInvalidArgument, fmt::format("character {}: {}", position + 1, reason)};
}

// A letter or a border, so many times.
struct Item {
  char letter = 0;
  int times = 1;
  size_t position = 0;
};

// The stages so far.
class Stages {
 public:
  // Fails if the order of the model or a limit is broken.
  Status add(const Item& item) {
    switch (item.letter) {
      case '|':
        if (static_cast<int64_t>(layers_.size()) + item.times > kMost)
          return refused(item.position, fmt::format("more than {} stages", kMost));
        layers_.resize(layers_.size() + static_cast<size_t>(item.times));
        return Status::ok();
      case 'E':
        if (embedding_ || item.times > 1 || all_layers_ > 0)
          return refused(item.position, "expected one embedding E, before all layers");
        embedding_ = layers_.size() - 1;
        return Status::ok();
      case 'L':
        if (head_ || item.times > 1) return refused(item.position, "expected one loss L, behind all layers");
        head_ = layers_.size() - 1;
        return Status::ok();
      default:
        if (!embedding_ || head_)
          return refused(item.position, "a layer t, expected behind the embedding E and before the loss L");
        if (all_layers_ + item.times > kMost)
          return refused(item.position, fmt::format("more than {} layers", kMost));
        layers_.back() += item.times;
        all_layers_ += item.times;
        return Status::ok();
    }
  }

  // After the whole text.
  Result<std::vector<int>> take() && {
    const auto invalid = [](std::string message) {
      return Status(Code::kInvalidArgument, std::move(message));
    };
    if (!embedding_) return invalid("no embedding E, expected it at the beginning");
    if (!head_) return invalid("no loss L, expected it at the end");
    if (all_layers_ == 0) return invalid("no layer t, expected at least one");
    // The embedding may have a stage for itself, and so may the loss.
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (layers_[i] == 0 && embedding_ != i && head_ != i)
        return invalid(fmt::format("stage {} of {} holds nothing: leave it out", i + 1, layers_.size()));
    }
    return std::move(layers_);
  }

 private:
  std::vector<int> layers_ = {0};
  int64_t all_layers_ = 0;
  std::optional<size_t> embedding_, head_;  // the stages that hold them
};

// Walks over the text.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<std::vector<int>> run() && {
    while (!at_end()) {
      if (text_[at_] == '(') {
        HDT_RETURN_IF_ERROR(group());
        continue;
      }
      const Result<Item> item = next_item();
      if (!item.is_ok()) return item.status();
      HDT_RETURN_IF_ERROR(stages_.add(item.value()));
    }
    return std::move(stages_).take();
  }

 private:
  // Skips commas.
  bool at_end() {
    while (at_ < text_.size() && text_[at_] == ',') ++at_;
    return at_ == text_.size();
  }

  // "*n" if it comes next; otherwise 1.
  Result<int> times() {
    if (at_end() || text_[at_] != '*') return 1;
    const size_t star = at_++;
    at_end();
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    const std::string_view digits = text_.substr(begin, at_ - begin);
    if (digits.empty()) return refused(star, "'*', expected a number behind it");
    const std::optional<int> number = whole_number<int>(digits);
    if (!number || *number < 1 || *number > kMost)
      return refused(begin, fmt::format("{} times, expected 1 to {}", digits, kMost));
    if (!at_end() && text_[at_] == '*') return refused(at_, "a repetition of a repetition");
    return *number;
  }

  // A letter or a border.
  Result<Item> next_item() {
    Item item{text_[at_], 1, at_};
    switch (item.letter) {
      case 'E':
      case 'L':
      case 't':
      case '|':
        break;
      case 'm':
        return refused(at_, "m, a layer of multi-token prediction (MTP): HDT has none yet");
      case '*':
        return refused(at_, "'*', expected behind a layer, a '|' or a ')'");
      case '(':
        return refused(at_, "'(' between parentheses, which Megatron does not have");
      case ')':
        return refused(at_, "')' without a '('");
      default:
        // Foreign bytes are not printed as they are.
        return refused(at_, item.letter > ' ' && item.letter <= '~'
                                ? fmt::format("'{}', expected E, t, L, '|', '(', '*' or ','", item.letter)
                                : std::string("neither E, t, L, '|', '(', '*' nor ','"));
    }
    ++at_;
    const Result<int> repeated = times();
    if (!repeated.is_ok()) return repeated.status();
    item.times = repeated.value();
    return item;
  }

  // "(...)*n". Each round adds a layer or a border, so the limits end it.
  Status group() {
    const size_t begin = at_++;
    std::vector<Item> items;
    while (true) {
      if (at_end()) return refused(begin, "'(' without a ')'");
      if (text_[at_] == ')') break;
      Result<Item> item = next_item();
      if (!item.is_ok()) return item.status();
      items.push_back(item.value());
    }
    if (items.empty()) return refused(begin, "nothing between the parentheses");
    const size_t end = at_++;
    if (at_end() || text_[at_] != '*') return refused(end, "')', expected '*' and a number behind it");
    const Result<int> rounds = times();
    if (!rounds.is_ok()) return rounds.status();
    for (int i = 0; i < rounds.value(); ++i) {
      for (const Item& item : items) HDT_RETURN_IF_ERROR(stages_.add(item));
    }
    return Status::ok();
  }

  std::string_view text_;
  size_t at_ = 0;
  Stages stages_;
};

// "t", "tt", "t*3".
std::string layers_text(int layers) {
  return layers < 3 ? std::string(static_cast<size_t>(layers), 't') : fmt::format("t*{}", layers);
}

}  // namespace

Result<std::vector<int>> parse_layout_string(std::string_view text) {
  if (text.size() > kLongestText)
    return Status(Code::kInvalidArgument,
                  fmt::format("{} characters, expected at most {}", text.size(), kLongestText));
  return Parser(text).run();
}

std::string layout_string(std::span<const int> stage_layers) {
  std::string text = "E";
  const size_t last = stage_layers.size() - 1;
  for (size_t i = 0; i < last;) {
    size_t same = 1;
    // The first stage has the embedding, so it begins no row.
    while (i > 0 && i + same < last && stage_layers[i + same] == stage_layers[i]) ++same;
    const std::string stage = layers_text(stage_layers[i]) + "|";
    text += same > 1 ? fmt::format("({})*{}", stage, same) : stage;
    i += same;
  }
  return text + layers_text(stage_layers[last]) + "L";
}

}  // namespace hdt::training
