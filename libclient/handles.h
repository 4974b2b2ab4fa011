// handles.h: what the opaque pointers of hdt.h point to.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "hdt/hdt.h"
#include "libclient/communicator.h"
#include "libclient/reductions.h"

struct hdtComm {
  std::shared_ptr<hdt::client::Communicator> communicator;
  std::string error_text;  // what hdtCommErrorMessage returned
  hdt::client::Reductions reductions;
};

namespace hdt::client {

// What one call of the C interface has posted: usually one operation; several, where a call is made of others.
struct Posting {
  std::vector<std::shared_ptr<Operation>> operations;
  std::shared_ptr<void> memory;  // that the operations use and the caller did not give
};

}  // namespace hdt::client

struct hdtRequest {
  std::shared_ptr<hdt::client::Communicator> communicator;
  hdt::client::Posting posting;

  bool done() const {
    return std::all_of(posting.operations.begin(), posting.operations.end(),
                       [](const auto& operation) { return operation->done(); });
  }
};
