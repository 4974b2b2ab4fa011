// safetensors.cc: the system calls behind safetensors.h. Space is reserved before the first byte is written,
// so that a full disk is found early; hashes are computed piece by piece, while a piece is in the cache.
#include "training/checkpoint/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/foreign_text.h"
#include "base/sha256_stream.h"

namespace hdt::training {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;  // written, read and hashed at a time
constexpr mode_t kMode = 0666;                   // less the umask

// The file that is being written. It is removed unless it is kept.
class OutputFile {
 public:
  OutputFile(std::string path, uint64_t bytes) : path_(std::move(path)), bytes_(bytes) {}
  ~OutputFile() {
    if (descriptor_.valid() && !kept_) ::unlink(path_.c_str());
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  Status open() {
    // O_NOFOLLOW: nobody's link leads the bytes elsewhere.
    descriptor_ =
        UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kMode));
    if (!descriptor_.valid()) return failed("create", errno);
    if (::fallocate(descriptor_.get(), 0, 0, static_cast<off_t>(bytes_)) == 0) return Status::ok();
    // A file system that cannot reserve finds out when the bytes are written.
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR) return Status::ok();
    return failed("write", errno);
  }

  Status write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(descriptor_.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return failed("write", errno);
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return Status::ok();
  }

  // Some file systems report a full disk only here.
  Status sync_and_keep() {
    if (::fsync(descriptor_.get()) != 0) return failed("sync", errno);
    kept_ = true;
    return Status::ok();
  }

 private:
  Status failed(const char* doing, int error) const {
    std::string room;
    struct statvfs info {};
    const std::string folder = path_.substr(0, path_.rfind('/') + 1);
    if (::statvfs(folder.empty() ? "." : folder.c_str(), &info) == 0) {
      room = fmt::format(", its file system has {} bytes free", uint64_t{info.f_bavail} * info.f_frsize);
    }
    return Status::from_errno(fmt::format("cannot {} {} (it needs {} bytes{})", doing, path_, bytes_, room),
                              error);
  }

  std::string path_;
  uint64_t bytes_;
  UniqueFd descriptor_;
  bool kept_ = false;
};

// The header of these tensors, one after the other in their order.
Result<SafetensorsHeader> header_of(const std::string& path, std::span<const TensorView> tensors,
                                    const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header;
  header.metadata = metadata;
  for (const auto& [key, value] : metadata) {
    if (!is_plain_text(key) || !is_plain_text(value)) {
      return Status(Code::kInvalidArgument, path + ": its metadata are no plain text");
    }
  }
  for (const TensorView& tensor : tensors) {
    const auto refused = [&](const std::string& reason) {
      return Status(Code::kInvalidArgument, fmt::format("{}: tensor '{}': {}", path, tensor.name, reason));
    };
    if (!is_tensor_name(tensor.name)) return refused("this is no name for a tensor");
    if (tensor.shape.size() > kMostDimensions) return refused("its shape has too many sizes");
    const auto elements = element_count(tensor.shape, tensor.dtype);
    if (!elements || *elements * dtype_bytes(tensor.dtype) != tensor.bytes.size()) {
      return refused(
          fmt::format("it has {} bytes, its dtype and shape need another number", tensor.bytes.size()));
    }
    TensorEntry entry{tensor.dtype, tensor.shape, *elements, header.data_bytes, 0};
    // Spans lie in memory, so their sum overflows only if many views show the same bytes.
    if (__builtin_add_overflow(header.data_bytes, tensor.bytes.size(), &header.data_bytes)) {
      return refused("the tensors are too many bytes");
    }
    entry.end = header.data_bytes;
    if (!header.tensors.emplace(tensor.name, std::move(entry)).second) return refused("it comes twice");
  }
  if (header.data_bytes > static_cast<uint64_t>(std::numeric_limits<off_t>::max()) / 2) {
    return Status(Code::kInvalidArgument, path + ": the tensors are too many bytes for a file");
  }
  return header;
}

}  // namespace

TensorView typed_view(std::string name, Shape shape, ConstTypedSpan values) {
  return {std::move(name), dtype_of(values.type()), std::move(shape), values.bytes()};
}

