// control_messages.cc: what daemons say to each other about groups (daemon/protocol/control_messages.h).
#include "daemon/protocol/control_messages.h"

#include <algorithm>

#include "ipc/segment.h"
#include "ipc/wake_page.h"
#include "tests/fuzz/target.h"

namespace hdt::daemon::fuzz_control_messages {

using fuzz::Bytes;

void check(const NodeInfo& node) {
  HDT_HOLDS(node.name.size() <= kMaxName && node.address.size() < ipc::kMaxAddressBytes);
  HDT_HOLDS(node.rails.size() <= ipc::kMaxEngines);
  for (const auto& ends : node.rails) HDT_HOLDS(ends.size() <= kMaxRails);
  HDT_HOLDS(id_text(node.id).size() == 2 * node.id.bytes.size());
  // Addresses come with an id in front as well.
  const DaemonAddress plain = DaemonAddress::parse(node.address);
  HDT_HOLDS(plain.id || plain.addresses == node.address);
  const DaemonAddress named = DaemonAddress::parse(id_text(node.id) + "@" + node.address);
  HDT_HOLDS(named.id && *named.id == node.id && named.addresses == node.address);
}

struct Check {
  void operator()(std::monostate) const {}
  void operator()(const Join& m) const {
    HDT_HOLDS(m.ranks >= 1 && m.ranks <= ipc::kMaxRanks && m.rank < m.ranks && m.timeout_ms > 0);
    HDT_HOLDS(m.group_class.size() <= ipc::kMaxClassBytes && !m.node.rails.empty());
    HDT_HOLDS(!m.algorithm || static_cast<int>(*m.algorithm) < collectives::kAlgorithmCount);
    check(m.node);
  }
  void operator()(const Cancel& m) const { HDT_HOLDS(is_code(m.code) && m.code != Code::kSuccess); }
  void operator()(const Membership& m) const {
    HDT_HOLDS(!m.nodes.empty() && m.nodes.size() <= m.node_of_rank.size());
    HDT_HOLDS(m.node_of_rank.size() <= ipc::kMaxRanks);
    std::vector<uint64_t> ranks(m.nodes.size());
    for (const uint32_t node : m.node_of_rank) {
      HDT_HOLDS(node < m.nodes.size());
      ++ranks[node];
    }
    // A node without ranks has no place in a group: what is computed from its share divides by it.
    HDT_HOLDS(std::ranges::none_of(ranks, [](uint64_t count) { return count == 0; }));
    HDT_HOLDS(std::ranges::none_of(ranks, [](uint64_t count) { return count > ipc::kMaxLocalRanks; }));
    for (const NodeInfo& node : m.nodes) check(node);
  }
  void operator()(const Outcome& m) const { HDT_HOLDS(is_code(m.code)); }
  void operator()(const Inquiry&) const {}
  void operator()(const Reply& m) const { HDT_HOLDS(is_code(m.code)); }
  void operator()(const Successor& m) const {
    HDT_HOLDS(!m.node.rails.empty() && m.live.settings.size() <= kMaxSettings);
    check(m.node);
  }
  void operator()(const SuccessorReply& m) const {
    HDT_HOLDS(is_code(m.code) && m.live.settings.size() <= kMaxSettings);
    check(m.node);
  }
};

bool take(std::span<const std::byte> input) {
  const ControlMessage message = decode_control(input);
  if (std::holds_alternative<std::monostate>(message)) return false;
  std::visit(Check{}, message);
  HDT_HOLDS(fuzz::is_written_as(input, encode(message)));
  return true;
}

Join a_join() {
  NodeInfo node;
  node.name = "n0";
  node.address = "10.0.0.1:18520,10.0.1.1:18520";
  node.rails = {{{"tcp", "eth0", "10.0.0.1:4000"}, {"rdma", "eth1", "10.0.1.1:4001"}}};
  Join join;
  join.ranks = 2;
  join.rank = 1;
  join.group_class = "dp";
  join.algorithm = collectives::Algorithm::kRing;
  join.timeout_ms = 1000;
  join.code = Code::kSystem;
  join.text = "no memory";
  join.node = node;
  return join;
}

std::vector<Bytes> seeds() {
  const Join join = a_join();
  const NodeInfo node = join.node;
  Join any = join;
  any.algorithm.reset();
  Membership membership;
  membership.group_class = "dp";
  membership.nodes = {node, node};
  membership.nodes[1].name = "n1";
  membership.nodes[1].id.bytes[0] = std::byte{1};
  membership.node_of_rank = {0, 1, 0, 1};
  Cancel cancel;
  cancel.text = "gone";
  Outcome outcome;
  outcome.code = Code::kLink;
  outcome.text = "no way";
  Inquiry inquiry;
  inquiry.what = "facts";
  Reply reply;
  reply.text = "{}";
  Successor successor;
  successor.live.settings = "class.dp.weight=3";
  successor.node = node;
  SuccessorReply known;
  known.live = successor.live;
  known.node = node;
  std::vector<Bytes> all;
  for (const ControlMessage& message : std::initializer_list<ControlMessage>{
           join, any, cancel, membership, outcome, inquiry, reply, successor, known})
    all.push_back(encode(message));
  return all;
}

// Messages of a wrong length, of no kind, with names that are too long or not printable, and with numbers
// that no group has.
std::vector<Bytes> spoilt() {
  std::vector<Bytes> all = fuzz::cut_and_extended(seeds());
  all.push_back(Bytes(16, std::byte{0xff}));
  const auto add = [&all](auto message, auto change) {
    change(message);
    all.push_back(encode(message));
  };
  add(a_join(), [](Join& m) { m.rank = m.ranks; });
  add(a_join(), [](Join& m) { m.group_class = "d\np"; });
  add(a_join(), [](Join& m) { m.code = static_cast<Code>(kCodeCount); });
  add(a_join(), [](Join& m) { m.group_class = std::string(ipc::kMaxClassBytes + 1, 'd'); });
  add(a_join(), [](Join& m) { m.node.rails.assign(ipc::kMaxEngines + 1, {}); });
  add(Cancel{}, [](Cancel& m) { m.code = Code::kSuccess; });
  add(Membership{}, [](Membership& m) { m.nodes = {a_join().node}; });
  return all;
}

HDT_FUZZ_TARGET(control_messages, take, seeds, spoilt)

}  // namespace hdt::daemon::fuzz_control_messages
