// version.h: the name and release of this software, as daemons and libraries show it to each other, in
// `hdtctl status` and in logs. It is for people only: what decides whether two programs understand each
// other is kPeerVersion (handshake.h) and ipc::kSessionVersion (ipc/messages.h).
#pragma once

namespace hdt::daemon {

inline constexpr char kSoftware[] = "hdt 0.1.0";

}  // namespace hdt::daemon
