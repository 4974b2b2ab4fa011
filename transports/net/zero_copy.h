// zero_copy.h: follows the sends of one socket that the kernel makes from the caller's memory (MSG_ZEROCOPY),
// and knows which of them the kernel still reads. Each such send has a number, counted from 0. The kernel
// reports ranges of numbers that are done in the socket's error queue
// (Documentation/networking/msg_zerocopy.rst of Linux).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace hdt::transport::tcp {

// One per connection, owned by its FrameWriter. Memory may be reused in the order of the sends only: done()
// of a number is true when that send and all before it are done.
class ZeroCopy {
 public:
  // Switches it on for sends of at least `least_bytes`. 0 leaves it off, and so does a kernel without it.
  void enable(int fd, size_t least_bytes);
  // True if a send of that size is to be made with MSG_ZEROCOPY.
  bool wanted(size_t bytes) const { return on_ && bytes >= least_bytes_; }
  // A send with MSG_ZEROCOPY has succeeded. Returns its number; every such send must be noted.
  uint64_t started();
  bool done(uint64_t number) const { return number < first_open_; }
  // True while the kernel reads any memory.
  bool pending() const { return !open_.empty(); }
  // Reads the error queue; to be called at EPOLLERR. If the kernel reports that it copied all the same
  // (loopback, NICs without scatter and gather), it is switched off: it would cost the copy and the
  // bookkeeping.
  void read(int fd);

 private:
  void finished(uint32_t low, uint32_t high);

  bool on_ = false;
  size_t least_bytes_ = 0;
  uint64_t first_open_ = 0;  // the sends 0 to this one - 1 are done
  std::deque<bool> open_;    // open_[i]: the send first_open_ + i is under way; empty, or begins with true
};

// Makes close() of the socket reset the connection and drop what is queued. The kernel then does not read the
// caller's memory any more when close() has returned.
void discard_on_close(int fd);

}  // namespace hdt::transport::tcp
