// documents.cc: positions by one pass over the tokens of each sample, and masks from positions.
#include "training/torch/documents.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <limits>

namespace hdt::training {

at::Tensor document_positions(const at::Tensor& tokens, int64_t end) {
  at::Tensor positions = at::empty(tokens.sizes(), at::kLong);
  for (int64_t sample = 0; sample < tokens.size(0); ++sample) {
    const at::Tensor row = tokens.select(0, sample);
    int64_t position = 0;
    for (int64_t i = 0; i < row.size(0); ++i) {
      positions.data_ptr<int64_t>()[sample * row.size(0) + i] = position++;
      if (row.data_ptr<int64_t>()[i * row.stride(0)] == end) position = 0;
    }
  }
  return positions;
}

// The first token of a query's document lies its position in front of it. Keys before that are hidden, as
// those of the future are.
at::Tensor document_mask(const at::Tensor& positions, at::ScalarType type) {
  const int64_t samples = positions.size(0);
  const int64_t length = positions.size(1);
  const at::Tensor places = at::arange(length, at::kLong);
  const at::Tensor first = (places - positions).unsqueeze(2);
  const at::Tensor hidden = places.lt(first).logical_or_(places.gt(places.unsqueeze(1)));
  return at::zeros({samples, length, length}, type)
      .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

}  // namespace hdt::training
