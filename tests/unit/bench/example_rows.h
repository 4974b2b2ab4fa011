// example_rows.h: two finished rows for the tests of the outputs.
#pragma once

#include <vector>

#include "bench/commbench/measure.h"

namespace hdt::bench {

inline std::vector<RowResult> example_rows() {
  const RowResult reduced{{Collective::kAllReduce, 8388608, HDT_FLOAT32, HDT_SUM, 0},
                          {2097152, 8388608, 2097152, 2097152},
                          {{2500.5, 2450.25, 3000.125, 3.355, 5.0325}, 0},
                          Measurement{{12345.6, 12000, 13000, 0.6795, 1.01925}, 3}};
  const RowResult sent{{Collective::kSendRecv, 1024, HDT_BFLOAT16, HDT_SUM, 0},
                       {512, 1024, 512, 512},
                       {{8.125, 8, 9.5, 0.126, 0.126}, std::nullopt},
                       std::nullopt};
  return {reduced, sent};
}

}  // namespace hdt::bench
