// segment.h: the shared memory of one group on one node. The daemon makes and seals it; the group's
// ranks on the node map it. It holds everything that the node-local part of an operation needs, so a
// group of one node never wakes the daemon. Its layout, in order:
//
//   Header                      geometry (constant after creation), failure, the daemon's counter
//   Member[ranks]               which node each rank is on
//   MeetingPlace[nodes]         where each node's daemon can be met to make a group
//   uint64_t[nodes]             the rates of the nodes (Segment::node_rates())
//   RankState[local_ranks]      one for each local rank: its calls, progress and doorbell
//   MessageRing[2 * local * ranks]     message rings for point to point, control part
//   CallDescriptor[local_ranks][kDescriptors], payloads     what ranks of one node call (call_descriptor.h);
//                                      groups of one node only
//   Recording[local_ranks]      the last operations of each local rank (recorder.h)
//   GroupJournal, ChunkJournal[slots]  what a daemon's successor must know (journal.h); groups of several
//                                      nodes only
//   --- data part: the only memory that other nodes may write ---
//   Slot[slots]                 for each chunk: copy-in area of each local rank, input, output, scratch
//   ring data                   `slots` cells for each message ring
//
// Progress is shown by counters that only grow, each written by one side. A chunk (`Chunk`) is the part
// of a collective that fits a slot. Chunks are numbered through the life of the group, across
// operations, in call order, and chunk p uses slot p % slots. For chunk p:
//   RankState.staged  > p   the rank's contribution is in its copy-in area (or in input or output: see
//                       libclient/internode/slot_stages.cc)
//   RankState.reduced > p   the rank has combined its share of all local contributions
//   Header.exchanged > p  the daemon has run the schedule between nodes (groups of several nodes)
//   RankState.done    > p   the rank has copied its result out
// A slot may be used for chunk p when every local rank has done > p - slots. A counter is stored with
// release after the data that it speaks of, and loaded with acquire before that data is read.
//
// Trust: ranks of a group share its memory and trust each other as threads do. The daemon trusts nothing
// in it: it keeps the geometry for itself, and copies everything else before it validates and uses it.
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
#include "ipc/call_descriptor.h"
#include "ipc/recorder.h"

namespace hdt::ipc {

inline constexpr uint64_t kSegmentMagic = 0x4844542d5345474d;  // "HDT-SEGM"
// Counted up with every change of the layout or of the meaning of any field: a rank or a daemon's
// successor refuses memory of another version (kVersion).
inline constexpr uint32_t kSegmentVersion = 19;
// The maximum of ranks in a group, and of ranks of a group on one node.
inline constexpr uint32_t kMaxRanks = 65536;
inline constexpr uint32_t kMaxLocalRanks = 128;
// The number of slots, which is also the number of cells in a message ring. On one node, four slots are
// what the caches hold. Between nodes, sixteen are what several NICs carry while the first
// acknowledgement is on its way.
inline constexpr uint32_t kSlotsOfANode = 4;
inline constexpr uint32_t kSlotsBetweenNodes = 16;
// Calls of a rank that may be under way at a time, in groups of several nodes.
inline constexpr uint32_t kCallRing = 64;
// Entries of `RankState::attention`.
inline constexpr uint32_t kAttentionRing = 256;
// The maximum length of a class's name in bytes, without the closing zero.
inline constexpr size_t kMaxClassBytes = 31;

// Where a rank of the group is. One entry for each rank, written by the daemon before any rank maps the
// memory, and constant.
struct Member {
  uint32_t node;         // index in the group, 0 <= node < nodes
  uint32_t local_index;  // index among the ranks of that node
};

// Bytes of a MeetingPlace, the closing zero included.
inline constexpr size_t kMaxAddressBytes = 96;
// "address:port" of a node's daemon, or several of them, separated by commas. Written by the local
// daemon when the group is made, and again when a daemon was started again at another address. Read by
// hdtCommShrink and by a successor of the local daemon.
struct alignas(64) MeetingPlace {
  char address[kMaxAddressBytes];
  // Text beyond kMaxAddressBytes - 1 bytes is cut off. The store is not atomic: a reader may find a
  // mixture of the old and the new text.
  void set(const std::string& text);
  // Copies the text once, so any bytes are safe.
  std::string get() const;
};

// The text of a failure. Whoever reports one writes its text to such a place before the failure counts.
struct FailureText {
  // 0: free. 1: of a writer, for good if the writer dies or its failure is the one that counts.
  std::atomic<uint32_t> taken{0};
  char message[508] = {};  // zero-terminated
};
inline constexpr uint32_t kFailureTexts = 4;

// The failure of the group. It is set once, by the rank or the daemon that comes first, and never
// changes afterwards. Read it with Segment::failure(), which checks it.
//
// A process may be killed at any instruction. So the failure is one word, which is there completely or not at
// all: no writer can die with a part of it written, and hide the failures that follow.
struct Failure {
  // 0: none. Otherwise, from the lowest bit: the code (8 bits), 1 + the index of the text or 0 for none (8
  // bits), 1 (16 bits), the rank that the failure is about, -1 for none (32 bits). Stored by a
  // compare-and-exchange, after the text.
  std::atomic<uint64_t> word{0};
  FailureText texts[kFailureTexts];

