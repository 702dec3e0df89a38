#include "server/log/double_mapping.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace rkv::server {

Result<DoubleMapping> DoubleMapping::create(std::size_t bytes) {
  static constexpr const char* kAdvice = "no memory for the commit log: lower --queue";
  const int fd = memfd_create("rkv-commit-log", MFD_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    const bool no_descriptor = error == EMFILE || error == ENFILE;
    return fail_call(no_descriptor ? Code::kBusy : Code::kOutOfMemory, "memfd_create", error,
                     no_descriptor ? nullptr : kAdvice);
  }
  // Allocates the pages now: failing to get a page later would be a SIGBUS in the middle of a PUT.
  const int allocated = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (allocated != 0) {
    close(fd);
    return fail_call(Code::kOutOfMemory, "posix_fallocate", allocated,
                     allocated == EFBIG
                         ? "the limit of the size of files forbids so much memory for the commit "
                           "log: raise it (ulimit -f unlimited, LimitFSIZE=infinity)"
                         : kAdvice);
  }
  void* const base =
      mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  int failure = base == MAP_FAILED ? errno : 0;
  auto* const data = static_cast<std::byte*>(base);
  for (int half = 0; half < 2 && failure == 0; ++half) {
    void* const at = data + static_cast<std::size_t>(half) * bytes;
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
      failure = errno;
      munmap(base, 2 * bytes);
    }
  }
  close(fd);
  if (failure != 0) return fail_call(Code::kOutOfMemory, "mmap", failure, kAdvice);
  return DoubleMapping(data, bytes);
}

}  // namespace rkv::server
