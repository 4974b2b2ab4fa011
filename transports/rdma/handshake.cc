// handshake.cc: how a connection begins (see connection.h). rdma_cm resolves the address and the path, and
// carries a Hello both ways in its private data. The queue pair is ours and not rdma_cm's, so that it
// belongs to the adapter's context as this backend has opened it.
//
//   dialer                                    acceptor
//   bind, resolve_address, resolve_route
//   request (Hello)                      -->  queue pair to RTS, receives posted
//   queue pair to RTS, receives posted   <--  reply (Hello)
//   established                          -->  ESTABLISHED, or the first frame: open
//
// Both ends post their receives before the other end can send.
#include <cerrno>
#include <cstring>

#include "base/address.h"
#include "transports/rdma/connection.h"

namespace hdt::transport::rdma {

namespace {

// Time limits of rdma_cm's steps, which are tried again until our own deadline. Linux may miss the answer
// of a neighbour that comes at once, and looks again only when the step's time is over, so that of the
// address is short.
constexpr int kAddressMs = 100;
constexpr int kRouteMs = 2000;
// How long an accepted peer may take to confirm.
constexpr int64_t kAcceptMs = 10'000;
// For rdma_cm's request; QueuePair::change() replaces both counts at each end.
constexpr uint8_t kConnectRetries = 7;

// Reasons of a rejection: "invalid service id" and "consumer reject" (InfiniBand specification, CM REJ).
constexpr int kNobodyListens = 8;
constexpr int kRejectedByPeer = 28;

// "address:port" of a socket address in an id.
std::string text_of(const sockaddr_storage& address) {
  const socklen_t bytes = address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return tcp::SocketAddress(reinterpret_cast<const sockaddr*>(&address), bytes).to_string();
}

// rdma_cm gives negative errno values in events and positive ones from calls.
std::string error_text(int status) { return std::strerror(status < 0 ? -status : status); }

}  // namespace

// The id is bound to the device's address, and by that to its adapter.
Status RdmaConnection::connect(const tcp::SocketAddress& remote, int64_t timeout_ms) {
  id_ = verbs_.create_id(device_.channel, this);
  if (id_ == nullptr) return Status::from_errno("cannot make an rdma_cm id", errno);
  if (const int error = verbs_.bind(id_, device_.local.get()); error != 0) {
    return Status::from_errno("cannot connect from " + device_.local.host(), error);
  }
  local_address_ = text_of(id_->route.addr.src_storage);
  remote_address_ = remote.to_string();
  connect_timeout_ms_ = timeout_ms;
  device_.loop.set_deadline(this, timeout_ms);
  remote_ = remote;
  resolve();
  return Status::ok();
}

// Answered by ADDR_RESOLVED, or by ADDR_ERROR, after which it is tried again.
void RdmaConnection::resolve() {
  const int error = verbs_.resolve_address(id_, remote_.get(), kAddressMs);
  if (error != 0) fail("cannot connect: " + error_text(error));
}

// One deadline, whose meaning depends on the phase.
void RdmaConnection::on_deadline() {
  switch (phase_) {
    case Phase::kConnecting:
      return fail("cannot connect: no answer within " + std::to_string(connect_timeout_ms_) + " ms");
    case Phase::kAccepting:
      return fail("the peer did not finish the handshake");
    case Phase::kClosing:
      return drain(reason_, given_up_);
    // The adapter has kept something back. Once its queue pair is destroyed it cannot use that any more.
    case Phase::kDraining:
      return finish();
    default:
      return;
  }
}

// The steps of the handshake and the ends that rdma_cm reports. Events of a step that comes too late,
// after the connection has ended, are ignored: fail() and drain() have no effect then. An event is
// acknowledged before this is called (CmEvent is a copy).
void RdmaConnection::on_cm_event(const CmEvent& event) {
  const bool connecting = phase_ == Phase::kConnecting;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (!connecting) return;
      if (const int error = verbs_.resolve_route(id_, kRouteMs); error != 0)
        fail("cannot connect: " + error_text(error));
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (connecting) start_request();
      return;
    // As the queue pair is not rdma_cm's, the reply comes as this event, and establish() is ours to call.
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      if (connecting) on_reply(event);
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      if (phase_ == Phase::kAccepting) opened(Completion::Kind::kAccepted);
      return;
    case RDMA_CM_EVENT_REJECTED:
      return connecting ? on_rejected(event) : fail("the peer did not take the reply");
    // A time-out of this step is not the end: the step is tried again until our own deadline.
    case RDMA_CM_EVENT_ADDR_ERROR:
      if (connecting && event.status == -ETIMEDOUT) return resolve();
      return fail("cannot connect: " + error_text(event.status));
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
      return fail(std::string(connecting ? "cannot connect: " : "the handshake failed: ") +
                  error_text(event.status));
    case RDMA_CM_EVENT_DISCONNECTED:
      // Frames that came before it, a goodbye among them, are still in the completion queue. They are
      // handled while the connection drains, and the goodbye then replaces this reason.
      return fail("the peer ended the connection without a goodbye");
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return fail("the address of " + device_.nic.name() + " moved to another device");
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return on_removal();
    default:
      return;
  }
}

