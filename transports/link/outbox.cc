// outbox.cc: cuts writes into fragments and counts what has become of them (see outbox.h). A write's
// fragments have one size, so a fragment's index alone says where it lies. Three counters of each write
// follow it: pulled by a rail, handed over (reported sent by a backend), arrived (acknowledged by the peer).
#include "transports/link/outbox.h"

namespace hdt::transport {

void Outbox::push(const WriteRequest& request, size_t rails, uint64_t most_bytes) {
  // No fragment but the last is smaller than a write that is copied, so that a small write is one fragment.
  constexpr uint64_t kLeastPages = std::max(kMinFragmentBytes, kCopiedWriteBytes) / kFragmentPage;
  Write& write = writes_.emplace_back();
  write.request = request;
  if (write.copied()) {
    const auto* data = static_cast<const std::byte*>(request.data);
    if (request.bytes > 0) write.copy.assign(data, data + request.bytes);
    write.request.data = write.copy.data();
  }
  // An equal part for each rail, but no longer than `most_bytes`: a slow rail delays the end of the write by
  // the time of one fragment.
  const uint64_t share =
      (rails > 1 ? std::min(request.bytes / rails, most_bytes) : most_bytes) / kFragmentPage;
  write.pages = static_cast<uint16_t>(std::min<uint64_t>(std::max(share, kLeastPages), most_pages_));
  write.fragments = FragmentHeader{.message_bytes = request.bytes, .pages = write.pages}.count();
  ++pending_;
  queued_bytes_ += request.bytes;
}

Outbox::Fragment Outbox::pull() {
  // Lost fragments go first: the receiver holds the rest of its write incomplete.
  if (!again_.empty()) {
    Fragment fragment = std::move(again_.front());
    again_.pop_front();
    queued_bytes_ -= fragment.header.bytes();
    return fragment;
  }
  Write& write = writes_[next_];
  const WriteRequest& request = write.request;
  Fragment fragment;
  fragment.header.header = request.header;
  fragment.header.message_id = first_id_ + next_;
  fragment.header.message_bytes = request.bytes;
  fragment.header.index = static_cast<uint32_t>(write.pulled);
  fragment.header.pages = write.pages;
  const uint64_t offset = fragment.header.offset();
  fragment.data = static_cast<const std::byte*>(request.data) + offset;
  fragment.region = request.region;
  fragment.region_offset = request.offset + offset;
  queued_bytes_ -= fragment.header.bytes();
  if (++write.pulled == write.fragments) ++next_;
  return fragment;
}

std::optional<uint64_t> Outbox::on_handed_over(const Fragment& fragment) {
  Write& write = write_of(fragment);
  // A copied write is free as soon as the last fragment has left; the copy stays for what may be lost.
  if (++write.handed_over < write.fragments || !write.copied()) return std::nullopt;
  --pending_;
  return write.request.token;
}

std::optional<uint64_t> Outbox::on_arrived(const Fragment& fragment) {
  Write& write = write_of(fragment);
  if (++write.arrived < write.fragments) return std::nullopt;
  std::optional<uint64_t> token;
  if (!write.copied()) {
    token = write.request.token;
    --pending_;
  }
  // Only the front leaves, so that ids stay consecutive. Every fragment of an arrived write was pulled, so
  // next_ is above 0 here.
  while (!writes_.empty() && writes_.front().arrived == writes_.front().fragments) {
    writes_.pop_front();
    ++first_id_;
    --next_;
  }
  return token;
}

}  // namespace hdt::transport
