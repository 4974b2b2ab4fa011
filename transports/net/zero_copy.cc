// zero_copy.cc: reads the kernel's notifications (see zero_copy.h). A notification is a sock_extended_err
// with the range of numbers [ee_info, ee_data] that are done.
#include "transports/net/zero_copy.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <ctime>

// Needs timespec, and does not bring it.
#include <linux/errqueue.h>

namespace hdt::transport::tcp {

// A kernel without MSG_ZEROCOPY refuses the socket option.
void ZeroCopy::enable(int fd, size_t least_bytes) {
  const int one = 1;
  least_bytes_ = least_bytes;
  on_ = least_bytes > 0 && ::setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) == 0;
}

uint64_t ZeroCopy::started() {
  open_.push_back(true);
  return first_open_ + open_.size() - 1;
}

void ZeroCopy::read(int fd) {
  // One message of the queue a round, until the queue is empty. Other errors that lie in it are not for here.
  for (;;) {
    // Room for the notification and the address that IPv6 appends; the message itself has no bytes.
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(sock_extended_err) + sizeof(sockaddr_in6))];
    msghdr message{};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
      const bool of_ip = (part->cmsg_level == SOL_IP && part->cmsg_type == IP_RECVERR) ||
                         (part->cmsg_level == SOL_IPV6 && part->cmsg_type == IPV6_RECVERR);
      if (!of_ip) continue;
      sock_extended_err error{};
      std::memcpy(&error, CMSG_DATA(part), sizeof error);
      if (error.ee_origin != SO_EE_ORIGIN_ZEROCOPY || error.ee_errno != 0) continue;
      // The kernel had to copy. It will have to for the next sends as well, so the rest goes the ordinary
      // way.
      if ((error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0) on_ = false;
      finished(error.ee_info, error.ee_data);
    }
  }
}

// The kernel's numbers are modulo 2^32, so they are taken relative to first_open_. A number that was not
// given out is ignored.
void ZeroCopy::finished(uint32_t low, uint32_t high) {
  const uint32_t first = low - static_cast<uint32_t>(first_open_);
  const uint32_t count = high - low + 1;
  for (uint32_t i = 0; i < count && uint64_t{first} + i < open_.size(); ++i) open_[first + i] = false;
  for (; !open_.empty() && !open_.front(); ++first_open_) open_.pop_front();
}

void discard_on_close(int fd) {
  const linger now{1, 0};  // on, with a time of 0: close() sends a reset
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

}  // namespace hdt::transport::tcp
