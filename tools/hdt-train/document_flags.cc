// document_flags.cc: documents end with a token of the tokenizer's.
#include "tools/hdt-train/document_flags.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace hdt::tools {

void add_document_flags(CLI::App& app, TrainFlags& flags) {
  app.add_flag("--eod-mask-loss", flags.eod_mask_loss,
               "leave out the loss of the token after the end of a document, which nothing before it tells");
  app.add_flag("--reset-position-ids", flags.reset_position_ids,
               "count positions from the beginning of each document, and not of the sample");
  app.add_flag("--reset-attention-mask", flags.reset_attention_mask,
               "let a token attend to those of its own document only");
}

std::string take_document_flags(TrainFlags& flags) {
  const std::pair<bool, const char*> wanted[] = {{flags.eod_mask_loss, "--eod-mask-loss"},
                                                 {flags.reset_position_ids, "--reset-position-ids"},
                                                 {flags.reset_attention_mask, "--reset-attention-mask"}};
  const std::optional<int64_t> end = flags.tokenizer->end_of_document();
  for (const auto& [given, flag] : wanted) {
    if (given && !end) return fmt::format("{}: this tokenizer has no token that ends a document", flag);
  }
  flags.shape.masked_after = flags.eod_mask_loss ? *end : -1;
  flags.shape.positions_reset_after = flags.reset_position_ids ? *end : -1;
  flags.shape.attention_reset_after = flags.reset_attention_mask ? *end : -1;
  return "";
}

std::string document_flags(const TrainFlags& flags) {
  std::string text;
  if (flags.eod_mask_loss) text += ", --eod-mask-loss";
  if (flags.reset_position_ids) text += ", --reset-position-ids";
  if (flags.reset_attention_mask) text += ", --reset-attention-mask";
  return text;
}

}  // namespace hdt::tools
