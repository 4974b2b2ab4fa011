// journal.h: what a daemon keeps in the shared memory of a group of several nodes, for the daemon that
// is started in its place if it is killed: how far each chunk has come, what has arrived for it, which
// writes of it may not have arrived, and what was agreed when the group was made. docs/design/restart.md
// has the rules: each thing stands here before it has an effect outside of the process.
//
// The engine of one daemon at a time writes it, each counter with release after the data that it speaks
// of. Its reader may be another process, long after. As ranks can write here too, the reader believes
// nothing that does not fit the geometry.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "collectives/executor.h"
#include "ipc/call.h"
#include "ipc/measurements.h"

namespace hdt::ipc {

// Large parts of the shared memory begin at multiples of a page, in bytes.
inline constexpr uint64_t kPage = 4096;
// `unit` > 0. The sum must not overflow.
inline uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// As many calls as one node can be ahead of another (kMaxAhead in daemon/group/chunk_runner.cc).
inline constexpr uint64_t kToldCalls = 128;
// Room for copies of the small writes of one chunk, with their headers, in bytes. Small are writes of at
// most transport::kCopiedWriteBytes. If it is full, the daemon fails the group.
inline constexpr uint64_t kSentBytes = uint64_t{1536} << 10;

// How much of its measured rates a link has, in units of 1 / kWholeLink; at least 1. More than kWholeLink
// where it has got more NICs than it was measured with.
using LinkPart = uint8_t;
inline constexpr LinkPart kWholeLink = 16;
inline constexpr LinkPart kLargestPart = UINT8_MAX;

// The NICs at one end of the link that was measured.
struct NicsOfLink {
  // 0: not known
  uint32_t count = 0;
  // nominal, of all together, in Mbit/s; 0: not known of all
  uint32_t mbits_s = 0;
  // 1: the group has moved to another link since; 0: it has not, so a NIC that comes belongs to these
  uint32_t moved = 0;
  bool operator==(const NicsOfLink&) const = default;
};

// A change of the nodes' rates while the group runs (daemon/group/rate_changes.h), of which all nodes have
// the same. Only the first nodes * nodes parts are in use, in groups of at most kMostMeasuredNodes.
struct RatesChange {
  // Larger than that of every earlier change.
  uint64_t number;
  // Calls from this one on are run with these rates.
  uint64_t call;
  // Of the link from node i to node j, at place i * nodes + j.
  std::array<LinkPart, kMostMeasuredNodes * kMostMeasuredNodes> parts;
};

// The group as a whole. It stands at the beginning of the journal, and the measurements (`RatesOfNode`
// in journal.cc) follow it. Zero bytes at first.
struct GroupJournal {
  // 1: all nodes were ready; `algorithm` and the measurements are valid. Stored once, with release.
  std::atomic<uint32_t> made;
  // The configured algorithm, + 1; 0: "auto".
  uint32_t algorithm;
  // Calls below are finished on this node.
  std::atomic<uint64_t> finished;
  // The first chunk of call `finished`, at place finished % kToldCalls. It is an array so that the entry
  // for a new value of `finished` can be written while the old one is valid.
  uint64_t first_chunk[kToldCalls];
  // The calls that all local ranks have made, at place sequence % kToldCalls. The next node in the ring
  // of nodes has to be sent each of them.
  struct Told {
    // The call's sequence number + 1; 0: being written.
    std::atomic<uint64_t> sequence;
    Call call;
  } told[kToldCalls];
  // This node has promised the change of rates `promised`: it reads no call from hold[promised % 2] on before
  // that change. 0: none yet.
  std::atomic<uint64_t> promised;
  uint64_t hold[2];
  // How many changes of rates there were, and the latest ones, at place count % 3: the last two, which calls
  // under way may need, and one that may be being written.
  std::atomic<uint64_t> changes;
  RatesChange change[3];
};

// A small write of a chunk to another node; its data follows it. It may have to be written again as long
// as no later chunk uses the slot.
struct SentWrite {
  uint64_t chunk;
  // The number of the call to which the chunk belongs.
  uint64_t sequence;
  Call call;
  // Where the data goes in the receiver's area, in bytes.
  uint64_t offset;
  // Where the data goes in the receiver's recvbuf, in bytes, if the receiver uses it in place of its
  // output.
  uint64_t in_output;
  // The receiving node, and the number that the schedule gives this payload of ours to that node.
  uint32_t peer, tag;
  // Length of the data that follows.
  uint32_t bytes;
  collectives::Area to;
};

// One for each slot. Arrivals are kept apart from the rest, because payloads for a chunk may arrive
// before the chunk is started here. Behind it lie the list of arrivals and the log of small writes.
struct alignas(64) ChunkJournal {
  // The chunk + 1 to which `arrivals` refers; 0: none, or being changed.
  std::atomic<uint64_t> arriving;
  // The number of arrivals in the list.
  std::atomic<uint32_t> arrivals;
  // The chunk + 1 to which `progress` and the log refer; 0: none, or being changed.
  std::atomic<uint64_t> started;
  // How far the schedule has come. The executor writes it directly.
  collectives::Progress progress;
  // Bytes used of the log; at most kSentBytes.
  std::atomic<uint32_t> sent_bytes;
};

// Access to the journal of a segment. It owns nothing, and the memory must live longer. The engine's
// thread writes it (daemon/group/chunk_runner.h). In a successor the control thread reads agreed() first
// (daemon/membership/adoption.cc), and then the engine's thread the rest. All functions are const, as
// only the memory changes.
class Journal {
 public:
  // Size of the journal in bytes; a part of the segment's layout.
  static uint64_t bytes(uint32_t nodes, uint32_t slots);
  // `base`: Segment::journals(). The numbers are those of the group's layout, which the daemon keeps
  // itself.
  Journal(std::byte* base, uint32_t nodes, uint32_t slots) : base_(base), nodes_(nodes), slots_(slots) {}

