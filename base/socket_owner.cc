// socket_owner.cc: asks the kernel for the one socket (sock_diag, as ss does). That takes some
// microseconds, however many sockets the host has. A kernel without it (CONFIG_INET_DIAG) still has
// tables of all TCP sockets as text; one look at them takes 50 ms where there are 50,000.
//
// The other end of a connection within this host is the socket whose local address is our remote one,
// and whose remote address is our local one. So both ways look for the ends exchanged.
#include "base/socket_owner.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/address.h"
#include "base/unique_fd.h"

namespace hdt {

namespace {

// The host without port and brackets: "::1" of "[::1]:4000".
std::string bare_host(const std::string& address) {
  std::string host = host_of(address);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

// The request as it goes to the kernel: a netlink header and sock_diag's question.
struct Question {
  nlmsghdr header{};
  inet_diag_req_v2 request{};
};

// The question for the socket whose local end is `other`. Nothing if the ends are not of this family.
// All states are asked for, and no cookie, so the four addresses and ports alone identify the socket.
std::optional<Question> question(const std::string& own, const std::string& other, int family) {
  Question question;
  question.header.nlmsg_len = sizeof(question);
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  inet_diag_req_v2& request = question.request;
  request.sdiag_family = static_cast<uint8_t>(family);
  request.sdiag_protocol = IPPROTO_TCP;
  request.idiag_states = ~0U;
  request.id.idiag_sport = htons(port_of(other));
  request.id.idiag_dport = htons(port_of(own));
  request.id.idiag_cookie[0] = request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (::inet_pton(family, bare_host(other).c_str(), request.id.idiag_src) != 1 ||
      ::inet_pton(family, bare_host(own).c_str(), request.id.idiag_dst) != 1)
    return std::nullopt;
  return question;
}

// Asks and reads the answer. The kernel answers while send() runs, so the answer is there afterwards and
// recv() does not wait. ENOENT is an answer: there is no such socket. Any other failure leaves `known` false.
SocketOwner ask(const Question& question) {
  const UniqueFd socket(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (socket.get() < 0) return {};
  if (::send(socket.get(), &question, sizeof(question), MSG_NOSIGNAL) != sizeof(question)) return {};
  alignas(nlmsghdr) std::array<std::byte, 4096> bytes{};
  const ssize_t got = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  nlmsghdr header{};
  if (got < static_cast<ssize_t>(sizeof(header))) return {};
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::byte* const body = bytes.data() + NLMSG_HDRLEN;
  if (header.nlmsg_type == NLMSG_ERROR && got >= static_cast<ssize_t>(NLMSG_HDRLEN + sizeof(nlmsgerr))) {
    nlmsgerr error{};
    std::memcpy(&error, body, sizeof(error));
    return {.known = error.error == -ENOENT};  // else the kernel does not know such questions
  }
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      got < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof(inet_diag_msg)))
    return {};
  inet_diag_msg found{};
  std::memcpy(&found, body, sizeof(found));
  // A socket that no process has open any more (it waits for the other end, or for its time to pass) is
  // reported as root's, which must not pass for an owner.
  if (found.idiag_inode == 0) return {.known = true};
  return {.known = true, .uid = found.idiag_uid};
}

// An end in the form of /proc/net/tcp and tcp6: the address as 32-bit words in the host's byte order,
// hexadecimal, then the port. "" if `address` is none, or is IPv6 and the table is not.
std::string table_form(const std::string& address, bool v6) {
  std::string host = bare_host(address);
  std::array<uint32_t, 4> words{};
  size_t count = 1;
  if (v6) {
    // An IPv6 socket that carries IPv4 appears with a mapped address (RFC 4291, section 2.5.5.2).
    if (host.find(':') == std::string::npos) host = "::ffff:" + host;
    if (::inet_pton(AF_INET6, host.c_str(), words.data()) != 1) return "";
    count = words.size();
  } else if (::inet_pton(AF_INET, host.c_str(), words.data()) != 1) {
    return "";
  }
  std::string text;
  for (size_t i = 0; i < count; ++i) text += fmt::format("{:08X}", words[i]);
  return text + fmt::format(":{:04X}", port_of(address));
}

}  // namespace

SocketOwner owner_by_question(const std::string& own, const std::string& other) {
  SocketOwner owner;
  for (const int family : {AF_INET, AF_INET6}) {
    const auto asked = question(own, other, family);
    if (!asked) continue;
    owner = ask(*asked);
    if (!owner.known || owner.uid) break;
  }
  return owner;
}

std::optional<uid_t> owner_of_other_end(const std::string& own, const std::string& other) {
  const SocketOwner owner = owner_by_question(own, other);
  return owner.known ? owner.uid : owner_by_tables(own, other);
}

std::optional<uid_t> owner_by_tables(const std::string& own, const std::string& other) {
  for (const bool v6 : {false, true}) {
    const std::string local = table_form(other, v6), remote = table_form(own, v6);
    if (local.empty() || remote.empty()) continue;
    std::ifstream table(v6 ? "/proc/net/tcp6" : "/proc/net/tcp");
    for (std::string line; std::getline(table, line);) {
      if (line.find(local + " " + remote) == std::string::npos) continue;
      // The line's fields: number, local, remote, state, queues, timer, retransmissions, uid, timeout, inode.
      std::istringstream fields(line);
      std::string skipped;
      uid_t uid = 0;
      uint64_t timeout = 0, inode = 0;
      for (int i = 0; i < 7; ++i) fields >> skipped;
      // As above, inode 0 means that no process has the socket open.
      if (fields >> uid >> timeout >> inode && inode != 0) return uid;
    }
  }
  return std::nullopt;
}

}  // namespace hdt
