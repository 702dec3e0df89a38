// The processor time used by all threads of this process.
//
// Thread safety: any thread. now() costs one system call.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace rkv {

struct ProcessTime {
  std::uint64_t user_us = 0;
  std::uint64_t system_us = 0;

  static ProcessTime now() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return {.user_us = microseconds(usage.ru_utime), .system_us = microseconds(usage.ru_stime)};
  }
  ProcessTime operator-(const ProcessTime& earlier) const {
    return {.user_us = user_us - earlier.user_us, .system_us = system_us - earlier.system_us};
  }

 private:
  static std::uint64_t microseconds(const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 +
           static_cast<std::uint64_t>(time.tv_usec);
  }
};

}  // namespace rkv
