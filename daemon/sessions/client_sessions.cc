// client_sessions.cc: the life of a session after its hello: reading, dispatching and answering its
// messages, and its end. client_admission.cc has what comes before, client_memory.cc what concerns shared
// memory.
//
// A session may end inside nearly every call (its process violates a rule, does not read, or has ended).
// So functions take the session's number and look it up again after such a call, and loops over all
// sessions use a copy of the numbers.
#include "daemon/sessions/client_sessions.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/contained.h"
#include "base/log.h"
#include "base/process_watch.h"

namespace hdt::daemon {

using ipc::Kind;

namespace {

// How many messages of one session are handled in one turn, so that others come in between.
constexpr size_t kMessagesPerTurn = 16;
// The same for a process that has ended, or for all when the daemon ends: more than a socket holds.
constexpr size_t kMessagesAtEnd = 4'096;
// How often it is checked whether a session has read its answer, and how long the session may take for
// that, in ms.
constexpr int64_t kLookAtAnswersMs = 20;
constexpr int64_t kReadAnswerMs = 10'000;

// The kind of a message that this daemon has encoded.
Kind kind_to_send(std::span<const std::byte> bytes) {
  const auto kind = ipc::kind_of(bytes);
  return kind.is_ok() ? kind.value() : Kind::kRefused;
}

// Whether a message answers a question (OpenQuestion).
bool is_answer(Kind kind) {
  return kind == Kind::kStatusIs || kind == Kind::kExplanationIs || kind == Kind::kAnswerIs;
}

}  // namespace

// The kernel reports pid 0 for a process that is not visible in the reader's PID namespace (socket(7),
// SO_PEERCRED).
std::string pid_text(const PeerCredentials& credentials) {
  if (credentials.pid == 0) return "a process of a PID namespace that is not seen from here";
  return "pid " + std::to_string(credentials.pid);
}

// Called in every round of the control thread; each of its three parts looks at its own time.
void ClientSessions::on_time() {
  // 1. The listener's pause is over.
  if (go_on_at_.expired()) {
    go_on_at_ = Deadline::never();
    spare_.restore();
    if (listener_.valid()) watch_listener(EPOLLIN);
  }
  // 2. Connections without a hello. The queue is ordered by deadline, as all have the same time. An entry
  //    whose session has greeted or ended is dropped when it comes to the front.
  while (!silent_.empty()) {
    const auto& [until, number] = silent_.front();
    const ClientSession* client = find(number);
    const bool waits = client != nullptr && !client->greeted;
    if (waits && !until.expired()) break;
    // A copy: `number` refers into the queue's entry.
    const uint64_t late = number;
    silent_.pop_front();
    if (waits)
      refuse(late, Code::kTimeout,
             "a session must begin with a hello within " + std::to_string(options_.hello_ms) +
                 " ms (limits.hello_ms)");
  }
  // 3. Answers that may have been read.
  if (look_at_.expired()) look_at_questions();
}

// Deadlines of sessions themselves are not here: a session that has greeted may be silent for ever.
Deadline ClientSessions::next_time() const {
  Deadline next = Deadline::earlier(go_on_at_, look_at_);
  if (!silent_.empty()) next = Deadline::earlier(next, silent_.front().first);
  return next;
}

// `fd` is a session's socket, or the pidfd of its process. Both lead here, and what is in the socket is
// read first in either case: a process may leave its groups and end at once, and must not be taken for
// failed.
void ClientSessions::on_readable(int fd) {
  const auto found = by_fd_.find(fd);
  if (found == by_fd_.end()) return;
  const uint64_t number = found->second;
  receive(number, kMessagesPerTurn);
  // Handling messages may have ended the session. And the event may be of a descriptor that had this
  // number before; so has_ended() asks the pidfd itself.
  const ClientSession* client = find(number);
  if (client != nullptr && client->process.get() == fd && has_ended(fd)) process_ended(number);
}

// refuse() may throw again, in which case the session still has its socket: hang_up() then makes the next
// read end it.
void ClientSessions::end_of(int fd, const std::string& why) {
  const auto found = by_fd_.find(fd);
  if (found == by_fd_.end()) return;
  const uint64_t number = found->second;
  (void)contained("the refusal of a session", [&] {
    refuse(number, Code::kInternal, "the daemon could not do what the session asked for: " + why);
  });
  hang_up(number);
}

// The steps of the session's end that are still missing are done when its socket is found closed: each
// step of end() may be done twice.
void ClientSessions::hang_up(uint64_t number) {
  if (const ClientSession* client = find(number)) ::shutdown(client->socket.get(), SHUT_RDWR);
}

// The process will never send anything again, so what is left in the socket is all. A child of fork()
// that holds a copy of the socket is not the process.
void ClientSessions::process_ended(uint64_t number) {
  receive(number, kMessagesAtEnd);
  if (const ClientSession* client = find(number)) {
    end(number, "(" + pid_text(client->credentials) + ") ended without leaving the group");
  }
}

// For a moment at which what was sent must have been handled, such as a handover.
void ClientSessions::read_all() {
  for (const uint64_t number : numbers()) receive(number, kMessagesAtEnd);
}

// A copy for loops whose body may end sessions.
std::vector<uint64_t> ClientSessions::numbers() const {
  std::vector<uint64_t> all;
  for (const auto& [number, session] : sessions_) all.push_back(number);
  return all;
}

// Bounded by `messages`, so that one process that sends without a pause does not keep the others waiting;
// epoll reports the rest again.
void ClientSessions::receive(uint64_t number, size_t messages) {
  for (size_t i = 0; i < messages; ++i) {
    const auto found = sessions_.find(number);
    // Looked up anew for each message, as the previous one may have ended the session or opened a
    // question.
    if (found == sessions_.end() || found->second.question) return;
    auto packet = receive_packet(found->second.socket.get());
    if (!packet.is_ok()) {
      // Nothing more is in the socket.
      if (packet.status().code() == Code::kInProgress) return;
      return end(number, "(" + pid_text(found->second.credentials) + ") ended without leaving the group");
    }
    const Status status = handle(number, packet.value());
    if (!status.is_ok()) return refuse(number, status.code(), status.message());
  }
}

// Nothing else of the session is read until it has read the answer, so at most one answer is on its way
// to it. Out of epoll, since a level-triggered socket that is not read would wake the thread for ever.
Result<bool> ClientSessions::begin_question(uint64_t number, Kind answer) {
  ClientSession& client = sessions_.at(number);
  auto claim = limits_.claim(client.credentials.uid, UserLimits::What::kQuestions);
  if (!claim.is_ok()) {
    // kStatusIs has no text for an error, so the session ends with it.
    if (answer == Kind::kStatusIs) return claim.status();
    send(number, ipc::encode_text(answer, claim.status().code(), claim.status().message()));
    return false;
  }
  client.question = OpenQuestion{claim.take(), false, Deadline::never()};
  asking_.insert(number);
  hear(client, false);
  return true;
}

// Polled, because the kernel has no event for "the other end has read everything". A timer runs only while
// an answer is unread.
void ClientSessions::look_at_questions() {
  look_at_ = Deadline::never();
  for (auto next = asking_.begin(); next != asking_.end();) {
    // Advanced first: refuse() erases the entry.
    const uint64_t number = *next++;
    ClientSession& client = sessions_.at(number);
    if (!client.question->answered) continue;
    int unread = 0;
    // The process has not read the bytes that the kernel still holds. No event reports that they are
    // read, hence the timer.
    if (::ioctl(client.socket.get(), SIOCOUTQ, &unread) == 0 && unread > 0) {
      look_at_ = Deadline::after_ms(kLookAtAnswersMs);
      if (client.question->read_until.expired())
        refuse(number, Code::kTimeout, "the session does not read its answers");
      continue;
    }
    client.question.reset();
    asking_.erase(number);
    hear(client, true);
  }
}

// Takes the socket out of epoll, which would report it again and again while it is not read, and puts it
// back.
void ClientSessions::hear(const ClientSession& client, bool heard) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = client.socket.get();
  ::epoll_ctl(epoll_, heard ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, client.socket.get(), &event);
}

