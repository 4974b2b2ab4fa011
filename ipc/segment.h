// segment.h: the shared memory of one group on one node. Made and sealed by the daemon, mapped by the group's
// ranks there. It holds everything the node-local part of an operation needs, so a group of one node never
// wakes the daemon. Layout, in order:
//
//   Header                      geometry (constant after creation), failure, the daemon's counter
//   Member[ranks]               which node each rank is on
//   MeetingPlace[nodes]         where each node's daemon can be met to make a group
//   Board[local_ranks]          one per local rank: its calls, its progress, its doorbell
//   Channel[2 * local * ranks]  point-to-point rings, control part
//   Post[local_ranks][kPosts], payloads   calls with what they contribute (post.h); groups of one node only
//   Recording[local_ranks]      the last operations of each local rank (recorder.h)
//   GroupJournal, PieceJournal[slots]  what a daemon's successor must know (journal.h); groups of several
//                                      nodes only
//   --- data part: the only memory that other nodes may write ---
//   Slot[slots]                 per piece: staging of each local rank, input, output, scratch
//   ring data                   slots chunks per channel
//
// Progress is told by counters that only grow and are each written by one side. A "piece" is a part of a
// collective that fits a slot; pieces are numbered through the life of the group, across operations, in call
// order, and piece p uses slot p % slots. For piece p:
//   Board.staged  > p   the rank's contribution is in its staging area (or in input/output: see plan.h)
//   Board.reduced > p   the rank has combined its share of all local contributions
//   Header.exchanged > p  the daemon has run the schedule between nodes (groups of several nodes)
//   Board.done    > p   the rank has taken its result
// A slot may be used for piece p when every local rank has done > p - slots.
// Counters are stored with release after the data and read with acquire before it.
//
// Trust: ranks of a group share its memory and trust each other as threads do. The daemon does not: whatever
// it takes from here it copies, then validates (geometry it keeps for itself).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/doorbell.h"
#include "base/status.h"
#include "ipc/call.h"
#include "ipc/post.h"
#include "ipc/recorder.h"

