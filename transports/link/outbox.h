// outbox.h: the sending side's queue. It holds the writes in order, hands them out fragment by fragment to
// whichever rail asks, and keeps each write until all its fragments have arrived. Fragments that were lost
// with their rail are handed out again, before all others.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "transports/link/fragment.h"

namespace hdt::transport {

// One per link, owned by Link::State and used on the engine's thread. A fragment is in the outbox, or under
// way in the book of one rail; the outbox holds its write until the link has reported every fragment of it by
// on_arrived().
class Outbox {
 public:
  // `fragment_bytes`: the maximum size of a fragment; a multiple of kFragmentPage, or rounded down to one.
  explicit Outbox(size_t fragment_bytes)
      : most_pages_(static_cast<uint16_t>(fragment_bytes / kFragmentPage)) {}

  // A fragment: a part of a write that goes on one rail at once. `data` points into the caller's memory, or
  // into the outbox's copy of a small write; both stay until the fragment has arrived.
  struct Fragment {
    FragmentHeader header;
    const std::byte* data = nullptr;
    RegionKey region;
    uint64_t region_offset = 0;  // of this fragment, not of its write
    bool handed_over = false;    // was reported sent once; stays true when it is sent again
    int64_t written_ns = 0;      // when it was handed to the rail that it is under way on
  };

  // Queues a write. It is cut in such a way that each of `rails` (at least 1) gets a part, if the write is
  // large enough, and in fragments of at most `most_bytes`, but not below kCopiedWriteBytes.
  void push(const WriteRequest& request, size_t rails, uint64_t most_bytes);
  bool has_fragment() const { return !again_.empty() || next_ < writes_.size(); }
  // The next fragment, which is under way from now on. has_fragment() must be true.
  Fragment pull();
  // Takes back a fragment that was lost on its way or that a rail did not take. It is pulled again before all
  // that was not pulled yet.
  void put_back(Fragment fragment) {
    queued_bytes_ += fragment.header.bytes();
    again_.push_back(std::move(fragment));
  }
  // on_handed_over(): the fragment was reported sent, for the first time. on_arrived(): it has arrived. Each
  // is called once per fragment, in this order. Either returns the write's token if the caller's memory is
  // free with that.
  std::optional<uint64_t> on_handed_over(const Fragment& fragment);
  std::optional<uint64_t> on_arrived(const Fragment& fragment);
  // The number of writes whose memory is not free yet.
  size_t size() const { return pending_; }
  uint64_t queued_bytes() const { return queued_bytes_; }  // of fragments still to be pulled
  // The number of writes so far, and how many of the first ones have arrived without a gap.
  uint64_t written() const { return first_id_ + writes_.size(); }
  uint64_t arrived() const { return first_id_; }
  // Every write has arrived.
  bool empty() const { return writes_.empty(); }

 private:
  struct Write {
    WriteRequest request;         // `data` points to `copy` if the write is copied
    std::vector<std::byte> copy;  // kept until the write has arrived: a lost fragment is read from it again
    uint16_t pages = 0;           // fragment size, in kFragmentPage
    uint64_t fragments = 0;       // fragments in all; the next three count up to it
    uint64_t pulled = 0;          // for the first time
    uint64_t handed_over = 0;
    uint64_t arrived = 0;
    // The caller's memory of a copied write is free when all of it was handed over, else when it has arrived.
    bool copied() const { return request.bytes <= kCopiedWriteBytes && !request.until_arrived; }
  };
  Write& write_of(const Fragment& fragment) { return writes_[fragment.header.message_id - first_id_]; }

  const uint16_t most_pages_;
  // Message ids are consecutive: writes_[i] has id first_id_ + i. Writes that have arrived leave at the
  // front. A deque does not move its elements then, so that `copy` stays where fragments point to.
  std::deque<Write> writes_;
  std::deque<Fragment> again_;  // put back, to be pulled first
  uint64_t first_id_ = 0;
  size_t next_ = 0;     // index of the write that new fragments are taken from; writes before it are pulled
  size_t pending_ = 0;  // writes whose token was not returned yet
  uint64_t queued_bytes_ = 0;
};

}  // namespace hdt::transport