Result<WrittenTensors> write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                                         const std::map<std::string, std::string>& metadata,
                                         const std::atomic<bool>* stop) {
  const auto header = header_of(path, tensors, metadata);
  if (!header.is_ok()) return header.status();
  const auto beginning = format_safetensors_header(header.value());
  if (!beginning.is_ok()) {
    return Status(beginning.status().code(), path + ": " + beginning.status().message());
  }
  WrittenTensors written;
  written.file_bytes = beginning.value().size() + header.value().data_bytes;
  OutputFile file(path, written.file_bytes);
  HDT_RETURN_IF_ERROR(file.open());
  HDT_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(beginning.value()))));
  for (const TensorView& tensor : tensors) {
    Sha256Stream hash;
    for (size_t at = 0; at < tensor.bytes.size(); at += kPieceBytes) {
      if (stop != nullptr && *stop) return Status(Code::kAborted, path + ": the writing was stopped");
      const auto piece = tensor.bytes.subspan(at, std::min(kPieceBytes, tensor.bytes.size() - at));
      hash.update(piece);
      HDT_RETURN_IF_ERROR(file.write(piece));
    }
    auto digest = hash.finish();
    if (!digest.is_ok()) return digest.status();
    written.hashes.push_back(digest.take());
  }
  HDT_RETURN_IF_ERROR(file.sync_and_keep());
  return written;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  // O_NONBLOCK: a pipe without a writer is refused below instead of waited for; files do not know it.
  file.descriptor_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.descriptor_.valid()) return Status::from_errno("cannot open " + path, errno);
  struct stat info {};
  if (::fstat(file.descriptor_.get(), &info) != 0) return Status::from_errno("cannot stat " + path, errno);
  const auto refused = [&](const std::string& reason) {
    return Status(Code::kInvalidArgument, path + ": " + reason);
  };
  if (!S_ISREG(info.st_mode)) return refused("it is not a regular file");
  const auto bytes = static_cast<uint64_t>(info.st_size);
  if (bytes < kHeaderLengthBytes) return refused("it is too short for a safetensors file");
  uint64_t length = 0;
  HDT_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(&length, 1))));
  if (length > kMostHeaderBytes || length > bytes - kHeaderLengthBytes) {
    return refused(fmt::format("its header has {} bytes, the file {}; at most {} are allowed", length, bytes,
                               kMostHeaderBytes));
  }
  std::string text(length, '\0');
  HDT_RETURN_IF_ERROR(file.read_at(kHeaderLengthBytes, std::as_writable_bytes(std::span(text))));
  file.data_begin_ = kHeaderLengthBytes + length;
  auto header = parse_safetensors_header(text, bytes - file.data_begin_);
  if (!header.is_ok()) return refused(header.status().message());
  file.header_ = header.take();
  return file;
}

const TensorEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = header_.tensors.find(name);
  return found == header_.tensors.end() ? nullptr : &found->second;
}

Status SafetensorsFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(descriptor_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::from_errno("cannot read " + path_, errno);
    if (count == 0) return {Code::kSystem, path_ + ": the file was cut while it was read"};
    offset += static_cast<uint64_t>(count);
    out = out.subspan(static_cast<size_t>(count));
  }
  return Status::ok();
}

Result<const TensorEntry*> SafetensorsFile::entry_of(const std::string& name, uint64_t first_element,
                                                     size_t bytes) const {
  const auto refused = [&](const std::string& reason) {
    return Status(Code::kInvalidArgument, fmt::format("{}: tensor '{}': {}", path_, name, reason));
  };
  const TensorEntry* const entry = find(name);
  if (entry == nullptr) return refused("there is none of this name");
  const uint64_t element = dtype_bytes(entry->dtype);
  if (bytes % element != 0 || first_element > entry->elements ||
      bytes / element > entry->elements - first_element) {
    return refused(fmt::format("{} bytes from element {} on do not fit its {} elements of {} bytes", bytes,
                               first_element, entry->elements, element));
  }
  return entry;
}

Status SafetensorsFile::read(const std::string& name, uint64_t first_element,
                             std::span<std::byte> out) const {
  const auto entry = entry_of(name, first_element, out.size());
  if (!entry.is_ok()) return entry.status();
  const TensorEntry& tensor = *entry.value();
  return read_at(data_begin_ + tensor.begin + first_element * dtype_bytes(tensor.dtype), out);
}

Result<std::string> SafetensorsFile::read_hashed(const std::string& name, uint64_t first_element,
                                                 std::span<std::byte> out) const {
  const auto found = entry_of(name, first_element, out.size());
  if (!found.is_ok()) return found.status();
  const TensorEntry& tensor = *found.value();
  Sha256Stream hash;
  std::vector<std::byte> piece;
  // Bytes outside the wanted part go through `piece`; the others are read into their place and hashed there.
  const auto pass_over = [&](uint64_t at, uint64_t end) -> Status {
    piece.resize(std::min<uint64_t>(kPieceBytes, end - at));
    for (; at < end; at += piece.size()) {
      piece.resize(std::min<uint64_t>(piece.size(), end - at));
      HDT_RETURN_IF_ERROR(read_at(at, piece));
      hash.update(piece);
    }
    return Status::ok();
  };
  const uint64_t begin = data_begin_ + tensor.begin;
  const uint64_t wanted = begin + first_element * dtype_bytes(tensor.dtype);
  HDT_RETURN_IF_ERROR(pass_over(begin, wanted));
  for (size_t at = 0; at < out.size(); at += kPieceBytes) {
    const auto part = out.subspan(at, std::min(kPieceBytes, out.size() - at));
    HDT_RETURN_IF_ERROR(read_at(wanted + at, part));
    hash.update(part);
  }
  HDT_RETURN_IF_ERROR(pass_over(wanted + out.size(), data_begin_ + tensor.end));
  return hash.finish();
}

}  // namespace hdt::training
