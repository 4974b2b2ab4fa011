// engine_wire.cc: frames and notes between engines (daemon/protocol/wire.h). The first byte says which of the
// two the rest is.
#include <algorithm>
#include <cmath>

#include "daemon/group/cost_measurements.h"
#include "daemon/protocol/wire.h"
#include "ipc/partition.h"
#include "tests/fuzz/target.h"

namespace hdt::daemon::fuzz_engine_wire {

using fuzz::Bytes;

struct CheckNote {
  template <typename Other>
  void operator()(const Other&) const {}
  void operator()(const GroupHello& n) const { HDT_HOLDS(n.restart_ms >= 0); }
  void operator()(const GroupFailed& n) const { HDT_HOLDS(is_code(n.code) && n.code > Code::kInProgress); }
  void operator()(const ClassReady& n) const { HDT_HOLDS(is_code(n.code)); }
  void operator()(const ChunkState& n) const { HDT_HOLDS(n.tags.size() <= kMaxTags); }
  // A table of measurements is made of what all nodes have said.
  void operator()(const RatesMessage& n) const {
    HDT_HOLDS(n.rates.links.size() <= ipc::kMostMeasuredNodes);
    const auto measurements = daemon::cost_measurements(std::vector(n.rates.links.size(), n.rates));
    if (!measurements || n.rates.links.size() < 2) return;
    const collectives::LinkMeasurements link = measurements->link_of(0, 1);
    HDT_HOLDS(std::isfinite(link.latency_s) && std::isfinite(measurements->memory[0].copy_bytes_s));
  }
  void operator()(const RateChangeMessage& n) const {
    HDT_HOLDS(std::ranges::count(n.parts, ipc::LinkPart{0}) == 0);
  }
  void operator()(const ClassEnds& n) const { HDT_HOLDS(n.ends.size() <= kMaxRails); }
  void operator()(const ProbeMessage& n) const {
    HDT_HOLDS(n.kind >= ProbeMessage::Kind::kHere && n.kind <= ProbeMessage::Kind::kTurn);
  }
  // Calls are compared with the node's own; words for them are made of any.
  void operator()(const CallMessage& n) const { HDT_HOLDS(!words(n.call).empty()); }
  void operator()(const OutputMessage& n) const { HDT_HOLDS(!words(n.call).empty()); }
  static std::string words(const ipc::Call& call) {
    const std::string wrong = ipc::validate(call, ipc::kMaxRanks);
    return wrong.empty() ? ipc::describe(call) : wrong;
  }
};

template <typename F>
transport::LinkHeader encoded(const F& frame) {
  if constexpr (std::is_same_v<F, std::monostate>) {
    return {};
  } else {
    return encode(frame);
  }
}

bool take_frame(std::span<const std::byte> input) {
  transport::LinkHeader header{};
  std::memcpy(header.data(), input.data(), std::min(input.size(), header.size()));
  const Frame frame = decode_frame(header);
  if (frame.index() == 0) return false;
  // Bytes of a probe's frame, and behind the fields, mean nothing.
  const transport::LinkHeader written = std::visit([](const auto& f) { return encoded(f); }, frame);
  const Frame again = decode_frame(written);
  HDT_HOLDS(again.index() == frame.index() &&
            std::visit([](const auto& f) { return encoded(f); }, again) == written);
  return true;
}

bool take(std::span<const std::byte> input) {
  if (input.empty()) return false;
  if (input[0] == std::byte{0}) return take_frame(input.subspan(1));
  const std::span<const std::byte> bytes = input.subspan(1);
  const EngineMessage note = decode_engine_message(bytes);
  if (note.index() == 0) return false;
  std::visit(CheckNote{}, note);
  HDT_HOLDS(fuzz::is_written_as(bytes, encode(note)));
  HDT_HOLDS(group_of(note) == group_of(decode_engine_message(bytes)));
  return true;
}

Bytes behind(uint8_t first, std::span<const std::byte> rest) {
  Bytes all = {std::byte{first}};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> all = {behind(0, encode(ChunkFrame{7, 1, 2, 3})),
                            behind(0, encode(CellFrame{7, 1, 2, 3})), behind(0, encode(ProbeFrame{0}))};
  ipc::Call call;
  call.count = 100;
  CallMessage entered{};
  entered.call = call;
  OutputMessage output{};
  output.call = call;
  output.direct = 1;
  GroupFailed failed{};
  failed.code = Code::kRankLost;
  failed.text = "gone";
  ProbeMessage probe{};
  probe.kind = ProbeMessage::Kind::kHere;
  RatesMessage rates{};
  rates.rates.memory = {10, 20};
  rates.rates.links.assign(2, {10'000, 100, 100});
  RateChangeMessage change{};
  change.kind = RateChangeMessage::Kind::kNow;
  change.parts = {ipc::kWholeLink, 8};
  ClassPrepare prepare{};
  prepare.settings = "class.dp.weight=3";
  ClassEnds ends{};
  ends.ends = {{"tcp", "lo", "127.0.0.1:4000"}};
  ClassReady ready{};
  ready.text = "not here";
  ChunkState state{};
  state.tags = {1, 2, 3};
  for (const EngineMessage& note : std::initializer_list<EngineMessage>{
           GroupHello{}, ChunkCredit{}, CellCredit{}, entered,        RankDeparted{}, NodeDeparted{},
           failed,       output,        probe,        rates,          prepare,        ends,
           ready,        ClassCommit{}, LinkMoved{},  LinkDrained{},  state,          RingState{},
           Resume{},     GroupSeated{}, GroupReady{}, GroupUnknown{}, change,         RingEnded{}})
    all.push_back(behind(1, encode(note)));
  return all;
}

// Notes of a wrong length, and of no kind.
std::vector<Bytes> spoilt() {
  std::vector<Bytes> notes = seeds();
  std::erase_if(notes, [](const Bytes& seed) { return seed[0] == std::byte{0}; });
  std::vector<Bytes> all = fuzz::cut_and_extended(notes);
  all.push_back(behind(1, Bytes(16, std::byte{0xff})));
  return all;
}

HDT_FUZZ_TARGET(engine_wire, take, seeds, spoilt)

}  // namespace hdt::daemon::fuzz_engine_wire