  static uint64_t word_of(Code code, int32_t rank, uint32_t text) {
    return (static_cast<uint64_t>(code) & 0xff) | uint64_t{text} << 8 | uint64_t{1} << 16 |
           uint64_t{static_cast<uint32_t>(rank)} << 32;
  }
  // The parts of a word, which may be any number: ranks can write it.
  static int code_in(uint64_t word) { return static_cast<int>(word & 0xff); }
  static uint32_t text_in(uint64_t word) { return word >> 8 & 0xff; }
  static int32_t rank_in(uint64_t word) { return static_cast<int32_t>(word >> 32); }
};

// The state of one local rank. Each field is written by the rank itself, unless a comment differs. Fields
// that change at different times, or that different sides write, have cache lines of their own.
struct alignas(64) RankState {
  // The number of calls that this rank has published. In groups of several nodes call s is calls[s %
  // kCallRing], valid while entered > s; a rank publishes call s when its own call s - kCallRing is
  // complete, which implies that everyone has read it. In groups of one node the calls themselves are in
  // the descriptors (call_descriptor.h).
  std::atomic<uint64_t> entered{0};
  // The process as it knows itself; not 0: the rank has taken its seat. The number means this process
  // only to readers of the same PID namespace, and only while the process lives. So a reader compares
  // the namespace and has the process proved (libclient/intranode/reach.h).
  std::atomic<uint32_t> pid{0};
  // 1 after hdtCommDestroy: the rank has departed and makes no further calls. Written by the rank, or by
  // the daemon if the rank had reported a failure to it before (Communicator::leave()).
  std::atomic<uint32_t> departed{0};
  // How long this rank and its daemon take to hear of each other
  // (libclient/daemon_client/daemon_echo.h). The rank counts `echo_asked` up, and the engine sets
  // `echo_given` to it.
  std::atomic<uint32_t> echo_asked{0};
  std::atomic<uint32_t> echo_given{0};
  // The median of the round trips in ns, as the rank has measured it; 0: not measured.
  std::atomic<uint64_t> echo_ns{0};
  // Written by the daemon: 1 if the daemon is embedded in this rank's process.
  std::atomic<uint32_t> hosts{0};
  // 1 + the processor on which a thread of this rank has last begun to wait; 0: not known
  // (libclient/common/own_core.h). A hint.
  std::atomic<uint32_t> processor{0};
  // For hdtctl status. The bytes of the buffers of this rank's collective calls that have ended, and how many
  // of them were copied on their way: the others were read and written where they are.
  std::atomic<uint64_t> buffer_bytes{0};
  std::atomic<uint64_t> copied_bytes{0};
  // The samples that the rank takes in each step of its job (hdtCommSetSamples); 0: it has set none.
  std::atomic<uint64_t> samples{0};
  // Progress in chunks; see the head of this file.
  alignas(64) std::atomic<uint64_t> staged{0};
  alignas(64) std::atomic<uint64_t> reduced{0};
  alignas(64) std::atomic<uint64_t> done{0};
  // Progress in calls, in groups of one node (call_descriptor.h). finished > s: the rank has its result of
  // call s, and reads nobody's memory for it any more. worked > s: the rank has done its share of call s for
  // all.
  alignas(64) std::atomic<uint64_t> finished{0};
  alignas(64) std::atomic<uint64_t> worked{0};
  // 1 while the rank reads or writes memory of other processes. A rank that gives a call up waits until
  // nobody touches its buffers (IntranodeQueue::fail_all(); Touch in libclient/intranode/local_mover.cc).
  std::atomic<uint32_t> touching{0};
  // Whether the rank can reach the memory of every other rank of the node through the kernel. 0: not
  // tried yet; 1: it cannot; 2: it can (libclient/intranode/reach.cc).
  std::atomic<uint32_t> reach{0};
  // The proof that memory that was read is this process's (libclient/intranode/reach.h): 128 random
  // bits, and the address in the process where they stand. Address 0: nothing is offered. The address is
  // stored last, with release.
  std::atomic<uint64_t> proof_address{0};
  std::atomic<uint64_t> proof[2]{};
  // The PID namespace in which `pid` counts; 0: not known.
  std::atomic<uint64_t> pid_namespace{0};
  // Rung by anyone who has changed something that this rank may wait for.
  Doorbell doorbell;
  // Groups of several nodes only; see `entered`.
  Entered calls[kCallRing];
  // Indices of message rings towards other nodes in which this rank has written or consumed cells. The
  // rank appends at `attention_head`; the daemon reads up to it and moves `attention_tail`. If there is
  // no room, the rank sets attention_overflow instead, and the daemon clears it and looks at all rings
  // of the rank.
  alignas(64) std::atomic<uint64_t> attention_head{0};
  std::atomic<uint32_t> attention_overflow{0};
  alignas(64) std::atomic<uint64_t> attention_tail{0};
  uint32_t attention[kAttentionRing];
};

// A message ring: cells from one rank to another. Cell i is at i % slots; the writer may write cell i
// when i < tail + slots. On one node the two ranks share the ring. Between nodes each side has one: the
// daemons carry cells from the sender's ring to the receiver's, and tails back. So on the sender's side
// the daemon writes `tail`, and on the receiver's side it writes `head`.
struct alignas(64) MessageRing {
  // The number of cells written.
  std::atomic<uint64_t> head{0};
  // Written by the receiving daemon, between nodes. Bits 16-63: n, the number of cells received
  // contiguously from 0. Bit i (0-15): cell n + i has been received too. `head` follows it, so a
  // successor of the daemon finds everything here that a rank may have read.
  std::atomic<uint64_t> landed{0};
  // Written by the daemon, between nodes. 1: the rank of the other node has departed. On the receiver's side
  // `head` is final then: it is stored before. On the sender's side nobody consumes cells any more.
  std::atomic<uint32_t> ended{0};
  // The number of cells consumed.
  alignas(64) std::atomic<uint64_t> tail{0};
};

// A cell's header. It stands at the start of the cell in the ring data, and the payload follows. A
// message is one or more cells in a row; a message of 0 bytes is one cell without payload.
struct alignas(64) CellHeader {
  // Number of the message in this ring, from 0.
  uint64_t message = 0;
  // Bytes of the whole message.
  uint64_t message_bytes = 0;
  // Where this cell's payload begins in the message, in bytes.
  uint64_t offset = 0;
  // Bytes of this cell's payload.
  uint64_t bytes = 0;
};

// The first bytes of the segment, written by the daemon. Constant after format(), except for `seated`,
// the meeting key and its time, `exchanged`, and `failure`.
struct Header {
  // Written last by format(), so memory that is not complete is not taken for a segment.
  uint64_t magic;
  uint32_t version;
  uint32_t ranks;
  uint32_t nodes;
  // The node whose memory this is: index in the group.
  uint32_t node;
  uint32_t local_ranks;
  // 1: every rank of every node has taken its seat. Set by the daemon, in groups of several nodes only;
  // ranks of one node look at each other's `RankState::pid`.
  std::atomic<uint32_t> seated;
  // The group's id: the first bytes of its secret.
  uint64_t group;
  char group_class[kMaxClassBytes + 1];
  // For a successor of the daemon: the key by which the ranks met, and the time of that, in seconds
  // since 1970.
  uint8_t meeting_key[32];
  int64_t made_at;
  // Chunks below are exchanged between the nodes. Written by the engine, groups of several nodes.
  std::atomic<uint64_t> exchanged;
  Failure failure;
};

// The direction of a message ring, as seen by the local rank.
enum class Direction : uint8_t { kOut = 0, kIn = 1 };

// Byte offsets of everything in the segment, computed from the three numbers alone. Ranks, daemons, and
// daemons of other nodes (which write to the data part) compute it for themselves; nobody reads an
// offset from the memory. A value type; all functions are pure.
struct Layout {
  // The numbers must be within the limits above; Description::read() checks those of foreign memory.
  Layout(uint32_t ranks, uint32_t nodes, uint32_t local_ranks);

