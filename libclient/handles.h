// handles.h: what the opaque pointers of hdt.h point to.
#pragma once

#include <memory>
#include <string>

#include "hdt/hdt.h"
#include "libclient/communicator.h"

struct hdtComm {
  std::shared_ptr<hdt::client::Communicator> communicator;
  std::string error_text;  // what hdtCommErrorMessage returned
};

struct hdtRequest {
  std::shared_ptr<hdt::client::Communicator> communicator;
  std::shared_ptr<hdt::client::Operation> operation;
};
