// connection.h: one TCP connection of a device: its life (Phase), its two halves (FrameWriter;
// FrameReader or SealedReader), and what comes before the owner may use it: the path test and the key
// exchange.
//
// The implementation is in three files: connection.cc (connecting, sending, receiving),
// connection_secure.cc (the key exchange) and connection_end.cc (how it ends).
#pragma once

#include <sys/epoll.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transports/net/event_loop.h"
#include "transports/net/linger.h"
#include "transports/net/socket.h"
#include "transports/secured_connection.h"
#include "transports/support/message_arena.h"
#include "transports/tcp/domain.h"
#include "transports/tcp/frame_reader.h"
#include "transports/tcp/frame_writer.h"
#include "transports/tcp/options.h"
#include "transports/tcp/path_test.h"
#include "transports/tcp/sealed_reader.h"
#include "transports/tcp/secure_start.h"
#include "transports/transport.h"
#include "transports/tried_path.h"

namespace hdt::transport::tcp {

class TcpConnection;

// The state that the connections of one device share with it. Owned by the TcpDevice, which outlives its
// connections; used on the device's thread only.
struct DeviceState {
  DeviceState(std::shared_ptr<Domain> shared, Options with, DeviceInfo info)
      : options(std::move(with)), nic(std::move(info)), domain(std::move(shared)) {}
  // The NIC that sockets are bound to. Empty: the routing table decides.
  std::string bound_device() const { return options.bind_device ? nic.name : ""; }

