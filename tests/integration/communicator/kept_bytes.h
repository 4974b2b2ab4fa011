// kept_bytes.h: a buffer of a test whose memory the thread keeps for its next buffers. Memory that is new to
// the process costs a page fault for every 4 KiB, and under the sanitizers, which keep more of it, that was
// half of the time of the communicator's tests. What is behind the buffer, and what nobody has, is poisoned,
// so that the address sanitizer sees an access.
#pragma once

#include <cstddef>
#include <vector>

namespace hdt::testing {

class KeptBytes {
 public:
  KeptBytes() = default;
  // Holds what the memory held.
  explicit KeptBytes(size_t size);
  ~KeptBytes();
  KeptBytes(KeptBytes&& other) noexcept;
  KeptBytes& operator=(KeptBytes&& other) noexcept;
  KeptBytes(const KeptBytes&) = delete;
  KeptBytes& operator=(const KeptBytes&) = delete;

  // Null where there are no bytes.
  std::byte* data() const { return size_ == 0 ? nullptr : const_cast<std::byte*>(memory_.data()); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  std::vector<std::byte> memory_;
  size_t size_ = 0;
};

}  // namespace hdt::testing
