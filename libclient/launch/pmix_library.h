// pmix_library.h: the functions of libpmix.so.2 that HDT calls, found at run time.
#pragma once

#include <pmix.h>

#include "base/status.h"

namespace hdt::client {

struct PmixLibrary {
  decltype(&PMIx_Init) init;
  decltype(&PMIx_Finalize) finalize;
  decltype(&PMIx_Put) put;
  decltype(&PMIx_Commit) commit;
  decltype(&PMIx_Get_nb) get_nb;
  decltype(&PMIx_Error_string) error_string;
};

// Loaded at the first call and never unloaded: libpmix runs a thread of its own. kNoDaemon if it cannot be
// loaded.
Result<const PmixLibrary*> pmix_library();

}  // namespace hdt::client
