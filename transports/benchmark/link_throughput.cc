// link_throughput.cc: measures what a link costs. link_write sends messages of one size over a link with one
// TCP rail on loopback, with one thread a side. plain_socket moves the same bytes in the same way over a
// blocking socket. Compare bytes_per_second of the two for each size. In both, one message is under way at a
// time, and the receiver answers each.
#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "transports/link/link.h"

namespace {

using namespace hdt::transport;  // NOLINT(google-build-using-namespace)

constexpr int kWaitMs = 1000;

// The identity under which each engine admits the other one, and grants memory to it.
constexpr PeerName kOther{{std::byte{1}}};

// What the daemon's engine does, for one device and one link: it polls the device, sleeps on its descriptor
// when there is nothing to do, and passes completions to the link. Used by one thread.
class Engine : public LinkObserver {
 public:
  explicit Engine(const char* address) {
    DeviceInfo info;
    info.name = "lo";
    info.address = address;
    auto opened = backend_->open(info);
    if (!opened.is_ok()) throw std::runtime_error(opened.status().to_string());
    device = opened.take();
  }
  void on_sent(Link&, uint64_t) override { ++sent; }
  void on_arrived(Link&, const LinkHeader&, uint64_t) override { ++arrived; }
  void on_message(Link&, std::span<const std::byte>) override {}
  void on_down(Link&, const hdt::Status&) override { down = true; }

  void step() {
    if (!device->poll(completions_)) {
      pollfd wait{device->event_fd(), POLLIN, 0};
      ::poll(&wait, 1, kWaitMs);
      return;
    }
    for (const Completion& completion : completions_) {
      if (completion.kind == Completion::Kind::kConnected || completion.kind == Completion::Kind::kAccepted) {
        if (!completion.connection->admit(kOther).is_ok()) throw std::runtime_error("not admitted");
      }
      if (completion.kind == Completion::Kind::kReady) link.add_rail(completion.connection);
      link.on_completion(completion);
    }
    link.flush();
    completions_.clear();
  }

 private:
  std::unique_ptr<Backend> backend_ = make_tcp_backend();
  std::vector<Completion> completions_;

 public:
  std::unique_ptr<Device> device;
  Link link{*this};
  uint64_t sent = 0;
  uint64_t arrived = 0;
  bool down = false;
};

// An iteration is one write and the answer to it.
void link_write(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> source(bytes, std::byte{1});
  std::vector<std::byte> region(bytes);
  Engine sender("127.0.1.1");
  Engine receiver("127.0.1.2");
  const std::string address = receiver.device->listen(0).take();
  const RegionKey key = receiver.device->register_memory(region.data(), bytes, -1).take();
  if (!receiver.device->grant(key, kOther).is_ok()) throw std::runtime_error("not granted");
  if (!sender.device->connect(address, kWaitMs).is_ok()) throw std::runtime_error("cannot connect");

  // The receiver answers every message with an empty write, which ends the sender's iteration. Only its
  // thread uses `receiver` from here until it is joined.
  std::thread other([&] {
    uint64_t answered = 0;
    while (!receiver.down) {
      receiver.step();
      for (; answered < receiver.arrived; ++answered) {
        if (!receiver.link.write({}).is_ok()) return;
      }
    }
  });
  for (auto _ : state) {
    const uint64_t before = sender.arrived;
    if (!sender.link.write({source.data(), bytes, key, 0, {}, 1}).is_ok())
      state.SkipWithError("the link is down");
    while (sender.arrived == before && !sender.down) sender.step();
  }
  sender.link.close({hdt::Code::kAborted, "done"});
  while (!sender.down) sender.step();
  other.join();
  if (region != source) state.SkipWithError("wrong bytes arrived");
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

int blocking_socket() { return ::socket(AF_INET, SOCK_STREAM, 0); }

// Sends or receives all of the bytes. False at the end of the connection or on an error.
bool move_all(bool sending, int fd, std::byte* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = sending ? ::send(fd, data + done, bytes - done, MSG_NOSIGNAL)
                              : ::recv(fd, data + done, bytes - done, 0);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

// The same exchange without HDT: a message there, one byte back.
void plain_socket(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> source(bytes, std::byte{1});
  std::vector<std::byte> target(bytes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, "127.0.1.2", &address.sin_addr);
  socklen_t length = sizeof address;
  const int listener = blocking_socket();
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw std::runtime_error("cannot listen");
  }
  const int sender = blocking_socket();
  if (::connect(sender, reinterpret_cast<sockaddr*>(&address), length) != 0)
    throw std::runtime_error("cannot connect");
  const int receiver = ::accept(listener, nullptr, nullptr);
  std::byte acknowledgement{1};
  std::thread other([&] {
    while (move_all(false, receiver, target.data(), bytes) && move_all(true, receiver, &acknowledgement, 1)) {
    }
  });
  std::byte answer{};
  for (auto _ : state) {
    if (!move_all(true, sender, source.data(), bytes) || !move_all(false, sender, &answer, 1)) {
      state.SkipWithError("the socket closed");
    }
  }
  ::shutdown(sender, SHUT_WR);
  other.join();
  for (const int fd : {listener, sender, receiver}) ::close(fd);
  if (target != source) state.SkipWithError("wrong bytes arrived");
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

// From large messages, where copying counts, to small ones, where the round trip does. Time is real time: two
// threads work.
BENCHMARK(plain_socket)->Arg(64 << 20)->Arg(1 << 20)->Arg(64 << 10)->Arg(8)->UseRealTime();
BENCHMARK(link_write)->Arg(64 << 20)->Arg(1 << 20)->Arg(64 << 10)->Arg(8)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
