// rdma_errors_test.cc: what goes wrong with adapters and on the way to a connection, by simulated ones: what
// is reported, in which order, and that nothing else is hurt.
#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "tests/protocol/rdma/simulated_world.h"
#include "transports/rdma/frame.h"

namespace hdt::transport {

using Kind = Completion::Kind;
using testing::HasSubstr;

class RdmaErrors : public TransportConformance {
 protected:
  rdma::SimulatedVerbs& verbs() { return static_cast<rdma::SimulatedWorld&>(*world_).verbs(); }
  std::string reason(const Endpoint& end, const Connection* connection) {
    const Event* closed = end.closed(connection);
    return closed == nullptr ? "(not closed)" : closed->completion.error.message();
  }
  bool both_closed(const Pair& pair) {
    return run_until([&] { return a_.closed(pair.client) != nullptr && b_.closed(pair.server) != nullptr; });
  }
  // A connect() that fails; its reason.
  Status failed_connect() {
    const auto connection = a_.device->connect(b_.address, 5000);
    if (!connection.is_ok()) return connection.status();
    EXPECT_TRUE(run_until([&] { return a_.closed(connection.value()) != nullptr; }));
    const Status error = a_.closed(connection.value())->completion.error;
    EXPECT_EQ(b_.count(Kind::kAccepted), 0u);
    EXPECT_EQ(a_.count(Kind::kConnected), 0u);
    a_.device->release(connection.value());
    a_.events.clear();
    return error;
  }
  std::vector<std::byte> b_memory_ = std::vector<std::byte>(1 << 16);
};
INSTANTIATE_TEST_SUITE_P(SimulatedRdma, RdmaErrors, testing::Values(&rdma::make_simulated_world));

TEST_P(RdmaErrors, BrokenQueuePairIsDrainedBeforeTheEnd) {
  const Pair pair = connect();
  const std::vector<std::byte> data(1000);
  verbs().hold = true;
  for (uint64_t i = 1; i <= 5; ++i) ASSERT_TRUE(pair.client->send(data, i).is_ok());
  a_.poll();  // the adapter has them
  verbs().hold = false;
  verbs().next_send_status = IBV_WC_RETRY_EXC_ERR;
  ASSERT_TRUE(pair.client->send(data, 6).is_ok());
  ASSERT_TRUE(both_closed(pair));
  const auto sent = a_.all(Kind::kSent);
  ASSERT_EQ(sent.size(), 6u);
  for (uint64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(sent[i]->completion.token, i + 1);
    EXPECT_EQ(sent[i]->completion.error.code(), Code::kLink);
  }
  EXPECT_EQ(a_.events.back().completion.kind, Kind::kClosed) << "the end comes last";
  EXPECT_THAT(reason(a_, pair.client), HasSubstr("transport retry counter exceeded"));
  EXPECT_THAT(reason(b_, pair.server), HasSubstr("without a goodbye"));
  EXPECT_EQ(verbs().queue_pairs(), 0u);
}

TEST_P(RdmaErrors, RetriesOfAReceiverThatIsNotReadyEndTheConnection) {
  const Pair pair = connect();
  const Pair bystander = connect();
  verbs().next_send_status = IBV_WC_RNR_RETRY_EXC_ERR;
  ASSERT_TRUE(pair.client->send(std::vector<std::byte>(10), 1).is_ok());
  ASSERT_TRUE(both_closed(pair));
  EXPECT_THAT(reason(a_, pair.client), HasSubstr("RNR retry counter exceeded"));
  EXPECT_EQ(a_.count(Kind::kSent, pair.client), 1u);
  ASSERT_TRUE(bystander.client->send(std::vector<std::byte>(10), 2).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kMessage, bystander.server) == 1; }));
}

