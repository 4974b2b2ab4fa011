// session_life.cc: a session over the lives of several daemons: the hand-over, when it needs one, joining a
// group while one daemon takes the other's place, and groups that are joined just then.
#include <sys/socket.h>

#include <array>
#include <set>
#include <sstream>

#include "base/address.h"
#include "base/contained.h"
#include "libclient/common/out_of_memory.h"
#include "libclient/daemon_client/session.h"

namespace hdt::client {

namespace {

// How long the coordinator may take to pass a rank's refusal on before the rank goes its way, in ms. The
// daemon goes on without it.
constexpr int64_t kDeclineMs = 2'000;

// Whether two lists of "address:port", separated by commas, have an address in common. A node id in
// front does not matter.
bool share_host(const std::string& one, const std::string& other) {
  std::set<std::string> hosts;
  std::istringstream first(without_id(one));
  for (std::string address; std::getline(first, address, ',');) hosts.insert(host_of(address));
  std::istringstream second(without_id(other));
  for (std::string address; std::getline(second, address, ',');) {
    if (hosts.contains(host_of(address))) return true;
  }
  return false;
}

}  // namespace

// Sends everything in the order in which it is needed: groups may use what is shared. No other thread
// sends to this daemon meanwhile, as none knows the wire. mutex_ keeps the lists as they are; a group
// that is watched during this is handed over by watch() itself.
Status Session::hand_over(Wire& wire) {
  const std::lock_guard lock(mutex_);
  // From here on waiters know that their daemon has ended.
  ++life_;
  for (const auto& [number, shared] : shared_) {
    const std::array<int, 1> fds = {shared.fd};
    HDT_RETURN_IF_ERROR(
        send_packet(wire.socket.get(),
                    ipc::encode(ipc::Kind::kShare, ipc::MemoryRequest{0, shared.handle, number}), fds));
  }
  for (const auto& [number, membership] : memberships_) {
    JoinedGroup& joined = *membership.joined;
    joined.life = life_;
    const std::array<int, 1> fds = {joined.memory.fd()};
    HDT_RETURN_IF_ERROR(
        send_packet(wire.socket.get(),
                    ipc::encode(ipc::AdoptRequest{joined.handle, joined.engine, joined.local_index}), fds));
    // The group may have failed, and the daemon before may not have passed that on.
    if (const auto failure = told_.find(joined.handle); failure != told_.end()) {
      HDT_RETURN_IF_ERROR(send_packet(wire.socket.get(), failure->second, {}));
    }
  }
  return Status::ok();
}

// An embedded daemon is hosted by a process that needs one. A process without a group and without a
// request hosts nothing for others.
bool Session::await_need() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closing_ || asking_ > 0 || !memberships_.empty(); });
  return !closing_;
}

// Without groups no callback is called. The reader thread ends by itself.
void Session::close() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
  memberships_.clear();
  ::shutdown(wire().socket.get(), SHUT_RDWR);
  changed_.notify_all();
}

// Only an answer proves that a daemon is there: this process may not have heard yet of the end of one
// that was killed just now. Which question is asked does not matter.
void Session::await_daemon() { (void)rendezvous_address(); }

// Two cases. kInProgress: the daemon has sent that its successor is to be asked. Or the daemon has ended,
// and the coordinator was this node's daemon (this rank hosts the meeting, or the coordinator's
// addresses are ours): then the successor coordinates, and all who join ask it, too. A coordinator
// elsewhere has given the group up.
bool Session::can_ask_again(const ipc::JoinRequest& request, const std::string& own_address,
                            const Status& why) const {
  if (why.code() == Code::kInProgress) return true;
  if (why.code() != Code::kDaemonLost || failed() || !become_host_) return false;
  return request.host != ipc::Hosting::kNone || share_host(request.rendezvous, own_address);
}

// Maps the memory of a group in which the daemon has given the rank its seat.
Result<JoinedGroup> Session::take_joined(const ipc::Joined& joined, Packet& packet, uint64_t life) {
  HDT_RETURN_IF_ERROR(packet.descriptors);
  if (packet.fds.size() != 1 || joined.engine >= wire().eventfds.size())
    return Status(Code::kInternal, "the daemon's answer to a join makes no sense");
  auto memory = SharedMemory::map(std::move(packet.fds[0]));
  if (!memory.is_ok()) return memory.status();
  return JoinedGroup{memory.take(), joined.handle, joined.engine, joined.local_index, life, joined.secret};
}

