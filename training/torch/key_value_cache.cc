// key_value_cache.cc: new keys and values are copied behind the others.
#include "training/torch/key_value_cache.h"

#include <ATen/ops/empty.h>

namespace hdt::training {

std::pair<at::Tensor, at::Tensor> KeyValueCache::append(const at::Tensor& keys, const at::Tensor& values,
                                                        int64_t capacity) {
  if (!keys_.defined()) {
    keys_ = at::empty({1, capacity, keys.size(2), keys.size(3)}, keys.options());
    values_ = at::empty({1, capacity, values.size(2), values.size(3)}, values.options());
  }
  const int64_t count = keys.size(1);
  keys_.narrow(1, length_, count).copy_(keys);
  values_.narrow(1, length_, count).copy_(values);
  length_ += count;
  return {keys_.narrow(1, 0, length_), values_.narrow(1, 0, length_)};
}

}  // namespace hdt::training
