// domain.h: what the devices opened from one backend share.
#pragma once

#include "transports/support/shared_regions.h"

namespace hdt::transport::tcp {

class TcpDevice;
using Domain = SharedRegions<TcpDevice>;

}  // namespace hdt::transport::tcp
