#include "daemon/links/nic_watch.h"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace hdt::daemon {

// RTMGRP_LINK is the group for changes of interfaces. Joining it needs no permission.
Status NicWatch::open() {
  socket_ = UniqueFd(::socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!socket_.valid()) return Status::from_errno("cannot open a netlink socket", errno);
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return Status::ok();
  return Status::from_errno("cannot watch network interfaces", errno);
}

// Reads everything that the kernel has queued. A datagram holds one or more messages; each message is
// about one interface and has attributes, of which the name is wanted.
std::vector<NicWatch::Event> NicWatch::events() {
  std::vector<Event> list;
  alignas(nlmsghdr) std::array<char, 16 << 10> buffer;
  while (true) {
    const ssize_t bytes = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    // Nothing is left, or the kernel has dropped messages (ENOBUFS).
    if (bytes <= 0) return list;
    auto left = static_cast<unsigned>(bytes);
    for (auto* head = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(head, left);
         head = NLMSG_NEXT(head, left)) {
      if (head->nlmsg_type != RTM_NEWLINK && head->nlmsg_type != RTM_DELLINK) continue;
      // The kernel is trusted: netlink messages are not checked beyond their lengths.
      const auto* info = static_cast<const ifinfomsg*>(NLMSG_DATA(head));
      auto length = static_cast<int>(IFLA_PAYLOAD(head));
      for (auto* item = IFLA_RTA(info); RTA_OK(item, length); item = RTA_NEXT(item, length)) {
        if (item->rta_type != IFLA_IFNAME) continue;
        // IFF_UP: the administrator wants it up. IFF_RUNNING: it has a carrier. A deleted interface is
        // down.
        const bool up = head->nlmsg_type == RTM_NEWLINK && (info->ifi_flags & IFF_UP) != 0 &&
                        (info->ifi_flags & IFF_RUNNING) != 0;
        list.push_back({static_cast<const char*>(RTA_DATA(item)), up});
      }
    }
  }
}

}  // namespace hdt::daemon