  // The agreement of all nodes from the time when the group was made. A successor uses it whatever its
  // own configuration and measurements are, since all nodes compute for themselves which algorithm runs.
  struct Agreed {
    // The algorithm that the configuration demands; nothing: "auto".
    std::optional<collectives::Algorithm> algorithm;
    // By node. Empty if the group has more than kMostMeasuredNodes nodes.
    std::vector<NodeRates> rates;
    // By node: the NICs of this node that carried its link to that node. No agreement, but known only at
    // that time. Empty as `rates`.
    std::vector<NicsOfLink> nics;
  };
  // Called once, when every node is ready.
  void agree(const Agreed& agreed) const;
  // The NICs of the link to that node are others than agree() was given. In groups of at most
  // kMostMeasuredNodes nodes.
  void set_nics(uint32_t node, const NicsOfLink& nics) const;
  // Nothing: the group was not made yet, or the memory holds no known algorithm.
  std::optional<Agreed> agreed() const;

  // The promise to read no call from `hold` on before the change of rates `change`. Called before any node
  // hears of the promise.
  struct Promise {
    uint64_t change = 0, hold = 0;
  };
  void promise(const Promise& promise) const;
  // The latest one; change 0: there was none.
  Promise promised() const;
  // Notes a change of rates, before any effect of it. `parts`: nodes * nodes of them.
  void change_rates(uint64_t number, uint64_t call, std::span<const LinkPart> parts) const;
  // A change as it is read back; its parts are as many as nodes * nodes.
  struct Change {
    uint64_t number = 0, call = 0;
    std::vector<LinkPart> parts;
  };
  // The last two changes, the older one first, or as many as there were. A part of 0 makes no sense and
  // counts as whole.
  std::vector<Change> changed_rates() const;

  // Notes a call that all local ranks have made. Called before the next node is sent the call.
  void tell_call(uint64_t sequence, const Call& call) const;
  // Calls `each` with the sequence number and the call, for those that are still here, from `first` on,
  // in order. Calls that are not sound (is_sound()) are left out.
  void for_told_calls(uint64_t first, const std::function<void(uint64_t, const Call&)>& each) const;
  // Call `sequence` is finished, and the next call begins with chunk `next_chunk`. Called before the
  // last chunk of the call is published.
  void finish_call(uint64_t sequence, uint64_t next_chunk) const;
  // The number of finished calls, and the number of their chunks: where the next call and the next chunk
  // begin.
  struct Finished {
    uint64_t calls, chunks;
  };
  // Both 0 in a new group.
  Finished finished() const;

  // The maximum of payloads that any schedule has for a chunk on one node, and so the length of the
  // list.
  static uint64_t most_arrivals(uint32_t nodes);
  // Notes that the payload `tag` of `node` has arrived for the chunk. Called before the link
  // acknowledges it. False: the list is full, so the node has sent payloads that no schedule has.
  bool arrived(uint64_t chunk, uint32_t node, uint32_t tag) const;
  // Calls `each` for the payloads that have arrived for this chunk. Nodes that the group does not have
  // are left out.
  void for_arrivals(uint64_t chunk, const std::function<void(uint32_t node, uint32_t tag)>& each) const;
  // Whether a daemon has begun with this chunk, so that progress() and the log refer to it.
  bool started(uint64_t chunk) const {
    return of(chunk).started.load(std::memory_order_acquire) == chunk + 1;
  }
  // Empties progress and log of the chunk's slot. Arrivals stay.
  void start(uint64_t chunk) const;
  // Progress of the chunk's slot; valid if started().
  collectives::Progress& progress(uint64_t chunk) const { return of(chunk).progress; }
  // Appends the write and a copy of its data to the log of its chunk's slot. Returns where the copy is;
  // it stays there until the slot's next start(). Null: there is no room for it.
  const std::byte* keep(const SentWrite& write, const void* data) const;
  // Whether the log has this write.
  bool has_kept(uint64_t chunk, uint32_t peer, uint32_t tag) const;
  // Calls `each` for every write in the logs: those of the chunk that was started last in each slot.
  void for_sent(const std::function<void(const SentWrite&, const std::byte* data)>& each) const;

 private:
  // Bytes of one slot's journal: ChunkJournal, list of arrivals, log.
  uint64_t chunk_bytes() const;
  GroupJournal& group() const { return *reinterpret_cast<GroupJournal*>(base_); }
  ChunkJournal& of(uint64_t chunk) const;
  // The table of measurements, with the NICs.
  std::byte* rates() const { return base_ + sizeof(GroupJournal); }
  static uint64_t rates_bytes(uint32_t nodes);
  std::atomic<uint64_t>* arrivals_of(const ChunkJournal& chunk) const;
  std::byte* sent_of(const ChunkJournal& chunk) const;
  // Reads one slot's log until `each` returns false, or until an entry makes no sense.
  void for_sent_of(const ChunkJournal& chunk,
                   const std::function<bool(const SentWrite&, const std::byte*)>& each) const;

  std::byte* base_;
  uint32_t nodes_, slots_;
};

}  // namespace hdt::ipc
