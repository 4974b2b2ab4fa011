// unit_context.h: what a unit computes with, beside its input and its parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "training/torch/dropout.h"
#include "training/torch/key_value_cache.h"

namespace hdt::training {

// Which tokens and samples a unit computes. Made by the stage for each call of a unit.
struct UnitContext {
  // Of a text under way: its tokens before these ones, and their keys and values. B is 1 then, and the tokens
  // see those in the cache, and are added to it. Null: the first token has position 0.
  KeyValueCache* cache = nullptr;
  int64_t position = 0;  // of the first token
  // [B, T], the positions of all tokens, and [B, T, T], what is added to the scores, where documents.h makes
  // them; undefined: tokens follow each other from `position` on, and see all before them.
  at::Tensor positions = {};
  at::Tensor mask = {};
  Dropout dropout = {};
  // Attention keeps queries, keys and values for the backward, which computes the rest again.
  bool recompute_attention = false;
};

}  // namespace hdt::training
