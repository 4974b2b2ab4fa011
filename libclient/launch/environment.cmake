# Start of a job: launchers' variables and PMIx. Only the header of PMIx is needed; the library is loaded at
# run time.
if(NOT PMIX_INCLUDE_DIR)
  message(FATAL_ERROR "pmix.h was not found (Debian: libpmix-dev)")
endif()
hdt_library(hdt_environment
  SOURCES launch/environment.cc launch/pmix_exchange.cc launch/pmix_library.cc
  DEPS hdt_base fmt::fmt ${CMAKE_DL_LIBS})
target_include_directories(hdt_environment SYSTEM PRIVATE ${PMIX_INCLUDE_DIR})
