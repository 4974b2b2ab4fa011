// hdt_messenger.h: the engine's messages over libhdt. Activations and their gradients travel on groups
// of class "pp" (one for each replica), gradient sums on groups of class "dp" (one for each owner set).
#pragma once

#include <memory>

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "training/engine/layout.h"
#include "training/engine/messenger.h"

namespace hdt::training {

// libhdt's name of a type.
hdtDataType_t data_type_of(NumberType type);

// Makes the groups. Collective over `world`: all its ranks must call it with the same layout. `world`
// must outlive the messenger and have layout.world_size() ranks. `deterministic`, the same on all ranks: sums
// over owners are combined in the order of replicas, wherever the ranks are (hdtCommConfig_t). Fails with
// libhdt's code and message.
Result<std::unique_ptr<Messenger>> make_hdt_messenger(Communicator& world, const Layout& layout,
                                                      bool deterministic = false);

// Finds the cause of `failure`, which is that of a group that the messenger has made and names ranks by their
// numbers there. A rank that has failed aborts or leaves `world`, too, so the failure of `world` is the
// cause. Waits for it for at most 2 s; returns `failure` if there is none. A mismatch is its own cause: every
// rank that has found it aborts `world` next, and would hide the reason from a rank that still waits.
Status cause_of(Communicator& world, const Status& failure);

}  // namespace hdt::training
