// sentencepiece_tokenizer.cc: the library behind the interface, or the message that it is missing.
#include "training/data/sentencepiece_tokenizer.h"

#ifdef HDT_HAVE_SENTENCEPIECE
#include <sentencepiece_processor.h>

#include "training/data/mapped_file.h"
#endif

namespace hdt::training {

#ifdef HDT_HAVE_SENTENCEPIECE
namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  Status load(std::string_view model, bool begins_texts) {
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok()) return {Code::kInvalidArgument, "no SentencePiece model: " + status.ToString()};
    begins_texts_ = begins_texts;
    if (begins_texts_ && processor_.bos_id() < 0)
      return {Code::kInvalidArgument, "no token that begins a text (BOS), which a Llama2Tokenizer has"};
    return Status::ok();
  }
  int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  std::optional<int64_t> end_of_document() const override {
    if (processor_.eos_id() < 0) return std::nullopt;
    return processor_.eos_id();
  }
  Result<std::vector<int64_t>> encode(std::string_view text) const override {
    std::vector<int> ids;
    if (const auto status = processor_.Encode(text, &ids); !status.ok())
      return Status(Code::kInvalidArgument, status.ToString());
    std::vector<int64_t> tokens(ids.begin(), ids.end());
    if (begins_texts_) tokens.insert(tokens.begin(), processor_.bos_id());
    return tokens;
  }
  std::string decode(std::span<const int64_t> tokens) const override {
    std::vector<int> ids;
    for (const int64_t token : tokens)
      if (token >= 0 && token < vocab_size()) ids.push_back(static_cast<int>(token));
    std::string text;
    // The numbers are known, so it cannot fail; if it does, there is no text.
    if (!processor_.Decode(ids, &text).ok()) text.clear();
    return text;
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
  bool begins_texts_ = false;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(const TokenizerChoice& choice) {
  const auto file = MappedFile::open(choice.model);
  if (!file.is_ok()) return file.status();
  auto tokenizer = std::make_unique<SentencePieceTokenizer>();
  HDT_RETURN_IF_ERROR(tokenizer->load(
      {reinterpret_cast<const char*>(file.value().data()), file.value().size()}, choice.is_llama2()));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}
#else
Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(const TokenizerChoice& /*choice*/) {
  return Status(Code::kInvalidUsage,
                "HDT was built without SentencePiece; install libsentencepiece-dev (Debian) and build again");
}
#endif

}  // namespace hdt::training
