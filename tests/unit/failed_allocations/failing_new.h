// failing_new.h: lets an allocation of this thread fail. failing_new.cc replaces the program's operator new.
#pragma once

namespace hdt::testing {

// The allocation of this thread that fails, counted from now on; 0: none. Counts down.
extern thread_local int failing_allocation;

}  // namespace hdt::testing
