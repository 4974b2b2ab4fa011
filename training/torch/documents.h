// documents.h: samples that hold several documents: positions that begin again with each, and attention that
// stays within one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hdt::training {

// Tokens [B, T] to the positions [B, T] of each token in its document. A document begins with the sample, and
// after each token `end`.
at::Tensor document_positions(const at::Tensor& tokens, int64_t end);

// document_positions() to what is added to the scores of type `type` [B, T, T]: 0 where a query (second
// dimension) sees a key (third): one of its own document and not after it; minus infinity elsewhere.
at::Tensor document_mask(const at::Tensor& positions, at::ScalarType type);

}  // namespace hdt::training
