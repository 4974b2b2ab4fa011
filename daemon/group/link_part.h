// link_part.h: how much of its measured rates a link of a running group has now. It follows from what is
// known without measuring: which NICs carry the link, which of them have a rail, and the part of each on
// which the group's class can count. Rates that are measured while calls run are no help: they are those of
// the calls, which follow the parts.
//
// Each end says this of its own NICs, and the smaller of the two parts counts (RateChanges).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "ipc/journal.h"
#include "transports/link/link.h"

namespace hdt::daemon {

// A link's NICs at this end. Two that are equal give the same part.
struct LinkNics {
  struct Nic {
    // it has a rail that carries traffic
    bool up = false;
    // RailStatus::nic_part
    double part = 1;
    bool operator==(const Nic&) const = default;
  };
  // by RailStatus::nic
  std::map<std::string, Nic> nics;
  bool operator==(const LinkNics&) const = default;
};
LinkNics nics_of(std::span<const transport::RailStatus> rails);

// How many NICs are to carry the link, whether they have a rail now or not.
ipc::NicsOfLink count_nics(std::span<const transport::RailStatus> rails);

// The part of the rates that the link had with the NICs `measured`. Nothing while no NIC has a rail, as the
// link may be about to end. Other NICs than those count by nominal speed where that of all is known, else as
// many. Within the link NICs count by the rates that they had lately without other classes, or alike if some
// rate is not known. `measured.count` 0: not known, so the link's NICs count as those. Pure.
std::optional<ipc::LinkPart> part_of(std::span<const transport::RailStatus> rails,
                                     const ipc::NicsOfLink& measured);

}  // namespace hdt::daemon
