// dataset_maker.cc: encodes each document and writes it as one sequence. If anything fails, the writer
// is destroyed unfinished and leaves an older dataset as it was.
#include "training/data/dataset_maker.h"

#include "training/data/indexed_writer.h"
#include "training/data/tokenizer.h"

namespace hdt::training {

Result<MadeDataset> make_dataset(std::span<const Document> documents, const std::string& prefix) {
  auto created = IndexedDatasetWriter::create(prefix, element_type_for_vocabulary(ByteTokenizer::kVocabSize));
  if (!created.is_ok()) return created.status();
  IndexedDatasetWriter& writer = *created.value();
  for (const Document& document : documents) {
    std::vector<int64_t> tokens = ByteTokenizer::encode(document.text);
    tokens.push_back(ByteTokenizer::kEndOfDocument);
    HDT_RETURN_IF_ERROR(writer.add_sequence(tokens));
    HDT_RETURN_IF_ERROR(writer.end_document());
  }
  HDT_RETURN_IF_ERROR(writer.finish());
  return MadeDataset{writer.document_count(), writer.token_count()};
}

}  // namespace hdt::training
