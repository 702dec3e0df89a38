#include "rdma/transport/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace rkv::rdma {
namespace {

#ifndef MFD_NOEXEC_SEAL
constexpr unsigned kNoExecSeal = 0x0008U;  // Linux 6.3
#else
constexpr unsigned kNoExecSeal = MFD_NOEXEC_SEAL;
#endif

constexpr const char* kNoRoom = "this machine does not have that much memory left";

// Shared memory is a file, so the limit of files holds for it.
const char* advice_for(int error) {
  return error == EFBIG ? "the limit of the size of files forbids so much shared memory: raise it "
                          "(ulimit -f unlimited, LimitFSIZE=infinity)"
                        : kNoRoom;
}

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// Returns the number after `name` in a file of lines "NAME NUMBER ...".
std::optional<std::uint64_t> number_in(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  std::string rest;
  for (std::string word; file >> word; std::getline(file, rest)) {
    std::uint64_t number = 0;
    if (word == name && file >> number) return number;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> number_of(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;  // "max": no limit
}

// Returns what is left of the limit of one control group (version 2).
std::uint64_t left_in(const std::string& group) {
  const auto limit = number_of(group + "/memory.max");
  if (!limit) return kNoLimit;
  const std::uint64_t used = number_of(group + "/memory.current").value_or(0);
  std::uint64_t cache = 0;  // excludes shared memory
  for (const char* kind : {"inactive_file", "active_file", "slab_reclaimable"})
    cache += number_in(group + "/memory.stat", kind).value_or(0);
  const std::uint64_t held = used - std::min(used, cache);
  return *limit - std::min(*limit, held);
}

// Returns the path of our control group below the cgroup mount; in a container that is "/".
std::string own_group(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return "/";
}

Result<Mapping> map_shared(int fd, std::size_t bytes, int protection) {
  void* start = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (start == MAP_FAILED) {
    const int error = errno;
    const Code code = error == ENOMEM ? Code::kOutOfMemory : Code::kPermission;
    return fail_call(code, "mmap", error, code == Code::kOutOfMemory ? kNoRoom : nullptr);
  }
  return Mapping(start, bytes);
}

// Requests huge pages, if the system gives them to shared memory on request (shmem_enabled =
// advise). They are allocated when pages are first touched, not by fallocate. A refusal is
// harmless.
void wish_for_huge_pages(const Mapping& memory) {
  constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
  if (memory.size() < kHugePageBytes) return;
#ifdef MADV_POPULATE_WRITE
  if (madvise(memory.data(), memory.size(), MADV_HUGEPAGE) == 0)
    madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE);
#endif
}

Status reserve_pages(int fd, std::size_t bytes) {
  int result = 0;
  do {
    result = fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return fail_call(Code::kOutOfMemory, "fallocate", errno, advice_for(errno));
  return {};
}

}  // namespace

std::uint64_t available_memory(const std::string& root) {
  std::uint64_t available = kNoLimit;
  if (const auto kib = number_in(root + "/proc/meminfo", "MemAvailable:")) available = *kib * 1024;
  const std::string mount = root + "/sys/fs/cgroup";
  std::string group = own_group(root);
  while (group.size() > 1) {
    available = std::min(available, left_in(mount + group));
    group.resize(std::max<std::size_t>(group.rfind('/'), 1));
  }
  return std::min(available, left_in(mount));
}

Mapping::~Mapping() {
  if (start_ != nullptr) munmap(start_, bytes_);
}

Result<SharedMemory> make_shared_memory(const char* name, std::size_t bytes, Sealing sealing) {
  if (bytes == 0) return fail(Code::kInvalidArgument, "shared memory cannot have length 0");
  if (bytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max()) ||
      bytes > available_memory()) {
    return fail_call(Code::kOutOfMemory, "memfd_create", ENOMEM, kNoRoom);
  }
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd fd(memfd_create(name, flags | kNoExecSeal));
  if (!fd && errno == EINVAL) fd = Fd(memfd_create(name, flags));  // an older kernel
  if (!fd) {
    const int error = errno;
    const bool full = error == EMFILE || error == ENFILE;
    return fail_call(full ? Code::kBusy : Code::kOutOfMemory, "memfd_create", error,
                     full ? "raise the limit of open files (ulimit -n)" : nullptr);
  }
  // Reserve the size before the pages: a refusal of ftruncate() is cheaper.
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return fail_call(Code::kOutOfMemory, "ftruncate", errno, advice_for(errno));
  }
  RKV_ASSIGN_OR_RETURN(Mapping memory, map_shared(fd.get(), bytes, PROT_READ | PROT_WRITE));
  wish_for_huge_pages(memory);
  RKV_RETURN_IF_ERROR(reserve_pages(fd.get(), bytes));
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (sealing == Sealing::kOthersRead) seals |= F_SEAL_FUTURE_WRITE;
  if (fcntl(fd.get(), F_ADD_SEALS, seals) != 0) {
    return fail_call(Code::kUnsupported, "fcntl(F_ADD_SEALS)", errno,
                     "sharing memory read-only needs Linux 5.1 or later");
  }
  return SharedMemory{.fd = std::move(fd), .memory = std::move(memory)};
}

Result<Mapping> map_private(std::size_t bytes) {
  if (bytes == 0) return fail(Code::kInvalidArgument, "a region cannot have length 0");
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return fail_call(Code::kOutOfMemory, "mmap", errno, kNoRoom);
  return Mapping(start, bytes);
}

Result<Mapping> map_received(int fd, std::size_t bytes, bool writable) {
  struct stat status{};
  if (fstat(fd, &status) != 0) return fail_call(Code::kCorrupt, "fstat", errno);
  const int seals = fcntl(fd, F_GET_SEALS);
  const bool fixed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  if (!fixed || bytes == 0 || static_cast<std::uint64_t>(status.st_size) < bytes) {
    return fail(Code::kCorrupt, "the server passed memory that does not match its description");
  }
  return map_shared(fd, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ);
}

void copy_out(MutableBytes to, const std::byte* from) {
  const auto byte_at = [](const std::byte* at) {
    return std::atomic_ref<std::byte>(*const_cast<std::byte*>(at)).load(std::memory_order_relaxed);
  };
  std::byte* out = to.data();
  std::byte* const end = out + to.size();
  while (out != end && reinterpret_cast<std::uintptr_t>(from) % 8 != 0)
    *out++ = byte_at(from++);
  const auto* words = reinterpret_cast<const std::uint64_t*>(from);
  // Unrolled by hand: compilers never unroll atomic loads.
  for (; end - out >= 32; out += 32, words += 4) {
    store_le(out, load_word(words));
    store_le(out + 8, load_word(words + 1));
    store_le(out + 16, load_word(words + 2));
    store_le(out + 24, load_word(words + 3));
  }
  for (; end - out >= 8; out += 8)
    store_le(out, load_word(words++));
  from = reinterpret_cast<const std::byte*>(words);
  while (out != end)
    *out++ = byte_at(from++);
}

}  // namespace rkv::rdma
