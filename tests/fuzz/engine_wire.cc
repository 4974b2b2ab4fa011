// engine_wire.cc: frames and notes between engines (daemon/protocol/wire.h). The first byte says which of the
// two the rest is.
#include <algorithm>
#include <cmath>

#include "daemon/group/cost_figures.h"
#include "daemon/protocol/wire.h"
#include "ipc/plan.h"
#include "tests/fuzz/target.h"

namespace hdt::daemon::fuzz_engine_wire {

using fuzz::Bytes;

bool is_code(Code code) { return static_cast<int>(code) >= 0 && static_cast<int>(code) < kCodeCount; }

struct CheckNote {
  template <typename Other>
  void operator()(const Other&) const {}
  void operator()(const GroupHello& n) const { HDT_HOLDS(n.restart_ms >= 0); }
  void operator()(const GroupFailed& n) const { HDT_HOLDS(is_code(n.code) && n.code > Code::kInProgress); }
  void operator()(const ClassReady& n) const { HDT_HOLDS(is_code(n.code)); }
  void operator()(const PieceState& n) const { HDT_HOLDS(n.tags.size() <= kMaxTags); }
  // A table of figures is made of what all nodes have said.
  void operator()(const RatesNote& n) const {
    HDT_HOLDS(n.rates.links.size() <= session::kMostMeasuredNodes);
    const auto figures = daemon::cost_figures(std::vector(n.rates.links.size(), n.rates));
    if (!figures || n.rates.links.size() < 2) return;
    const collectives::LinkFigures link = figures->link_of(0, 1);
    HDT_HOLDS(std::isfinite(link.latency_s) && std::isfinite(figures->copy_bytes_s));
  }
  void operator()(const ClassEnds& n) const { HDT_HOLDS(n.ends.size() <= kMaxRails); }
  void operator()(const ProbeNote& n) const {
    HDT_HOLDS(n.kind >= ProbeNote::Kind::kHere && n.kind <= ProbeNote::Kind::kTurn);
  }
  // Calls are compared with the node's own; words for them are made of any.
  void operator()(const CallNote& n) const { HDT_HOLDS(!words(n.call).empty()); }
  void operator()(const OutputNote& n) const { HDT_HOLDS(!words(n.call).empty()); }
  static std::string words(const session::Call& call) {
    const std::string wrong = session::validate(call, session::kMaxRanks);
    return wrong.empty() ? session::describe(call) : wrong;
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
  // Of a probe's frame, and behind the fields, bytes mean nothing.
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
  const Note note = decode_note(bytes);
  if (note.index() == 0) return false;
  std::visit(CheckNote{}, note);
  HDT_HOLDS(std::ranges::equal(encode(note), bytes));
  HDT_HOLDS(group_of(note) == group_of(decode_note(bytes)));
  return true;
}

Bytes behind(uint8_t first, std::span<const std::byte> rest) {
  Bytes all = {std::byte{first}};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> all = {behind(0, encode(PieceFrame{7, 1, 2, 3})),
                            behind(0, encode(ChunkFrame{7, 1, 2, 3})), behind(0, encode(ProbeFrame{0}))};
  session::Call call;
  call.count = 100;
  CallNote entered{};
  entered.call = call;
  OutputNote output{};
  output.call = call;
  output.direct = 1;
  GroupFailed failed{};
  failed.code = Code::kRankLost;
  failed.text = "gone";
  ProbeNote probe{};
  probe.kind = ProbeNote::Kind::kHere;
  RatesNote rates{};
  rates.rates.memory = {10, 20};
  rates.rates.links.assign(2, {10'000, 100, 100});
  ClassPrepare prepare{};
  prepare.settings = "class.dp.weight=3";
  ClassEnds ends{};
  ends.ends = {{"tcp", "lo", "127.0.0.1:4000"}};
  ClassReady ready{};
  ready.text = "not here";
  PieceState state{};
  state.tags = {1, 2, 3};
  for (const Note& note : std::initializer_list<Note>{
           GroupHello{}, PieceCredit{}, ChunkCredit{}, entered,       RankLeft{}, NodeLeft{},
           failed,       output,        probe,         rates,         prepare,    ends,
           ready,        ClassCommit{}, LinkMoved{},   LinkUnused{},  state,      ChannelState{},
           Resume{},     GroupSeated{}, GroupReady{},  GroupUnknown{}})
    all.push_back(behind(1, encode(note)));
  return all;
}

HDT_FUZZ_TARGET(engine_wire, take, seeds)

}  // namespace hdt::daemon::fuzz_engine_wire
