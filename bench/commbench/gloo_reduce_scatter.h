// gloo_reduce_scatter.h: Gloo's only reduce-scatter, an algorithm object of its old style: bound to one
// buffer and count, run as often as wanted, destroys its input and leaves the result at the start of it.
#pragma once

#include <gloo/reduce_scatter.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <tuple>
#include <vector>

#include "bench/commbench/communicator.h"

namespace hdt::bench {

class GlooReduceScatter {
 public:
  template <typename T>
  void run(const std::shared_ptr<gloo::Context>& context, const Call& call, bool in_place) {
    const size_t total = call.count * static_cast<size_t>(context->size);
    T* work = static_cast<T*>(const_cast<void*>(call.send));
    if (!in_place) {
      if (copy_.size() < total * sizeof(T)) copy_.resize(total * sizeof(T));
      work = reinterpret_cast<T*>(copy_.data());
      std::memcpy(copy_.data(), call.send, total * sizeof(T));
    }
    const Key key{work, call.count, call.type, call.op};
    if (!algorithm_ || key != key_) {
      algorithm_.reset();
      algorithm_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<T>>(
          context, std::vector<T*>{work}, static_cast<int>(total),
          std::vector<int>(static_cast<size_t>(context->size), static_cast<int>(call.count)),
          function<T>(call.op));
      key_ = key;
    }
    algorithm_->run();
    if (!in_place) std::memcpy(call.recv, work, call.count * sizeof(T));
  }

 private:
  using Key = std::tuple<void*, size_t, hdtDataType_t, hdtRedOp_t>;

  template <typename T>
  static const gloo::ReductionFunction<T>* function(hdtRedOp_t op) {
    switch (op) {
      case HDT_PROD:
        return gloo::ReductionFunction<T>::product;
      case HDT_MIN:
        return gloo::ReductionFunction<T>::min;
      case HDT_MAX:
        return gloo::ReductionFunction<T>::max;
      default:
        return gloo::ReductionFunction<T>::sum;
    }
  }

  std::vector<std::byte> copy_;
  std::unique_ptr<gloo::Algorithm> algorithm_;
  Key key_;
};

}  // namespace hdt::bench
