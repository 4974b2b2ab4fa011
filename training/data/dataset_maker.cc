// dataset_maker.cc: encodes each document and writes it as one sequence. If anything fails, the writer
// is destroyed unfinished and leaves an older dataset as it was.
#include "training/data/dataset_maker.h"

#include "training/data/indexed_writer.h"
#include "training/data/tokenizer.h"

namespace hdt::training {

Result<MadeDataset> make_dataset(std::span<const Document> documents, const Tokenizer& tokenizer,
                                 const std::string& prefix) {
  auto created = IndexedDatasetWriter::create(prefix, element_type_for_vocabulary(tokenizer.vocab_size()));
  if (!created.is_ok()) return created.status();
  IndexedDatasetWriter& writer = *created.value();
  for (const Document& document : documents) {
    Result<std::vector<int64_t>> tokens = tokenizer.encode(document.text);
    if (!tokens.is_ok())
      return Status(tokens.status().code(), document.name + ": " + tokens.status().message());
    if (const auto end = tokenizer.end_of_document()) tokens.value().push_back(*end);
    HDT_RETURN_IF_ERROR(writer.add_sequence(tokens.value()));
    HDT_RETURN_IF_ERROR(writer.end_document());
  }
  HDT_RETURN_IF_ERROR(writer.finish());
  return MadeDataset{writer.document_count(), writer.token_count()};
}

}  // namespace hdt::training
