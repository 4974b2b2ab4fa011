// segment.cc: where everything lies in the segment, and the functions that read what other processes may
// have written there. Whatever comes out of the memory is copied once (foreign_copy()) before it is
// checked.
#include "ipc/segment.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <new>

#include "base/foreign_copy.h"
#include "ipc/journal.h"

namespace hdt::ipc {

namespace {

// Capacity of each area of a slot, in bytes.
constexpr uint64_t kChunkBytes = uint64_t{512} << 10;
// Limits for the payload of a cell.
constexpr uint64_t kLargestCell = uint64_t{128} << 10;
constexpr uint64_t kLargestCellBetweenNodes = uint64_t{256} << 10;
constexpr uint64_t kSmallestCell = uint64_t{4} << 10;
// Address space for all rings of a segment together. Pages are taken only for rings that are used.
constexpr uint64_t kRingSpace = uint64_t{4} << 30;

}  // namespace

void MeetingPlace::set(const std::string& text) {
  std::memset(address, 0, sizeof address);
  std::memcpy(address, text.data(), std::min(text.size(), kMaxAddressBytes - 1));
}

std::string MeetingPlace::get() const {
  const MeetingPlace place = foreign_copy(*this);
  return {place.address, ::strnlen(place.address, sizeof place.address)};
}

// The parts follow each other in the order that the head of segment.h gives. Parts that different sides
// write begin at multiples of 64 bytes, large parts at multiples of a page, so that a part that is never
// used takes no page.
Layout::Layout(uint32_t ranks_, uint32_t nodes_, uint32_t local_ranks_)
    : ranks(ranks_),
      nodes(nodes_),
      local_ranks(local_ranks_),
      slots(nodes_ == 1 ? kSlotsOfANode : kSlotsBetweenNodes) {
  chunk_bytes = kChunkBytes;
  // Room for the partial results of schedules, which only exist between nodes.
  scratch_bytes = nodes > 1 ? 2 * kChunkBytes : 0;
  rings_ = uint64_t{2} * local_ranks * ranks;
  // With many ranks the cells become smaller, and the rings' address space stays the same.
  const uint64_t share = kRingSpace / (rings_ * slots);
  cell_bytes =
      std::clamp(share / kPage * kPage, kSmallestCell, nodes == 1 ? kLargestCell : kLargestCellBetweenNodes);
  ring_bytes_ = round_up(slots * (sizeof(CellHeader) + cell_bytes), kPage);
  // A copy-in area for each local rank, then input, output and scratch.
  slot_bytes_ = (local_ranks + 2) * chunk_bytes + scratch_bytes;
  members = round_up(sizeof(Header), 64);
  places = round_up(members + sizeof(Member) * ranks, 64);
  node_rates = places + sizeof(MeetingPlace) * nodes;
  rank_states = round_up(node_rates + sizeof(uint64_t) * nodes, 64);
  rings = round_up(rank_states + sizeof(RankState) * local_ranks, 64);
  posts = round_up(rings + sizeof(MessageRing) * rings_, kPage);
  recordings = round_up(posts + (nodes == 1 ? kDescriptorAreaBytes * local_ranks : 0), kPage);
  journals = round_up(recordings + sizeof(Recording) * local_ranks, kPage);
  data = round_up(journals + (nodes == 1 ? 0 : Journal::bytes(nodes, slots)), kPage);
  total = data + slots * slot_bytes_ + rings_ * ring_bytes_;
}

uint64_t Layout::staging(uint64_t chunk, uint32_t local) const {
  return chunk % slots * slot_bytes_ + local * chunk_bytes;
}
// The areas of a slot after the copy-in areas count on as if they were copy-in areas of further ranks.
uint64_t Layout::input(uint64_t chunk) const { return staging(chunk, local_ranks); }
uint64_t Layout::output(uint64_t chunk) const { return staging(chunk, local_ranks + 1); }
uint64_t Layout::scratch(uint64_t chunk) const { return staging(chunk, local_ranks + 2); }

// All outgoing rings come first, then all incoming ones; of each direction, the rings of local rank 0,
// then of local rank 1, and so on.
uint32_t Layout::ring_index(Direction direction, uint32_t local, uint32_t peer) const {
  return (static_cast<uint32_t>(direction) * local_ranks + local) * ranks + peer;
}

uint64_t Layout::cell(uint32_t ring, uint64_t index) const {
  return slots * slot_bytes_ + ring * ring_bytes_ + index % slots * (sizeof(CellHeader) + cell_bytes);
}

// The magic comes last; until then nobody takes the memory for a segment.
Segment Segment::format(std::byte* base, const Layout& layout, uint64_t group, const char* group_class,
                        uint32_t node) {
  const Segment segment = view(base, layout);
  auto* header = new (base) Header{};
  header->version = kSegmentVersion;
  header->ranks = layout.ranks;
  header->nodes = layout.nodes;
  header->node = node;
  header->local_ranks = layout.local_ranks;
  header->group = group;
  std::strncpy(header->group_class, group_class, kMaxClassBytes);
  // Message rings, descriptors and recordings begin as zero bytes, which the memory has. Writing them
  // would take their pages. Rank states are constructed, as their beginning is not all zeros: an empty
  // Call is a barrier.
  for (uint32_t i = 0; i < layout.local_ranks; ++i) new (&segment.rank_state(i)) RankState{};
  header->magic = kSegmentMagic;
  return segment;
}

void Segment::set_meeting(std::span<const std::byte, 32> key) const {
  std::memcpy(header().meeting_key, key.data(), key.size());
  header().made_at = ::time(nullptr);
}

// Each field is copied once, checked as a copy, and never read again.
Result<Description> Description::read(const std::byte* base, size_t bytes) {
  if (bytes < sizeof(Header)) return Status(Code::kInternal, "a group's shared memory has no header");
  const auto& header = *reinterpret_cast<const Header*>(base);
  const auto magic = foreign_copy(header.magic);
  const auto version = foreign_copy(header.version);
  if (magic != kSegmentMagic || version != kSegmentVersion) {
    return Status(Code::kVersion, "a group's shared memory has version " + std::to_string(version) +
                                      ", this library reads " + std::to_string(kSegmentVersion));
  }
  const auto ranks = foreign_copy(header.ranks), nodes = foreign_copy(header.nodes),
             local = foreign_copy(header.local_ranks), node = foreign_copy(header.node);
  // Each other node has at least one rank, so there are at most ranks - local other nodes.
  if (ranks == 0 || ranks > kMaxRanks || local == 0 || local > kMaxLocalRanks || local > ranks ||
      nodes == 0 || nodes - 1 > ranks - local || (nodes == 1 && local != ranks) || node >= nodes) {
    return Status(Code::kInternal, "a group's shared memory has an impossible geometry");
  }
  Description found{Layout(ranks, nodes, local), node, foreign_copy(header.group), {}, {}, 0};
  if (found.layout.total > bytes) {
    return Status(Code::kInternal, "a group's shared memory is smaller than its geometry needs");
  }
  // The name need not have its closing zero.
  std::array<char, kMaxClassBytes> name{};
  std::memcpy(name.data(), header.group_class, name.size());
  found.group_class.assign(name.data(), ::strnlen(name.data(), name.size()));
  std::memcpy(found.meeting_key.data(), header.meeting_key, found.meeting_key.size());
  found.made_at = foreign_copy(header.made_at);
  return found;
}

Segment Segment::view(std::byte* base, const Layout& layout) {
  Segment segment;
  segment.base_ = base;
  segment.layout_ = layout;
  return segment;
}

Result<Segment> Segment::attach(std::byte* base, size_t bytes) {
  auto found = Description::read(base, bytes);
  if (!found.is_ok()) return found.status();
  return view(base, found.value().layout);
}

// 1. Write the text to a place that nobody else has. Without one the failure counts all the same: only
//    writers that have died keep one.
// 2. Record the failure, with where its text is: one caller gets from 0 to another number.
// 3. Ring: sleepers look at failed() when they wake.
bool Segment::fail(Code code, int32_t rank, const std::string& message) const {
  if (failed()) return false;
  Failure& failure = header().failure;
  uint32_t text = 0;
  for (uint32_t i = 0; i < kFailureTexts && text == 0; ++i) {
    uint32_t free = 0;
    if (failure.texts[i].taken.compare_exchange_strong(free, 1, std::memory_order_acq_rel)) text = i + 1;
  }
  if (text != 0) {
    FailureText& place = failure.texts[text - 1];
    const size_t length = std::min(message.size(), sizeof place.message - 1);
    std::memcpy(place.message, message.data(), length);
    place.message[length] = '\0';
  }
  uint64_t none = 0;
  if (!failure.word.compare_exchange_strong(none, Failure::word_of(code, rank, text),
                                            std::memory_order_seq_cst)) {
    if (text != 0) failure.texts[text - 1].taken.store(0, std::memory_order_release);
    return false;
  }
  ring_all();
  return true;
}

// Ranks can write here, so the word is loaded once. Codes 0 and 1 are no failures.
Status Segment::failure() const {
  const Failure& failure = header().failure;
  const uint64_t word = failure.word.load(std::memory_order_seq_cst);
  if (word == 0) return Status::ok();
  const int number = Failure::code_in(word);
  const Code code = number > 1 && number < kCodeCount ? static_cast<Code>(number) : Code::kInternal;
  const uint32_t text = Failure::text_in(word);
  if (text == 0 || text > kFailureTexts) return {code, "the reason is not known"};
  std::array<char, sizeof FailureText::message> message;
  std::memcpy(message.data(), failure.texts[text - 1].message, message.size());
  return {code, std::string(message.data(), ::strnlen(message.data(), message.size()))};
}

int32_t Segment::failed_rank() const {
  const uint64_t word = header().failure.word.load(std::memory_order_seq_cst);
  if (word == 0) return -1;
  // A rank beyond the group counts as none.
  const int32_t rank = Failure::rank_in(word);
  return rank >= 0 && static_cast<uint32_t>(rank) < layout_.ranks ? rank : -1;
}

void Segment::ring_all() const {
  for (uint32_t i = 0; i < layout_.local_ranks; ++i) rank_state(i).doorbell.ring();
}

}  // namespace hdt::ipc