namespace hdt::session {

inline constexpr uint64_t kSegmentMagic = 0x4844542d5345474d;  // "HDT-SEGM"
inline constexpr uint32_t kSegmentVersion = 12;
inline constexpr uint32_t kMaxRanks = 65536;
inline constexpr uint32_t kMaxLocalRanks = 128;
// Slots of pieces, and chunks of a channel's ring. On one node, what the caches hold; between nodes, what
// several NICs carry while the first acknowledgement is on its way.
inline constexpr uint32_t kSlotsOfANode = 4;
inline constexpr uint32_t kSlotsBetweenNodes = 16;
inline constexpr uint32_t kCallRing = 64;
inline constexpr uint32_t kAttentionRing = 256;
inline constexpr size_t kMaxClassBytes = 31;

struct Member {
  uint32_t node;         // index in the group, 0 <= node < nodes
  uint32_t local_index;  // index among the ranks of that node
};

// "address:port" of a node's daemon, or several, by commas; ending in zeros; changes when one was started
// again.
inline constexpr size_t kMaxAddressBytes = 96;
struct alignas(64) MeetingPlace {
  char address[kMaxAddressBytes];
  void set(const std::string& text);
  std::string get() const;
};

// What failed the group. Set once, by whoever comes first; state goes 0 (none), 1 (being written), 2 (valid).
struct Failure {
  std::atomic<uint32_t> state{0};
  int32_t code = 0;
  int32_t rank = -1;  // the rank it is about; -1: none
  uint32_t reserved = 0;
  char message[496] = {};  // zero-terminated
};

struct alignas(64) Board {
  // The calls of this rank: call s is calls[s % kCallRing], valid while entered > s. A rank publishes call s
  // when its own call s - kCallRing is complete, which implies that everyone has read it.
  std::atomic<uint64_t> entered{0};
  // The process as it knows itself. The number means the same process only to readers of the same PID
  // namespace, and only while it lives: who uses it compares the namespace, and proves the process (reach.h).
  // Not 0: the rank has taken its seat.
  std::atomic<uint32_t> pid{0};
  std::atomic<uint32_t> left{0};  // 1 after hdtCommDestroy: makes no further calls
  // How long this rank and its daemon take to hear of each other (libclient/daemon_client/daemon_echo.h): the
  // daemon gives what is asked.
  std::atomic<uint32_t> echo_asked{0};
  std::atomic<uint32_t> echo_given{0};
  std::atomic<uint64_t> echo_ns{0};  // as the rank has measured it; 0: it has not
  std::atomic<uint32_t> hosts{0};    // of the daemon: 1 while the rank's process is the one that it runs in
  alignas(64) std::atomic<uint64_t> staged{0};
  alignas(64) std::atomic<uint64_t> reduced{0};
  alignas(64) std::atomic<uint64_t> done{0};
  // Groups of one node (post.h), in calls. finished > s: the rank has its result of call s, and reads
  // nobody's memory for it any more. worked > s: it has done its share for all.
  alignas(64) std::atomic<uint64_t> finished{0};
  alignas(64) std::atomic<uint64_t> worked{0};
  // 1 while the rank reads or writes other processes' memory: who gives up a call waits until nobody does.
  std::atomic<uint32_t> touching{0};
  // Whether the rank can reach the memory of every other one on the node through the kernel. See reach.h.
  std::atomic<uint32_t> reach{0};
  // What proves that memory read is this process's (reach.h): random, and where it stands there. 0: nothing
  // is offered.
  std::atomic<uint64_t> proof_address{0};
  std::atomic<uint64_t> proof[2]{};
  std::atomic<uint64_t> pid_namespace{0};  // in which `pid` counts; 0: not known
  Doorbell doorbell;                       // rung when anything this rank may wait for has changed
  Entered calls[kCallRing];
  // Channels towards other nodes on which this rank has sent or consumed chunks: written by the rank, read by
  // the daemon. When it is full the rank sets attention_overflow and the daemon looks at all of them.
  alignas(64) std::atomic<uint64_t> attention_head{0};
  std::atomic<uint32_t> attention_overflow{0};
  alignas(64) std::atomic<uint64_t> attention_tail{0};
  uint32_t attention[kAttentionRing];
};

// A ring of chunks from one rank to another. head: chunks written; tail: chunks consumed. Chunk i is at i %
// slots; the writer may write chunk i when i < tail + slots. Between nodes each side has a ring: the
// daemons carry chunks from the sender's to the receiver's, and tails back.
struct alignas(64) Channel {
  std::atomic<uint64_t> head{0};
  // Between nodes, of the receiving daemon, what has landed: bits 16-63 chunks without a gap, bit i: also
  // that many and i.
  std::atomic<uint64_t> landed{0};
  alignas(64) std::atomic<uint64_t> tail{0};
};

// Stands at the start of each chunk in the ring data; payload follows. A message is one or more chunks in a
// row.
struct alignas(64) ChunkHeader {
  uint64_t message = 0;        // number of the message on this channel, from 0
  uint64_t message_bytes = 0;  // of the whole message
  uint64_t offset = 0;         // of this chunk in it
  uint64_t bytes = 0;          // of this chunk
};

struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t ranks;
  uint32_t nodes;
  uint32_t node;
  uint32_t local_ranks;
  // 1: every rank of every node has taken its seat. Set by the daemon; groups of several nodes.
  std::atomic<uint32_t> seated;
  uint64_t group;
  char group_class[kMaxClassBytes + 1];
  // For a successor of the daemon: the key by which the ranks met, and when, in seconds since 1970.
  uint8_t meeting_key[32];
  int64_t made_at;
  std::atomic<uint64_t> exchanged;
  Failure failure;
};

enum class Direction : uint8_t { kOut = 0, kIn = 1 };

// Offsets of everything, computed from the three numbers alone: both sides compute it for themselves.
struct Layout {
  Layout(uint32_t ranks, uint32_t nodes, uint32_t local_ranks);