// Sessions speak first, and only in the kinds below: a message that a daemon would send is refused.
Status ClientSessions::handle(uint64_t number, Packet& packet) {
  // Every message is decoded and checked here; the handler gets well-formed values. An error that is
  // returned ends the session.
  const auto kind = ipc::kind_of(packet.bytes);
  if (!kind.is_ok()) return kind.status();
  if (!sessions_.at(number).greeted) {
    // Before its hello a process may ask for nothing.
    if (kind.value() != Kind::kHello) return {Code::kInvalidArgument, "a session must begin with a hello"};
    return greet(number, packet);
  }
  switch (kind.value()) {
    // Answered at once: the addresses are known here.
    case Kind::kRendezvous:
      handler_.on_rendezvous(number);
      return Status::ok();
    case Kind::kStatus: {
      const auto begun = begin_question(number, Kind::kStatusIs);
      if (!begun.is_ok()) return begun.status();
      handler_.on_status(number);
      return Status::ok();
    }
    case Kind::kExplain: {
      const auto request = ipc::decode_explain(packet.bytes);
      if (!request.is_ok()) return request.status();
      const auto begun = begin_question(number, Kind::kExplanationIs);
      if (begun.is_ok() && begun.value()) handler_.on_explain(number, request.value());
      return Status::ok();
    }
    case Kind::kAsk: {
      const auto question = ipc::decode_question(packet.bytes);
      if (!question.is_ok()) return question.status();
      const auto begun = begin_question(number, Kind::kAnswerIs);
      if (begun.is_ok() && begun.value()) handler_.on_ask(number, question.value());
      return Status::ok();
    }
    case Kind::kJoin: {
      const auto join = ipc::decode_join(packet.bytes);
      if (!join.is_ok()) return join.status();
      handler_.on_join(number, join.value());
      return Status::ok();
    }
    // Three kinds of one form. A process reports that a rank of it has departed, that its group has
    // failed, or that the deadline of a call has passed.
    case Kind::kLeave:
    case Kind::kFail:
    case Kind::kDeadline: {
      const auto notice = ipc::decode_notice(packet.bytes);
      if (!notice.is_ok()) return notice.status();
      handler_.on_notice(number, kind.value(), notice.value());
      return Status::ok();
    }
    case Kind::kShare:
      return share(number, packet);
    case Kind::kAdopt:
      return adopt(number, packet);
    // Both name memory by its number: the first one withdraws it, the second one asks for a descriptor
    // of it.
    case Kind::kUnshare:
    case Kind::kOpen: {
      const auto request = ipc::decode_memory_request(packet.bytes);
      if (!request.is_ok()) return request.status();
      if (kind.value() == Kind::kOpen) {
        handler_.on_open(number, request.value());
      } else {
        forget_memory(sessions_.at(number), request.value().memory);
      }
      return Status::ok();
    }
    default:
      return {Code::kInvalidArgument, "a message that only a daemon may send"};
  }
}

