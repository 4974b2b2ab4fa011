// control_network_test.cc: two daemons' control connections over loopback: which of a daemon's addresses is
// used.
#include "daemon/control/control_network.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/free_port.h"

namespace hdt::daemon {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kAnswerMs = 30'000;
constexpr char kNobody[] = "127.0.9.9:9";

class Side {
 public:
  explicit Side(const std::vector<std::string>& addresses, bool own_host_only = false) {
    options_.own_host_only = own_host_only;
    options_.trust = Trust::open({}).take();
    options_.node_name = "node";
    for (const std::string& address : addresses) {
      transport::DeviceInfo nic;
      nic.name = "lo";
      nic.address = address;
      nic.up = true;
      options_.devices.push_back(nic);
    }
    options_.on_message = [this](ChannelId, std::span<const std::byte> message) {
      heard.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
    };
    options_.on_closed = [this](ChannelId channel, const Status& why) { closed.emplace_back(channel, why); };
    network.emplace(options_);
    EXPECT_TRUE(network->start().is_ok());
  }

  void work() {
    network->on_time();
    network->poll();
  }
  ChannelId say(const std::string& addresses, const std::string& text) {
    const ChannelId channel = network->dial(addresses);
    network->send(channel, std::as_bytes(std::span(text)));
    return channel;
  }

  std::optional<ControlNetwork> network;
  std::vector<std::string> heard;
  std::vector<std::pair<ChannelId, Status>> closed;

 private:
  ControlNetworkOptions options_;
};

class ControlConnections : public ::testing::Test {
 protected:
  bool await(const std::function<bool()>& done) {
    const Deadline deadline = Deadline::after_ms(kAnswerMs);
    while (!done()) {
      if (deadline.expired()) return false;
      near.work();
      far.work();
      ::usleep(200);
    }
    return true;
  }
  std::string last_of_far() const {
    const std::string& all = far.network->address();
    return all.substr(all.rfind(',') + 1);
  }

