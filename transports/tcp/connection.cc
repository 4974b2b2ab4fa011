// connection.cc: a TCP connection from the connect to the last byte received; see connection.h. The
// order of things on a connection: dial() or accept(), the path test, the key exchange if it is to be
// protected, admit() by the owner, then frames both ways. All functions run on the device's thread, from
// inside the owner's calls or from inside poll().
#include "transports/tcp/connection.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/address.h"
#include "transports/net/congestion.h"

namespace hdt::transport::tcp {

namespace {
// The write window: enough to keep the kernel busy between two polls, but little enough that a slow rail
// does not hold much back that another rail could carry.
constexpr size_t kMaxQueuedWrites = 64;
constexpr size_t kMaxQueuedWriteBytes = size_t{1} << 20;
// After so much input the other connections of the device have their turn.
constexpr size_t kReadBudget = size_t{4} << 20;
// Large packets that have not arrived after this time do not pass: TCP has sent each at least three
// times by then. A group whose control connection and whose link both run into it is made, or fails,
// within 5 s.
constexpr int64_t kStuckMs = 1200;
// How often the test is asked after that.
constexpr int64_t kLookAgainMs = 100;
// The peer's kernel answers a connect whatever its processes do: without an answer in this time, three
// packets are lost. Everything after the connect is answered by the peer's process, which may be waiting
// for a processor, so it has the whole time that the owner gave.
constexpr int64_t kKernelMs = 3'500;

// True if segments are in flight that the peer's kernel has not acknowledged. A receive window that a
// slow process has closed leaves none, so a slow peer does not count as a lost one. One case is counted
// besides: a segment that this system drops before it leaves (a full queue, a filter) counts as "not
// sent" in TCP_INFO, and TCP tries it again half a second later.
bool under_way(const tcp_info& info) {
  if (info.tcpi_unacked > 0) return true;
  return info.tcpi_notsent_bytes > 0 &&
         info.tcpi_snd_wnd >= std::min(info.tcpi_notsent_bytes, info.tcpi_snd_mss);
}

}  // namespace

// The lists of the device must not keep a pointer to it. Completions are left only of a connection that
// could not be begun: its device frees it at once, and the owner never knew it.
TcpConnection::~TcpConnection() {
  if (fd_.valid()) device_.loop.remove(fd_.get(), this);
  if (fd_.valid() && writer_.kernel_reads()) discard_on_close(fd_.get());
  if (unflushed_) std::erase(device_.unflushed, this);
  if (unread_) std::erase(device_.unread, this);
  if (lost_) --device_.lost;
  std::erase_if(device_.pending, [this](const Completion& one) { return one.connection == this; });
}

Status TcpConnection::connect(const SocketAddress& local, const SocketAddress& remote, int64_t timeout_ms) {
  local_ = local;
  remote_ = remote;
  remote_address_ = remote.to_string();
  connect_timeout_ms_ = timeout_ms;
  connect_until_ = Deadline::after_ms(timeout_ms);
  limit_ = PathMemory::of_process().limit(local.host(), remote.host(), now_ns());
  return dial();
}

// Called by connect(), and again by on_stuck() with a smaller limit_. The congestion control and the
// packet size must be set before the connect, as the SYN carries the maximum segment size. A deadline is
// set only while the kernel connects; on_connect_result() sets the next one.
Status TcpConnection::dial() {
  Result<Fd> opened = open_connector(local_);
  if (!opened.is_ok()) return opened.status();
  fd_ = opened.take();
  phase_ = Phase::kConnecting;
  HDT_RETURN_IF_ERROR(bind_to_device(fd_.get(), device_.bound_device(), remote_));
  choose_congestion_control(fd_.get(), is_near(device_.nic, remote_));
  if (limit_) HDT_RETURN_IF_ERROR(limit_packets(fd_.get(), remote_.family(), limit_->passes));
  local_address_ = local_.host();
  const int error = ::connect(fd_.get(), remote_.get(), remote_.bytes()) == 0 ? 0 : errno;
  HDT_RETURN_IF_ERROR(device_.loop.add(fd_.get(), this, watched_ = EPOLLOUT));
  if (error == EINPROGRESS) {
    device_.loop.set_deadline(this, std::min(kKernelMs, left_ms()));
  } else {
    on_connect_result(error);
  }
  return Status::ok();
}

// The options of the listener are inherited, the choice of the congestion control among them. It was
// made for near peers, so it is taken back for a peer that turns out not to be near. A protected
// connection sends no payload without a copy, so zero copy is enabled for others only.
Status TcpConnection::accept(Fd fd) {
  HDT_RETURN_IF_ERROR(set_connection_options(fd.get()));
  HDT_RETURN_IF_ERROR(device_.loop.add(fd.get(), this, watched_ = EPOLLIN));
  fd_ = std::move(fd);
  local_address_ = local_address_of(fd_.get());
  remote_address_ = remote_address_of(fd_.get());
  if (const auto remote = SocketAddress::parse(remote_address_); remote.is_ok()) {
    remote_ = remote.value();
    HDT_RETURN_IF_ERROR(bind_to_device(fd_.get(), device_.bound_device(), remote.value()));
    if (!is_near(device_.nic, remote.value())) choose_congestion_control(fd_.get(), false);
  }
  if (device_.options.security != nullptr) {
    start_ = std::make_unique<SecureStart>(device_.options.security, secure::Role::kAcceptor);
    secured_ = false;
  } else {
    writer_.enable_zero_copy(fd_.get(), device_.options.zero_copy_bytes);
  }
  phase_ = Phase::kOpen;
  accepted_ = true;
  // May close another stranger, which is reported before this one's kAccepted.
  enter(device_.domain->strangers, host_of(remote_address_));
  report(Completion::Kind::kAccepted);
  return Status::ok();
}

// The peer is known: it leaves the count of strangers, and the readers drop the limits of strangers.
Status TcpConnection::admit(const PeerName& peer) {
  if (phase_ != Phase::kOpen || granted_ != nullptr)
    return {Code::kInvalidUsage, "only an open connection can be admitted, once"};
  leave();
  granted_ = device_.domain->regions.table_of(peer);
  reader_.admit();
  if (sealed_ != nullptr) sealed_->admit();
  keep_path();
  report(Completion::Kind::kReady);
  return Status::ok();
}

Status TcpConnection::send(std::span<const std::byte> message, uint64_t token) {
  if (message.empty() || message.size() > kMaxMessageBytes) {
    return {Code::kInvalidArgument, "a message has 1 to " + std::to_string(kMaxMessageBytes) +
                                        " bytes, not " + std::to_string(message.size())};
  }
  if (phase_ != Phase::kOpen) return {Code::kInvalidUsage, "the connection is not open"};
  if (granted_ == nullptr && message.size() > kMaxStrangerMessageBytes)
    return {Code::kInvalidUsage, "a peer that is not admitted is sent short messages only"};
  writer_.push_message(message, token);
  queued_something();
  return Status::ok();
}

Status TcpConnection::write(const void* data, size_t bytes, const RegionKey& region, uint64_t offset,
                            const Immediate& immediate, uint64_t token) {
  if (bytes > kMaxWriteBytes || (bytes > 0 && data == nullptr)) {
    return {Code::kInvalidArgument, "a write has at most " + std::to_string(kMaxWriteBytes) + " bytes, not " +
                                        std::to_string(bytes) + ", and a pointer to them"};
  }
  if (phase_ != Phase::kOpen || granted_ == nullptr)
    return {Code::kInvalidUsage, "the connection is not open, or its peer not admitted"};
  writer_.push_write(data, bytes, from_region_key(region), offset, immediate, token);
  queued_something();
  return Status::ok();
}

// Both limits hold: the number of writes and their bytes.
size_t TcpConnection::write_window() const {
  if (phase_ != Phase::kOpen || granted_ == nullptr || writer_.queued_write_bytes() >= kMaxQueuedWriteBytes)
    return 0;
  return kMaxQueuedWrites - std::min(kMaxQueuedWrites, writer_.queued_writes());
}

// Frames are handed over by the next poll(), so that those posted together leave in one system call.
// While the socket is full (EPOLLOUT is watched), the loop calls flush() when it has room again.
void TcpConnection::queued_something() {
  if (unflushed_ || (watched_ & EPOLLOUT) != 0) return;
  unflushed_ = true;
  device_.unflushed.push_back(this);  // takes no memory: TcpDevice::make_room()
  device_.loop.wake();
}

// Does nothing before the connection is settled: the end of the path test or of the key exchange calls it
// again. If the send fails, the peer may have sent a reason before it closed, and the kernel still holds
// those bytes: they are read first, so that the owner gets a goodbye or the refusal of a limit, and not
// "connection reset".
void TcpConnection::flush() {
  unflushed_ = false;
  if (!settled() || test_.pending() || start_ != nullptr) return;
  const FrameWriter::Flush result = writer_.flush(fd_.get(), sent_);
  const int error = errno;
  report_sent(Status::ok());
  if (result == FrameWriter::Flush::kFailed) {
    for (FrameReader::State state = FrameReader::State::kBudget; state == FrameReader::State::kBudget;) {
      const FrameReader::Outcome outcome = read_frames();
      state = outcome.state;
      if (state == FrameReader::State::kEnded && outcome.reason.is_ok()) return on_goodbye();
      if (state == FrameReader::State::kEnded && outcome.reason.code() == Code::kSystem) {
        return finish(outcome.reason, outcome.reason, false);
      }
    }
    return fail(std::strerror(error));
  }
  watch(result == FrameWriter::Flush::kBlocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

FrameReader::Outcome TcpConnection::read_frames() {
  return sealed_ != nullptr ? sealed_->read(fd_.get(), kReadBudget, *this)
                            : reader_.read(fd_.get(), kReadBudget, *this);
}

// The loop's call. EPOLLERR may mean that the error queue holds notifications of zero-copy sends, so
// they are read before anything else is concluded from it. Writability goes to whichever part has
// something to send: the path test, the key exchange, or the frames.
void TcpConnection::on_event(uint32_t epoll_events) {
  if (phase_ == Phase::kFinished) return;  // it ended after epoll had collected this event
  if (phase_ == Phase::kConnecting) {
    int error = 0;
    socklen_t bytes = sizeof error;
    if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    return on_connect_result(error);
  }
  if ((epoll_events & EPOLLERR) != 0) read_errors();
  if (phase_ == Phase::kClosing) {
    // EPOLLHUP: the connection is gone, so the kernel will send nothing more from that memory.
    if (writer_.kernel_reads() && (epoll_events & EPOLLHUP) == 0) return;
    const bool in_order = !writer_.kernel_reads();
    return finish(Status::ok(), closed_here(), in_order);
  }
  if ((epoll_events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive();
  if ((epoll_events & EPOLLOUT) == 0 || (phase_ != Phase::kTrying && phase_ != Phase::kOpen)) return;
  if (test_.pending()) return pump_test();
  if (start_pending()) return pump_start();
  flush();
}

void TcpConnection::read_errors() {
  writer_.read_errors(fd_.get(), sent_);
  report_sent(Status::ok());
}

// The kernel has finished the connect, with `error` (0: connected). The path test begins.
void TcpConnection::on_connect_result(int error) {
  device_.loop.clear_deadline(this);
  if (error == 0 && local_address_of(fd_.get()) == remote_address_of(fd_.get())) {
    // TCP allows a socket to connect to itself when the system picks the port that nobody listens on.
    error = ECONNREFUSED;
  }
  if (error == ECONNREFUSED) {
    const Status refused(Code::kNoDaemon,
                         "cannot connect to " + remote_address_ + ": " + std::strerror(error));
    return finish(refused, refused, false);
  }
  if (error != 0) return fail("cannot connect to " + remote_address_ + ": " + std::strerror(error));
  local_address_ = local_address_of(fd_.get());
  phase_ = Phase::kTrying;
  watch(EPOLLIN);
  test_.begin(fd_.get(), !remote_.is_loopback(), limit_);
  device_.loop.set_deadline(this, std::min(kStuckMs, left_ms()));
  pump_test();
}

// Once the test is sent, frames that the owner of an accepted connection has queued may follow.
void TcpConnection::pump_test() {
  const PathTest::Pump pumped = test_.pump(fd_.get());
  if (pumped == PathTest::Pump::kFailed) return fail(std::strerror(errno));
  if (pumped == PathTest::Pump::kBlocked) return watch(EPOLLIN | EPOLLOUT);
  watch(EPOLLIN);
  if (phase_ == Phase::kOpen && tried_) flush();
}

// Only an admitted peer is believed: what a stranger reports of the path would be used for connections
// of others. Called at both moments after which both conditions may hold: admit() and kPathHere.
void TcpConnection::keep_path() const {
  if (!accepted_ || !limit_ || granted_ == nullptr) return;
  PathMemory::of_process().keep(host_of(local_address_), remote_.host(), *limit_, now_ns());
}

// A frame of the path test, at either end (the protocol is in path_test.h). It is called from inside
// read(), so it only queues; receive() sends it.
//
// 1. The dialer waits for kSeen. Then the path is good. If the packets were not limited, what was
//    suspected of this pair of addresses is forgotten.
// 2. The acceptor begins its own sizes when kHere has arrived, so both directions are tested at once. It
//    takes the dialer's limit from kHere: TCP_MAXSEG of one end holds for both directions.
// 3. The acceptor sends kSeen when all of the dialer's sizes have arrived, and is done.
void TcpConnection::on_path(const FrameHeader& header) {
  if (!trying()) {
    out_of_order_ = true;
    return;
  }
  test_.on_frame(header);
  if (phase_ == Phase::kTrying) {
    if (!test_.confirmed()) return;
    if (!limit_) PathMemory::of_process().clear(local_.host(), remote_.host());
    tried_ = true;
    if (device_.options.security != nullptr) {
      secured_ = false;
      return;  // receive() begins it
    }
    writer_.enable_zero_copy(fd_.get(), device_.options.zero_copy_bytes);
    return open_up();
  }
  if (test_.heard() && !test_.begun()) {
    limit_ = test_.told();
    keep_path();
    test_.begin(fd_.get(), !remote_.is_loopback(), std::nullopt);
  }
  if (!test_.all_came()) return;
  if (!test_.begun()) {
    out_of_order_ = true;
    return;
  }
  test_.confirm();
  tried_ = true;
}

// Small packets pass and large ones do not: begins again with a new socket that sends packets of the
// size that passes. Fails if even the smallest do not pass, or if a smaller limit is not found, because
// that could repeat for ever. The readers and the test start from nothing; nothing of the owner was sent
// or received yet.
void TcpConnection::on_stuck(const PathLimit& limit) {
  if (limit.passes == 0 || (limit_ && limit.passes >= limit_->passes)) {
    return fail("small packets pass, but packets of " + std::to_string(limit.vanishes) + " bytes between " +
                local_.host() + " and " + remote_.host() +
                " vanish: the MTU on the way is smaller than that of NIC " + device_.nic.name +
                ": set the same MTU on all NICs and switches");
  }
  limit_ = PathLimit{limit.passes, limit_ ? limit_->vanishes : limit.vanishes};
  PathMemory::of_process().keep(local_.host(), remote_.host(), *limit_, now_ns());
  device_.loop.remove(fd_.get(), this);
  fd_.reset();
  reader_ = {};
  test_ = {};
  if (const Status status = dial(); !status.is_ok()) fail(status.message());
}

// At the deadline in kTrying, first after kStuckMs, then every kLookAgainMs, until the test or the key
// exchange is over or the time of the connect has passed.
void TcpConnection::look_again() {
  if (const auto limit = test_.stuck(fd_.get(), kStuckMs * kNsPerMs, now_ns())) return on_stuck(*limit);
  if (connect_until_.expired()) {
    return fail("the connection to " + remote_address_ + " was made, and nothing came on it within " +
                std::to_string(connect_timeout_ms_) + " ms");
  }
  device_.loop.set_deadline(this, std::min(kLookAgainMs, left_ms()));
}

void TcpConnection::on_deadline() {
  if (phase_ == Phase::kTrying) return look_again();
  if (phase_ == Phase::kClosing) {
    return finish(Status::ok(), closed_here(), false);
  }
  fail("cannot connect to " + remote_address_ + ": no answer within " +
       std::to_string(std::min(kKernelMs, connect_timeout_ms_)) + " ms");
}

// Reads, then acts on what the calls of the sink have noted: they end nothing themselves, because the
// reader is in the middle of its work. The order matters: a refusal explains more than a frame out of
// place. At most one message of a stranger is handed over in one poll(), whatever leads here: its owner may
// admit it before the next one, which is then an admitted peer's.
void TcpConnection::receive() {
  if (granted_ == nullptr && heard_in_ == device_.polls) return look_again_soon();
  const FrameReader::Outcome outcome = read_frames();
  if (refusal_) return refuse(*refusal_);
  if (out_of_order_) return fail("malformed frame: not in its place in the test of the path");
  if (outcome.state == FrameReader::State::kStopped) return on_secured();
  if (outcome.state != FrameReader::State::kEnded) {
    // Bytes in the sealed reader's buffer cause no event: it reads beyond the message that it hands over.
    if (outcome.state == FrameReader::State::kBudget && sealed_ != nullptr && sealed_->has_more())
      look_again_soon();
    if (test_.pending()) return pump_test();
    if (phase_ == Phase::kTrying && tried_ && start_ == nullptr) return begin_securing();
    if (start_pending()) pump_start();
    return;
  }
  if (!outcome.reason.is_ok()) return finish(outcome.reason, outcome.reason, false);
  on_goodbye();
}

// The peer ends the connection in order. Before the keys are exchanged anybody on the way could send a
// goodbye, so it counts as a failure.
void TcpConnection::on_goodbye() {
  if (!secured_) return fail("the peer ended the connection before the keys were exchanged");
  finish(Status::ok(), Status(Code::kLink, "the peer closed the connection"), false);
}

// epoll reports bytes in the kernel only; for bytes in our buffer the device calls read_on().
void TcpConnection::look_again_soon() {
  if (unread_) return;
  unread_ = true;
  device_.unread.push_back(this);
  device_.loop.wake();
}

void TcpConnection::read_on() {
  unread_ = false;
  if (phase_ == Phase::kOpen) receive();
}

// The reader holds a pointer to the place of the payload, so the connection must end before the caller
// returns.
void TcpConnection::on_withdrawn(uint64_t region, const RegionTable* of) {
  if (of != nullptr && of != granted_.get()) return;
  const bool inside = sealed_ != nullptr ? sealed_->inside_write_to(region) : reader_.inside_write_to(region);
  if (phase_ == Phase::kOpen && inside) {
    fail(of == nullptr ? "the memory that the peer was writing to was deregistered"
                       : "the memory that the peer was writing to is not granted to it any more");
  }
}

// TCP's own counters say what the peer's kernel has acknowledged, without the help of its process.
Connection::Progress TcpConnection::progress() const {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (phase_ != Phase::kOpen || ::getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  return {info.tcpi_bytes_acked + info.tcpi_bytes_received + info.tcpi_delivered, under_way(info),
          ordinary_round_ns(info)};
}

std::string TcpConnection::narrowed() const {
  if (!limit_) return "";
  return "small packets pass between " + local_address_ + " and " + remote_address_ +
         ", but large ones vanish: those of " + std::to_string(limit_->vanishes) +
         " bytes do not come, those of " + std::to_string(limit_->passes) +
         " do and are used; the MTU on the way is smaller than that of NIC " + device_.nic.name + " (" +
         std::to_string(device_.nic.mtu) + "): set the same MTU on all NICs and switches";
}

void TcpConnection::watch(uint32_t epoll_events) {
  if (watched_ == epoll_events) return;
  watched_ = epoll_events;
  device_.loop.modify(fd_.get(), this, epoll_events);
}

// Before the connection is settled a write has no place, which ends the connection.
std::byte* TcpConnection::locate(uint64_t region, uint64_t offset, size_t bytes) {
  return granted_ == nullptr || !settled() ? nullptr : granted_->locate(region, offset, bytes);
}

void TcpConnection::on_message(std::span<const std::byte> message) {
  if (granted_ == nullptr) heard_in_ = device_.polls;
  if (!settled()) {
    // In place of the key exchange: the dialer is configured without protection.
    if (tried_ && start_ != nullptr) refusal_ = start_->unprotected();
    out_of_order_ = true;
    return;
  }
  // The copy may throw, so it is made before the completion that refers to it.
  const auto kept = device_.arena.copy(message);
  report(Completion::Kind::kMessage);
  device_.pending.back().message = kept;
  device_.messages_pending = true;
}

void TcpConnection::on_written(const Immediate& immediate, std::span<const std::byte> placed) {
  if (!settled()) {
    out_of_order_ = true;
    return;
  }
  report(Completion::Kind::kWritten);
  device_.pending.back().immediate = immediate;
  device_.pending.back().bytes = placed.size();
  device_.pending.back().message = placed;
}

void TcpConnection::report(Completion::Kind kind) {
  Completion& completion = device_.pending.emplace_back();
  completion.kind = kind;
  completion.connection = this;
  device_.loop.wake();
}

void TcpConnection::report_sent(const Status& status) {
  for (const FrameWriter::Sent& frame : sent_) {
    Status outcome = status;  // copied before the completion is made, as it may throw
    report(Completion::Kind::kSent);
    device_.pending.back().token = frame.token;
    device_.pending.back().bytes = frame.bytes;
    device_.pending.back().error = std::move(outcome);
  }
  sent_.clear();
}

}  // namespace hdt::transport::tcp
