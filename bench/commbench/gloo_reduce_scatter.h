// gloo_reduce_scatter.h: Gloo's only reduce-scatter. It is an algorithm object of Gloo's old style:
// bound to one buffer and one count, run as often as wanted. It destroys its input, and leaves the
// result at the start of the input.
#pragma once

#include <gloo/reduce_scatter.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "bench/commbench/communicator.h"

namespace hdt::bench {

// Keeps the algorithm object of the latest call, since making one exchanges messages and takes long. All
// ranks must make the same calls.
class GlooReduceScatter {
 public:
  // Runs the call. Out of place, it works on a copy of the input and copies the result, so that neither
  // buffer of the user is destroyed; these two copies are part of what is measured.
  template <typename T>
  void run(const std::shared_ptr<gloo::Context>& context, const Call& call, bool in_place) {
    const size_t total = call.count * static_cast<size_t>(context->size);
    T* work = static_cast<T*>(const_cast<void*>(call.send));
    if (!in_place) {
      if (copy_.size() < total * sizeof(T)) copy_.resize(total * sizeof(T));
      work = reinterpret_cast<T*>(copy_.data());
      std::copy_n(static_cast<const T*>(call.send), total, work);
    }
    // Iterations of one row have the same key, so only the first of them makes the object.
    const Key key{work, call.count, call.type, call.op};
    if (!algorithm_ || key != key_) {
      // The old object goes first: both use the same context.
      algorithm_.reset();
      algorithm_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<T>>(
          context, std::vector<T*>{work}, static_cast<int>(total),
          std::vector<int>(static_cast<size_t>(context->size), static_cast<int>(call.count)),
          function<T>(call.op));
      key_ = key;
    }
    algorithm_->run();
    if (!in_place) std::copy_n(work, call.count, static_cast<T*>(call.recv));
  }

 private:
  // An algorithm object is bound to these: buffer, count, type and reduction.
  using Key = std::tuple<void*, size_t, hdtDataType_t, hdtRedOp_t>;

  // Reductions that Gloo does not have are refused before (GlooCommunicator::lacks).
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

  // The copy of the input, for calls out of place. Grows to the largest call.
  std::vector<std::byte> copy_;
  std::unique_ptr<gloo::Algorithm> algorithm_;
  Key key_;
};

}  // namespace hdt::bench
