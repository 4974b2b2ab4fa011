# Target helpers: every target of the project is made by one of these, so that warnings, sanitizers and
# include paths are the same everywhere. Includes are written from the source root: #include "base/status.h".

add_library(hdt_flags INTERFACE)
target_include_directories(hdt_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(hdt_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
if(HDT_WARNINGS_AS_ERRORS)
  target_compile_options(hdt_flags INTERFACE -Werror)
endif()
if(HDT_SANITIZE)
  target_compile_options(hdt_flags INTERFACE -fsanitize=${HDT_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
  target_link_options(hdt_flags INTERFACE -fsanitize=${HDT_SANITIZE})
  # Checks of every access, for half of the compiler's time: the address sanitizer and the processor see those
  # of null and of objects' ends; any alignment is good to the processors that HDT is for.
  if(HDT_SANITIZE MATCHES undefined)
    target_compile_options(hdt_flags INTERFACE -fno-sanitize=null,alignment,vptr,object-size)
  endif()
endif()
# Where CMAKE_UNITY_BUILD is on (CMakePresets.json), and in tests always (tests/CMakeLists.txt), a dozen files
# of a target are compiled as one, in half the time; of the large libraries two dozen. The presets with a
# sanitizer, which are seldom built after an edit, take twice as many. There a file is not the main one: its
# types look like a header's.
set(HDT_UNITY_FILES 12 CACHE STRING "How many files of a target are compiled as one")
set(CMAKE_UNITY_BUILD_BATCH_SIZE ${HDT_UNITY_FILES})
math(EXPR HDT_LARGE_UNITY_FILES "2 * ${HDT_UNITY_FILES}")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(hdt_flags INTERFACE -Wno-subobject-linkage)
endif()
# Code that libFuzzer drives (tests/fuzz), and whose lines it counts; the standard library checks its own
# preconditions.
if(HDT_FUZZ)
  target_compile_options(hdt_flags INTERFACE -fsanitize=fuzzer-no-link,float-cast-overflow
                                             -fprofile-instr-generate -fcoverage-mapping)
  target_compile_definitions(hdt_flags INTERFACE _GLIBCXX_ASSERTIONS)
  target_link_options(hdt_flags INTERFACE -fprofile-instr-generate)
endif()

# hdt_library(NAME SOURCES a.cc ... DEPS x ...): a static library inside the project.
function(hdt_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC hdt_flags ${ARG_DEPS})
endfunction()

# hdt_program(NAME SOURCES a.cc ... DEPS x ...): a program in build/<preset>/bin, installed. Its own files
# parse the command line; under the sanitizers optimising that takes the compiler longer than it ever runs.
# The code that works is in libraries.
function(hdt_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  if(HDT_SANITIZE AND NOT HDT_FUZZ)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  target_link_libraries(${name} PRIVATE hdt_flags ${ARG_DEPS})
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# hdt_test(NAME TIER unit|protocol|integration|faults|training SOURCES a.cc ... DEPS x ... [TIMEOUT s]
# [ONE_THREAD] [COMPUTES]): a GoogleTest program, run as one ctest entry labelled with its tier. ONE_THREAD:
# it has no second one, so the thread sanitizer, under which it takes ten times as long, has nothing to find
# in it, and it is left out there. COMPUTES: the test's own code runs longer than it compiles, so it is
# optimised in a release build.
function(hdt_test name)
  cmake_parse_arguments(ARG "ONE_THREAD;COMPUTES" "TIER;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(ARG_ONE_THREAD AND HDT_SANITIZE STREQUAL "thread")
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(HDT_SANITIZE)  # the same work takes several times as long
    math(EXPR ARG_TIMEOUT "3 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE hdt_flags ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  if(ARG_COMPUTES AND NOT HDT_SANITIZE)
    target_compile_options(${name} PRIVATE -O1)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_TIER} TIMEOUT ${ARG_TIMEOUT})
endfunction()

# hdt_data_source(FILE): a file of a test that goes by each element of the test's data. It is optimised in
# every build, and no sanitizer looks at it.
function(hdt_data_source file)
  set(options -O2)
  if(HDT_SANITIZE)
    list(APPEND options -fno-sanitize=all)
  endif()
  set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${options}")
endfunction()

# hdt_transport_module(NAME SOURCES backend.cc ... module.cc LIBS x ...): a backend as a module, the file
# lib/hdt/transports/libhdt-transport-NAME.so, with its own copy of hdt_base; and hdt_transport_NAME, the same
# without module.cc, which tests link.
function(hdt_transport_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  list(REMOVE_ITEM ARG_SOURCES module.cc)
  hdt_library(hdt_transport_${name} SOURCES ${ARG_SOURCES} DEPS hdt_base ${ARG_LIBS})
  add_library(hdt-transport-${name} MODULE module.cc)
  target_link_libraries(hdt-transport-${name} PRIVATE hdt_transport_${name})
  target_link_options(hdt-transport-${name} PRIVATE -Wl,--exclude-libs,ALL)
  if(NOT HDT_SANITIZE)  # the sanitizers' functions are the program's
    target_link_options(hdt-transport-${name} PRIVATE -Wl,-z,defs)
  endif()
  set_target_properties(hdt-transport-${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY
                        ${CMAKE_BINARY_DIR}/lib/hdt/transports)
  install(TARGETS hdt-transport-${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/hdt/transports)
endfunction()