// The path is known: the queue pair is made, so that its number can go with the request.
void RdmaConnection::start_request() {
  if (const Status opened = open_pair(); !opened.is_ok()) return fail(opened.message());
  rdma_conn_param request = parameters();
  if (const int error = verbs_.connect(id_, request); error != 0)
    fail("cannot connect: " + error_text(error));
}

// From here on requests with this number may complete.
Status RdmaConnection::open_pair() {
  HDT_RETURN_IF_ERROR(pair_.create());
  send_.open(pair_.get(), pair_.inline_bytes(), pair_.send_slots(), pair_.slots_key());
  receive_.open(pair_.get(), pair_.receive_slots(), pair_.slots_key());
  device_.by_number.emplace(number_, this);
  return Status::ok();
}

rdma_conn_param RdmaConnection::parameters() const {
  rdma_conn_param made{};
  made.private_data = &hello_;
  made.private_data_len = sizeof hello_;
  made.retry_count = kConnectRetries;
  made.rnr_retry_count = kConnectRetries;
  made.qp_num = pair_.number();
  return made;
}

// The peer's receives become the first credits.
Status RdmaConnection::read_hello(const CmEvent& event) {
  const Result<Hello> read = to_hello(std::span(event.private_data).first(event.private_bytes));
  if (!read.is_ok()) return read.status();
  peer_ = read.value();
  send_.on_peer(peer_);
  return Status::ok();
}

// The order is given by the states of the queue pair: receives after INIT, the reply only when the queue
// pair can receive and send.
Status RdmaConnection::accept(const CmEvent& request) {
  id_ = request.id;
  id_->context = this;
  phase_ = Phase::kAccepting;
  enter(device_.domain->strangers, host_of(text_of(id_->route.addr.dst_storage)));
  local_address_ = text_of(id_->route.addr.src_storage);
  remote_address_ = text_of(id_->route.addr.dst_storage);
  Status status = read_hello(request);
  if (status.is_ok()) status = open_pair();
  if (status.is_ok()) status = pair_.init(id_);
  if (status.is_ok()) status = receive_.post_all();
  if (status.is_ok()) status = pair_.connect(id_);
  if (!status.is_ok()) {
    verbs_.reject(id_, &hello_, sizeof hello_);
    return status;
  }
  rdma_conn_param reply = parameters();
  if (const int error = verbs_.accept(id_, reply); error != 0)
    return Status::from_errno("cannot accept", error);
  device_.loop.set_deadline(this, kAcceptMs);
  return Status::ok();
}

// The same at the end that dialled, then "established" to the acceptor.
void RdmaConnection::on_reply(const CmEvent& event) {
  Status status = read_hello(event);
  if (status.is_ok()) status = pair_.init(id_);
  if (status.is_ok()) status = receive_.post_all();
  if (status.is_ok()) status = pair_.connect(id_);
  if (!status.is_ok()) {
    verbs_.reject(id_, &hello_, sizeof hello_);
    return drain(status, status);
  }
  if (const int error = verbs_.establish(id_); error != 0)
    return fail("cannot connect: " + error_text(error));
  opened(Completion::Kind::kConnected);
}

// A peer of another version rejects our hello and sends its own along, so its version can be reported.
void RdmaConnection::on_rejected(const CmEvent& event) {
  if (event.status == kNobodyListens || event.status == ECONNREFUSED || event.status == -ECONNREFUSED) {
    const Status refused(Code::kNoDaemon, "cannot connect: nobody listens there");
    return drain(refused, refused);
  }
  if (event.status == kRejectedByPeer) {
    const Status hello = read_hello(event);
    if (hello.code() == Code::kVersion) return drain(hello, hello);
    return fail("cannot connect: the peer refused the connection");
  }
  fail("cannot connect: rejected for reason " + std::to_string(event.status));
}

void RdmaConnection::opened(Completion::Kind kind) {
  device_.loop.clear_deadline(this);
  phase_ = Phase::kOpen;
  report(kind);
  queued_something();
}

}  // namespace hdt::transport::rdma