  uint32_t ranks, nodes, local_ranks;
  // The number of slots for chunks; also the number of cells in each message ring.
  uint32_t slots;
  // Bytes that a copy-in area (one for each local rank), the input and the output of a slot can hold.
  uint64_t chunk_bytes;
  // Bytes of a slot's scratch area; 0 in a group of one node.
  uint64_t scratch_bytes;
  // Bytes of payload that a cell of a message ring can hold.
  uint64_t cell_bytes;
  // Where each part begins. `total` is the size of the segment.
  uint64_t members, places, node_rates, rank_states, rings, posts, recordings, journals, data,
      total;  // byte offsets from the start

  // Offsets from the start of the data part, in bytes: the areas of the slot that chunk `chunk` uses.
  // staging() is the copy-in area of local rank `local`.
  uint64_t staging(uint64_t chunk, uint32_t local) const;
  uint64_t input(uint64_t chunk) const;
  uint64_t output(uint64_t chunk) const;
  uint64_t scratch(uint64_t chunk) const;
  // The index of the message ring of local rank `local` towards (kOut) or from (kIn) rank `peer` of the
  // group.
  uint32_t ring_index(Direction direction, uint32_t local, uint32_t peer) const;
  // Where the header of cell `index` of that ring is, from the start of the data part.
  uint64_t cell(uint32_t ring, uint64_t index) const;

