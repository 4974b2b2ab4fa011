// domain.h: what the devices opened from one backend share: registered memory. A region may be written
// through any of them, so that any rail of a link can carry any chunk.
#pragma once

#include <set>

#include "transports/region_table.h"

namespace hdt::transport::tagged {

class TaggedDevice;

struct Domain {
  RegionTable regions;
  std::set<TaggedDevice*> devices;
};

}  // namespace hdt::transport::tagged
