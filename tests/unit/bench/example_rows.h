// example_rows.h: finished rows for the tests of the outputs.
#pragma once

#include <vector>

#include "bench/commbench/engine.h"
#include "bench/commbench/measure.h"

namespace hdt::bench {

inline std::vector<Engine> example_engines() {
  return {{EngineKind::kHdt, "HDT 0.1.0", nullptr}, {EngineKind::kMpi, "MPI 4", nullptr}};
}

inline std::vector<RowResult> example_rows() {
  RowResult reduced{{Collective::kAllReduce, 8388608, HDT_FLOAT32, HDT_SUM, 0},
                    {2097152, 8388608, 2097152, 2097152},
                    {{2500.5, 2450.25, 3000.125, 3.355, 5.0325}, 0, {2440, 2460}, 1.0, 0.5, {{"lo", 77}}},
                    Measurement{{12345.6, 12000, 13000, 0.6795, 1.01925}, 3, {}, std::nullopt, 0, {}},
                    0,
                    ""};
  RowResult sent{{Collective::kSendRecv, 1024, HDT_BFLOAT16, HDT_SUM, 0},
                 {512, 1024, 512, 512},
                 {{8.125, 8, 9.5, 0.126, 0.126}, std::nullopt, {}, std::nullopt, 0, {}},
                 std::nullopt,
                 0,
                 ""};
  RowResult missing{{Collective::kAllReduce, 64, HDT_BFLOAT16, HDT_AVG, 0},
                    {32, 64, 32, 32},
                    {},
                    std::nullopt,
                    1,
                    "no avg"};
  return {reduced, sent, missing};
}

}  // namespace hdt::bench
