// connection.h: one connection of the backends ofi and ucx: a control socket, a data path, and the two
// halves that use the data path (Outgoing, Incoming).
//
// Until the owner knows who the peer is, everything goes over the control socket. The data path is made, and
// an endpoint's address given to the library, only after admit(), so a stranger reaches nothing of the
// library. connection.cc has the life of a connection, connection_data.cc what moves on the data path.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transports/net/event_loop.h"
#include "transports/net/linger.h"
#include "transports/support/message_arena.h"
#include "transports/support/strangers.h"
#include "transports/tagged/control.h"
#include "transports/tagged/data_path.h"
#include "transports/tagged/domain.h"
#include "transports/tagged/incoming.h"
#include "transports/tagged/outgoing.h"
#include "transports/transport.h"

namespace hdt::transport::tagged {

class TaggedConnection;

// The state that the connections of one device share with it. Owned by the TaggedDevice, which outlives its
// connections; used on the device's thread only.
struct DeviceState {
  DeviceState(std::shared_ptr<Domain> shared, std::unique_ptr<Fabric> opened)
      : domain(std::move(shared)), fabric(std::move(opened)) {}

  tcp::EventLoop loop;
  tcp::LingerSet lingering{loop};
  std::shared_ptr<Domain> domain;
  std::unique_ptr<Fabric> fabric;
  MessageArena arena;
  std::vector<Completion> pending;     // reported by the next poll()
  std::vector<TaggedConnection*> hot;  // the next poll() works on them; each is listed once
};

// Owned by its TaggedDevice, which makes it, polls it and frees it; used on the device's thread.
//
// Invariants: everything is reported into device_.pending. Nothing is reported after kClosed. The data path
// is destroyed before anything is reported as given up, and before kClosed: after that the library touches
// no memory of this connection. From kReady on all messages and writes go through the data path; the control
// socket then carries signals only.
class TaggedConnection final : public Connection,
                               private tcp::EventSource,
                               private FrameSink,
                               private Stranger {
 public:
  explicit TaggedConnection(DeviceState& device) : device_(device), data_path_events_(*this) {}
  ~TaggedConnection() override;

  // Starts to connect the control socket. A refusal by the system is reported as kClosed, like one by the
  // peer. kSystem if there is no socket.
  Status connect(const tcp::SocketAddress& local, const tcp::SocketAddress& remote, int64_t timeout_ms);
  // Takes over an accepted socket, and reports kAccepted. kSystem: the socket is of no use.
  Status accept(tcp::Fd fd);
  // Moves what can be moved on the data path. True: it wants to be called again before anybody sleeps.
  bool work();
  // Makes it hot, if it has a data path. set_cold(): it is not in the list any more.
  void heat();
  void set_cold() { hot_ = false; }
  // The peer with the table `of`, or every peer if it is null, may not write to `region` any more. Ends
  // the connection if such a write has begun.
  void on_withdrawn(uint64_t region, const RegionTable* of);

  Status admit(const PeerName& peer) override;
  Status send(std::span<const std::byte> message, uint64_t token) override;
  Status write(const void* data, size_t bytes, const RegionKey& region, uint64_t offset,
               const Immediate& immediate, uint64_t token) override;
  size_t write_window() const override;
  void close() override;
  void abandon() override;
  Progress progress() const override;
  std::string local_address() const override { return local_address_; }
  std::string remote_address() const override { return remote_address_; }

 private:
  // kConnecting: the kernel connects. kCalling: connected, waits for the peer's kHere. kMeeting: reported
  // as kConnected or kAccepted; the owners authenticate each other over the control socket. kGreeting: the
  // peer was admitted here, and its hello has not arrived. kProving: the data path is connected, and a frame
  // has to pass both ways. kOpen: kReady was reported. kEnding: the data path has failed, and the control
  // socket has a moment to say why. kFinished: kClosed was reported.
  enum class Phase { kConnecting, kCalling, kMeeting, kGreeting, kProving, kOpen, kEnding, kFinished };
  // The data path's descriptor in the event loop.
  class DataPathEvents : public tcp::EventSource {
   public:
    explicit DataPathEvents(TaggedConnection& owner) : owner_(owner) {}
    void on_event(uint32_t) override { owner_.heat(); }
    void on_deadline() override {}

   private:
    TaggedConnection& owner_;
  };

  void on_event(uint32_t epoll_events) override;
  void on_deadline() override;
  void on_turned_out(const Status& why) override { fail(why); }
  std::byte* locate(uint64_t region, uint64_t offset, size_t bytes) override;
  void on_probe() override;
  Status on_taken(uint64_t number) override;
  void on_message(std::span<const std::byte> message) override;
  void on_written(const Immediate& immediate, std::span<const std::byte> placed) override;

  void on_connect_result(int error);
  // The data path is made, and its hello is sent.
  Status open_data_path();
  // The peer's hello has arrived: the data path is connected.
  void on_hello(const Hello& hello);
  // Send and read the control socket.
  void flush_control();
  void read_control();
  // One round on the data path: send, post receives, poll, handle what is over. `moved`: something was over.
  // False: the connection has ended or is ending.
  bool step(bool& moved);
  // Sends the number of frames taken, if the peer needs it and no other frame carried it. False as above.
  bool tell_taken();
  // An operation of the data path is over. A failure ends the connection.
  Status on_finished(const Finished& operation);
  void on_data_path_failed(const Status& reason);
  // A frame has passed in both directions: reports kReady, and sends what was held.
  void opened();
  // Appends a completion; the caller fills in the rest. report_sent() makes kSent of everything in sent_.
  void report(Completion::Kind kind);
  void report_sent(const Status& status);
  // Destroys the data path, and with it everything that is under way.
  void drop_data_path();
  // Reports everything that was under way as failed with `given_up`, then kClosed with `reason`.
  // `in_order`: a goodbye was sent, so the control socket lingers (linger.h).
  void finish(const Status& reason, const Status& given_up, bool in_order);
  void fail(const Status& reason) { finish(reason, reason, false); }

  DeviceState& device_;
  Phase phase_ = Phase::kConnecting;
  bool accepting_ = false;       // the end that accepted
  bool hot_ = false;             // is in device_.hot
  RegionGrants::Table granted_;  // to the peer; null: it is a stranger
  Control control_;
  std::unique_ptr<DataPath> data_path_;  // from kGreeting to the end; null otherwise
  DataPathEvents data_path_events_;
  int64_t connect_timeout_ms_ = 0;  // of the deadline that is set, for the text of an error
  std::string local_address_;
  std::string remote_address_;
  // Messages in the control socket's queue that are to be reported when it is empty.
  std::vector<Outgoing::Sent> said_;
  // A message sent after the admission, before the data path works.
  struct Held {
    std::vector<std::byte> message;
    uint64_t token;
  };
  std::vector<Held> held_;
  Outgoing outgoing_;
  Incoming incoming_;
  uint64_t moved_ = 0;                // operations that are over; a measure of progress
  Status failure_;                    // kEnding: why the data path failed
  std::vector<Finished> finished_;    // scratch of step()
  std::vector<Outgoing::Sent> sent_;  // scratch: to be reported by report_sent(); empty between calls
};

}  // namespace hdt::transport::tagged
