// domain.h: what the devices opened from one backend (ofi or ucx) share: registered memory, grants and
// strangers (shared_regions.h). Nothing of it is registered with the library, which never learns of
// regions.
#pragma once

#include "transports/support/shared_regions.h"

namespace hdt::transport::tagged {

class TaggedDevice;
using Domain = SharedRegions<TaggedDevice>;

}  // namespace hdt::transport::tagged
