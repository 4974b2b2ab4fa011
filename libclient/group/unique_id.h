// unique_id.h: what is in an hdtUniqueId_t. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "hdt/hdt.h"
#include "ipc/messages.h"

namespace hdt::client {

// "JDTH" in memory: the first bytes of every id.
inline constexpr uint32_t kIdMagic = 0x4854444a;
// The random secret in an id, from which the group's key is made.
inline constexpr size_t kSeedBytes = 16;

// The contents of an hdtUniqueId_t; `rendezvous`: the coordinator's addresses.
struct IdContents {
  uint32_t magic = kIdMagic;
  std::array<std::byte, kSeedBytes> seed{};
  std::string rendezvous;
};

// A daemon on many NICs has more addresses than an id has room for: the last ones are left out.
// kInternal: not even the first one fits.
Result<hdtUniqueId_t> pack_id(IdContents contents);
// The id comes from the user, so it may be any bytes. kInvalidArgument: pack_id() did not make it.
Result<IdContents> unpack_id(const hdtUniqueId_t& id);
// hdtDeriveUniqueId: an id with the rendezvous of `base`, and a seed that follows from its seed and the
// number. kInvalidArgument: as unpack_id(). kSystem: as key_of().
Result<hdtUniqueId_t> derive_id(const hdtUniqueId_t& base, uint64_t number);
// The key by which the ranks of the id's group know each other. kSystem: as key_of().
Result<ipc::GroupKey> key_of_id(const IdContents& contents);

}  // namespace hdt::client
