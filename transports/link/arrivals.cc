// arrivals.cc: counts fragments (see arrivals.h). A write of one fragment, the most frequent one, is complete
// at once and allocates nothing while writes complete in order.
#include "transports/link/arrivals.h"

#include <string>

namespace hdt::transport {

namespace {
Status refuse(const FragmentHeader& fragment, const char* why) {
  return {Code::kLink, "fragment " + std::to_string(fragment.index) + " of message " +
                           std::to_string(fragment.message_id) + ": " + why};
}
}  // namespace

Result<bool> Arrivals::add(const FragmentHeader& fragment) {
  // 1. Refuse what is complete already, and what is so far ahead that remembering it would take memory
  //    without limit.
  const uint64_t id = fragment.message_id;
  if (id < floor_ || (id - floor_ < complete_.size() && complete_[id - floor_])) {
    return refuse(fragment, "came twice: its message was complete");
  }
  if (id - floor_ >= kMaxAhead) return refuse(fragment, "too far ahead of what is missing");
  // 2. Find the write's entry, or make one. The limits count before the marks are allocated.
  auto found = open_.find(id);
  if (found == open_.end()) {
    if (fragment.count() == 1) {
      complete(id);
      return true;
    }
    if (open_.size() >= kMaxOpenMessages || fragment.count() > kMaxOpenFragments - open_fragments_) {
      return refuse(fragment, "too many incomplete messages");
    }
    open_fragments_ += fragment.count();
    Message fresh{fragment.header, fragment.message_bytes, fragment.pages, fragment.count(), {}};
    fresh.landed.resize(fragment.count());
    found = open_.emplace(id, std::move(fresh)).first;
  }
  // 3. Mark the fragment. All fragments of a write carry the same header, length and fragment size.
  Message& message = found->second;
  if (message.bytes != fragment.message_bytes || message.pages != fragment.pages ||
      message.header != fragment.header) {
    return refuse(fragment, "contradicts an earlier fragment of the message");
  }
  if (message.landed[fragment.index]) return refuse(fragment, "came twice");
  message.landed[fragment.index] = true;
  if (--message.missing > 0) return false;
  // 4. The write is complete: from now on its id alone refuses a fragment that comes again.
  open_fragments_ -= message.landed.size();
  open_.erase(found);
  complete(id);
  return true;
}

// Keeps the invariant that complete_ is empty or begins with false: the floor moves over all that is
// complete.
void Arrivals::complete(uint64_t id) {
  if (id == floor_ && complete_.empty()) {  // the usual case: writes complete in order
    ++floor_;
    return;
  }
  if (complete_.size() <= id - floor_) complete_.resize(id - floor_ + 1);
  complete_[id - floor_] = true;
  for (; !complete_.empty() && complete_.front(); ++floor_) complete_.pop_front();
}

}  // namespace hdt::transport
