// handshake.cc: how a connection begins (see connection.h): rdma_cm resolves the address and the path, and
// carries a Hello both ways. The queue pair is ours, not rdma_cm's, so that it belongs to the adapter as this
// backend has opened it.
#include <cerrno>
#include <cstring>

#include "base/address.h"
#include "transports/rdma/connection.h"

namespace hdt::transport::rdma {

namespace {

// rdma_cm's steps are tried again until our own deadline. Linux may miss the answer of a neighbour that comes
// at once, and then looks only when the time is over: so short.
constexpr int kAddressMs = 100;
constexpr int kRouteMs = 2000;
constexpr int64_t kAcceptMs = 10'000;
constexpr uint8_t kConnectRetries = 7;

// Reasons of a rejection (InfiniBand specification, CM REJ).
constexpr int kNobodyListens = 8;
constexpr int kRejectedByPeer = 28;

std::string text_of(const sockaddr_storage& address) {
  const socklen_t bytes = address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return tcp::SocketAddress(reinterpret_cast<const sockaddr*>(&address), bytes).to_string();
}

std::string error_text(int status) { return std::strerror(status < 0 ? -status : status); }

}  // namespace

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

void RdmaConnection::resolve() {
  const int error = verbs_.resolve_address(id_, remote_.get(), kAddressMs);
  if (error != 0) fail("cannot connect: " + error_text(error));
}

void RdmaConnection::on_deadline() {
  switch (phase_) {
    case Phase::kConnecting:
      return fail("cannot connect: no answer within " + std::to_string(connect_timeout_ms_) + " ms");
    case Phase::kAccepting:
      return fail("the peer did not finish the handshake");
    case Phase::kClosing:
      return drain(reason_, given_up_);
    case Phase::
        kDraining:  // the adapter kept something back: without its queue pair it cannot use it any more
      return finish();
    default:
      return;
  }
}

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
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      if (connecting) on_reply(event);
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      if (phase_ == Phase::kAccepting) opened(Completion::Kind::kAccepted);
      return;
    case RDMA_CM_EVENT_REJECTED:
      return connecting ? on_rejected(event) : fail("the peer did not take the reply");
    case RDMA_CM_EVENT_ADDR_ERROR:
      if (connecting && event.status == -ETIMEDOUT) return resolve();
      return fail("cannot connect: " + error_text(event.status));
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
      return fail(std::string(connecting ? "cannot connect: " : "the handshake failed: ") +
                  error_text(event.status));
    case RDMA_CM_EVENT_DISCONNECTED:
      // Frames that came before it, a goodbye among them, are still in the completion queue.
      return fail("the peer ended the connection without a goodbye");
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return fail("the address of " + device_.nic.name() + " moved to another device");
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return on_removal();
    default:
      return;
  }
}

void RdmaConnection::start_request() {
  if (const Status opened = open_pair(); !opened.is_ok()) return fail(opened.message());
  rdma_conn_param request = parameters();
  if (const int error = verbs_.connect(id_, request); error != 0)
    fail("cannot connect: " + error_text(error));
}

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

Status RdmaConnection::read_hello(const CmEvent& event) {
  const Result<Hello> read = to_hello(std::span(event.private_data).first(event.private_bytes));
  if (!read.is_ok()) return read.status();
  peer_ = read.value();
  send_.on_peer(peer_);
  return Status::ok();
}

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
