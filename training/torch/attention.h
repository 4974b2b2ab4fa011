// attention.h: causal attention, which the model families share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "training/torch/unit_context.h"

namespace hdt::training {

// [T, T], for up to `length` tokens: what is added to the scores of type `type`. Minus infinity where the key
// lies after the query, else 0.
at::Tensor future_mask(int64_t length, at::ScalarType type);

// Query [B, T, heads, size], key and value [B, S, groups, size] to [B, T, heads * size]; S is at least T, and
// the queries are those of the last T tokens. Heads that follow each other share a group of keys and values
// (Ainslie et al. 2023: "GQA"); heads must be a multiple of groups. `future` is future_mask() of at least S.
// The context may have another mask, dropout of the probabilities, and ask to keep only query, key and value
// for the backward.
at::Tensor causal_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const at::Tensor& future, const UnitContext& context);

}  // namespace hdt::training
