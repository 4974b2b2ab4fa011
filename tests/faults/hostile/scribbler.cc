// scribbler.cc: a member of live groups that writes whatever it likes over the memory it shares with its
// daemon: calls, counters, rings, recordings, journals, the header, the session's page; structured
// values more often than noise, as what is nearly right gets furthest. It asks its daemon about itself
// meanwhile.
#include <grp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/seqpacket.h"
#include "base/shared_memory.h"
#include "ipc/journal.h"
#include "ipc/messages.h"
#include "ipc/segment.h"
#include "ipc/wake_page.h"

namespace hdt::testing {
namespace {

using ipc::Kind;
using Dice = std::mt19937_64;

constexpr int64_t kAnswerMs = 20'000;
constexpr uint64_t kValues[] = {0,
                                1,
                                2,
                                15,
                                16,
                                17,
                                63,
                                64,
                                65,
                                128,
                                255,
                                256,
                                1U << 16,
                                1U << 31,
                                UINT32_MAX,
                                uint64_t{1} << 32,
                                uint64_t{1} << 48,
                                uint64_t{1} << 56,
                                INT64_MAX,
                                uint64_t{1} << 63,
                                UINT64_MAX - 16,
                                UINT64_MAX};

// A session, as a process has one. It says what the protocol wants; the harm is in the memory.
class Client {
 public:
  // False: the daemon takes no session now.
  bool open(const std::string& path) {
    auto connected = connect_seqpacket(path);
    if (!connected.is_ok()) return false;
    socket_ = std::move(connected.value());
    if (!send(ipc::encode(ipc::Hello{"scribbler"}))) return false;
    auto welcome = await(Kind::kWelcome);
    if (!welcome || welcome->fds.size() < 2) return false;
    auto page = SharedMemory::map(std::move(welcome->fds[0]));
    if (!page.is_ok() || page.value().size() < sizeof(ipc::WakePage)) return false;
    page_ = std::move(page.value());
    for (size_t i = 1; i < welcome->fds.size(); ++i) bells_.push_back(std::move(welcome->fds[i]));
    return true;
  }
  bool send(std::span<const std::byte> bytes) { return send_packet(socket_.get(), bytes, {}).is_ok(); }
  // The next message of this kind, others are passed over; nothing once the daemon has ended the session.
  std::optional<Packet> await(Kind wanted) {
    const Deadline until = Deadline::after_ms(kAnswerMs);
    while (!until.expired()) {
      pollfd input{socket_.get(), POLLIN, 0};
      if (::poll(&input, 1, 100) == 0) continue;
      auto packet = receive_packet(socket_.get());
      if (!packet.is_ok()) return {};
      const auto kind = ipc::kind_of(packet.value().bytes);
      if (!kind.is_ok() || kind.value() == Kind::kRefused) return {};
      if (kind.value() == wanted) return std::move(packet.value());
    }
    return {};
  }
  // Reads all that has come and throws it away. False: the session is over.
  bool drain() {
    for (;;) {
      pollfd input{socket_.get(), POLLIN, 0};
      if (::poll(&input, 1, 0) == 0) return true;
      if (!receive_packet(socket_.get()).is_ok()) return false;
    }
  }
  std::string meeting_place() {
    if (!send(ipc::encode_empty(Kind::kRendezvous))) return {};
    const auto packet = await(Kind::kRendezvousAt);
    if (!packet) return {};
    const auto text = ipc::decode_text(packet->bytes);
    return text.is_ok() ? text.value().text : std::string();
  }
  bool join(const ipc::JoinRequest& request) {
    if (!send(ipc::encode(request))) return false;
    auto packet = await(Kind::kJoined);
    if (!packet || packet->fds.empty()) return false;
    const auto joined = ipc::decode_joined(packet->bytes);
    if (!joined.is_ok() || joined.value().code != Code::kSuccess) return false;
    seat_ = joined.value();
    auto memory = SharedMemory::map(std::move(packet->fds[0]));
    if (!memory.is_ok()) return false;
    memory_ = std::move(memory.value());
    const auto segment = ipc::Segment::attach(memory_.data(), memory_.size());
    if (!segment.is_ok()) return false;
    segment_ =
        segment.value();  // its layout is read once: what is written over it later changes nothing here
    return true;
  }
  void ring() {
    if (seat_.engine >= bells_.size()) return;
    auto& bell = page().engines[seat_.engine];
    const uint32_t bit = seat_.handle % (ipc::kAttentionWords * 64);
    bell.attention[bit / 64].fetch_or(uint64_t{1} << (bit % 64));
    const uint64_t one = 1;
    (void)!::write(bells_[seat_.engine].get(), &one, sizeof one);
  }
  ipc::WakePage& page() { return *reinterpret_cast<ipc::WakePage*>(page_.data()); }
  ipc::Segment& segment() { return segment_; }
  std::byte* memory() { return memory_.data(); }
  uint32_t local() const { return seat_.local_index; }

