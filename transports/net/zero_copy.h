// zero_copy.h: sends of one socket that the kernel makes from the caller's memory (MSG_ZEROCOPY): which of
// them it still reads. Each such send has a number, counted from 0; the socket's error queue tells ranges
// that are done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace hdt::transport::tcp {

class ZeroCopy {
 public:
  // Stays off where the kernel does not have it.
  void enable(int fd, size_t least_bytes);
  bool wanted(size_t bytes) const { return on_ && bytes >= least_bytes_; }
  // One send was made; its number.
  uint64_t started();
  bool done(uint64_t number) const { return number < first_open_; }
  bool pending() const { return !open_.empty(); }
  // Reads the error queue. Where the kernel says that it copied all the same (loopback, NICs without scatter
  // and gather) no more is sent that way: it would cost the copy and the bookkeeping.
  void read(int fd);

 private:
  void finished(uint32_t low, uint32_t high);

  bool on_ = false;
  size_t least_bytes_ = 0;
  uint64_t first_open_ = 0;
  std::deque<bool> open_;  // whether first_open_ + i is still under way
};

// So that closing the socket takes back what is under way: the kernel reads the caller's memory no more.
void discard_on_close(int fd);

}  // namespace hdt::transport::tcp
