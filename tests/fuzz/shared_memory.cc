// shared_memory.cc: the shared memory of a group, as a daemon or its successor reads it after ranks have
// written anything to it (ipc/segment.h, journal.h, recorder.h). The input chooses a shape of the group
// and a row of writes.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "daemon/group/cost_measurements.h"
#include "ipc/buffer_use.h"
#include "ipc/journal.h"
#include "ipc/measurements.h"
#include "ipc/partition.h"
#include "ipc/segment.h"
#include "tests/fuzz/target.h"

namespace hdt::ipc::fuzz_shared_memory {

using fuzz::Bytes;
using fuzz::Choices;

struct Shape {
  uint32_t ranks, nodes, local_ranks;
};
constexpr Shape kShapes[] = {{2, 1, 2}, {2, 2, 1}, {5, 3, 2}, {40, 40, 1}};

// Address space only: pages are there once they are written, and gone again after each input.
class Memory {
 public:
  explicit Memory(const Shape& shape) : layout_(shape.ranks, shape.nodes, shape.local_ranks) {
    void* const mapped = ::mmap(nullptr, layout_.total, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    HDT_HOLDS(mapped != MAP_FAILED);
    base_ = static_cast<std::byte*>(mapped);
  }
  const Layout& layout() const { return layout_; }
  std::byte* base() const { return base_; }
  void clear() { HDT_HOLDS(::madvise(base_, layout_.data, MADV_DONTNEED) == 0); }

 private:
  Layout layout_;
  std::byte* base_ = nullptr;
};

Memory& memory_of(uint8_t shape) {
  static Memory all[] = {Memory(kShapes[0]), Memory(kShapes[1]), Memory(kShapes[2]), Memory(kShapes[3])};
  return all[shape % std::size(all)];
}

uint64_t value_of(Choices& input) {
  static constexpr uint64_t kValues[] = {0,
                                         1,
                                         2,
                                         3,
                                         16,
                                         64,
                                         128,
                                         129,
                                         1U << 16,
                                         UINT32_MAX,
                                         uint64_t{1} << 32,
                                         uint64_t{1} << 56,
                                         uint64_t{1} << 63,
                                         UINT64_MAX - 16,
                                         UINT64_MAX};
  const auto which = input.get<uint8_t>();
  if (which < std::size(kValues)) return kValues[which];
  return which < 0x80 ? which : input.get<uint64_t>();
}

// Eight bytes somewhere in one of the parts.
void scribble(Choices& input, const Memory& memory) {
  const Layout& layout = memory.layout();
  const uint64_t parts[] = {0,
                            layout.members,
                            layout.places,
                            layout.rank_states,
                            layout.rings,
                            layout.posts,
                            layout.recordings,
                            layout.journals,
                            layout.data};
  const size_t part = input.get<uint8_t>() % (std::size(parts) - 1);
  // The first words of each part say the most.
  const uint64_t word = input.get<uint16_t>();
  const uint64_t at = parts[part] + word * sizeof(uint64_t);
  const uint64_t value = value_of(input);
  if (at + sizeof value <= layout.data) std::memcpy(memory.base() + at, &value, sizeof value);
}

// As whoever is given it maps it.
bool attach(const Memory& memory) {
  const auto attached = Segment::attach(memory.base(), memory.layout().total);
  if (!attached.is_ok()) {
    HDT_HOLDS(!attached.status().message().empty());
    return false;
  }
  const Layout& layout = attached.value().layout();
  HDT_HOLDS(layout.total <= memory.layout().total && layout.data < layout.total);
  HDT_HOLDS(layout.local_ranks >= 1 && layout.local_ranks <= kMaxLocalRanks &&
            layout.local_ranks <= layout.ranks);
  HDT_HOLDS(layout.nodes >= 1 && layout.nodes <= layout.ranks && layout.ranks <= kMaxRanks);
  HDT_HOLDS(layout.rank_states + sizeof(RankState) * layout.local_ranks <= layout.rings);
  for (const uint64_t index : {uint64_t{0}, uint64_t{5}, UINT64_MAX})
    HDT_HOLDS(layout.data + layout.cell(2 * layout.local_ranks * layout.ranks - 1, index) +
                  sizeof(CellHeader) + layout.cell_bytes <=
              layout.total);
  return true;
}

// The areas of a slot, and the rings, lie behind each other within the data part.
void check_areas(const Layout& layout, uint64_t chunk) {
  const uint64_t bytes = layout.total - layout.data;
  uint64_t end = layout.staging(chunk, 0);
  HDT_HOLDS(end == layout.staging(chunk % layout.slots, 0));
  for (uint32_t local = 0; local < layout.local_ranks; ++local, end += layout.chunk_bytes)
    HDT_HOLDS(layout.staging(chunk, local) == end);
  HDT_HOLDS(layout.input(chunk) == end && layout.output(chunk) == end + layout.chunk_bytes);
  HDT_HOLDS(layout.scratch(chunk) == end + 2 * layout.chunk_bytes);
  HDT_HOLDS(layout.scratch(chunk) + layout.scratch_bytes <= layout.cell(0, 0));
  const uint32_t last = layout.ring_index(Direction::kIn, layout.local_ranks - 1, layout.ranks - 1);
  HDT_HOLDS(layout.ring_index(Direction::kOut, 0, 0) == 0 &&
            last + 1 == 2 * layout.local_ranks * layout.ranks);
  HDT_HOLDS(layout.cell(last, chunk) + sizeof(CellHeader) + layout.cell_bytes <= bytes);
}

// Does all that may be done with a call that was read and found valid.
void check_call(const Call& call, const Layout& layout) {
  if (!validate(call, layout.ranks).empty()) return;
  HDT_HOLDS(!describe(call).empty());
  const Partition plan(call, layout);
  HDT_HOLDS(plan.chunks() >= 1);
  for (const uint64_t index : {uint64_t{0}, plan.chunks() / 2, plan.chunks() - 1}) {
    const Chunk chunk = plan.chunk(index);
    HDT_HOLDS(chunk.offset <= call.count && chunk.elements <= call.count - chunk.offset);
    const uint64_t blocks = by_blocks(call.what) ? layout.ranks : 1;
    HDT_HOLDS(call.what == collectives::Collective::kBarrier ||
              chunk.elements * blocks * collectives::type_size(call.type) <= layout.chunk_bytes);
  }
  HDT_HOLDS(contribution_bytes(call, layout.ranks) / layout.ranks <= uint64_t{8} << 56);
  HDT_HOLDS(result_bytes(call, layout.ranks) >= call.count * collectives::type_size(call.type));
  std::vector<uint32_t> node_of(layout.ranks);
  for (uint32_t rank = 0; rank < layout.ranks; ++rank) node_of[rank] = rank % layout.nodes;
  const Order order(node_of, layout.nodes);
  const collectives::Problem problem = problem_of(call, plan.chunk(0), order, 0);
  HDT_HOLDS(problem.root >= 0 && problem.root < problem.nodes &&
            problem.block_offsets.size() == layout.nodes + 1);
  HDT_HOLDS(std::ranges::is_sorted(problem.block_offsets));
  const Chunk last = plan.chunk(plan.chunks() - 1);
  const uint64_t blocks = by_blocks(call.what) ? layout.ranks : 1;
  for (const uint64_t index : {uint64_t{0}, last.elements * blocks / 2, last.elements * blocks})
    if (index < last.elements * blocks) HDT_HOLDS(user_index(call, last, order, index) < call.count * blocks);
  for (const bool shared : {false, true}) {
    const CallBuffers use = buffer_use(call, layout, static_cast<uint32_t>(call.root),
                                       {.send_shared = shared, .recv_shared = true});
    HDT_HOLDS(!use.source_in_place() || (layout.local_ranks == 1 && may_be_direct(call, layout)));
  }
}

void read_recordings(const Segment& segment) {
  const TickScale scale({1000, 1000}, {5000, 9000});
  for (uint32_t local = 0; local < segment.layout().local_ranks; ++local) {
    const auto copies = copy_records(segment.recording(local));
    HDT_HOLDS(copies.size() <= kRecords);
    for (const Operation& operation : read(copies, scale)) {
      HDT_HOLDS(!operation.kind.empty() && !operation.text.empty());
      HDT_HOLDS(operation.entered_ns >= 1 && operation.entered_ns <= 9000);
      HDT_HOLDS(operation.ended_ns == 0 || operation.ended_ns >= operation.entered_ns);
      HDT_HOLDS(is_code(operation.code));
      HDT_HOLDS(operation.peer >= -1 && operation.peer <= UINT32_MAX);
    }
  }
}

// As the daemon's successor does, and then as the daemon does that goes on with it.
void read_journal(const Segment& segment, const Memory& memory) {
  const Layout& layout = segment.layout();
  if (layout.nodes == 1) return;
  const Journal journal(segment.journals(), layout.nodes, layout.slots);
  const std::byte* const begin = segment.journals();
  const std::byte* const end = memory.base() + layout.data;
  if (const auto agreed = journal.agreed()) {
    HDT_HOLDS(!agreed->algorithm || static_cast<int>(*agreed->algorithm) < collectives::kAlgorithmCount);
    for (const NodeRates& rates : agreed->rates) HDT_HOLDS(rates.links.size() == layout.nodes);
    for (const auto& change : journal.changed_rates()) {
      HDT_HOLDS(change.parts.size() == size_t{layout.nodes} * layout.nodes);
      for (const LinkPart part : change.parts) HDT_HOLDS(part >= 1);
    }
    if (const auto measurements =
            agreed->rates.empty() ? std::nullopt : daemon::cost_measurements(agreed->rates)) {
      const collectives::LinkMeasurements link = measurements->link_of(0, static_cast<int>(layout.nodes) - 1);
      HDT_HOLDS(std::isfinite(link.latency_s) && std::isfinite(measurements->memory[0].reduce_bytes_s));
    }
  }
  const auto promised = journal.promised();
  HDT_HOLDS(promised.change != 0 || promised.hold == 0);
  const auto finished = journal.finished();
  for (const uint64_t first : {uint64_t{0}, finished.calls}) {
    size_t told = 0;
    journal.for_told_calls(first, [&](uint64_t sequence, const Call& call) {
      HDT_HOLDS(sequence - first < kToldCalls);
      ++told;
      check_call(call, layout);
    });
    HDT_HOLDS(told <= kToldCalls);
  }
  const auto check_sent = [&](const SentWrite& write, const std::byte* data) {
    HDT_HOLDS(write.peer < layout.nodes && data >= begin && data <= end &&
              write.bytes <= static_cast<size_t>(end - data));
  };
  for (uint64_t chunk : {uint64_t{0}, uint64_t{1}, finished.chunks, UINT64_MAX}) {
    size_t arrivals = 0;
    journal.for_arrivals(chunk, [&](uint32_t node, uint32_t) {
      HDT_HOLDS(node < layout.nodes);
      ++arrivals;
    });
    HDT_HOLDS(arrivals <= static_cast<size_t>(end - begin) / sizeof(uint64_t));
    journal.has_kept(chunk, 0, 0);
    journal.started(chunk);
    journal.arrived(chunk, 0, 1);
    SentWrite write{};
    write.chunk = chunk;
    write.bytes = 100;
    const std::byte content[100] = {};
    const std::byte* const kept = journal.keep(write, content);
    HDT_HOLDS(kept == nullptr || (kept > begin && kept + sizeof content <= end));
  }
  journal.for_sent(check_sent);
  journal.start(3);
  journal.finish_call(finished.calls, 7);
}

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  Memory& memory = memory_of(choices.get<uint8_t>());
  const Segment segment = Segment::format(memory.base(), memory.layout(), 7, "dp", 0);
  const std::array<std::byte, 32> key = {std::byte{1}, std::byte{2}};
  segment.set_meeting(key);
  segment.places()[0].set("10.0.0.1:18520");
  const auto made = Description::read(memory.base(), memory.layout().total);
  HDT_HOLDS(made.is_ok() && made.value().meeting_key == key && made.value().made_at > 0);
  HDT_HOLDS(made.value().group_class == "dp" && segment.places()[0].get() == "10.0.0.1:18520");
  segment.places()[0].set(std::string(kMaxAddressBytes, 'a'));
  HDT_HOLDS(segment.places()[0].get() == std::string(kMaxAddressBytes - 1, 'a'));
  check_areas(memory.layout(), 0);
  HDT_HOLDS(!segment.failed() && segment.failed_rank() == -1);
  if (memory.layout().nodes > 1) {
    const Journal journal(segment.journals(), memory.layout().nodes, memory.layout().slots);
    Journal::Agreed agreed;
    if (memory.layout().nodes <= kMostMeasuredNodes) {
      NodeRates rates;
      rates.memory = {1000, 1000};
      rates.links.assign(memory.layout().nodes, {10'000, 1000, 1000});
      agreed.rates.assign(memory.layout().nodes, rates);
      agreed.nics.assign(memory.layout().nodes, {2, 20'000, 0});
    }
    journal.agree(agreed);
    if (!agreed.rates.empty()) {
      const std::vector<LinkPart> parts(agreed.rates.size() * agreed.rates.size(), kWholeLink);
      journal.promise({1, 3});
      journal.change_rates(1, 5, parts);
    }
    journal.tell_call(0, Call{});
    journal.start(0);
    SentWrite write{};
    write.bytes = 8;
    journal.keep(write, "content");
    journal.arrived(0, 0, 1);
  }
  // Calls of every kind, as a rank enters them.
  for (uint8_t what = 0; what < collectives::kCollectiveCount; ++what) {
    Call call;
    call.what = static_cast<collectives::Collective>(what);
    call.count = call.what == collectives::Collective::kBarrier ? 0 : 100'000;
    const bool rooted =
        call.what == collectives::Collective::kReduce || call.what == collectives::Collective::kBroadcast;
    call.root = rooted ? 1 : 0;
    segment.rank_state(0).calls[what].call = call;
  }
  const Recorder recorder(segment.recording(0));
  recorder.end(recorder.begin(Call{}, 0));
  recorder.move(recorder.begin(Recorded::kSend, 1, 0, 100), 50);
  for (int i = 0; i < 512 && !choices.empty(); ++i) scribble(choices, memory);

  const bool attached = attach(memory);
  const Status failure = segment.failure();
  HDT_HOLDS(failure.message().size() < sizeof(FailureText::message) + 1);
  HDT_HOLDS(failure.is_ok() != segment.failed() && failure.code() != Code::kInProgress);
  HDT_HOLDS(segment.failed_rank() == -1 ||
            (segment.failed() && segment.failed_rank() < static_cast<int64_t>(memory.layout().ranks)));
  check_areas(memory.layout(), value_of(choices));
  for (uint32_t node = 0; node < memory.layout().nodes; ++node)
    HDT_HOLDS(segment.places()[node].get().size() <= kMaxAddressBytes);
  for (uint32_t local = 0; local < memory.layout().local_ranks; ++local) {
    for (const Entered& entered : segment.rank_state(local).calls) check_call(entered.call, memory.layout());
  }
  read_recordings(segment);
  read_journal(segment, memory);
  if (segment.fail(Code::kRankLost, 1, std::string(1000, 'x'))) {
    HDT_HOLDS(segment.failed() && segment.failed_rank() == 1);
    // Scribblers may have taken all places of texts.
    const Status told = segment.failure();
    HDT_HOLDS(told.code() == Code::kRankLost &&
              (told.message() == std::string(sizeof(FailureText::message) - 1, 'x') ||
               told.message() == "the reason is not known"));
  }
  memory.clear();
  return attached;
}

// A step of scribble(): any word at a place of a part.
void write(Bytes& seed, uint8_t part, size_t at, uint64_t value) {
  seed.push_back(std::byte{part});
  seed = fuzz::changed(seed, seed.size(), static_cast<uint16_t>(at / sizeof(uint64_t)));
  seed.push_back(std::byte{0xff});
  seed = fuzz::changed(seed, seed.size(), value);
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (size_t shape = 0; shape < std::size(kShapes); ++shape) {
    // A word or two of each part.
    Bytes seed = {static_cast<std::byte>(shape)};
    for (const int part : {1, 2, 3, 4, 5, 6, 7}) {
      for (const int word : {0, 57, 80}) {
        for (const int byte : {part, word, 0, 2}) seed.push_back(static_cast<std::byte>(byte));
      }
    }
    all.push_back({static_cast<std::byte>(shape)});
    all.push_back(seed);
  }
  // A failure that a rank has made up: of a code that is none, and of one.
  for (const int code : {1, 9}) {
    Bytes seed = {std::byte{0}};
    constexpr size_t kAt = offsetof(Header, failure);
    static_assert(kAt % sizeof(uint64_t) == 0 && offsetof(Failure, word) == 0);
    write(seed, 0, kAt, Failure::word_of(static_cast<Code>(code), 1, 1));
    all.push_back(seed);
  }
  return all;
}

// Headers of another version, of shapes that no group has, and of a larger group than there is memory for.
std::vector<Bytes> spoilt() {
  static_assert(offsetof(Header, version) == 8 && offsetof(Header, ranks) == 12 &&
                offsetof(Header, nodes) == 16 && offsetof(Header, node) == 20);
  const auto with = [](uint64_t magic, uint64_t version, uint64_t ranks, uint64_t nodes) {
    Bytes seed = {std::byte{1}};
    write(seed, 0, 0, magic);
    write(seed, 0, offsetof(Header, version), version + (ranks << 32));
    write(seed, 0, offsetof(Header, nodes), nodes);
    return seed;
  };
  return {with(0, kSegmentVersion, 2, 2), with(kSegmentMagic, kSegmentVersion + 1, 2, 2),
          with(kSegmentMagic, kSegmentVersion, 0, 2), with(kSegmentMagic, kSegmentVersion, 2, 3),
          with(kSegmentMagic, kSegmentVersion, 40, 40)};
}

HDT_FUZZ_TARGET(shared_memory, take, seeds, spoilt)

}  // namespace hdt::ipc::fuzz_shared_memory
