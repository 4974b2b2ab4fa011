// dataset_maker.h: text documents to an indexed dataset of byte-level tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "training/data/text_source.h"

namespace hdt::training {

struct MadeDataset {
  uint64_t documents = 0;
  uint64_t tokens = 0;
};

// One sequence a document, each ended by the end-of-document token, as uint16. All or nothing.
Result<MadeDataset> make_dataset(std::span<const Document> documents, const std::string& prefix);

}  // namespace hdt::training
