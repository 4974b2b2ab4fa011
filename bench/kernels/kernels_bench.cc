// kernels_bench.cc: measures how fast contributions are combined: the sum of two and of four sources, by
// type, in and out of the cache. bytes_per_second counts one source, as the bandwidth of a reduction
// does.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "collectives/kernels.h"

namespace hdt::collectives {
namespace {

void sum(benchmark::State& state) {
  const auto type = static_cast<DataType>(state.range(0));
  const auto bytes = static_cast<size_t>(state.range(1));
  const auto sources = static_cast<size_t>(state.range(2));
  // Zero bits are 0 in every type. So sums stay 0, and no subnormal or infinite numbers change the
  // speed.
  std::vector<std::vector<std::byte>> data(sources, std::vector<std::byte>(bytes));
  std::vector<const void*> pointers;
  for (const auto& source : data) pointers.push_back(source.data());
  std::vector<std::byte> result(bytes);
  void* const results[] = {result.data()};
  for (auto unused : state) {
    reduce(type, ReduceOp::kSum, pointers, results, bytes / type_size(type));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
  state.SetLabel(name_of(type));
}

// 1 MiB stays in a cache, 64 MiB do not.
void every_type(benchmark::internal::Benchmark* b) {
  b->ArgNames({"type", "bytes", "sources"});
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (const int64_t bytes : {int64_t{1} << 20, int64_t{64} << 20}) {
      for (const int64_t sources : {2, 4}) b->Args({type, bytes, sources});
    }
  }
}

BENCHMARK(sum)->Apply(every_type);

}  // namespace
}  // namespace hdt::collectives
