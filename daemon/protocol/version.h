// version.h: the release, as daemons and libraries name themselves to each other and in logs.
#pragma once

namespace hdt::daemon {

inline constexpr char kSoftware[] = "hdt 0.1.0";

}  // namespace hdt::daemon