// A refusal ends the group for that process, not its session.
Status ClientSessions::adopt(uint64_t number, Packet& packet) {
  const auto request = ipc::decode_adopt(packet.bytes);
  if (!request.is_ok()) return request.status();
  if (packet.descriptors.is_ok() && packet.fds.size() != 1)
    return {Code::kInvalidArgument, "a group to adopt needs one descriptor"};
  const Status adopted = packet.descriptors.is_ok()
                             ? handler_.on_adopt(number, request.value(), std::move(packet.fds[0]))
                             : packet.descriptors;
  if (adopted.is_ok()) return adopted;
  // The reason goes to the log as well: the group ends for its ranks.
  warn_for(sessions_.at(number), "a group is not adopted: " + adopted.message());
  send(number, ipc::encode(Kind::kNotAdopted,
                           ipc::GroupNotice{request.value().handle, adopted.code(), -1, adopted.message()}));
  return Status::ok();
}

// All lines that a process can cause go through here. Those that were left out are counted and named with
// the next one.
void ClientSessions::warn_for(const ClientSession& client, const std::string& line) {
  if (!limits_.may_log(client.credentials.uid)) return;
  // Lines of a user are limited, since a process can cause them at will.
  const int64_t left_out = limits_.take_unlogged(client.credentials.uid);
  HDT_LOG_WARN("session of {}: {}{}", pid_text(client.credentials), line,
               left_out == 0 ? ""
                             : " (" + std::to_string(left_out) +
                                   " lines of this user were left out: limits.log_lines_per_s)");
}

