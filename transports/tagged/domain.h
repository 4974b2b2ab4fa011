// domain.h: what the devices opened from one backend share.
#pragma once

#include "transports/support/shared_regions.h"

namespace hdt::transport::tagged {

class TaggedDevice;
using Domain = SharedRegions<TaggedDevice>;

}  // namespace hdt::transport::tagged