  Side near{{"127.0.1.1", "127.0.2.1"}};
  Side far{{"127.0.1.2", "127.0.2.2"}};
};

TEST_F(ControlConnections, ADaemonIsReachedAtEachOfItsAddresses) {
  EXPECT_THAT(far.network->address(), testing::MatchesRegex("127\\.0\\.1\\.2:[0-9]+,127\\.0\\.2\\.2:[0-9]+"));
  near.say(far.network->address(), "first");
  ASSERT_TRUE(await([&] { return far.heard.size() == 1; }));
  near.say(last_of_far(), "second");
  ASSERT_TRUE(await([&] { return far.heard.size() == 2; }));
  EXPECT_EQ(far.heard[1], "second");
  EXPECT_TRUE(near.closed.empty());
}

TEST_F(ControlConnections, OneThatRefusesIsPassedOver) {
  near.say(std::string(kNobody) + "," + last_of_far(), "hello");
  ASSERT_TRUE(await([&] { return far.heard.size() == 1; }));
  EXPECT_TRUE(near.closed.empty());
}

// A socket that listens and never accepts, its queue full: who connects hears nothing.
TEST_F(ControlConnections, OneThatDoesNotAnswerIsNotWaitedFor) {
  const int silent = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  ASSERT_EQ(::bind(silent, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(::listen(silent, 0), 0);
  ASSERT_EQ(::getsockname(silent, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  const int queued = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(::connect(queued, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  near.say("127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "," + last_of_far(), "hello");
  ASSERT_TRUE(await([&] { return far.heard.size() == 1; }));
  EXPECT_TRUE(near.closed.empty());
  ::close(queued);
  ::close(silent);
}

// Hosts may have an address in common: this one's own listener answers at it, or another host's daemon does.
TEST_F(ControlConnections, AnAddressAtWhichAnotherDaemonAnswersIsPassedOver) {
  const std::string own = near.network->address();
  const std::string meant = far.network->address_with_id();
  const std::string id = meant.substr(0, meant.find('@') + 1);
  near.say(id + own + "," + last_of_far(), "hello");
  ASSERT_TRUE(await([&] { return far.heard.size() == 1; }));
  EXPECT_TRUE(near.closed.empty());
  EXPECT_TRUE(near.heard.empty());
  Side third({"127.0.1.3"});
  near.say(id + third.network->address(), "hello");
  ASSERT_TRUE(await([&] {
    third.work();
    return !near.closed.empty();
  }));
  EXPECT_THAT(near.closed[0].second.message(), HasSubstr("is not the one that is meant"));
  EXPECT_THAT(near.closed[0].second.message(), HasSubstr(third.network->address()));
  EXPECT_TRUE(third.heard.empty());
}

TEST_F(ControlConnections, WithoutANodeIdItIsNotThisNodeItself) {
  const std::string own = near.network->address();
  const std::string first = own.substr(0, own.find(','));
  near.say(first + "," + last_of_far(), "hello");
  ASSERT_TRUE(await([&] { return far.heard.size() == 1; }));
  EXPECT_TRUE(near.heard.empty());
  near.say(own, "to myself");
  ASSERT_TRUE(await([&] { return near.heard.size() == 1; }));
}

TEST_F(ControlConnections, AChannelThatIsFinishedDeliversWhatWasSentAndLeavesNothing) {
  for (int i = 0; i < 20; ++i) {
    const ChannelId channel = near.say(far.network->address(), std::string(100'000, 'x'));
    near.network->finish(channel);
  }
  ASSERT_TRUE(await([&] { return far.heard.size() == 20; }));
  ASSERT_TRUE(await([&] { return near.network->open_channels() == 0 && far.network->open_channels() == 0; }));
  EXPECT_TRUE(near.closed.empty());
}

using MeetingPlaces = ControlConnections;

TEST_F(MeetingPlaces, AddressesOfOtherHostsArePassedOver) {
  const std::string port = std::to_string(free_port());
  const std::string place = "198.51.100.7:" + port + ",127.0.0.1:" + port;
  ASSERT_TRUE(far.network->host_place(place, false).is_ok());
  near.say("127.0.0.1:" + port, "hello");
  ASSERT_TRUE(await([&] { return far.heard.size() == 1; }));
  const Status none = far.network->host_place("198.51.100.7:" + port, false);
  EXPECT_EQ(none.code(), Code::kConfig);
  EXPECT_THAT(none.message(), HasSubstr("198.51.100.7"));
  EXPECT_EQ(far.network->host_place("127.0.0.1", false).code(), Code::kInvalidArgument);
}

TEST_F(MeetingPlaces, OnItsNicsTooWhereTheNameIsALoopbackAddressAtHome) {
  const std::string port = std::to_string(free_port());
  ASSERT_TRUE(far.network->host_place("127.0.0.1:" + port, true).is_ok());
  near.say("127.0.2.2:" + port, "hello");
  ASSERT_TRUE(await([&] { return far.heard.size() == 1; }));
}

TEST_F(MeetingPlaces, APortThatIsTakenIsAConflict) {
  const std::string place = "127.0.0.1:" + std::to_string(free_port());
  ASSERT_TRUE(far.network->host_place(place, false).is_ok());
  const Status taken = near.network->host_place(place, false);
  EXPECT_EQ(taken.code(), Code::kSystem);
  EXPECT_THAT(taken.message(), HasSubstr("another program, or another job's daemon, listens there"));
  // The same daemon may host several groups there.
  EXPECT_TRUE(far.network->host_place(place, false).is_ok());
}

TEST_F(ControlConnections, WhereNoneAnswersThatIsToldOnce) {
  const ChannelId channel = near.say(std::string(kNobody) + ",127.0.9.8:9", "hello");
  ASSERT_TRUE(await([&] { return !near.closed.empty(); }));
  EXPECT_EQ(near.closed.size(), 1U);
  EXPECT_EQ(near.closed[0].first, channel);
  EXPECT_THAT(near.closed[0].second.message(), HasSubstr("refused"));
  const ChannelId none = near.say("", "hello");
  ASSERT_TRUE(await([&] { return near.closed.size() == 2; }));
  EXPECT_EQ(near.closed[1].first, none);
}

// Without a cluster key.
class OwnHostOnly : public MeetingPlaces {
 protected:
  // An address of this host that others reach; "": it has none.
  static std::string outer_address() {
    ifaddrs* first = nullptr;
    EXPECT_EQ(::getifaddrs(&first), 0);
    std::string found;
    for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
      char text[INET_ADDRSTRLEN];
      ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, text,
                  sizeof text);
      if (!std::string(text).starts_with("127.")) found = text;
    }
    ::freeifaddrs(first);
    return found;
  }

  Side inner{{"127.0.3.1"}, true};
};

TEST_F(OwnHostOnly, AnotherHostIsNotDialledAndTheErrorSaysWhatMendsIt) {
  const ChannelId channel = inner.say("198.51.100.7:18520", "hello");
  ASSERT_TRUE(await([&] {
    inner.work();
    return !inner.closed.empty();
  }));
  EXPECT_EQ(inner.closed[0].first, channel);
  EXPECT_EQ(inner.closed[0].second.code(), Code::kConfig);
  EXPECT_THAT(inner.closed[0].second.message(), HasSubstr("198.51.100.7:18520 is of another host"));
  EXPECT_THAT(inner.closed[0].second.message(), HasSubstr("hdtctl key new"));
  EXPECT_THAT(inner.closed[0].second.message(), HasSubstr("cluster_key_file"));
  EXPECT_EQ(inner.network->host_place("198.51.100.7:18520", false).code(), Code::kConfig);
}

TEST_F(OwnHostOnly, DaemonsOfThisHostMeetAtLoopbackWhateverAddressOfItTheyAreGiven) {
  const std::string outer = outer_address();
  if (outer.empty()) GTEST_SKIP() << "this host has no address but loopback";
  const std::string port = std::to_string(free_port());
  ASSERT_TRUE(inner.network->host_place(outer + ":" + port, true).is_ok());
  EXPECT_TRUE(inner.network->listens_at(outer + ":" + port));
  near.say(outer + ":" + port, "from outside");
  ASSERT_TRUE(await([&] {
    inner.work();
    return !near.closed.empty();
  }));
  EXPECT_THAT(near.closed[0].second.message(), HasSubstr("refused"));
  Side other({"127.0.3.2"}, true);
  other.say(outer + ":" + port, "from the same host");
  ASSERT_TRUE(await([&] {
    inner.work();
    other.work();
    return inner.heard.size() == 1;
  }));
  inner.network->leave_place(outer + ":" + port, true);
}

}  // namespace
}  // namespace hdt::daemon