ClientSession* ClientSessions::find(uint64_t number) {
  const auto found = sessions_.find(number);
  return found == sessions_.end() ? nullptr : &found->second;
}

// Descriptors in messages that nobody has read count against the limit of the daemon's user, and so
// against every session. The kernel's count of unread bytes covers all messages before this one; if it
// is 0, the earlier claims are over.
Status ClientSessions::claim_unread(ClientSession& client) {
  int unread = 0;
  if (::ioctl(client.socket.get(), SIOCOUTQ, &unread) != 0 || unread == 0) {
    client.unread.clear();
    return Status::ok();
  }
  auto claim = limits_.claim(client.credentials.uid, UserLimits::What::kUnread);
  if (!claim.is_ok()) return claim.status();
  client.unread.push_back(claim.take());
  return Status::ok();
}

// Never blocks: the socket is non-blocking, and a process whose socket is full has stopped reading. False:
// the session has ended or will end.
bool ClientSessions::send(uint64_t number, std::span<const std::byte> bytes, std::span<const int> fds) {
  ClientSession* client = find(number);
  if (client == nullptr) return false;
  const Status may = fds.empty() ? Status::ok() : claim_unread(*client);
  if (!may.is_ok()) {
    (void)send_packet(client->socket.get(), ipc::encode_text(Kind::kRefused, may.code(), may.message()), {});
  }
  const Status sent = may.is_ok() ? send_packet(client->socket.get(), bytes, fds) : may;
  // The question is answered, even if sending failed: then the socket is shut below.
  if (client->question && is_answer(kind_to_send(bytes))) {
    client->question->answered = true;
    client->question->read_until = Deadline::after_ms(kReadAnswerMs);
    look_at_ = Deadline::after_ms(0);
  }
  if (sent.is_ok()) return true;
  // A process that does not read its answers is treated as one that has ended. Shutting its socket makes
  // the next read find the end, where the session is ended; it must not end inside this call, which may
  // come from anywhere.
  warn_for(*client, sent.message());
  ::shutdown(client->socket.get(), SHUT_RDWR);
  return false;
}

// The message may not reach a process that does not read; the session ends in any case.
void ClientSessions::refuse(uint64_t number, Code code, const std::string& why) {
  ClientSession* client = find(number);
  if (client == nullptr) return;
  warn_for(*client, "closed: " + why);
  (void)send_packet(client->socket.get(), ipc::encode_text(Kind::kRefused, code, why), {});
  end(number, "was disconnected by the daemon: " + why);
}

// For the end of the daemon: every process learns the reason before its socket is closed.
void ClientSessions::refuse_all(Code code, const std::string& why) {
  for (const uint64_t number : numbers()) refuse(number, code, why);
}

// As if the daemon had been killed: processes see the end of the socket without a reason, and wait for a
// successor.
void ClientSessions::abandon() {
  stop_listening();
  for (const auto& [number, session] : sessions_) ::shutdown(session.socket.get(), SHUT_RDWR);
}

// Every session ends here, once. `how` is the end of a sentence about the process, for the ranks that wait
// for it.
void ClientSessions::end(uint64_t number, const std::string& how) {
  ClientSession* client = find(number);
  if (client == nullptr) return;
  // The handler first, while the session's entry exists: it looks at its seats.
  handler_.on_session_ended(number, how);
  // Taken out of epoll explicitly: if somebody holds a copy of the descriptor, closing does not do it.
  for (const int fd : {client->socket.get(), client->process.get()}) {
    if (fd < 0) continue;
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
    by_fd_.erase(fd);
  }
  // The session's claims end with its entry. Engines forget its memory in on_session_ended().
  for (const auto& [memory, block] : client->memories) memory_owners_.erase(memory);
  asking_.erase(number);
  sessions_.erase(number);
}

}  // namespace hdt::daemon
