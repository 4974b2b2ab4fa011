// domain.h: what the devices opened from one tcp backend share: registered memory, grants and strangers
// (shared_regions.h). Its regions are named by random keys of 64 bits.
#pragma once

#include "transports/support/shared_regions.h"

namespace hdt::transport::tcp {

class TcpDevice;
using Domain = SharedRegions<TcpDevice>;

}  // namespace hdt::transport::tcp