// Both ends send as fast as they can, messages of many pieces and writes: credits never run dry for good, and
// no SEND finds no receive.
TEST_P(RdmaErrors, CreditsKeepReceivesPosted) {
  const Pair pair = connect();
  const auto key = b_.enlist(b_memory_.data(), b_memory_.size());
  ASSERT_TRUE(key.is_ok());
  constexpr size_t kEach = 2000;
  const std::vector<std::byte> message(kMaxMessageBytes);
  for (uint64_t i = 1; i <= kEach; ++i) {
    ASSERT_TRUE(pair.client->send(message, i).is_ok());
    ASSERT_TRUE(pair.server->send(std::span(message).first(3000), i).is_ok());
    ASSERT_TRUE(pair.client->write(message.data(), 64, key.value(), 0, immediate_of(i), kEach + i).is_ok());
  }
  ASSERT_TRUE(run_until([&] {
    return b_.count(Kind::kMessage) == kEach && a_.count(Kind::kMessage) == kEach &&
           b_.count(Kind::kWritten) == kEach && a_.count(Kind::kSent) == 2 * kEach &&
           b_.count(Kind::kSent) == kEach;
  }));
  EXPECT_EQ(verbs().not_ready, 0u);
}

TEST_P(RdmaErrors, RefusedRegistrationOfARegion) {
  verbs().register_failures_after = 1;  // the second adapter refuses
  const auto key = b_.enlist(b_memory_.data(), b_memory_.size());
  EXPECT_EQ(key.status().code(), Code::kSystem);
  EXPECT_THAT(key.status().message(), HasSubstr("ulimit -l"));
  EXPECT_EQ(verbs().registrations(), 0u) << "that of the first one is given back";
}

TEST_P(RdmaErrors, RefusedRegistrationOfWhatIsSent) {
  const Pair pair = connect();
  const auto key = b_.enlist(b_memory_.data(), b_memory_.size());
  ASSERT_TRUE(key.is_ok());
  const std::vector<std::byte> source(10'000);
  verbs().register_failures_after = 0;
  ASSERT_TRUE(pair.client->write(source.data(), source.size(), key.value(), 0, {}, 7).is_ok());
  ASSERT_TRUE(both_closed(pair));
  EXPECT_THAT(reason(a_, pair.client), HasSubstr("cannot register 10000 bytes"));
  ASSERT_EQ(a_.count(Kind::kSent), 1u);
  EXPECT_FALSE(a_.all(Kind::kSent)[0]->completion.error.is_ok());
}

TEST_P(RdmaErrors, MemoryThatTheAdapterKeepsEndsTheConnections) {
  const Pair pair = connect();
  const auto key = b_.enlist(b_memory_.data(), b_memory_.size());
  ASSERT_TRUE(key.is_ok());
  verbs().deregister_error = EBUSY;
  b_.device->deregister_memory(key.value());
  verbs().deregister_error = 0;
  ASSERT_TRUE(both_closed(pair));
  EXPECT_THAT(reason(b_, pair.server), HasSubstr("did not give up memory"));
}

TEST_P(RdmaErrors, FailuresOnTheWayToAConnectionAreReported) {
  verbs().reject_status = 28;  // by the peer's program
  EXPECT_THAT(failed_connect().message(), HasSubstr("refused"));
  verbs().reject_status = 10;
  EXPECT_THAT(failed_connect().message(), HasSubstr("rejected for reason 10"));
  verbs().reject_status = 0;

  verbs().create_qp_error = ENOMEM;
  EXPECT_THAT(failed_connect().message(), HasSubstr("cannot make a queue pair"));
  verbs().create_qp_error = 0;

  verbs().register_failures_after = 0;
  EXPECT_THAT(failed_connect().message(), HasSubstr("cannot register"));
  verbs().register_failures_after = -1;

  verbs().modify_error = EINVAL;  // the listener's queue pair: it rejects
  EXPECT_THAT(failed_connect().message(), HasSubstr("refused"));
  verbs().modify_error = 0;

  EXPECT_EQ(verbs().queue_pairs(), 0u);
  connect();  // nothing is left of all that
}

TEST_P(RdmaErrors, ForeignHellosAreRefused) {
  struct Case {
    size_t place;
    uint8_t value;
    Code code;
    const char* text;
  };
  // Both ends are mangled; the listener notices first, and its rejection carries what the other then reads.
  const Case cases[] = {{0, 0xff, Code::kLink, "refused"},
                        {offsetof(rdma::Hello, version), 77, Code::kVersion, "version 77"},
                        {offsetof(rdma::Hello, nic_slot), 200, Code::kLink, "refused"},
                        {offsetof(rdma::Hello, receive_slots), 1, Code::kLink, "refused"},
                        {offsetof(rdma::Hello, slot_bytes), 1, Code::kLink, "refused"},
                        {offsetof(rdma::Hello, reserved), 1, Code::kLink, "refused"}};
  for (const Case& wrong : cases) {
    SCOPED_TRACE(wrong.place);
    verbs().mangled = {{wrong.place, std::byte{wrong.value}}};
    const Status error = failed_connect();
    EXPECT_EQ(error.code(), wrong.code);
    EXPECT_THAT(error.message(), HasSubstr(wrong.text));
  }
  verbs().mangled.clear();
  connect();
}

TEST_P(RdmaErrors, AdapterWithoutInlineDataWorks) {
  verbs().inline_refused = true;
  const Pair pair = connect();
  const auto key = b_.enlist(b_memory_.data(), b_memory_.size());
  ASSERT_TRUE(key.is_ok());
  const std::vector<std::byte> source = random_bytes(64, test_seed());
  ASSERT_TRUE(pair.client->write(source.data(), source.size(), key.value(), 5, immediate_of(1), 1).is_ok());
  ASSERT_TRUE(pair.client->send(source, 2).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kWritten) == 1 && b_.count(Kind::kMessage) == 1; }));
  EXPECT_TRUE(std::equal(source.begin(), source.end(), b_memory_.begin() + 5));
}

