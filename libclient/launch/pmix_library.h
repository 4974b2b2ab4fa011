// pmix_library.h: the functions of libpmix.so.2 that HDT calls, found at run time. Only the header is
// needed for building.
#pragma once

#include <pmix.h>

#include "base/status.h"

namespace hdt::client {

// One pointer for each function; none of them is null.
struct PmixLibrary {
  decltype(&PMIx_Init) init;
  decltype(&PMIx_Finalize) finalize;
  decltype(&PMIx_Put) put;
  decltype(&PMIx_Commit) commit;
  decltype(&PMIx_Get_nb) get_nb;
  decltype(&PMIx_Error_string) error_string;
};

// The library, loaded at the first call and never unloaded, as libpmix runs a thread of its own.
// kNoDaemon: it cannot be loaded, or lacks a function. Any thread; the result of the first call is
// final.
Result<const PmixLibrary*> pmix_library();

}  // namespace hdt::client
