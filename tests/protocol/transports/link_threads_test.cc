// link_threads_test.cc: two engines, each in its own thread, with a link of two rails between them, both
// writing at the same time; over TCP and over the in-memory network.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <iostream>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "transports/fake/network.h"
#include "transports/link/link.h"

namespace hdt::transport {

namespace {

constexpr uint64_t kSeed = 20240611;
constexpr size_t kRails = 2;
constexpr size_t kWrites = 200;
constexpr auto kTimeLimit = std::chrono::seconds(120);

// As which each engine knows the other one.
constexpr PeerName kOther{{std::byte{1}}};

class Engine : public LinkObserver {
 public:
  Engine(std::unique_ptr<Backend> backend, int node, uint64_t seed)
      : backend_(std::move(backend)), seed_(seed) {
    for (size_t rail = 0; rail < kRails; ++rail) {
      DeviceInfo info;
      info.name = "lo";
      info.address = "127.0." + std::to_string(rail + 1) + "." + std::to_string(node);
      devices.push_back(backend_->open(info).take());
    }
    std::mt19937_64 random(seed_);
    for (size_t i = 0; i < kWrites; ++i)
      sizes_.push_back(random() % 4 == 0 ? random() % 4 : random() % 1'000'000);
    source_.resize(std::accumulate(sizes_.begin(), sizes_.end(), size_t{1}));
    for (std::byte& byte : source_) byte = std::byte(random());
  }

  // Memory for what `from` will write.
  RegionKey expect(const Engine& from) {
    region_.resize(from.source_.size());
    const RegionKey key = devices[0]->register_memory(region_.data(), region_.size(), -1).take();
    EXPECT_TRUE(devices[0]->grant(key, kOther).is_ok());
    return key;
  }
  bool received(const Engine& from) const {
    return std::equal(region_.begin(), region_.end() - 1, from.source_.begin());
  }

  // Writes everything, takes everything, then `leader` closes.
  void run(const RegionKey& peer_region, bool leader) {
    WriteRequest request;
    request.data = source_.data();
    request.region = peer_region;
    for (const size_t bytes : sizes_) {
      request.bytes = bytes;
      if (!link_.write(request).is_ok()) return;
      request.data = static_cast<const std::byte*>(request.data) + bytes;
      request.offset += bytes;
    }
    const auto deadline = std::chrono::steady_clock::now() + kTimeLimit;
    while (!reason && std::chrono::steady_clock::now() < deadline) {
      step();
      // The follower says that it has everything; the leader closes when it has everything as well.
      if (!leader && arrived == kWrites && !said_) said_ = link_.send(std::vector<std::byte>(1)).is_ok();
      if (leader && arrived == kWrites && sent == kWrites && heard_) link_.close({Code::kAborted, "done"});
    }
  }

  void on_sent(Link&, uint64_t) override { ++sent; }
  void on_arrived(Link&, const LinkHeader&, uint64_t) override { ++arrived; }
  void on_message(Link&, std::span<const std::byte>) override { heard_ = true; }
  void on_down(Link&, const Status& why) override { reason = why; }

  std::vector<std::unique_ptr<Device>> devices;
  size_t sent = 0;
  size_t arrived = 0;
  std::optional<Status> reason;

 private:
  void step() {
    std::vector<pollfd> waits;
    for (const auto& device : devices) waits.push_back({device->event_fd(), POLLIN, 0});
    ::poll(waits.data(), waits.size(), 100);
    for (size_t i = 0; i < devices.size(); ++i) {
      if ((waits[i].revents & POLLIN) == 0) continue;
      std::vector<Completion> completions;
      devices[i]->poll(completions);
      for (const Completion& completion : completions) {
        const bool fresh =
            completion.kind == Completion::Kind::kConnected || completion.kind == Completion::Kind::kAccepted;
        EXPECT_TRUE(!fresh || completion.connection->admit(kOther).is_ok());
        if (completion.kind == Completion::Kind::kReady) link_.add_rail(completion.connection);
        link_.on_completion(completion);
        if (completion.kind == Completion::Kind::kClosed) devices[i]->release(completion.connection);
      }
      link_.flush();
    }
  }

  std::unique_ptr<Backend> backend_;
  uint64_t seed_;
  Link link_{*this, {.fragment_bytes = 64 << 10}};
  std::vector<size_t> sizes_;
  std::vector<std::byte> source_;
  std::vector<std::byte> region_;
  bool said_ = false;
  bool heard_ = false;
};

void run_two_engines(const std::function<std::unique_ptr<Backend>()>& make_backend) {
  std::cout << "seed " << kSeed << "\n";
  Engine a(make_backend(), 1, kSeed);
  Engine b(make_backend(), 2, kSeed + 1);
  const RegionKey at_a = a.expect(b);
  const RegionKey at_b = b.expect(a);
  for (size_t rail = 0; rail < kRails; ++rail) {
    const auto address = b.devices[rail]->listen(0);
    ASSERT_TRUE(address.is_ok()) << address.status().to_string();
    ASSERT_TRUE(a.devices[rail]->connect(address.value(), 5000).is_ok());
  }
  std::thread first([&] { a.run(at_b, true); });
  std::thread second([&] { b.run(at_a, false); });
  first.join();
  second.join();
  ASSERT_TRUE(a.reason && b.reason) << "not finished within the time limit";
  EXPECT_EQ(a.reason->message(), "done");
  EXPECT_EQ(a.arrived, kWrites);
  EXPECT_EQ(b.arrived, kWrites);
  EXPECT_TRUE(a.received(b));
  EXPECT_TRUE(b.received(a));
}

}  // namespace

TEST(LinkThreads, Tcp) { run_two_engines(&make_tcp_backend); }

TEST(LinkThreads, Fake) {
  fake::FakeNetwork network(kSeed);
  fake::Faults faults;
  faults.max_delay_polls = 3;
  faults.bytes_per_poll = 200'000;
  network.set_faults(faults);
  run_two_engines([&] { return network.make_backend(); });
}

}  // namespace hdt::transport