TEST_P(RdmaErrors, PortDownEndsItsConnectionsAndPortUpAllowsNewOnes) {
  const Pair pair = connect();
  EXPECT_TRUE(a_.device->info().up);
  EXPECT_EQ(a_.device->info().bits_per_second, 100'000'000'000u);
  verbs().port_state = IBV_PORT_DOWN;
  verbs().raise("sim1", {IBV_EVENT_PORT_ERR, 0, 2});  // another port
  a_.poll();
  EXPECT_EQ(a_.closed(pair.client), nullptr);
  verbs().raise("sim1", {IBV_EVENT_PORT_ERR, 0, 1});
  ASSERT_TRUE(both_closed(pair));
  EXPECT_THAT(reason(a_, pair.client), HasSubstr("port 1 of sim1 went down"));
  EXPECT_FALSE(a_.device->info().up);
  verbs().port_state = IBV_PORT_ACTIVE;
  verbs().raise("sim1", {IBV_EVENT_PORT_ACTIVE, 0, 1});
  a_.poll();
  EXPECT_TRUE(a_.device->info().up);
  a_.events.clear();
  b_.events.clear();
  const Pair again = connect();
  ASSERT_TRUE(again.client->send(std::vector<std::byte>(1), 1).is_ok());
  ASSERT_TRUE(run_until([&] { return b_.count(Kind::kMessage) == 1; }));
}

TEST_P(RdmaErrors, MovedGidEndsConnectionsMadeFromIt) {
  const Pair pair = connect();
  verbs().raise("sim1", {IBV_EVENT_GID_CHANGE, 0, 1});  // some other entry of the table
  a_.poll();
  EXPECT_EQ(a_.closed(pair.client), nullptr);
  verbs().gid.raw[15] = 2;
  verbs().raise("sim1", {IBV_EVENT_GID_CHANGE, 0, 1});
  ASSERT_TRUE(both_closed(pair));
  EXPECT_THAT(reason(a_, pair.client), HasSubstr("GID changed"));
}

TEST_P(RdmaErrors, AddressMovedToAnotherDevice) {
  const Pair pair = connect();
  verbs().raise_cm(RDMA_CM_EVENT_ADDR_CHANGE);
  ASSERT_TRUE(both_closed(pair));
  EXPECT_THAT(reason(a_, pair.client), HasSubstr("moved to another device"));
}

TEST_P(RdmaErrors, RemovedDeviceEndsItsConnectionsWithoutWaiting) {
  const Pair pair = connect();
  verbs().hold = true;
  ASSERT_TRUE(pair.client->send(std::vector<std::byte>(10), 3).is_ok());
  a_.poll();
  verbs().raise("sim1", {IBV_EVENT_DEVICE_FATAL, 0, 0});
  a_.poll();  // at once: nothing comes back from a device that is gone
  ASSERT_NE(a_.closed(pair.client), nullptr);
  EXPECT_THAT(reason(a_, pair.client), HasSubstr("sim1 was removed"));
  ASSERT_EQ(a_.count(Kind::kSent), 1u);
  EXPECT_FALSE(a_.all(Kind::kSent)[0]->completion.error.is_ok());
  EXPECT_FALSE(a_.device->info().up);
  verbs().hold = false;
  EXPECT_EQ(a_.device->connect(b_.address, 1000).status().code(), Code::kLink);
  ASSERT_TRUE(run_until({&b_}, [&] { return b_.closed(pair.server) != nullptr; }));
}

TEST_P(RdmaErrors, RemovalToldByRdmaCmStopsListeningToo) {
  const Pair pair = connect();
  verbs().raise_cm(RDMA_CM_EVENT_DEVICE_REMOVAL);
  ASSERT_TRUE(both_closed(pair));
  EXPECT_THAT(reason(b_, pair.server), HasSubstr("was removed"));
  a_.events.clear();
  b_.events.clear();
  EXPECT_EQ(failed_connect().code(), Code::kNoDaemon) << "nobody listens any more";
  EXPECT_TRUE(b_.device->listen(0).is_ok());
}

// A close whose goodbye is never acknowledged, by an adapter that holds everything back.
TEST_P(RdmaErrors, CloseEndsThoughTheGoodbyeIsStuck) {
  const Pair pair = connect();
  verbs().hold = true;
  pair.client->close();
  ASSERT_TRUE(run_until([&] { return a_.closed(pair.client) != nullptr; }));
  EXPECT_TRUE(a_.closed(pair.client)->completion.error.is_ok());
  ASSERT_TRUE(run_until([&] { return b_.closed(pair.server) != nullptr; }));
  EXPECT_THAT(reason(b_, pair.server), HasSubstr("without a goodbye"));
}

TEST(RdmaDevices, OfAddressesWithoutAnAdapterAndOfTooMany) {
  rdma::SimulatedWorld world;
  DeviceInfo wrong;
  wrong.address = "127.0.0.1";
  EXPECT_EQ(world.backend().open(wrong).status().code(), Code::kNoBackend);
  wrong.address = "192.0.2.1";
  EXPECT_EQ(world.backend().open(wrong).status().code(), Code::kSystem);
  wrong.address = "localhost";
  EXPECT_EQ(world.backend().open(wrong).status().code(), Code::kInvalidArgument);
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(world.backend().open(world.device(i)).is_ok());
  const Status eighth = world.backend().open(world.device(9)).status();
  EXPECT_EQ(eighth.code(), Code::kNoBackend);
  EXPECT_THAT(eighth.message(), HasSubstr("at most 7"));
  EXPECT_TRUE(world.backend().open(world.device(0)).is_ok()) << "one that is open already";
}

TEST(RdmaModule, RefusesOptionsThatItDoesNotKnow) {
  const auto backend = rdma::make_system_backend({{"speed", "high"}});
  EXPECT_EQ(backend.status().code(), Code::kConfig);
  EXPECT_THAT(backend.status().message(), HasSubstr("speed"));
  EXPECT_TRUE(rdma::make_system_backend({}).is_ok());
}

}  // namespace hdt::transport
