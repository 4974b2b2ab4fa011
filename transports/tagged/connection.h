// connection.h: one connection of a device: a control socket and a channel, its life (connecting, meeting,
// greeting, proving that the channel works, open, finished) and its two halves. As long as its owner does not
// know who the peer is, all goes over the control socket; there is a channel, and an endpoint address goes to
// the library, after admit() only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transports/net/event_loop.h"
#include "transports/net/linger.h"
#include "transports/support/message_arena.h"
#include "transports/support/strangers.h"
#include "transports/tagged/channel.h"
#include "transports/tagged/control.h"
#include "transports/tagged/domain.h"
#include "transports/tagged/incoming.h"
#include "transports/tagged/outgoing.h"
#include "transports/transport.h"

namespace hdt::transport::tagged {

class TaggedConnection;

// What a device's connections share.
struct DeviceState {
  DeviceState(std::shared_ptr<Domain> shared, std::unique_ptr<Fabric> opened)
      : domain(std::move(shared)), fabric(std::move(opened)) {}

  tcp::EventLoop loop;
  tcp::LingerSet lingering{loop};
  std::shared_ptr<Domain> domain;
  std::unique_ptr<Fabric> fabric;
  MessageArena arena;
  std::vector<Completion> pending;     // reported by the next poll()
  std::vector<TaggedConnection*> hot;  // to be worked on by the next poll()
};

class TaggedConnection final : public Connection,
                               private tcp::EventSource,
                               private FrameSink,
                               private Stranger {
 public:
  explicit TaggedConnection(DeviceState& device) : device_(device), channel_events_(*this) {}
  ~TaggedConnection() override;

  // Starts connecting. A refusal by the system is reported as kClosed, like one by the peer.
  Status connect(const tcp::SocketAddress& local, const tcp::SocketAddress& remote, int64_t timeout_ms);
  Status accept(tcp::Fd fd);
  // Moves what can be moved. True: wants to be asked again before anybody sleeps.
  bool work();
  void heat();
  void set_cold() { hot_ = false; }
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
  // kCalling: the peer is to say that it is there; kMeeting: the owners talk; kGreeting: the peer was
  // admitted here, its hello has not come; kEnding: the channel has failed, the control socket may know why.
  enum class Phase { kConnecting, kCalling, kMeeting, kGreeting, kProving, kOpen, kEnding, kFinished };
  class ChannelEvents : public tcp::EventSource {
   public:
    explicit ChannelEvents(TaggedConnection& owner) : owner_(owner) {}
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
  Status open_channel();
  void on_hello(const Hello& hello);
  void flush_control();
  void read_control();
  // One round of sending, receiving and looking; false if the connection is over.
  bool step(bool& moved);
  bool tell_taken();
  Status on_finished(const Finished& operation);
  void on_channel_failed(const Status& reason);
  void opened();
  void report(Completion::Kind kind);
  void report_sent(const Status& status);
  void drop_channel();
  // Reports what was under way and kClosed; touches no foreign memory afterwards.
  void finish(const Status& reason, const Status& given_up, bool in_order);
  void fail(const Status& reason) { finish(reason, reason, false); }

  DeviceState& device_;
  Phase phase_ = Phase::kConnecting;
  bool accepting_ = false;
  bool hot_ = false;
  RegionGrants::Table granted_;  // to the peer; null: it is a stranger
  Control control_;
  std::unique_ptr<Channel> channel_;
  ChannelEvents channel_events_;
  int64_t connect_timeout_ms_ = 0;
  std::string local_address_;
  std::string remote_address_;
  std::vector<Outgoing::Sent> said_;  // messages that go over the control socket and have not left
  struct Held {
    std::vector<std::byte> message;
    uint64_t token;
  };
  std::vector<Held> held_;  // sent after the admission, before the channel works
  Outgoing outgoing_;
  Incoming incoming_;
  uint64_t moved_ = 0;  // operations that the library has completed
  Status failure_;      // kEnding: of the channel
  std::vector<Finished> finished_;
  std::vector<Outgoing::Sent> sent_;
};

}  // namespace hdt::transport::tagged