 private:
  uint64_t slot_bytes_, ring_bytes_, rings_;
};

// The contents of a header that somebody else made: copied once, and checked. The memory may change at
// any time, so a user of these values keeps them and never reads the header again.
struct Description {
  Layout layout;
  uint32_t node;
  uint64_t group;
  std::string group_class;
  std::array<std::byte, 32> meeting_key;
  int64_t made_at;
  // `bytes` is the size of the mapping. kVersion: another magic or version. kInternal: no header, a
  // geometry that no group has, or more memory than `bytes` is needed for it.
  static Result<Description> read(const std::byte* base, size_t bytes);
};

// Typed access to a mapped segment. It does not own the mapping, which must live longer, and can be
// copied. Any thread; the memory is as safe as the rules of its parts are.
class Segment {
 public:
  Segment() : layout_(1, 1, 1) {}
  // For the daemon that made the memory: writes the header and the rank states. Everything else must be
  // zero bytes. The class's name is cut at kMaxClassBytes.
  static Segment format(std::byte* base, const Layout& layout, uint64_t group, const char* group_class,
                        uint32_t node);
  // For a rank: a segment that its daemon made. Errors are those of Description::read().
  static Result<Segment> attach(std::byte* base, size_t bytes);
  // For a layout that is known already: nothing of the memory is read, so no writer of the memory can
  // change what is used.
  static Segment view(std::byte* base, const Layout& layout);

