// link_settings.h: what the parts of an engine that deal with links need to know of the daemon. Control fills
// it in (as a part of EngineOptions); nothing in it changes afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/protocol/node.h"
#include "daemon/protocol/trust.h"
#include "transports/link/link.h"
#include "transports/link/nic_share.h"
#include "transports/transport.h"

namespace hdt::daemon {

// How a class shares NICs with others.
using PolicyOfClass = std::function<transport::SharePolicy(const std::string& group_class)>;

struct LinkSettings {
  // the engine's number; also that of the engines that it is linked with
  uint32_t index = 0;
  NodeId node;
  std::string node_name;
  // what handshakes prove and check
  std::shared_ptr<Trust> trust;
  // makes a backend for this engine alone; called by the thread that starts the engine, and on the engine's
  // thread when a class changes
  std::function<Result<std::unique_ptr<transport::Backend>>(const std::string& name)> make_backend;
  // the limit in ms of a dial before a link is up, and of an accepted handshake
  int64_t connect_ms = 10'000;
  // of each backend
  transport::StrangerLimits strangers{};
  // fragment size, checksum, time-outs
  transport::LinkOptions link;
};

}  // namespace hdt::daemon
