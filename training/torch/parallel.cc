// parallel.cc: one loop of torch's.
#include "training/torch/parallel.h"

#include <ATen/Parallel.h>

namespace hdt::training {

void for_each_piece_by_torch(size_t pieces, const std::function<void(size_t piece)>& work) {
  at::parallel_for(0, static_cast<int64_t>(pieces), 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) work(static_cast<size_t>(piece));
  });
}

}  // namespace hdt::training