  // Keeps the key by which the ranks met, and the current time, for a successor of the daemon. By the
  // daemon.
  void set_meeting(std::span<const std::byte, 32> key) const;

  const Layout& layout() const { return layout_; }
  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  Member* members() const { return reinterpret_cast<Member*>(base_ + layout_.members); }
  MeetingPlace* places() const { return reinterpret_cast<MeetingPlace*>(base_ + layout_.places); }
  // The rates in bytes a second by which counts are suggested (collectives::holder_rates()): of each node's
  // links, in the slower direction, or of its memory, as all nodes have agreed on when the group was made; 0:
  // not known, as in a group of one node. The daemon writes them once, before it tells any rank that the
  // group is made, so all ranks of the group find the same ones, always.
  std::span<uint64_t> node_rates() const {
    return {reinterpret_cast<uint64_t*>(base_ + layout_.node_rates), layout_.nodes};
  }
  RankState& rank_state(uint32_t local) const {
    return reinterpret_cast<RankState*>(base_ + layout_.rank_states)[local];
  }
  MessageRing& ring(uint32_t i) const { return reinterpret_cast<MessageRing*>(base_ + layout_.rings)[i]; }
  // The descriptor of call `sequence` of a local rank; groups of one node only.
  CallDescriptor& post(uint32_t local, uint64_t sequence) const {
    return *reinterpret_cast<CallDescriptor*>(descriptors_of(local) +
                                              sequence % kDescriptors * sizeof(CallDescriptor));
  }
  // Memory for the contribution of call `sequence`, if it is too large for the descriptor itself.
  std::byte* payload(uint32_t local, uint64_t sequence) const {
    return descriptors_of(local) + kDescriptors * sizeof(CallDescriptor) + sequence % kPayloads * kEagerBytes;
  }
  Recording& recording(uint32_t local) const {
    return reinterpret_cast<Recording*>(base_ + layout_.recordings)[local];
  }
  // The base of a Journal; groups of several nodes only.
  std::byte* journals() const { return base_ + layout_.journals; }
  std::byte* data() const { return base_ + layout_.data; }
  uint64_t data_bytes() const { return layout_.total - layout_.data; }

  // Records a failure unless there is one already, and rings every local rank. `rank`: the rank that the
  // failure is about, -1: none. True if this call recorded it. Any process that maps the memory; it
  // reaches this node only.
  bool fail(Code code, int32_t rank, const std::string& message) const;
  // A caller that sees true also sees the failure's code and message. Sequentially consistent, as are the
  // flags of ranks that touch others' buffers (Touch in libclient/intranode/local_mover.cc): of two that look
  // at each other, one sees the other.
  bool failed() const { return header().failure.word.load(std::memory_order_seq_cst) != 0; }
  // kSuccess while the group works. A code that is no failure's becomes kInternal, since ranks can write
  // it.
  Status failure() const;
  // The rank that the failure is about; -1: none, or no failure.
  int32_t failed_rank() const;
  // Rings the doorbell of every local rank.
  void ring_all() const;

 private:
  std::byte* descriptors_of(uint32_t local) const {
    return base_ + layout_.posts + local * kDescriptorAreaBytes;
  }

  std::byte* base_ = nullptr;
  Layout layout_;
};

}  // namespace hdt::ipc
