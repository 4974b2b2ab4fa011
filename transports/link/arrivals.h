// arrivals.h: the receiving side's book of writes. It marks the fragments of incomplete writes, and remembers
// which writes are complete, so that no fragment counts twice.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "transports/link/fragment.h"

namespace hdt::transport {

// One per link, for the peer's direction; used by Link::State on the engine's thread. The limits bound what a
// peer can make this end remember: an honest sender stays far below them, because it works through its queue
// in order, so that no more writes are incomplete than its rails have fragments under way.
class Arrivals {
 public:
  static constexpr size_t kMaxOpenMessages = 8192;  // incomplete writes
  static constexpr uint64_t kMaxOpenFragments = uint64_t{1}
                                                << 23;  // fragments of all of them: 1 MiB of marks
  // How far a write's id may be ahead of the first one that is not complete: 128 KiB of marks.
  static constexpr uint64_t kMaxAhead = uint64_t{1} << 20;

  // Counts a fragment that was placed. True if its write is complete now. kLink for a fragment that came
  // before, that contradicts an earlier fragment of its write, or that exceeds the limits; the link ends
  // then, as an honest peer sends nothing twice.
  Result<bool> add(const FragmentHeader& fragment);
  // The number of writes of which some fragments came, and some did not.
  size_t open_messages() const { return open_.size(); }

 private:
  // An incomplete write. The first three are as its first fragment gave them; the others must give the same.
  struct Message {
    LinkHeader header;
    uint64_t bytes;
    uint16_t pages;
    uint64_t missing;          // fragments still to come
    std::vector<bool> landed;  // by the fragment's index
  };
  void complete(uint64_t id);

  std::unordered_map<uint64_t, Message> open_;  // by message id; writes of one fragment are never in it
  uint64_t open_fragments_ = 0;                 // the sum of `landed.size()` over open_
  // All writes with an id below floor_ are complete. complete_[i] is true if write floor_ + i is; complete_
  // is empty or begins with false.
  uint64_t floor_ = 0;
  std::deque<bool> complete_;
};

}  // namespace hdt::transport