  const Options options;
  const DeviceInfo nic;
  EventLoop loop;
  LingerSet lingering{loop};
  std::shared_ptr<Domain> domain;
  MessageArena arena;
  std::vector<Completion> pending;        // reported by the next poll()
  std::vector<TcpConnection*> unflushed;  // have new frames queued; each is listed once
  std::vector<TcpConnection*> unread;     // have read bytes that they have not parsed; each is listed once
  uint64_t polls = 0;                     // how often poll() was called
  bool messages_pending = false;          // messages in `pending` lie in the arena, so it is kept
  size_t lost = 0;                        // connections whose kClosed could not be made for want of memory
};

// Owned by its TcpDevice, which makes it, polls it and frees it; used on the device's thread. It is an
// EventSource of the device's EventLoop, and the FrameSink of its reader.
//
// Invariants: everything is reported into device_.pending. Nothing is reported after kClosed. When the
// phase becomes kFinished, the connection is removed from the loop, and nothing reads or writes the
// caller's memory any more: neither the reader nor the kernel. Any allocation may throw; the caller
// (attempt_for) then calls on_failure(), which ends this connection alone.
class TcpConnection final : public Connection,
                            public TriedPath,
                            public SecuredConnection,
                            private EventSource,
                            private FrameSink,
                            private Stranger {
 public:
  explicit TcpConnection(DeviceState& device) : device_(device) {}
  ~TcpConnection() override;

  // Starts to connect. kSystem if the system refuses a socket or an option. A failure that shows
  // immediately, such as a refusal, is reported as kClosed, like one that comes later.
  Status connect(const SocketAddress& local, const SocketAddress& remote, int64_t timeout_ms);
  // Takes over an accepted socket, and reports kAccepted. kSystem: the socket is of no use, and nothing
  // was reported that the device keeps.
  Status accept(Fd fd);
  // Hands queued frames to the kernel; called by the next poll() after queued_something().
  void flush();
  // Parses bytes that were read before; called by the next poll() after look_again_soon().
  void read_on();
  // The peer with the table `of`, or every peer if it is null, may not write to `region` any more. Ends
  // the connection if it is in the middle of such a write.
  void on_withdrawn(uint64_t region, const RegionTable* of);
  bool finished() const { return phase_ == Phase::kFinished; }
  // An exception left this connection half way through some work: it ends. Allocates nothing, so kClosed
  // is not made here but by report_lost(), which the device calls before it hands over what is reported.
  void on_failure() override;
  void report_lost();

  Status admit(const PeerName& peer) override;
  Status send(std::span<const std::byte> message, uint64_t token) override;
  Status write(const void* data, size_t bytes, const RegionKey& region, uint64_t offset,
               const Immediate& immediate, uint64_t token) override;
  size_t write_window() const override;
  void close() override;
  void abandon() override;
  Progress progress() const override;
  std::string narrowed() const override;
  uint32_t largest_packet() const override { return test_.largest(); }
  const secure::Binding* binding() const override { return sealed_ != nullptr ? &binding_ : nullptr; }
  std::string local_address() const override { return local_address_; }
  std::string remote_address() const override { return remote_address_; }

 private:
  // kConnecting: the kernel connects. kTrying, on the end that dialled: connected, finds out whether
  // large packets pass (path_test.h), and then exchanges keys if the connection is to be protected
  // (secure_start.h); the owner gets kConnected after that. kOpen: usable by its owner. An accepted
  // connection is open from the start, and what its owner sends is queued until the test and the
  // exchange are over (settled()). kClosing: closed in order, waits until the kernel has read the memory
  // of what was handed over. kFinished: kClosed was reported, or waits for memory (lost_).
  enum class Phase { kConnecting, kTrying, kOpen, kClosing, kFinished };

  void on_event(uint32_t epoll_events) override;
  void on_deadline() override;
  std::byte* locate(uint64_t region, uint64_t offset, size_t bytes) override;
  void on_message(std::span<const std::byte> message) override;
  void on_written(const Immediate& immediate, std::span<const std::byte> placed) override;

  void on_path(const FrameHeader& header) override;
  bool on_secure(const FrameHeader& header, std::span<const std::byte> content) override;
  void on_turned_out(const Status& why) override;

  // Makes a socket and connects it; again after on_stuck().
  Status dial();
  void on_connect_result(int error);
  // True while the path test is under way, at either end.
  bool trying() const { return phase_ == Phase::kTrying || (phase_ == Phase::kOpen && !tried_); }
  // True if frames of the owners may be sent and received.
  bool settled() const { return phase_ == Phase::kOpen && tried_ && secured_; }
  // True while bytes of the key exchange are queued here.
  bool start_pending() const { return start_ != nullptr && start_->pending(); }
  FrameReader::Outcome read_frames();
  // Sends the queued frames of the path test, and what waited behind them.
  void pump_test();
  // The key exchange: the dialer begins it; both send what is queued; both switch over to sealed frames.
  void begin_securing();
  void pump_start();
  void on_secured();
  // On the end that dialled: reports kConnected.
  void open_up();
  // Ends the connection, and sends the reason to the peer if a frame may be sent now.
  void refuse(const Status& why);
  // Remembers what an admitted peer has found out about the path, for later connections.
  void keep_path() const;
  void on_stuck(const PathLimit& limit);
  // At the deadline during the path test: is it stuck, is the time over, or is it asked again later?
  void look_again();
  // Milliseconds until the attempt to connect ends.
  int64_t left_ms() const { return connect_until_.remaining_ns() / kNsPerMs + 1; }
  // Asks for read_on() at the next poll().
  void look_again_soon();
  // Reads the notifications of zero-copy sends.
  void read_errors();
  void receive();
  void on_goodbye();
  // Asks for flush() at the next poll().
  void queued_something();
  // Appends a completion; the caller fills in the rest of device_.pending.back(). report_sent() makes
  // kSent of everything in sent_, all with this status.
  void report(Completion::Kind kind);
  void report_sent(const Status& status);
  // Sets what epoll reports for the socket.
  void watch(uint32_t epoll_events);
  // close(), in parts that may throw.
  void end_in_order();
  static Status closed_here();
  // Reports everything that was under way as failed with `given_up`, then kClosed with `reason`.
  // `in_order`: a goodbye was sent, so the socket lingers (linger.h) instead of being closed at once.
  void finish(const Status& reason, const Status& given_up, bool in_order);
  void fail(const std::string& reason);

  DeviceState& device_;
  Phase phase_ = Phase::kConnecting;
  uint64_t heard_in_ = 0;        // the poll() in which a stranger's message was handed over
  RegionGrants::Table granted_;  // to the peer; null: it is a stranger
  Fd fd_;
  uint32_t watched_ = 0;    // epoll events that the loop watches for
  bool unflushed_ = false;  // is in device_.unflushed
  bool unread_ = false;     // is in device_.unread
  bool closed_ = false;     // kClosed is reported
  bool lost_ = false;       // kClosed is to be reported when there is memory; counted in device_.lost
  bool accepted_ = false;
  int64_t connect_timeout_ms_ = 0;              // of the owner's connect(), for the text of an error
  Deadline connect_until_ = Deadline::never();  // the end of that time; holds over all dials
  SocketAddress local_, remote_;                // local_: of one that was dialled only, port 0
  std::optional<PathLimit> limit_;              // why packets are smaller than the NIC allows
  PathTest test_;
  bool tried_ = false;                  // the path test is over
  bool out_of_order_ = false;           // the peer sent a frame that is not allowed at this point
  bool secured_ = true;                 // the keys are there, or none are needed
  std::unique_ptr<SecureStart> start_;  // the key exchange; null before and after it
  std::optional<Status> refusal_;       // set by a sink call: the reason to refuse the peer
  secure::Binding binding_{};           // valid once sealed_ is set
  std::string local_address_;
  std::string remote_address_;
  FrameWriter writer_;
  FrameReader reader_;
  std::unique_ptr<SealedReader> sealed_;  // reads in place of reader_ once the keys are there
  std::vector<FrameWriter::Sent> sent_;   // scratch: to be reported by report_sent(); empty between calls
};

}  // namespace hdt::transport::tcp
