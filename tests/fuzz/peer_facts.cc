// peer_facts.cc: what other daemons tell of themselves (daemon/protocol/facts.h), what is concluded from it,
// the order of their replies (daemon/diagnosis/inquiries.h), and what a daemon tells of ranks that may have
// written anything to their records, or have any name.
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/diagnosis/inquiries.h"
#include "daemon/diagnosis/making_verdict.h"
#include "daemon/diagnosis/verdict.h"
#include "daemon/links/measurements_file.h"
#include "daemon/protocol/facts.h"
#include "ipc/segment.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"

namespace hdt::daemon::fuzz_peer_facts {

using fuzz::Bytes;
using fuzz::Choices;

NodeFacts example(const std::string& name) {
  NodeFacts node;
  node.name = name;
  node.control = "10.0.0.1:18520";
  node.now_ns = 5'000'000'000;
  GroupFacts group;
  group.id = id_text(7);
  group.name = "group 00000007 (class dp)";
  group.group_class = "dp";
  group.nodes = {{"n0", "10.0.0.1:18520", {0}}, {"n1", "10.0.0.2:18520", {1}}};
  RankFacts rank;
  rank.rank = name == "n0" ? 0 : 1;
  rank.pid = 12;
  rank.process = "S";
  rank.calls = 1;
  ipc::Operation call;
  call.kind = "allreduce";
  call.text = "allreduce of 4 float32, sum";
  call.entered_ns = 1'000'000'000;
  ipc::Operation message;
  message.kind = "recv";
  message.text = "recv of 4 bytes from rank 0";
  message.peer = 1 - static_cast<int64_t>(rank.rank);
  message.entered_ns = 1'000'000'000;
  rank.operations = {call, message};
  group.local = {rank};
  group.peers = {{name == "n0" ? "n1" : "n0", true, 1, 2, 3, 4}};
  node.groups = {group};
  node.rails = {
      {name == "n0" ? "n1" : "n0", "tcp", "eth0", "10.0.0.1", "10.0.0.2", "up", "", 0, 100, 0, 10'000},
      {name == "n0" ? "n1" : "n0", "tcp", "eth1", "10.0.1.1", "10.0.1.2", "down", "gone", 1, 100, 0, 10'000}};
  MakingFacts making;
  making.id = id_text(9);
  making.group_class = "dp";
  making.coordinates = true;
  making.ranks = 3;
  making.joined = {{0, "n0"}};
  making.left_ns = 1'000'000;
  making.lacks = {"no connection to node n1"};
  node.making = {making};
  return node;
}

// No arithmetic on the parser's own numbers overflows, and facts that were read are written in the same
// words.
bool take_facts(std::span<const std::byte> input) {
  const auto read = facts_of(fuzz::to_text(input));
  if (!read.is_ok()) {
    HDT_HOLDS(read.status().code() == Code::kInvalidArgument && !read.status().message().empty());
    return false;
  }
  NodeFacts facts = read.value();
  const auto dump = [](const NodeFacts& told) {
    return to_text(told).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  const std::string told = dump(facts);
  const auto again = facts_of(told);
  HDT_HOLDS(again.is_ok() && dump(again.value()) == told);
  for (const GroupFacts& group : facts.groups) {
    for (const RankFacts& rank : group.local) {
      for (const ipc::Operation& operation : rank.operations) HDT_HOLDS(is_code(operation.code));
    }
  }
  for (const bool is_own : {true, false}) {
    std::vector<NodeFacts> all = {example("n0"), facts};
    all[1].offset_ns = is_own ? 0 : 1'000'000;
    if (is_own) std::swap(all[0], all[1]);
    for (const Verdict& verdict : judge(all)) {
      HDT_HOLDS(!verdict.sentence.empty() && std::string(name_of(verdict.cause)) != "unknown");
      HDT_HOLDS(verdict.waiting_s >= 0);
    }
    for (const MakingVerdict& verdict : judge_making(all)) HDT_HOLDS(!verdict.sentence.empty());
  }
  keep_recent(facts);
  return true;
}

// The other daemons: keeps what they are asked.
struct AskedDaemons : Channels {
  ChannelId dial(const std::string&, std::optional<bool>) override { return next++; }
  void send(ChannelId channel, const ControlMessage& message) override {
    sent.emplace_back(channel, std::get<Inquiry>(message));
  }
  void finish(ChannelId) override {}
  void give_up(ChannelId) override {}

  ChannelId next = 1;
  std::vector<std::pair<ChannelId, Inquiry>> sent;
};

// Replies, ends of connections and the passing of time in any order: each question is answered once, with
// an answer for each address.
bool take_replies(Choices input) {
  AskedDaemons daemons;
  auto& sent = daemons.sent;
  Inquiries inquiries(daemons);
  const std::vector<std::string> addresses = {"a", "b", "a"};
  int asked = 0, answered = 0;
  for (int i = 0; i < 128 && !input.empty(); ++i) {
    switch (input.get<uint8_t>() % 4) {
      case 0:
        ++asked;
        // Some wait for no time at all, so that on_time() ends them.
        inquiries.ask(addresses, "facts", Viewer{true, 0, {}}, asked % 2 == 0 ? 0 : 600'000,
                      [&, size = addresses.size()](const std::vector<Answer>& answers) {
                        HDT_HOLDS(answers.size() == size);
                        ++answered;
                      });
        break;
      case 1: {
        if (sent.empty()) break;
        const auto [channel, inquiry] = sent[input.get<uint8_t>() % sent.size()];
        Reply reply;
        reply.number = input.get<uint8_t>() % 8 == 7 ? input.get<uint64_t>() : inquiry.number;
        reply.code = input.get<uint8_t>() % 4 == 3 ? Code::kTimeout : Code::kSuccess;
        reply.now_ns = input.get<int64_t>();
        inquiries.on_reply(input.get<uint8_t>() % 8 == 7 ? input.get<uint8_t>() : channel, reply);
        break;
      }
      case 2:
        inquiries.on_closed(input.get<uint8_t>() % 4, Status(Code::kLink, "gone"));
        break;
      default:
        inquiries.on_time();
        break;
    }
    HDT_HOLDS(answered <= asked);
    HDT_HOLDS(answered == asked || inquiries.next_time());  // somebody wakes for each open question
  }
  for (ChannelId channel = 0; channel < daemons.next; ++channel)
    inquiries.on_closed(channel, Status(Code::kLink, "gone"));
  HDT_HOLDS(answered == asked && !inquiries.next_time());
  return asked > 0;
}

// Ranks' records as they may have left them, and a process of any name. What becomes of them can be told.
bool take_ranks(Choices input) {
  const std::string name = fuzz::to_text(input.bytes(15));
  // The main thread, whose name is that of the process, runs this.
  HDT_HOLDS(::prctl(PR_SET_NAME, name.c_str()) == 0);
  GroupFacts group;
  group.id = id_text(7);
  for (int i = 0; i < 4; ++i) {
    RankFacts& rank = group.local.emplace_back();
    const auto how = input.get<uint8_t>();
    if (how % 4 == 0) rank.pid = static_cast<uint32_t>(::getpid());
    if (how % 4 == 1) rank.pid = UINT32_MAX;  // beyond what the system gives
    rank.departed = how % 4 == 2;
    for (int more = how / 4; more > 0 && !input.empty(); --more)
      rank.records.push_back(input.get<ipc::RecordCopy>());
  }
  const std::vector<RankFacts> before = group.local;
  complete(group, TickScale({1000, 1000}, {5000, 9000}));
  for (size_t i = 0; i < before.size(); ++i) {
    const RankFacts& rank = group.local[i];
    HDT_HOLDS(rank.records.empty() && rank.operations.size() <= before[i].records.size());
    const bool known = process_state(static_cast<uint32_t>(::getpid())) != "?";  // whose /proc is it?
    if (known && rank.pid == static_cast<uint32_t>(::getpid())) HDT_HOLDS(rank.process == "R");
    if (known && rank.pid == UINT32_MAX) HDT_HOLDS(rank.process.empty());
    if (rank.pid == 0) HDT_HOLDS(rank.process == (rank.departed ? "" : "?"));
  }
  NodeFacts facts;
  facts.groups = {group};
  const auto told = facts_of(to_text(facts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  HDT_HOLDS(told.is_ok() && told.value().groups[0].local.size() == group.local.size());
  keep_recent(facts);
  for (size_t i = 0; i < group.local.size(); ++i) {
    const auto ended = [](const RankFacts& rank) {
      return std::ranges::count_if(rank.operations, [](const auto& o) { return o.ended_ns != 0; });
    };
    const RankFacts& kept = facts.groups[0].local[i];
    HDT_HOLDS(ended(kept) == std::min<ptrdiff_t>(ended(group.local[i]), 4));
  }
  return true;
}

bool take_measurements(std::span<const std::byte> input) {
  const fuzz::MemoryFile file(input);
  const auto read = load_measurements(file.path());
  if (!read.is_ok()) return false;
  for (const auto& [peer, link] : read.value().links) HDT_HOLDS(link.measured());
  return true;
}

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  switch (choices.get<uint8_t>() % 4) {
    case 0:
      return take_facts(choices.rest());
    case 1:
      return take_replies(choices);
    case 2:
      return take_measurements(choices.rest());
    default:
      return take_ranks(choices);
  }
}

Bytes text_seed(uint8_t first, const std::string& text) {
  Bytes seed = fuzz::to_bytes(text);
  seed.insert(seed.begin(), std::byte{first});
  return seed;
}

std::vector<Bytes> seeds() {
  NodeFacts ended = example("n1");
  ended.groups[0].code = 9;
  ended.groups[0].failed_rank = 1;
  ended.groups[0].failure = "late";
  NodeFacts silent;
  silent.name = "n1";
  silent.answered = false;
  silent.silence = "no answer within 3000 ms";
  std::vector<Bytes> all;
  for (const NodeFacts& facts : {example("n1"), example("n0"), ended, silent})
    all.push_back(text_seed(0, to_text(facts).dump()));
  all.push_back(
      text_seed(2, R"({"format":2,"memory":{"copy_bytes_s":10,"reduce_bytes_s":20},"links":[{"node":"n1",)"
                   R"("engine":0,"latency_ns":1,"bytes_s":2,"duplex_bytes_s":3}]})"));
  Bytes replies = {std::byte{1}, std::byte{0}};
  for (uint8_t i = 0; i < 15; ++i) {
    for (const uint8_t byte : {uint8_t{1}, i, uint8_t{0}, uint8_t{0}}) replies.push_back(std::byte{byte});
    replies.resize(replies.size() + 9);
  }
  all.push_back(replies);
  // Two questions, of which one is over at once; a refusal; the end of a connection; the time.
  all.push_back({std::byte{1}, std::byte{0}, std::byte{0}, std::byte{3}, std::byte{1},
                 std::byte{0}, std::byte{0}, std::byte{3}, std::byte{0}, std::byte{0},
                 std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0},
                 std::byte{0}, std::byte{0}, std::byte{2}, std::byte{1}, std::byte{3}});
  // A process called "a) R (b", and ranks with what a recorder has written.
  Bytes ranks = text_seed(3, std::string("a) R (b\0\0\0\0\0\0\0\0", 15));
  static ipc::Recording recording{};
  const ipc::Recorder recorder(recording);
  for (int i = 0; i < 7; ++i) recorder.end(recorder.begin(ipc::Call{}, static_cast<uint64_t>(i)));
  recorder.begin(ipc::Recorded::kSend, 1, 0, 100);
  const auto records = ipc::copy_records(recording);
  for (const int kind : {0, 1, 2, 3}) {
    ranks.push_back(static_cast<std::byte>(4 * records.size() + static_cast<size_t>(kind)));
    for (const ipc::RecordCopy& record : records) ranks = fuzz::changed(ranks, ranks.size(), record);
  }
  all.push_back(ranks);
  return all;
}

std::vector<Bytes> spoilt() {
  const auto with = [](auto change) {
    NodeFacts facts = example("n1");
    change(facts);
    return text_seed(0, to_text(facts).dump());
  };
  return {text_seed(0, "{"),
          text_seed(0, "{}"),
          text_seed(0, "[1.5]"),
          text_seed(0, std::string(100, '[')),
          with([](NodeFacts& f) { f.groups[0].code = kCodeCount; }),
          with([](NodeFacts& f) { f.groups[0].nodes[0].ranks.resize(2 * ipc::kMaxRanks + 1); }),
          with([](NodeFacts& f) { f.making[0].ranks = ipc::kMaxRanks + 1; }),
          with([](NodeFacts& f) {
            f.making[0].ranks = ipc::kMaxRanks;
            f.making.resize(17, f.making[0]);
          }),
          {std::byte{1}},
          text_seed(2, "{"),
          text_seed(2, R"({"format":3})")};
}

HDT_FUZZ_TARGET(peer_facts, take, seeds, spoilt)

}  // namespace hdt::daemon::fuzz_peer_facts
