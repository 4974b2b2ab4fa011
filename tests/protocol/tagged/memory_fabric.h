// memory_fabric.h: a Fabric without a library: data paths in the memory of this process, for tests of what is
// above the seam. Nothing moves but in poll().
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transports/tagged/data_path.h"

namespace hdt::transport::tagged {

class MemoryDataPath;

class MemoryFabric final : public Fabric {
 public:
  // One at which every data path of the fabrics that share it is found.
  using Exchange = std::map<uint64_t, MemoryDataPath*>;
  explicit MemoryFabric(std::shared_ptr<Exchange> exchange, std::string name = "memory")
      : exchange_(std::move(exchange)), name_(std::move(name)) {}
  const std::string& protocol() const override { return name_; }
  size_t segment_bytes() const override { return size_t{64} << 10; }
  Result<std::unique_ptr<DataPath>> open_data_path() override;

 private:
  std::shared_ptr<Exchange> exchange_;
  std::string name_;
};

class MemoryDataPath final : public DataPath {
 public:
  explicit MemoryDataPath(std::shared_ptr<MemoryFabric::Exchange> exchange);
  ~MemoryDataPath() override;
  std::vector<std::byte> address() const override;
  Status connect(std::span<const std::byte> peer) override;
  Result<bool> send(uint64_t tag, const void* data, size_t bytes, uint64_t id) override;
  Result<bool> receive(uint64_t tag, void* place, size_t bytes, uint64_t id) override;
  Status poll(std::vector<Finished>& finished) override;
  int fd() const override { return -1; }
  bool arm() override { return true; }

  // poll() fails from now on.
  void fail() { failed_ = true; }

 private:
  void move_sends();
  // Sends, and receives, under way; more are refused.
  static constexpr size_t kRoom = 40;
  struct Posted {
    std::byte* place;
    size_t bytes;
    uint64_t id;
  };
  struct Sending {
    uint64_t tag;
    const std::byte* data;
    size_t bytes;
    uint64_t id;
  };
  std::shared_ptr<MemoryFabric::Exchange> exchange_;
  uint64_t id_;
  uint64_t peer_ = 0;
  std::map<uint64_t, Posted> receives_;
  std::vector<Sending> sends_;
  std::vector<Finished> finished_;
  bool failed_ = false;
};

}  // namespace hdt::transport::tagged
