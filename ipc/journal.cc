// journal.cc: the layout of the journal, and its two rules. The writer stores data first and the counter
// that covers it afterwards, with release; so a process that is killed between the two has written
// nothing that counts. The reader loads the counter with acquire, copies each entry once, and checks the
// copy.
//
// The layout: GroupJournal, one RatesOfNode for each node (not in groups that are too large to be
// measured), and from the next page on, for each slot: ChunkJournal, the list of arrivals, the log of
// small writes.
#include "ipc/journal.h"

#include <algorithm>
#include <cstring>

#include "base/foreign_copy.h"
#include "ipc/partition.h"

namespace hdt::ipc {

namespace {

// The minimum length of the list of arrivals.
constexpr uint64_t kLeastArrivals = 1024;
// No schedule has more payloads from each node for a chunk: there and back, in up to two parts.
constexpr uint64_t kArrivalsANode = 4;

// Bytes of an entry in the log whose data has `bytes`. Entries stay aligned to 8 bytes at least, for the
// SentWrite that follows.
uint64_t kept_bytes(uint64_t bytes) { return sizeof(SentWrite) + round_up(bytes, 64); }

// NodeRates (measurements.h) with room for the maximum of nodes, so that it has no pointer.
struct RatesOfNode {
  MemoryRates memory;
  LinkRates links[kMostMeasuredNodes];
  // of the writing node's link to this one
  NicsOfLink nics;
};

uint64_t most_arrivals_of(uint32_t nodes) { return std::max(kLeastArrivals, kArrivalsANode * nodes); }

uint64_t chunk_bytes_of(uint32_t nodes) {
  return round_up(sizeof(ChunkJournal) + most_arrivals_of(nodes) * sizeof(uint64_t) + kSentBytes, kPage);
}

}  // namespace

uint64_t Journal::rates_bytes(uint32_t nodes) {
  return nodes <= kMostMeasuredNodes ? nodes * sizeof(RatesOfNode) : 0;
}
uint64_t Journal::bytes(uint32_t nodes, uint32_t slots) {
  return round_up(sizeof(GroupJournal) + rates_bytes(nodes), kPage) + slots * chunk_bytes_of(nodes);
}
uint64_t Journal::most_arrivals(uint32_t nodes) { return most_arrivals_of(nodes); }
uint64_t Journal::chunk_bytes() const { return chunk_bytes_of(nodes_); }

// The number of a chunk that comes from foreign memory is harmless here: any number leads to one of the
// slots.
ChunkJournal& Journal::of(uint64_t chunk) const {
  const uint64_t first = round_up(sizeof(GroupJournal) + rates_bytes(nodes_), kPage);
  return *reinterpret_cast<ChunkJournal*>(base_ + first + chunk % slots_ * chunk_bytes());
}
std::atomic<uint64_t>* Journal::arrivals_of(const ChunkJournal& chunk) const {
  return reinterpret_cast<std::atomic<uint64_t>*>(const_cast<ChunkJournal*>(&chunk) + 1);
}
std::byte* Journal::sent_of(const ChunkJournal& chunk) const {
  return reinterpret_cast<std::byte*>(arrivals_of(chunk) + most_arrivals(nodes_));
}

void Journal::agree(const Agreed& agreed) const {
  // `made` comes last: a successor that finds it set finds the rest complete.
  group().algorithm = agreed.algorithm ? static_cast<uint32_t>(*agreed.algorithm) + 1 : 0;
  auto* table = reinterpret_cast<RatesOfNode*>(rates());
  for (size_t node = 0; node < agreed.rates.size(); ++node) {
    table[node].memory = agreed.rates[node].memory;
    std::copy(agreed.rates[node].links.begin(), agreed.rates[node].links.end(), table[node].links);
    table[node].nics = agreed.nics[node];
  }
  group().made.store(1, std::memory_order_release);
}

// Not in one step. A successor that finds half of it takes the link for faster or slower than it is, which
// makes no result wrong.
void Journal::set_nics(uint32_t node, const NicsOfLink& nics) const {
  reinterpret_cast<RatesOfNode*>(rates())[node].nics = nics;
}

std::optional<Journal::Agreed> Journal::agreed() const {
  if (group().made.load(std::memory_order_acquire) != 1) return {};
  const auto algorithm = foreign_copy(group().algorithm);
  // `algorithm` is the enumerator + 1, so the count itself is the last valid value.
  if (algorithm > collectives::kAlgorithmCount) return {};
  Agreed agreed;
  if (algorithm != 0) agreed.algorithm = static_cast<collectives::Algorithm>(algorithm - 1);
  if (nodes_ > kMostMeasuredNodes) return agreed;
  const auto* table = reinterpret_cast<const RatesOfNode*>(rates());
  for (uint32_t node = 0; node < nodes_; ++node) {
    const auto told = foreign_copy(table[node]);
    agreed.rates.push_back({told.memory, {told.links, told.links + nodes_}});
    agreed.nics.push_back(told.nics);
  }
  return agreed;
}

// As with finish_call(), the entry of the new number lies in another place than that of the number before.
// Where a number was left out, it may be the same place; then the promise before is kept already, or has the
// same hold (RateChanges), so it does not matter which hold a successor finds.
void Journal::promise(const Promise& promise) const {
  group().hold[promise.change % 2] = promise.hold;
  group().promised.store(promise.change, std::memory_order_release);
}

Journal::Promise Journal::promised() const {
  const uint64_t change = group().promised.load(std::memory_order_acquire);
  return {change, change == 0 ? 0 : foreign_copy(group().hold[change % 2])};
}

// The new entry takes the place of the third last one, which no call needs, so `changes` is right before and
// after it.
void Journal::change_rates(uint64_t number, uint64_t call, std::span<const LinkPart> parts) const {
  const uint64_t count = group().changes.load(std::memory_order_relaxed) + 1;
  RatesChange& change = group().change[count % 3];
  change.number = number;
  change.call = call;
  std::copy(parts.begin(), parts.end(), change.parts.begin());
  group().changes.store(count, std::memory_order_release);
}

std::vector<Journal::Change> Journal::changed_rates() const {
  std::vector<Change> changes;
  if (nodes_ > kMostMeasuredNodes) return changes;
  const uint64_t count = group().changes.load(std::memory_order_acquire);
  for (uint64_t i = count < 2 ? 0 : count - 2; i < count; ++i) {
    const auto told = foreign_copy(group().change[(i + 1) % 3]);
    Change& change = changes.emplace_back(Change{told.number, told.call, {}});
    for (uint32_t link = 0; link < nodes_ * nodes_; ++link) {
      change.parts.push_back(told.parts[link] == 0 ? kWholeLink : told.parts[link]);
    }
  }
  return changes;
}

// The place holds an earlier call until now. It is marked as being written first, so that a successor
// never takes half of one call and half of another for a call.
void Journal::tell_call(uint64_t sequence, const Call& call) const {
  GroupJournal::Told& told = group().told[sequence % kToldCalls];
  told.sequence.store(0, std::memory_order_release);
  told.call = call;
  told.sequence.store(sequence + 1, std::memory_order_release);
}

void Journal::for_told_calls(uint64_t first, const std::function<void(uint64_t, const Call&)>& each) const {
  for (uint64_t sequence = first; sequence < first + kToldCalls; ++sequence) {
    const GroupJournal::Told& told = group().told[sequence % kToldCalls];
    if (told.sequence.load(std::memory_order_acquire) != sequence + 1) continue;
    const Call call = foreign_copy(told.call);
    if (is_sound(call)) each(sequence, call);
  }
}

// Two stores. `first_chunk` of the new value lies in another place than that of the old value, so
// whichever value of `finished` a successor finds, its entry is complete.
void Journal::finish_call(uint64_t sequence, uint64_t next_chunk) const {
  group().first_chunk[(sequence + 1) % kToldCalls] = next_chunk;
  group().finished.store(sequence + 1, std::memory_order_release);
}

// A group without a finished call begins with chunk 0, which nobody has written down.
Journal::Finished Journal::finished() const {
  const uint64_t calls = group().finished.load(std::memory_order_acquire);
  return {calls, calls == 0 ? 0 : foreign_copy(group().first_chunk[calls % kToldCalls])};
}

bool Journal::arrived(uint64_t chunk, uint32_t node, uint32_t tag) const {
  ChunkJournal& journal = of(chunk);
  // The first payload of another chunk in this slot: the list begins anew. `arriving` is 0 meanwhile, so
  // that a successor never takes old arrivals for those of the new chunk.
  if (journal.arriving.load(std::memory_order_relaxed) != chunk + 1) {
    journal.arriving.store(0, std::memory_order_release);
    journal.arrivals.store(0, std::memory_order_release);
    journal.arriving.store(chunk + 1, std::memory_order_release);
  }
  // relaxed: this engine is the only writer.
  const uint32_t count = journal.arrivals.load(std::memory_order_relaxed);
  if (count >= most_arrivals(nodes_)) return false;
  // The entry is one word: the node above, the tag below. The count covers it afterwards.
  arrivals_of(journal)[count].store(uint64_t{node} << 32 | tag, std::memory_order_relaxed);
  journal.arrivals.store(count + 1, std::memory_order_release);
  return true;
}

void Journal::for_arrivals(uint64_t chunk, const std::function<void(uint32_t, uint32_t)>& each) const {
  const ChunkJournal& journal = of(chunk);
  if (journal.arriving.load(std::memory_order_acquire) != chunk + 1) return;
  const uint64_t count =
      std::min<uint64_t>(journal.arrivals.load(std::memory_order_acquire), most_arrivals(nodes_));
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t word = arrivals_of(journal)[i].load(std::memory_order_relaxed);
    if (word >> 32 < nodes_) each(static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word));
  }
}

