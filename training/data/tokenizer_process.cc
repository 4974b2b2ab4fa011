// tokenizer_process.cc: requests and answers over a socket pair. Each is a frame: two numbers, then so many
// bytes. Both ends are of one installation and one machine, so numbers are as they are in memory.
#include "training/data/tokenizer_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "base/unique_fd.h"

extern char** environ;

namespace hdt::training {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMostBytes = uint64_t{1} << 32;
constexpr std::chrono::seconds kLeastWait{60};
constexpr std::chrono::seconds kWaitPerMebibyte{10};
// The program gets so much time to end after its socket is closed; then it is killed.
constexpr std::chrono::seconds kEndWait{5};

enum class Kind : uint64_t {
  kError,   // a message
  kAbout,   // two int64: the size of the vocabulary, and the end of a document or -1
  kText,    // a text to encode, or the answer to tokens
  kTokens,  // int64 each, to decode, or the answer to a text
};

struct Header {
  Kind kind = Kind::kError;
  uint64_t bytes = 0;
};

struct Frame {
  Kind kind = Kind::kError;
  std::string payload;
};

std::string_view bytes_of(std::span<const int64_t> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()};
}

Result<std::vector<int64_t>> numbers_of(const std::string& payload) {
  if (payload.size() % sizeof(int64_t) != 0)
    return Status(Code::kInvalidArgument,
                  fmt::format("{} bytes, which are no row of numbers", payload.size()));
  std::vector<int64_t> numbers(payload.size() / sizeof(int64_t));
  if (!numbers.empty()) std::memcpy(numbers.data(), payload.data(), payload.size());
  return numbers;
}

// Waits until the socket is ready for `events`. Without a deadline: for ever, which ends with the peer.
Status wait_for(int socket, short events, const Clock::time_point* deadline) {
  while (true) {
    int left = -1;
    if (deadline != nullptr) {
      left = static_cast<int>(std::max<int64_t>(
          std::chrono::duration_cast<std::chrono::milliseconds>(*deadline - Clock::now()).count(), 0));
    }
    pollfd polled{socket, events, 0};
    const int ready = ::poll(&polled, 1, left);
    if (ready > 0) return Status::ok();
    if (ready == 0) return {Code::kTimeout, "it did not answer in time"};
    if (errno != EINTR) return Status::from_errno("poll", errno);
  }
}

Status send_bytes(int socket, std::string_view bytes, const Clock::time_point* deadline) {
  while (!bytes.empty()) {
    HDT_RETURN_IF_ERROR(wait_for(socket, POLLOUT, deadline));
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent < 0) return Status::from_errno("it has ended", errno);
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return Status::ok();
}

