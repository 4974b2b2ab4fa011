// key_value_cache.h: the keys and values of the tokens that a layer has seen, for text that is generated.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace hdt::training {

// One layer's, for one text. Owned by the stage, used by its thread, without gradients. Keys are kept as
// attention takes them: with their rotary position, which never changes.
class KeyValueCache {
 public:
  // Tokens whose keys and values are in it; the next token has this position.
  int64_t length() const { return length_; }
  // Forgets all from this position on. `position` must not exceed length().
  void rewind(int64_t position) { length_ = position; }
  // Adds keys and values [1, T, groups, size] of the next T tokens, and returns those of all tokens, which
  // are views of the cache. `capacity` is the number of tokens that a text can have; its memory is taken at
  // the first call. length() + T must not exceed it.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& keys, const at::Tensor& values,
                                           int64_t capacity);

 private:
  at::Tensor keys_;  // [1, capacity, groups, size]
  at::Tensor values_;
  int64_t length_ = 0;
};

}  // namespace hdt::training
