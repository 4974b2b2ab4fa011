// cpp_ranks.h: ranks as threads of the test's process, in the words of hdt.hpp, and what its calls throw.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "hdt/hdt.hpp"
#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {

using Ints = std::vector<int32_t>;
using Sizes = std::vector<size_t>;

// The code and the text that `call` throws; "nothing" if it throws nothing.
struct Thrown {
  hdtResult_t code = HDT_SUCCESS;
  std::string text = "nothing";
};
template <typename Call>
Thrown thrown_by(Call call) {
  try {
    call();
    return {};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
}

// `call` throws `wanted`, and a text that holds `part`.
template <typename Call>
void expect_error(hdtResult_t wanted, const std::string& part, Call call) {
  const Thrown thrown = thrown_by(call);
  EXPECT_EQ(thrown.code, wanted) << thrown.text;
  EXPECT_NE(thrown.text.find(part), std::string::npos) << "'" << thrown.text << "' has no '" << part << "'";
}

inline hdtCommConfig_t config_of(int node) {
  hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
  config.socket = Nodes::instance().socket(node).c_str();
  config.timeout_ms = 60'000;
  return config;
}

// Makes a group and runs `body` in every rank's thread. An exception of a rank fails the test, and ends the
// group for the others.
template <typename Body>
void run(const Placement& placement, Body body) {
  (void)Nodes::instance();
  const hdtUniqueId_t id = unique_id();
  const int ranks = static_cast<int>(placement.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const hdtCommConfig_t config = config_of(placement[static_cast<size_t>(rank)]);
        Communicator comm(ranks, id, rank, &config);
        EXPECT_EQ(comm.rank(), rank);
        EXPECT_EQ(comm.size(), ranks);
        try {
          body(comm);
        } catch (...) {
          comm.abort();
          throw;
        }
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline const Placement kThree{0, 0, 1};

}  // namespace hdt::testing
