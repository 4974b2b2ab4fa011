// connection.cc: the life of a connection, from the control socket's connect to kClosed; see connection.h.
// connection_data.cc has all that moves on the data path.
//
//   dialer                                    acceptor
//   connect                              -->  kAccepted
//   kConnected                           <--  kHere
//   messages of the owners              <-->  messages of the owners
//   admit(): data path, hello             <-->  admit(): data path, hello
//   probe, through the data path           -->  kReady
//   kReady                               <--  probe, which acknowledges the first
#include "transports/tagged/connection.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/address.h"

namespace hdt::transport::tagged {

namespace {
// After the admission the peer's hello must arrive, and a frame must pass through the data path, within this
// time.
constexpr int64_t kReadyMs = 10'000;
// If the peer closes or dies, the data path fails a little before or after the control socket. The control
// socket has this time to deliver the better reason.
constexpr int64_t kVerdictMs = 1000;
}  // namespace

// The data path first: its descriptor is in the loop.
TaggedConnection::~TaggedConnection() {
  drop_data_path();
  if (control_.valid()) device_.loop.remove(control_.fd(), this);
  if (hot_) std::erase(device_.hot, this);
}

// The deadline covers kHere as well: a port that another protocol listens on accepts, and then sends
// nothing, or something else.
Status TaggedConnection::connect(const tcp::SocketAddress& local, const tcp::SocketAddress& remote,
                                 int64_t timeout_ms) {
  Result<tcp::Fd> opened = tcp::open_connector(local);
  if (!opened.is_ok()) return opened.status();
  control_.attach(opened.take());
  local_address_ = local.host();
  remote_address_ = remote.to_string();
  connect_timeout_ms_ = timeout_ms;
  const int error = ::connect(control_.fd(), remote.get(), remote.bytes()) == 0 ? 0 : errno;
  HDT_RETURN_IF_ERROR(device_.loop.add(control_.fd(), this, EPOLLOUT));
  device_.loop.set_deadline(this, timeout_ms);
  if (error != EINPROGRESS) on_connect_result(error);
  return Status::ok();
}

// kAccepted is reported before flush_control(), which may end the connection.
Status TaggedConnection::accept(tcp::Fd fd) {
  HDT_RETURN_IF_ERROR(tcp::set_connection_options(fd.get()));
  HDT_RETURN_IF_ERROR(device_.loop.add(fd.get(), this, EPOLLIN));
  control_.attach(std::move(fd));
  accepting_ = true;
  local_address_ = tcp::local_address_of(control_.fd());
  remote_address_ = tcp::remote_address_of(control_.fd());
  phase_ = Phase::kMeeting;
  enter(device_.domain->strangers, host_of(remote_address_));
  report(Completion::Kind::kAccepted);
  control_.push_here();
  flush_control();
  return Status::ok();
}

void TaggedConnection::on_event(uint32_t epoll_events) {
  if (phase_ == Phase::kConnecting) {
    int error = 0;
    socklen_t bytes = sizeof error;
    if (::getsockopt(control_.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    return on_connect_result(error);
  }
  if ((epoll_events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read_control();
  if (phase_ != Phase::kFinished && (epoll_events & EPOLLOUT) != 0) flush_control();
}

// The kernel has finished the connect, with `error` (0: connected).
void TaggedConnection::on_connect_result(int error) {
  local_address_ = tcp::local_address_of(control_.fd());
  if (error == 0 && local_address_ == tcp::remote_address_of(control_.fd())) {
    // TCP allows a socket to connect to itself when the system picks the port that nobody listens on.
    error = ECONNREFUSED;
  }
  if (error != 0) {
    return fail({error == ECONNREFUSED ? Code::kNoDaemon : Code::kLink,
                 "cannot connect: " + std::string(std::strerror(error))});
  }
  device_.loop.modify(control_.fd(), this, EPOLLIN);
  control_.expect_here();
  phase_ = Phase::kCalling;
}

// Each end does this when its owner has authenticated the other, so the two hellos cross at any time. If
// the data path cannot be opened, the owner must close the connection: the control socket already accepts a
// hello, and there is no data path for it.
Status TaggedConnection::admit(const PeerName& peer) {
  if (phase_ != Phase::kMeeting)
    return {Code::kInvalidUsage, "only an open connection can be admitted, once"};
  leave();
  granted_ = device_.domain->regions.table_of(peer);
  control_.admit();
  HDT_RETURN_IF_ERROR(open_data_path());
  phase_ = Phase::kGreeting;
  connect_timeout_ms_ = kReadyMs;
  device_.loop.set_deadline(this, connect_timeout_ms_);
  flush_control();
  return Status::ok();
}

// Each end sends its hello as soon as it has a data path, that is, when it has admitted the peer.
Status TaggedConnection::open_data_path() {
  Result<std::unique_ptr<DataPath>> opened = device_.fabric->open_data_path();
  if (!opened.is_ok()) return opened.status();
  data_path_ = opened.take();
  if (data_path_->fd() >= 0)
    HDT_RETURN_IF_ERROR(device_.loop.add(data_path_->fd(), &data_path_events_, EPOLLIN));
  control_.push_hello({device_.fabric->segment_bytes(), device_.fabric->protocol(), data_path_->address()});
  return Status::ok();
}

// Messages are reported as sent when the queue is empty; they are few, and short.
void TaggedConnection::flush_control() {
  if (!control_.flush())
    return fail({Code::kLink, std::string("cannot talk to the peer: ") + std::strerror(errno)});
  if (control_.flushed()) {
    sent_.swap(said_);
    report_sent(Status::ok());
  }
  device_.loop.modify(control_.fd(), this, control_.flushed() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

// Handles one event of the handshake, and the end. The order matters: what came before the end counts. A
// hello may end the connection itself, so the phase is asked again. In kEnding a socket that broke says no
// more than the failed data path did, whose reason is then used; a goodbye or another reason is better.
void TaggedConnection::read_control() {
  const Control::Input input = control_.read();
  if (input.here) {
    device_.loop.clear_deadline(this);
    phase_ = Phase::kMeeting;
    report(Completion::Kind::kConnected);
  }
  if (!input.message.empty()) on_message(input.message);
  if (input.hello) on_hello(*input.hello);
  if (phase_ == Phase::kFinished) return;
  if (input.rung) heat();
  if (!input.ended) return;
  if (!input.reason.is_ok())
    return fail(phase_ == Phase::kEnding && input.reason.code() == Code::kLink ? failure_ : input.reason);
  // The data path is not looked at any more. A peer that sent a goodbye has had an answer to everything that
  // was reported to it as sent, and a library may not survive a poll of an endpoint whose peer has gone.
  finish(Status::ok(), Status(Code::kLink, "the peer closed the connection"), false);
}

// The hello of an admitted peer; its lengths were checked. Both ends use the smaller of the two segment
// lengths, so they number segments alike.
void TaggedConnection::on_hello(const Hello& hello) {
  if (hello.protocol != device_.fabric->protocol()) {
    return fail({Code::kNoBackend, "the peer's device speaks '" + hello.protocol + "', this one '" +
                                       device_.fabric->protocol() + "': set the same provider on both"});
  }
  if (Status status = data_path_->connect(hello.address); !status.is_ok()) return fail(status);
  const size_t segment_bytes = std::min(hello.segment_bytes, device_.fabric->segment_bytes());
  outgoing_.set_segment_bytes(segment_bytes);
  incoming_.set_segment_bytes(segment_bytes);
  phase_ = Phase::kProving;
  // Only the dialer sends a probe now; the other end answers it with its own. Endpoints of ofi_rxm that
  // both connect at once refuse each other, and one might wait for ever.
  if (!accepting_) outgoing_.push_probe();
  heat();
}

// The text names the step that was not reached.
void TaggedConnection::on_deadline() {
  if (phase_ == Phase::kEnding) return fail(failure_);
  const std::string within = " within " + std::to_string(connect_timeout_ms_) + " ms";
  if (phase_ == Phase::kConnecting || phase_ == Phase::kCalling)
    return fail({Code::kLink, "cannot connect: no answer" + within});
  if (phase_ == Phase::kGreeting)
    return fail({Code::kLink, "cannot connect: the peer did not send its endpoint's address" + within});
  fail({Code::kLink, "cannot connect: the peer answers, but nothing comes through " +
                         device_.fabric->protocol() + within});
}

// Messages that were held leave before anything that the owner sends from now on.
void TaggedConnection::opened() {
  device_.loop.clear_deadline(this);
  phase_ = Phase::kOpen;
  report(Completion::Kind::kReady);
  for (const Held& held : std::exchange(held_, {})) outgoing_.push_message(held.message, held.token);
  heat();
}

// Once it is open, the failure of the data path may be the end of the peer, which its control socket
// explains better. No memory is touched while it waits for that.
void TaggedConnection::on_data_path_failed(const Status& reason) {
  if (phase_ != Phase::kOpen) return fail(reason);
  failure_ = reason;
  drop_data_path();
  phase_ = Phase::kEnding;
  device_.loop.set_deadline(this, kVerdictMs);
}

// A receive for the payload may be posted, so the data path has to go.
void TaggedConnection::on_withdrawn(uint64_t region, const RegionTable* of) {
  if (of != nullptr && of != granted_.get()) return;
  if (data_path_ && incoming_.inside_write_to(region)) {
    fail({Code::kLink, of == nullptr
                           ? "the memory that the peer was writing to was deregistered"
                           : "the memory that the peer was writing to is not granted to it any more"});
  }
}

// A goodbye can be sent once kHere has shown that the peer speaks this protocol. Data that is under way on
// the data path is given up.
void TaggedConnection::close() {
  if (phase_ == Phase::kFinished) return;
  const bool met = phase_ != Phase::kConnecting && phase_ != Phase::kCalling && phase_ != Phase::kEnding;
  const bool in_order = met && control_.signal(Signal::kGoodbye);
  finish(Status::ok(), Status(Code::kAborted, "the connection was closed on this side"), in_order);
}

void TaggedConnection::abandon() {
  if (phase_ == Phase::kFinished) return;
  finish(Status::ok(), Status(Code::kAborted, "the connection was given up on this side"), false);
}

// The library does not say whether a peer is slow or gone. A tick on the control socket asks the peer's
// kernel instead, whenever something is outstanding and no tick is under way: its acknowledgement shows
// that the host is there.
Connection::Progress TaggedConnection::progress() const {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (phase_ != Phase::kOpen || ::getsockopt(control_.fd(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
    return {};
  if (outgoing_.outstanding() && info.tcpi_unacked == 0) control_.signal(Signal::kTick);
  return {moved_ + outgoing_.taken() + info.tcpi_bytes_acked + info.tcpi_bytes_received + info.tcpi_delivered,
          info.tcpi_unacked > 0, tcp::ordinary_round_ns(info)};
}

void TaggedConnection::drop_data_path() {
  if (!data_path_) return;
  if (data_path_->fd() >= 0) device_.loop.remove(data_path_->fd(), &data_path_events_);
  data_path_.reset();
}

// The data path is destroyed first. Only then may the owner learn that its memory is free. Sends that are
// given up are reported in the order in which it was sent: control socket, held, data path.
void TaggedConnection::finish(const Status& reason, const Status& given_up, bool in_order) {
  leave();
  drop_data_path();
  sent_.insert(sent_.end(), said_.begin(), said_.end());
  said_.clear();
  for (const Held& held : std::exchange(held_, {})) {
    if (held.token != 0) sent_.push_back({held.token, held.message.size()});
  }
  outgoing_.give_up(sent_);
  report_sent(given_up);
  device_.loop.remove(control_.fd(), this);
  if (in_order) {
    device_.lingering.add(control_.detach());
  } else {
    control_.drop();
  }
  phase_ = Phase::kFinished;
  report(Completion::Kind::kClosed);
  device_.pending.back().error = reason;
}

void TaggedConnection::report(Completion::Kind kind) {
  Completion& completion = device_.pending.emplace_back();
  completion.kind = kind;
  completion.connection = this;
  device_.loop.wake();
}

void TaggedConnection::report_sent(const Status& status) {
  for (const Outgoing::Sent& frame : sent_) {
    report(Completion::Kind::kSent);
    device_.pending.back().token = frame.token;
    device_.pending.back().bytes = frame.bytes;
    device_.pending.back().error = status;
  }
  sent_.clear();
}

}  // namespace hdt::transport::tagged
