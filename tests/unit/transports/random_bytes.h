// random_bytes.h: the data of writes, made and compared without a sanitizer's look at every byte, which takes
// most of a test's time (CMakeLists.txt).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hdt::transport {

std::vector<std::byte> random_bytes(size_t bytes, uint64_t seed);

// By memcmp(), whose whole range the sanitizers look at.
bool same_bytes(const std::vector<std::byte>& one, const std::vector<std::byte>& other);

// HDT_TEST_SEED, else another one each time; printed.
uint64_t seed_of_run();

}  // namespace hdt::transport