 private:
  UniqueFd socket_;
  SharedMemory page_, memory_;
  std::vector<UniqueFd> bells_;
  ipc::Joined seat_;
  ipc::Segment segment_;
};

// A group of two nodes, whose two ranks of the first one enter calls that differ, one of a type that there is
// not: before anybody says how they differ, they must be calls. What the group fails with goes to standard
// output.
int enter_no_call(const std::string& first, const std::string& second) {
  Client clients[3];
  ipc::JoinRequest request;
  for (auto& byte : request.key) byte = static_cast<std::byte>(std::random_device()());
  request.ranks = 3;
  request.group_class = "neighbour";  // links of a class stay: its own would count as left behind
  request.timeout_ms = kAnswerMs;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    if (!clients[rank].open(rank < 2 ? first : second)) return 1;
  }
  request.rendezvous = clients[0].meeting_place();
  std::vector<std::future<bool>> joins;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    request.rank = rank;
    joins.push_back(
        std::async(std::launch::async, [&client = clients[rank], request] { return client.join(request); }));
  }
  if (std::count_if(joins.begin(), joins.end(), [](auto& join) { return join.get(); }) != 3) return 1;
  const ipc::Segment& segment = clients[0].segment();
  for (uint32_t local = 0; local < 2; ++local) {
    ipc::Entered entered{};
    entered.call.count = 1000;
    entered.call.type = static_cast<collectives::DataType>(local == 0 ? 4 : 255);
    ipc::RankState& rank_state = segment.rank_state(local);
    std::memcpy(&rank_state.calls[0], &entered, sizeof entered);
    rank_state.entered.store(1);
  }
  clients[0].ring();
  const Deadline until = Deadline::after_ms(kAnswerMs);
  while (!segment.failed() && !until.expired()) ::usleep(1'000);
  std::printf("%s\n", segment.failure().message().c_str());
  return segment.failed() ? 0 : 1;
}

class Scribbler {
 public:
  Scribbler(uint64_t seed, std::vector<std::string> sockets) : dice_(seed), sockets_(std::move(sockets)) {}

