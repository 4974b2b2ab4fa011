// channel_binding_test.cc: somebody who has the cluster key cannot carry a handshake from one protected
// connection to another.
#include "daemon/protocol/channel_binding.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "daemon/control/control_network.h"
#include "transports/secure/tls.h"
#include "transports/tcp/options.h"

namespace hdt::daemon {
namespace {

using transport::Completion;

constexpr char kClusterKey[] = "a key of sixteen bytes";
constexpr int64_t kHeardMs = 30'000;

std::shared_ptr<Trust> trust_of_cluster() { return Trust::open({kClusterKey, "", ""}).take(); }

transport::DeviceInfo loopback_at(const char* address) {
  transport::DeviceInfo nic;
  nic.name = "lo";
  nic.address = address;
  nic.up = true;
  return nic;
}

// Dials a daemon as another one does. True: the handshake was done; false: the daemon has ended the
// connection.
bool is_accepted(ControlNetwork& daemon, bool bound) {
  transport::tcp::Options options;
  options.security =
      transport::secure::make_tls_security(kClusterKey, transport::secure::Protection::kEncrypt, "dialer")
          .take();
  const auto backend = transport::tcp::make_backend(options);
  const auto device = backend->open(loopback_at("127.0.1.1")).take();
  transport::Connection* const connection = device->connect(daemon.address(), kHeardMs).take();
  Handshake handshake(Handshake::Role::kDialer, {Purpose::kControl, {}, "dialer", 0, 0}, trust_of_cluster());
  for (const Deadline until = Deadline::after_ms(kHeardMs); !until.expired();) {
    daemon.on_time();
    daemon.poll();
    std::vector<Completion> completions;
    device->poll(completions);
    for (const Completion& completion : completions) {
      if (completion.kind == Completion::Kind::kClosed) return false;
      if (completion.kind == Completion::Kind::kConnected) {
        if (bound) bind_to_channel(handshake, *connection);
        for (const auto& message : handshake.start()) (void)connection->send(message, 0);
      }
      if (completion.kind != Completion::Kind::kMessage) continue;
      const auto answer = handshake.on_message(completion.message);
      if (!answer.is_ok()) return false;
      for (const auto& message : answer.value()) (void)connection->send(message, 0);
      if (handshake.done()) return true;
    }
  }
  ADD_FAILURE() << "no answer";
  return false;
}

TEST(ChannelBindingTest, AHandshakeHoldsForTheConnectionThatItWasMadeOn) {
  ControlNetworkOptions options;
  options.trust = trust_of_cluster();
  options.node_name = "daemon";
  options.devices = {loopback_at("127.0.1.2")};
  options.on_message = [](ChannelId, std::span<const std::byte>) {};
  options.on_closed = [](ChannelId, const Status&) {};
  ControlNetwork daemon(options);
  ASSERT_TRUE(daemon.start().is_ok());
  EXPECT_TRUE(is_accepted(daemon, true));
  EXPECT_FALSE(is_accepted(daemon, false)) << "signed for another connection, or for none";
}

}  // namespace
}  // namespace hdt::daemon
