// Preloaded into a program (LD_PRELOAD): calls of the system behave as on a machine in trouble. The
// environment says which:
//   RKV_TEST_CLOCK_FILE=F     the wall clock is ahead by the number in F: 8 bytes, seconds, signed
//   RKV_TEST_REFUSED_THREAD=N  the thread with this number cannot be started; counted from 0,
//                              without those that RocksDB starts, which ends the process then
//   RKV_TEST_SLOW_FILES=TEXT  a write to a file whose path contains TEXT takes 3 s
//   RKV_TEST_NO_HARD_LINKS=1  the file system has no hard links
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

const volatile std::int64_t* seconds_ahead() {
  const char* const name = std::getenv("RKV_TEST_CLOCK_FILE");
  if (name == nullptr) return nullptr;
  const int file = open(name, O_RDONLY | O_CLOEXEC);
  if (file < 0) std::abort();
  void* const shared = mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (shared == MAP_FAILED) std::abort();
  return static_cast<const volatile std::int64_t*>(shared);
}

// The number, or -1 if it is not set.
long number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? -1 : std::atol(text);
}

bool is_called_by_rocksdb() {
  void* frames[32];
  const int count = backtrace(frames, 32);
  for (int i = 0; i < count; ++i) {
    Dl_info from;
    if (dladdr(frames[i], &from) != 0 && std::strstr(from.dli_fname, "librocksdb") != nullptr)
      return true;
  }
  return false;
}

bool is_slow(int file) {
  static const char* const text = std::getenv("RKV_TEST_SLOW_FILES");
  if (text == nullptr) return false;
  char link[64] = "/proc/self/fd/";
  char digits[16];
  int length = 0;
  do {
    digits[length++] = static_cast<char>('0' + file % 10);
    file /= 10;
  } while (file > 0);
  char* end = link + std::strlen(link);
  while (length > 0)
    *end++ = digits[--length];
  *end = '\0';
  char path[4096];
  const ssize_t bytes = readlink(link, path, sizeof(path) - 1);
  if (bytes < 0) return false;
  path[bytes] = '\0';
  return std::strstr(path, text) != nullptr;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const auto real = next<int(clockid_t, timespec*)>("clock_gettime");
  static const volatile std::int64_t* const ahead = seconds_ahead();
  const int result = real(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME && ahead != nullptr) time->tv_sec += *ahead;
  return result;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  static const auto real =
      next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  static const long refused = number_of("RKV_TEST_REFUSED_THREAD");
  static std::atomic<long> count{0};
  if (refused >= 0 && !is_called_by_rocksdb() && count.fetch_add(1) == refused) return EAGAIN;
  return real(thread, attributes, run, argument);
}

ssize_t write(int file, const void* bytes, size_t count) {
  static const auto real = next<ssize_t(int, const void*, size_t)>("write");
  if (is_slow(file)) sleep(3);
  return real(file, bytes, count);
}

int link(const char* from, const char* to) noexcept {
  static const auto real = next<int(const char*, const char*)>("link");
  if (std::getenv("RKV_TEST_NO_HARD_LINKS") != nullptr) {
    errno = EXDEV;
    return -1;
  }
  return real(from, to);
}

}  // extern "C"
