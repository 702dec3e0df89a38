#include "rkv/rdma/pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "common/bytes.h"
#include "rdma/core/memory/page_size.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

constexpr std::size_t k2MiBPage = std::size_t{1} << 21;
constexpr std::size_t k1GiBPage = std::size_t{1} << 30;
// mmap(2) and memfd_create(2) encode the logarithm of the page size in the same bits.
constexpr unsigned kSizeShift = 26;

unsigned size_bits(std::size_t page_bytes) {
  return (page_bytes == k1GiBPage ? 30U : 21U) << kSizeShift;
}

std::size_t bytes_of(PageSize size) {
  switch (size) {
    case PageSize::k1GiB:
      return k1GiBPage;
    case PageSize::k2MiB:
      return k2MiBPage;
    case PageSize::kSmall:
      break;
  }
  return small_page_bytes();
}

std::size_t next_smaller(std::size_t page_bytes) {
  return page_bytes == k1GiBPage ? k2MiBPage : small_page_bytes();
}

// Returns an anonymous file of `whole` bytes, or -1 with errno set.
int make_file(std::size_t whole, std::size_t page_bytes) {
  const bool large = page_bytes > small_page_bytes();
  const int fd =
      memfd_create("rkv-pages", MFD_CLOEXEC | (large ? MFD_HUGETLB | size_bits(page_bytes) : 0U));
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(whole)) == 0) return fd;
  const int why = errno;
  close(fd);
  errno = why;
  return -1;
}

}  // namespace

Result<Pages> Pages::map_of(std::size_t length, std::size_t page_bytes, bool shareable) {
  if (length > std::numeric_limits<std::size_t>::max() - page_bytes) {
    return fail_call(Code::kOutOfMemory, "mmap", ENOMEM, "the length exceeds the address space");
  }
  const std::size_t whole = round_up(length, page_bytes);
  const bool large = page_bytes > small_page_bytes();
  int fd = -1;
  unsigned flags = shareable ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  if (shareable) {
    fd = make_file(whole, page_bytes);
    if (fd < 0) {
      return fail_call(Code::kOutOfMemory, "memfd_create", errno,
                       errno == EFBIG ? "the limit of the size of files is too low: raise it "
                                        "(ulimit -f unlimited, LimitFSIZE=infinity)"
                                      : nullptr);
    }
  } else if (large) {
    flags |= MAP_HUGETLB | size_bits(page_bytes);
  }
  void* pages = mmap(nullptr, whole, PROT_READ | PROT_WRITE, static_cast<int>(flags), fd, 0);
  if (pages == MAP_FAILED) {
    const int why = errno;
    if (fd >= 0) close(fd);
    return fail_call(Code::kOutOfMemory, "mmap", why,
                     large ? "no huge pages of this size are free: see /proc/sys/vm/nr_hugepages"
                           : "this machine does not have that much memory");
  }
  return Pages({static_cast<std::byte*>(pages), length}, page_bytes, fd);
}

Result<Pages> Pages::map(std::size_t length, const PageOptions& options) {
  if (length == 0) return fail(Code::kInvalidArgument, "Pages cannot have length 0");
  std::size_t page_bytes = bytes_of(options.size);
  auto got = map_of(length, page_bytes, options.shareable);
  while (!got && options.fall_back && page_bytes > small_page_bytes()) {
    page_bytes = next_smaller(page_bytes);
    got = map_of(length, page_bytes, options.shareable);
  }
  if (!got) return got;
  // A hint for systems with transparent huge pages; a refusal does not matter.
  if (options.size != PageSize::kSmall && page_bytes == small_page_bytes())
    madvise(got->bytes_.data(), length, MADV_HUGEPAGE);
  return got;
}

Result<Pages> Pages::of_descriptor(int fd, std::size_t length) {
  struct stat file{};
  RKV_RETURN_IF_ERROR(from_minus_one("fstat", fstat(fd, &file)));
  // An access to a mapped file beyond its end kills the process.
  if (length == 0 || file.st_size < 0 || static_cast<std::size_t>(file.st_size) < length) {
    return fail(Code::kInvalidArgument,
                "the descriptor's memory is shorter than requested, or empty");
  }
  // For a file in memory, st_blksize is the page size.
  const auto page_bytes = static_cast<std::size_t>(file.st_blksize);
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return verb_error("fcntl", errno);
  void* pages =
      mmap(nullptr, round_up(length, page_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
  if (pages == MAP_FAILED) {
    const int why = errno;
    close(own);
    return verb_error("mmap", why);
  }
  return Pages({static_cast<std::byte*>(pages), length}, page_bytes, own);
}

Pages::Pages(Pages&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})),
      page_bytes_(other.page_bytes_),
      fd_(std::exchange(other.fd_, -1)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  if (this == &other) return *this;
  release();
  bytes_ = std::exchange(other.bytes_, {});
  page_bytes_ = other.page_bytes_;
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

Pages::~Pages() {
  release();
}

void Pages::release() noexcept {
  if (!bytes_.empty()) {
    report_teardown(
        from_minus_one("munmap", munmap(bytes_.data(), round_up(bytes_.size(), page_bytes_))));
  }
  if (fd_ >= 0) report_teardown(from_minus_one("close", close(fd_)));
}

}  // namespace rkv::rdma