// False: the peer closed the socket before the first byte.
Result<bool> receive_bytes(int socket, char* to, size_t size, const Clock::time_point* deadline) {
  for (size_t at = 0; at < size;) {
    HDT_RETURN_IF_ERROR(wait_for(socket, POLLIN, deadline));
    const ssize_t count = ::recv(socket, to + at, size - at, MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return Status::from_errno("it has ended", errno);
    if (count == 0 && at == 0) return false;
    if (count == 0) return Status(Code::kSystem, "it has ended in the middle of an answer");
    at += static_cast<size_t>(count);
  }
  return true;
}

Status send_frame(int socket, Kind kind, std::string_view payload, const Clock::time_point* deadline) {
  const Header header = {kind, payload.size()};
  HDT_RETURN_IF_ERROR(send_bytes(socket, {reinterpret_cast<const char*>(&header), sizeof header}, deadline));
  return send_bytes(socket, payload, deadline);
}

// Nothing: the peer has closed the socket.
Result<std::optional<Frame>> receive_frame(int socket, const Clock::time_point* deadline) {
  Header header;
  const Result<bool> more = receive_bytes(socket, reinterpret_cast<char*>(&header), sizeof header, deadline);
  if (!more.is_ok()) return more.status();
  if (!more.value()) return std::optional<Frame>();
  if (header.kind > Kind::kTokens || header.bytes > kMostBytes)
    return Status(Code::kInvalidArgument, "it speaks another protocol");
  Frame frame{header.kind, std::string(header.bytes, '\0')};
  const Result<bool> whole = receive_bytes(socket, frame.payload.data(), frame.payload.size(), deadline);
  if (!whole.is_ok()) return whole.status();
  if (!whole.value()) return Status(Code::kSystem, "it has ended in the middle of an answer");
  return std::optional(std::move(frame));
}

class ProcessTokenizer final : public Tokenizer {
 public:
  ProcessTokenizer(std::string program, pid_t pid, UniqueFd socket)
      : program_(std::move(program)), pid_(pid), socket_(std::move(socket)) {}
  ~ProcessTokenizer() override {
    socket_ = UniqueFd();
    const auto deadline = Clock::now() + kEndWait;
    while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (Clock::now() > deadline) ::kill(pid_, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ProcessTokenizer(const ProcessTokenizer&) = delete;
  ProcessTokenizer& operator=(const ProcessTokenizer&) = delete;

  // Its first answer.
  Status open() {
    const auto deadline = Clock::now() + kLeastWait;
    Result<Frame> about = answer(Kind::kAbout, deadline);
    if (!about.is_ok()) return about.status();
    const Result<std::vector<int64_t>> numbers = numbers_of(about.value().payload);
    if (!numbers.is_ok() || numbers.value().size() != 2 || numbers.value()[0] < 1)
      return named({Code::kInvalidArgument, "it speaks another protocol"});
    vocab_size_ = numbers.value()[0];
    if (numbers.value()[1] >= 0) end_of_document_ = numbers.value()[1];
    return Status::ok();
  }

  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int64_t> end_of_document() const override { return end_of_document_; }
  Result<std::vector<int64_t>> encode(std::string_view text) const override {
    Result<Frame> tokens = ask(Kind::kText, text, Kind::kTokens);
    if (!tokens.is_ok()) return tokens.status();
    return numbers_of(tokens.value().payload);
  }
  // A process that has ended has no text; whoever encodes next hears of it.
  std::string decode(std::span<const int64_t> tokens) const override {
    Result<Frame> text = ask(Kind::kTokens, bytes_of(tokens), Kind::kText);
    return text.is_ok() ? std::move(text.value().payload) : "";
  }

 private:
  Status named(const Status& status) const {
    return {status.code(), fmt::format("{}: {}", program_, status.message())};
  }

  Result<Frame> ask(Kind kind, std::string_view payload, Kind expected) const {
    const std::lock_guard lock(mutex_);
    const auto deadline =
        Clock::now() + kLeastWait + kWaitPerMebibyte * static_cast<int64_t>(payload.size() >> 20U);
    const Status sent = send_frame(socket_.get(), kind, payload, &deadline);
    if (!sent.is_ok()) return named(sent);
    return answer(expected, deadline);
  }

  Result<Frame> answer(Kind expected, Clock::time_point deadline) const {
    Result<std::optional<Frame>> frame = receive_frame(socket_.get(), &deadline);
    if (!frame.is_ok()) return named(frame.status());
    if (!frame.value()) return named({Code::kSystem, "it has ended"});
    if (frame.value()->kind == Kind::kError) return Status(Code::kInvalidArgument, frame.value()->payload);
    if (frame.value()->kind != expected) return named({Code::kInvalidArgument, "it speaks another protocol"});
    return std::move(*frame.value());
  }

  std::string program_;
  pid_t pid_;
  UniqueFd socket_;
  mutable std::mutex mutex_;  // a request and its answer
  int64_t vocab_size_ = 0;
  std::optional<int64_t> end_of_document_;
};

// One answer to a request.
Status serve(const Tokenizer& tokenizer, const Frame& request, int socket) {
  if (request.kind == Kind::kText) {
    const Result<std::vector<int64_t>> tokens = tokenizer.encode(request.payload);
    if (!tokens.is_ok()) return send_frame(socket, Kind::kError, tokens.status().message(), nullptr);
    return send_frame(socket, Kind::kTokens, bytes_of(tokens.value()), nullptr);
  }
  if (request.kind != Kind::kTokens) return {Code::kInvalidArgument, "no request came, but something else"};
  const Result<std::vector<int64_t>> tokens = numbers_of(request.payload);
  if (!tokens.is_ok()) return tokens.status();
  return send_frame(socket, Kind::kText, tokenizer.decode(tokens.value()), nullptr);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> start_tokenizer(const std::vector<std::string>& arguments) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Status::from_errno("cannot make a socket pair", errno);
  UniqueFd mine(ends[0]);
  UniqueFd other(ends[1]);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, other.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, other.get(), STDOUT_FILENO);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return Status::from_errno("cannot run " + arguments[0], error);
  auto tokenizer = std::make_unique<ProcessTokenizer>(arguments[0], pid, std::move(mine));
  // The peer's end must be the only one, or the end of the program would not show.
  other = UniqueFd();
  HDT_RETURN_IF_ERROR(tokenizer->open());
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Status serve_tokenizer(const Result<std::unique_ptr<Tokenizer>>& tokenizer, int socket) {
  // The peer reports it.
  if (!tokenizer.is_ok()) return send_frame(socket, Kind::kError, tokenizer.status().message(), nullptr);
  const Tokenizer& served = *tokenizer.value();
  const int64_t about[] = {served.vocab_size(), served.end_of_document().value_or(-1)};
  HDT_RETURN_IF_ERROR(send_frame(socket, Kind::kAbout, bytes_of(about), nullptr));
  while (true) {
    const Result<std::optional<Frame>> request = receive_frame(socket, nullptr);
    if (!request.is_ok()) return request.status();
    if (!request.value()) return Status::ok();
    HDT_RETURN_IF_ERROR(serve(served, *request.value(), socket));
  }
}

}  // namespace hdt::training