  // Makes a group and spoils it. False: there was none.
  bool spoil(const Deadline& end) {
    // Two ranks: on one node, or one on each.
    const bool apart = sockets_.size() > 1 && below(3) != 0;
    Client clients[2];
    if (!clients[0].open(sockets_[0]) || !clients[1].open(sockets_[apart ? 1 : 0])) return false;
    ipc::JoinRequest request;
    for (auto& byte : request.key) byte = static_cast<std::byte>(below(256));
    request.rendezvous = clients[0].meeting_place();
    request.ranks = 2;
    request.group_class = "neighbour";  // links of a class stay: its own would count as left behind
    request.timeout_ms = kAnswerMs;
    auto other = std::async(std::launch::async, [&clients, request]() mutable {
      request.rank = 1;
      return clients[1].join(request);
    });
    const bool joined = clients[0].join(request);
    if (!other.get() || !joined) return false;
    for (auto& client : clients)
      client.segment().rank_state(client.local()).pid.store(static_cast<uint32_t>(::getpid()));
    const Deadline until =
        Deadline::earlier(end, Deadline::after_ms(300 + static_cast<int64_t>(below(1500))));
    const bool calm = below(2) == 0;  // only values that a rank might write
    uint64_t sequence = 0;
    bool open = true;
    while (open && !until.expired()) {
      for (uint64_t i = 1 + below(20); i > 0; --i) scribble(clients, calm, sequence);
      for (auto& client : clients) {
        client.ring();
        if (below(40) == 0) ask(client);
        open = open && client.drain();
      }
      ::usleep(300);
    }
    return true;
  }
  uint64_t writes() const { return writes_; }

 private:
  uint64_t below(uint64_t limit) { return dice_() % limit; }
  uint64_t value() { return below(8) == 0 ? dice_() : kValues[below(std::size(kValues))]; }

