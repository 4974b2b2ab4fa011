// dataset_maker.h: makes an indexed dataset of tokens from text documents.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "training/data/text_source.h"
#include "training/data/tokenizer.h"

namespace hdt::training {

// The size of the dataset that was written.
struct MadeDataset {
  uint64_t documents = 0;
  uint64_t tokens = 0;  // with the ends of documents
};

// Writes one sequence for each document, ended by the end-of-document token if the tokenizer has one, in
// the smallest type for its vocabulary. All or nothing. Fails as IndexedDatasetWriter does, and if a
// document cannot be encoded, which the message names.
Result<MadeDataset> make_dataset(std::span<const Document> documents, const Tokenizer& tokenizer,
                                 const std::string& prefix);

}  // namespace hdt::training
