// session_life.cc: a session over the lives of daemons: when it needs one, joining a group while one takes
// the other's place, and groups that are joined just then.
#include <sys/socket.h>

#include <array>
#include <set>
#include <sstream>

#include "base/address.h"
#include "libclient/daemon_client/session.h"

namespace hdt::client {

namespace {

// Whether two lists of "address:port", by commas, have an address in common.
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

// An embedded daemon is hosted by who needs one.
bool Session::await_need() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closing_ || asking_ > 0 || !memberships_.empty(); });
  return !closing_;
}

void Session::close() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
  memberships_.clear();
  ::shutdown(wire().socket.get(), SHUT_RDWR);
  changed_.notify_all();
}

// Only an answer proves it: of a daemon that was killed just now, this process may not have heard yet.
void Session::await_daemon() { (void)rendezvous_address(); }

// The daemon has said that its successor is to be asked; or it is gone, and the successor is where all who
// join are asking, too: the coordinator was here. A coordinator elsewhere has given the group up.
bool Session::can_ask_again(const session::JoinRequest& request, const std::string& own_address,
                            const Status& why) const {
  if (why.code() == Code::kInProgress) return true;
  if (why.code() != Code::kDaemonLost || lost() || !become_host_) return false;
  return request.host != session::Hosting::kNone || share_host(request.rendezvous, own_address);
}

Result<JoinedGroup> Session::join(session::JoinRequest request) {
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
      request.request = next_request_++;
    }
    auto joined = join_once(request, life);
    if (joined.is_ok() || !can_ask_again(request, own_address, joined.status())) return joined;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(std::max<int64_t>(deadline.remaining_ns(), 0)),
                      [&] { return lost() || (connected_ && life_ != life); });
    if (lost()) return lost_why_;
    request.timeout_ms = deadline.remaining_ns() / kNsPerMs;
    if (request.timeout_ms <= 0)
      return Status(Code::kTimeout, "no group was made before the deadline: " + joined.status().message());
  }
}

uint64_t Session::watch(Membership membership) {
  JoinedGroup& joined = *membership.joined;
  uint64_t number = 0;
  {
    std::unique_lock lock(mutex_);
    if (lost()) return 0;
    number = next_membership_++;
    told_.erase(joined.handle);
    memberships_[number] = std::move(membership);
    changed_.notify_all();
    changed_.wait(lock, [this] { return connected_ || lost(); });
    if (lost() || joined.life == life_) return number;
  }
  // The daemon that gave the group has gone meanwhile, and the group was not among those that its successor
  // got.
  const std::lock_guard sending(send_mutex_);
  const std::lock_guard lock(mutex_);
  if (!connected_ || joined.life == life_) return number;  // else the reader hands it over
  joined.life = life_;
  const std::array<int, 1> fds = {joined.memory.fd()};
  (void)send_packet(wire().socket.get(),
                    session::encode(session::AdoptRequest{joined.handle, joined.engine, joined.local_index}),
                    fds);
  return number;
}

}  // namespace hdt::client