  ipc::Entered call() {
    static constexpr uint64_t kCounts[] = {
        0, 1, 4, 1000, 1U << 16, 1U << 20, uint64_t{1} << 40, uint64_t{1} << 55, UINT64_MAX};
    ipc::Entered entered{};
    entered.call.count = kCounts[below(std::size(kCounts))];
    entered.call.root = static_cast<int32_t>(below(4)) - 1;
    entered.call.what = static_cast<collectives::Collective>(below(collectives::kCollectiveCount + 2));
    entered.call.type = static_cast<collectives::DataType>(below(collectives::kDataTypeCount + 2));
    entered.call.op = static_cast<collectives::ReduceOp>(below(collectives::kReduceOpCount + 2));
    entered.where.send = value();
    entered.where.recv = value();
    return entered;
  }
  void enter(Client& client, uint64_t sequence, const ipc::Entered& entered) {
    ipc::RankState& rank_state = client.segment().rank_state(client.local());
    std::memcpy(&rank_state.calls[sequence % ipc::kCallRing], &entered, sizeof entered);
    rank_state.entered.store(sequence + 1);
  }
  void counter(Client& client) {
    ipc::RankState& rank_state = client.segment().rank_state(client.local());
    const ipc::Layout& layout = client.segment().layout();
    ipc::MessageRing& ring =
        client.segment().ring(static_cast<uint32_t>(below(2 * layout.local_ranks * layout.ranks)));
    std::atomic<uint64_t>* const counters[] = {&rank_state.staged,
                                               &rank_state.reduced,
                                               &rank_state.done,
                                               &rank_state.finished,
                                               &rank_state.worked,
                                               &rank_state.attention_head,
                                               &ring.head,
                                               &ring.tail,
                                               &ring.landed,
                                               &rank_state.entered,
                                               &rank_state.attention_tail,
                                               &rank_state.proof_address};
    const size_t which = below(std::size(counters) + 3);
    if (which < std::size(counters)) {
      // A little further than it was, or anything.
      counters[which]->store(below(2) == 0 ? counters[which]->load() + below(20) : value());
    } else {
      std::atomic<uint32_t>* const flags[] = {&rank_state.departed, &rank_state.echo_asked,
                                              &rank_state.attention_overflow};
      flags[which - std::size(counters)]->store(static_cast<uint32_t>(value()));
    }
    rank_state.attention[below(ipc::kAttentionRing)] =
        static_cast<uint32_t>(below(2) == 0 ? below(8) : value());
  }
  // The head of a message that the daemon is to carry.
  void cell(Client& client) {
    const ipc::Layout& layout = client.segment().layout();
    const auto ring = static_cast<uint32_t>(below(2 * layout.local_ranks * layout.ranks));
    ipc::CellHeader header;
    header.message = below(3);
    header.message_bytes = value();
    header.offset = value();
    header.bytes = value();
    std::memcpy(client.segment().data() + layout.cell(ring, below(layout.slots)), &header, sizeof header);
    client.segment().ring(ring).head.fetch_add(1 + below(2));
  }
  void word(Client& client, uint64_t from, uint64_t to) {
    if (to - from < sizeof(uint64_t)) return;
    const uint64_t at = from + below((to - from) / sizeof(uint64_t)) * sizeof(uint64_t);
    const uint64_t written = value();
    std::memcpy(client.memory() + at, &written, sizeof written);
  }
  void scribble(Client (&clients)[2], bool calm, uint64_t& sequence) {
    ++writes_;
    Client& client = clients[below(2)];
    const ipc::Layout& layout = client.segment().layout();
    const uint64_t what = below(calm ? 10 : 18);
    if (what < 4) {
      // The same call on both, mostly.
      const ipc::Entered entered = call();
      enter(clients[0], sequence, entered);
      enter(clients[1], sequence, below(4) == 0 ? call() : entered);
      ++sequence;
    } else if (what < 8) {
      counter(client);
    } else if (what < 10) {
      cell(client);
    } else if (what < 11) {
      word(client, 0, layout.rank_states);
    } else if (what < 13) {
      word(client, layout.rank_states, layout.posts);
    } else if (what < 14) {
      word(client, layout.recordings, layout.journals);
    } else if (what < 16) {
      word(client, layout.journals, layout.data);
    } else if (what < 17) {
      // A word at the beginning of the journal's parts.
      word(client, layout.journals, std::min(layout.journals + 512, layout.data));
    } else {
      auto* const page = reinterpret_cast<std::byte*>(&client.page());
      const uint64_t written = value();
      std::memcpy(page + below(sizeof(ipc::WakePage) / sizeof written) * sizeof written, &written,
                  sizeof written);
    }
  }
  void ask(Client& client) {
#ifdef __SANITIZE_THREAD__  // "backends" loads UCX, whose hooks at a thread's end break the thread sanitizer
    static const char* const kQuestions[] = {"why", "trace", "class"};
#else
    static const char* const kQuestions[] = {"why", "trace", "backends", "class"};
#endif
    ipc::Question question;
    question.what = kQuestions[below(std::size(kQuestions))];
    client.send(below(3) == 0 ? ipc::encode_empty(Kind::kStatus) : ipc::encode(question));
    ipc::GroupNotice notice;
    notice.handle = static_cast<uint32_t>(value());
    notice.text = "late";
    if (below(10) == 0) client.send(ipc::encode(Kind::kDeadline, notice));
  }

  Dice dice_;
  std::vector<std::string> sockets_;
  uint64_t writes_ = 0;
};

}  // namespace
}  // namespace hdt::testing

// Usage: scribbler USER SECONDS SEED SOCKET [SOCKET], or scribbler USER no-call SOCKET SOCKET. Becomes the
// user first.
int main(int argc, char** argv) {
  using namespace hdt;
  if (argc < 5) return 2;
  const auto user = static_cast<uid_t>(std::strtoul(argv[1], nullptr, 10));
  if (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0) {
    std::perror("scribbler: cannot become the user");
    return 2;
  }
  if (argv[2] == std::string("no-call")) return testing::enter_no_call(argv[3], argv[4]);
  testing::Scribbler scribbler(std::strtoull(argv[3], nullptr, 10), {argv + 4, argv + argc});
  const Deadline end = Deadline::after_ms(static_cast<int64_t>(std::strtod(argv[2], nullptr) * 1000));
  int groups = 0, failures = 0;
  while (!end.expired()) (scribbler.spoil(end) ? groups : failures) += 1;
  std::printf("%d groups, %llu writes, %d groups not made\n", groups,
              static_cast<unsigned long long>(scribbler.writes()), failures);
  return groups > 0 ? 0 : 1;
}