// From the daemon's success on, the others wait for this rank: whatever goes wrong afterwards fails the
// group (give_up_seat()) instead of leaving them to their deadline. Nothing is thrown from there on.
Result<JoinedGroup> Session::join_once(const ipc::JoinRequest& request, uint64_t& life,
                                       const std::function<Status()>& why_not) {
  Status withdrawn;
  std::function<Status()> look;
  if (why_not) look = [&] { return withdrawn = why_not(); };
  auto packet =
      ask(request.request, ipc::encode(request), request.timeout_ms + answer_ms_, {}, &life, nullptr, look);
  if (!withdrawn.is_ok()) decline(request, withdrawn);
  if (!packet.is_ok()) return packet.status();
  const auto rank = static_cast<int32_t>(request.rank);
  const auto take = [&](const Status& before) -> Result<JoinedGroup> {
    const auto joined = ipc::decode_joined(packet.value().bytes);
    if (!joined.is_ok()) return joined.status();
    if (joined.value().code != Code::kSuccess) return Status(joined.value().code, joined.value().text);
    if (!before.is_ok()) return give_up_seat(joined.value().handle, rank, before);
    auto taken = take_joined(joined.value(), packet.value(), life);
    if (!taken.is_ok()) return give_up_seat(joined.value().handle, rank, taken.status());
    return taken;
  };
  Result<JoinedGroup> taken = Status(Code::kSystem, "no memory");
  (void)contained(
      "the answer to a join", [&] { taken = take(Status::ok()); },
      [&](const std::string& /*why*/) { taken = take(out_of_memory()); });
  return taken;
}

// The wait lets an embedded daemon pass the refusal on before this process, and the daemon with it, may end.
void Session::decline(ipc::JoinRequest request, const Status& why) {
  request.code = why.code();
  request.text = why.message();
  {
    const std::lock_guard lock(mutex_);
    request.request = next_request_++;
  }
  (void)ask(request.request, ipc::encode(request), kDeclineMs);
}

// Joins through one daemon after the other, until the deadline. The coordinator's address is compared
// with this node's as it was before: a successor may have another port.
Result<JoinedGroup> Session::join(ipc::JoinRequest request, const std::function<Status()>& why_not) {
  const Deadline deadline = Deadline::after_ms(request.timeout_ms);
  const Counted asking(asking_);
  std::string own_address;
  if (become_host_) {
    auto address = rendezvous_address();
    if (!address.is_ok()) return address.status();
    own_address = address.take();
  }
  for (;;) {
    uint64_t life = 0;
    {
      const std::lock_guard lock(mutex_);
      // A number of its own for each attempt, so that a late answer to an earlier one is not taken for
      // this one's.
      request.request = next_request_++;
    }
    auto joined = join_once(request, life, why_not);
    if (joined.is_ok() || !can_ask_again(request, own_address, joined.status())) return joined;
    std::unique_lock lock(mutex_);
    // Until another daemon is there.
    changed_.wait_for(lock, std::chrono::nanoseconds(std::max<int64_t>(deadline.remaining_ns(), 0)),
                      [&] { return failed() || (connected_ && life_ != life); });
    if (failed()) return failed_why_;
    request.timeout_ms = deadline.remaining_ns() / kNsPerMs;
    if (request.timeout_ms <= 0)
      return Status(Code::kTimeout, "no group was made before the deadline: " + joined.status().message());
  }
}

// A group counts as this process's from here on, and keeps an embedded session in need of a daemon. What
// an earlier group with the same handle had reported is forgotten.
uint64_t Session::watch(Membership membership) {
  JoinedGroup& joined = *membership.joined;
  uint64_t number = 0;
  {
    std::unique_lock lock(mutex_);
    if (failed()) return 0;
    number = next_membership_++;
    told_.erase(joined.handle);
    memberships_[number] = std::move(membership);
    changed_.notify_all();
    changed_.wait(lock, [this] { return connected_ || failed(); });
    if (failed() || joined.life == life_) return number;
  }
  // The daemon that gave the group has ended meanwhile, and the group was not among those that its
  // successor was given: it is handed over here.
  const std::lock_guard sending(send_mutex_);
  const std::lock_guard lock(mutex_);
  // In the first case the reader will hand it over to the next daemon, in the second it has done so.
  if (!connected_ || joined.life == life_) return number;
  joined.life = life_;
  const std::array<int, 1> fds = {joined.memory.fd()};
  (void)send_packet(wire().socket.get(),
                    ipc::encode(ipc::AdoptRequest{joined.handle, joined.engine, joined.local_index}), fds);
  return number;
}

}  // namespace hdt::client