  uint32_t ranks, nodes, local_ranks;
  uint32_t slots;        // of pieces, and chunks in the ring of each channel
  uint64_t piece_bytes;  // capacity of staging (per rank), input and output
  uint64_t scratch_bytes;
  uint64_t chunk_bytes;  // capacity of a chunk's payload
  uint64_t members, places, boards, channels, posts, recordings, journals, data,
      total;  // byte offsets from the start

  // Offsets from the start of the data part.
  uint64_t staging(uint64_t piece, uint32_t local) const;
  uint64_t input(uint64_t piece) const;
  uint64_t output(uint64_t piece) const;
  uint64_t scratch(uint64_t piece) const;
  // Channel of local rank `local` towards (kOut) or from (kIn) rank `peer`.
  uint32_t channel_index(Direction direction, uint32_t local, uint32_t peer) const;
  uint64_t chunk(uint32_t channel, uint64_t index) const;

 private:
  uint64_t slot_bytes_, ring_bytes_, rings_;
};

// What the header of a segment that somebody else made says, copied once and checked: magic, version, limits,
// and that the geometry fits `bytes`. The memory may change at any time: who needs any of this keeps it, and
// never reads it again.
struct Description {
  Layout layout;
  uint32_t node;
  uint64_t group;
  std::string group_class;
  std::array<std::byte, 32> meeting_key;
  int64_t made_at;
  static Result<Description> read(const std::byte* base, size_t bytes);
};

// Typed access to a mapped segment; does not own the mapping.
class Segment {
 public:
  Segment() : layout_(1, 1, 1) {}
  // A segment this process made: writes the header. Boards and counters are zero already.
  static Segment format(std::byte* base, const Layout& layout, uint64_t group, const char* group_class,
                        uint32_t node);
  // A segment somebody else made, with what Description::read() found in it.
  static Result<Segment> attach(std::byte* base, size_t bytes);
  // Of a layout that is known already: nothing of the memory is read, so nobody who writes it can change what
  // is used.
  static Segment view(std::byte* base, const Layout& layout);

  // By which key the ranks met, now: for a successor of the daemon.
  void set_meeting(std::span<const std::byte, 32> key) const;

  const Layout& layout() const { return layout_; }
  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  Member* members() const { return reinterpret_cast<Member*>(base_ + layout_.members); }
  MeetingPlace* places() const { return reinterpret_cast<MeetingPlace*>(base_ + layout_.places); }
  Board& board(uint32_t local) const { return reinterpret_cast<Board*>(base_ + layout_.boards)[local]; }
  Channel& channel(uint32_t i) const { return reinterpret_cast<Channel*>(base_ + layout_.channels)[i]; }
  Post& post(uint32_t local, uint64_t sequence) const {
    return *reinterpret_cast<Post*>(posts_of(local) + sequence % kPosts * sizeof(Post));
  }
  // Memory for the contribution of call `sequence`, if it is too large for the post itself.
  std::byte* payload(uint32_t local, uint64_t sequence) const {
    return posts_of(local) + kPosts * sizeof(Post) + sequence % kPayloads * kEagerBytes;
  }
  Recording& recording(uint32_t local) const {
    return reinterpret_cast<Recording*>(base_ + layout_.recordings)[local];
  }
  std::byte* journals() const { return base_ + layout_.journals; }
  std::byte* data() const { return base_ + layout_.data; }
  uint64_t data_bytes() const { return layout_.total - layout_.data; }

  // Records a failure unless there is one, and rings every local rank. True if this call recorded it.
  bool fail(Code code, int32_t rank, const std::string& message) const;
  bool failed() const { return header().failure.state.load(std::memory_order_acquire) == 2; }
  Status failure() const;
  int32_t failed_rank() const;
  void ring_all() const;

 private:
  std::byte* posts_of(uint32_t local) const { return base_ + layout_.posts + local * kPostingBytes; }

  std::byte* base_ = nullptr;
  Layout layout_;
};

}  // namespace hdt::session
