// journal.h: what a daemon keeps in the shared memory of a group of several nodes for the one that is started
// in its place if it is killed: how far each piece has come, what has arrived for it, what was sent of it
// that may not have arrived, and what was agreed when the group was made. docs/design/restart.md has the
// rules.
//
// Written by one daemon at a time, with release after what it speaks of. Its reader may be another process,
// and ranks can write here: nothing is believed that does not fit the geometry.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "collectives/executor.h"
#include "ipc/call.h"
#include "ipc/measurements.h"

namespace hdt::session {

// Parts of the shared memory begin at multiples of a page.
inline constexpr uint64_t kPage = 4096;
inline uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// As many calls as one node can be ahead of another.
inline constexpr uint64_t kToldCalls = 128;
// Of one piece: the writes of a schedule that are small enough to be copied are not longer than its slot's
// areas together.
inline constexpr uint64_t kSentBytes = uint64_t{1536} << 10;

struct GroupJournal {
  std::atomic<uint32_t> made;        // 1: all nodes were ready, what follows is valid
  uint32_t algorithm;                // that is configured, + 1; 0: "auto"
  std::atomic<uint64_t> finished;    // calls below are finished on this node
  uint64_t first_piece[kToldCalls];  // of call `finished`, at finished % kToldCalls
  struct Told {                      // the calls that all local ranks have made
    std::atomic<uint64_t> sequence;  // + 1; 0: being written
    Call call;
  } told[kToldCalls];
};

// A small write of a piece, followed by its data. It may be written again as long as its piece's slot has no
// newer one.
struct SentWrite {
  uint64_t piece;
  uint64_t sequence;  // of the call
  Call call;
  uint64_t offset;     // in the receiver's area, bytes
  uint64_t in_output;  // in the receiver's buffer, bytes, if it uses it in place of its area
  uint32_t peer, tag;
  uint32_t bytes;
  collectives::Area to;
};

struct alignas(64) PieceJournal {
  std::atomic<uint64_t> arriving;  // piece + 1 of which `arrivals` speak; 0: none
  std::atomic<uint32_t> arrivals;
  std::atomic<uint64_t> started;  // piece + 1 of which `progress` and the writes speak
  collectives::Progress progress;
  std::atomic<uint32_t> sent_bytes;
};

// Access to the journals of a segment.
class Journal {
 public:
  static uint64_t bytes(uint32_t nodes, uint32_t slots);
  Journal(std::byte* base, uint32_t nodes, uint32_t slots) : base_(base), nodes_(nodes), slots_(slots) {}

  // What was agreed. Nothing: the group was not made yet.
  struct Agreed {
    std::optional<collectives::Algorithm> algorithm;
    std::vector<NodeRates> rates;  // empty: there are too many nodes
  };
  void agree(const Agreed& agreed) const;
  std::optional<Agreed> agreed() const;

  void tell_call(uint64_t sequence, const Call& call) const;
  // Those that are known, from `first` on, in order.
  void for_told_calls(uint64_t first, const std::function<void(uint64_t, const Call&)>& each) const;
  void finish_call(uint64_t sequence, uint64_t next_piece) const;
  struct Finished {
    uint64_t calls, pieces;
  };
  Finished finished() const;

  // No schedule has more payloads for a piece.
  static uint64_t most_arrivals(uint32_t nodes);
  // False: more has arrived than any schedule has.
  bool arrived(uint64_t piece, uint32_t node, uint32_t tag) const;
  void for_arrivals(uint64_t piece, const std::function<void(uint32_t node, uint32_t tag)>& each) const;
  bool started(uint64_t piece) const {
    return of(piece).started.load(std::memory_order_acquire) == piece + 1;
  }
  void start(uint64_t piece) const;
  collectives::Progress& progress(uint64_t piece) const { return of(piece).progress; }
  // Keeps the write with a copy of its data. Null: there is no room for it.
  const std::byte* keep(const SentWrite& write, const void* data) const;
  bool has_kept(uint64_t piece, uint32_t peer, uint32_t tag) const;
  // Of the piece that was started last in each slot.
  void for_sent(const std::function<void(const SentWrite&, const std::byte* data)>& each) const;

 private:
  uint64_t piece_bytes() const;
  GroupJournal& group() const { return *reinterpret_cast<GroupJournal*>(base_); }
  PieceJournal& of(uint64_t piece) const;
  std::byte* rates() const { return base_ + sizeof(GroupJournal); }
  static uint64_t rates_bytes(uint32_t nodes);
  std::atomic<uint64_t>* arrivals_of(const PieceJournal& piece) const;
  std::byte* sent_of(const PieceJournal& piece) const;
  void for_sent_of(const PieceJournal& piece,
                   const std::function<bool(const SentWrite&, const std::byte*)>& each) const;

  std::byte* base_;
  uint32_t nodes_, slots_;
};

}  // namespace hdt::session