// `started` is 0 meanwhile. A successor that finds 0 begins the chunk anew, which is right, since
// nothing of it has been sent yet.
void Journal::start(uint64_t chunk) const {
  ChunkJournal& journal = of(chunk);
  journal.started.store(0, std::memory_order_release);
  journal.progress.complete.store(0, std::memory_order_release);
  journal.progress.overwriting.store(0, std::memory_order_release);
  journal.sent_bytes.store(0, std::memory_order_release);
  journal.started.store(chunk + 1, std::memory_order_release);
}

bool Journal::has_kept(uint64_t chunk, uint32_t peer, uint32_t tag) const {
  bool kept = false;
  for_sent_of(of(chunk), [&](const SentWrite& other, const std::byte*) {
    kept |= other.chunk == chunk && other.peer == peer && other.tag == tag;
    return !kept;
  });
  return kept;
}

const std::byte* Journal::keep(const SentWrite& write, const void* data) const {
  ChunkJournal& journal = of(write.chunk);
  const uint64_t used = journal.sent_bytes.load(std::memory_order_relaxed);
  // A rank may have written any number into `sent_bytes`, so it is checked before it is used.
  if (used > kSentBytes || kept_bytes(write.bytes) > kSentBytes - used) return nullptr;
  std::byte* place = sent_of(journal) + used;
  std::memcpy(place, &write, sizeof write);
  if (write.bytes != 0) std::memcpy(place + sizeof write, data, write.bytes);
  journal.sent_bytes.store(static_cast<uint32_t>(used + kept_bytes(write.bytes)), std::memory_order_release);
  return place + sizeof write;
}

// Walks over the entries. The log is foreign: an entry must end within the used part, and must belong to
// the chunk and to a node of the group. Behind an entry that does not, nothing can be found any more.
void Journal::for_sent_of(const ChunkJournal& journal,
                          const std::function<bool(const SentWrite&, const std::byte*)>& each) const {
  const uint64_t chunk = journal.started.load(std::memory_order_acquire) - 1;
  const uint64_t used = std::min<uint64_t>(journal.sent_bytes.load(std::memory_order_acquire), kSentBytes);
  const std::byte* log = sent_of(journal);
  for (uint64_t at = 0; at + sizeof(SentWrite) <= used;) {
    const auto write = foreign_copy(*reinterpret_cast<const SentWrite*>(log + at));
    if (write.bytes > used - at - sizeof write || write.chunk != chunk || write.peer >= nodes_) return;
    if (!each(write, log + at + sizeof write)) return;
    at += kept_bytes(write.bytes);
  }
}

void Journal::for_sent(const std::function<void(const SentWrite&, const std::byte*)>& each) const {
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    for_sent_of(of(slot), [&](const SentWrite& write, const std::byte* data) {
      each(write, data);
      return true;
    });
  }
}

}  // namespace hdt::ipc
