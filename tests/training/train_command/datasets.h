// datasets.h: Megatron datasets with tokens that no tokenizer makes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/data/indexed_format.h"

namespace hdt::training::testing {

// PREFIX.bin and PREFIX.idx, one document.
void write_dataset(const std::string& prefix, ElementType type, const std::vector<int64_t>& tokens);
// The same of several documents, as uint16.
void write_documents(const std::string& prefix, const std::vector<std::vector<int64_t>>& documents);
// 0, 1, 2, ... below `vocabulary`, over and over.
std::vector<int64_t> counting_tokens(size_t count, int64_t vocabulary);

}  // namespace hdt::training::testing
