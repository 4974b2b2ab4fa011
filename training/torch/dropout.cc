// dropout.cc: masks from splitmix64 (Steele, Lea, Flood 2014: "Fast splittable pseudorandom number
// generators"), used as a counter: element i of a stream is its i-th number, which can be computed alone.
#include "training/torch/dropout.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <bit>
#include <cmath>
#include <initializer_list>
#include <vector>

namespace hdt::training {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// 2^64 divided by the golden ratio: the step of the counter.
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ULL;
// A thread takes at least so many elements: fewer cost less than another thread's start.
constexpr int64_t kGrain = 16384;

// A bijection of 64-bit numbers, whose results look independent for neighbouring arguments.
uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

// The stream of these numbers. Each of them goes through the bijection before the next one comes in, so that
// no two lists of small numbers meet.
uint64_t stream_of(std::initializer_list<uint64_t> numbers) {
  uint64_t stream = 0;
  for (const uint64_t number : numbers) stream = mixed(stream + kGolden + number);
  return stream;
}

// Drops from one sample's elements begin .. end - 1. Each number of the stream decides two elements.
template <typename T>
void drop(uint64_t stream, double rate, const T* from, T* to, int64_t begin, int64_t end) {
  using Wide = at::opmath_type<T>;
  const auto limit = static_cast<uint32_t>(std::ldexp(rate, 32));
  const auto scale = static_cast<Wide>(1 / (1 - rate));
  uint64_t number = 0;
  for (int64_t i = begin; i < end; ++i) {
    if (i == begin || i % 2 == 0) number = mixed(stream + kGolden * (static_cast<uint64_t>(i) / 2));
    const auto drawn = static_cast<uint32_t>(i % 2 == 0 ? number : number >> 32);
    to[i] = drawn < limit ? T(0) : static_cast<T>(static_cast<Wide>(from[i]) * scale);
  }
}

struct Dropped : public Function<Dropped> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values, const Dropout& dropout,
                            DropoutPlace place) {
    context->saved_data["dropout"] = dropout.to_numbers();
    context->saved_data["place"] = static_cast<int64_t>(place);
    return dropout.masked(values, place);
  }

  static variable_list backward(AutogradContext* context, variable_list output_gradients) {
    const Dropout dropout = Dropout::from_numbers(context->saved_data["dropout"].toIntVector());
    const auto place = static_cast<DropoutPlace>(context->saved_data["place"].toInt());
    return {dropout.masked(output_gradients[0], place), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor Dropout::apply(const at::Tensor& values, DropoutPlace place) const {
  return rate_of(place) == 0 ? values : Dropped::apply(values, *this, place);
}

at::Tensor Dropout::masked(const at::Tensor& values, DropoutPlace place) const {
  const at::Tensor from = values.contiguous();
  at::Tensor to = at::empty(from.sizes(), from.options());
  const int64_t elements = from.numel() / samples_;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, from.scalar_type(), "dropout", [&] {
    for (int64_t sample = 0; sample < samples_; ++sample) {
      const uint64_t stream =
          stream_of({rates_.seed, static_cast<uint64_t>(step_), static_cast<uint64_t>(first_sample_ + sample),
                     static_cast<uint64_t>(unit_), static_cast<uint64_t>(place)});
      const scalar_t* const read = from.data_ptr<scalar_t>() + sample * elements;
      scalar_t* const write = to.data_ptr<scalar_t>() + sample * elements;
      at::parallel_for(0, elements, kGrain, [&](int64_t begin, int64_t end) {
        drop(stream, rate_of(place), read, write, begin, end);
      });
    }
  });
  return to;
}

std::vector<int64_t> Dropout::to_numbers() const {
  return {std::bit_cast<int64_t>(rates_.attention),
          std::bit_cast<int64_t>(rates_.hidden),
          static_cast<int64_t>(rates_.seed),
          unit_,
          step_,
          first_sample_,
          samples_};
}

Dropout Dropout::from_numbers(const std::vector<int64_t>& numbers) {
  const DropoutRates rates = {std::bit_cast<double>(numbers[0]), std::bit_cast<double>(numbers[1]),
                              static_cast<uint64_t>(numbers[2])};
  return {rates, static_cast<int>(numbers[3]), numbers[4], numbers[5], numbers[6]};
}

}  // namespace hdt::training
