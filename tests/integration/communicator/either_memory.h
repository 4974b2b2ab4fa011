// either_memory.h: a buffer of a test, of hdtMemAlloc or ordinary, that holds what the memory held. (A vector
// sets its bytes one by one, which takes sanitizers longer than the call that is tested.)
#pragma once

#include <cstddef>
#include <memory>

#include "tests/integration/communicator/kept_bytes.h"
#include "tests/integration/communicator/rank_threads.h"

namespace hdt::testing {

class EitherMemory {
 public:
  EitherMemory(bool shared, size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    if (shared) {
      void* memory = nullptr;
      HDT_EXPECT(hdtMemAlloc(&memory, bytes));
      shared_.reset(static_cast<std::byte*>(memory));
    } else {
      ordinary_ = KeptBytes(bytes);
    }
  }
  // Null where there are no bytes.
  std::byte* data() const { return shared_ ? shared_.get() : ordinary_.data(); }
  size_t size() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { HDT_EXPECT(hdtMemFree(memory)); }
  };
  size_t bytes_;
  std::unique_ptr<std::byte, Free> shared_;
  KeptBytes ordinary_;
};

}  // namespace hdt::testing
