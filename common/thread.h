// A thread's name and its processor.
//
// Thread safety: free functions, any thread.
#pragma once

#include <sys/prctl.h>

#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "rkv/result.h"

namespace rkv {

// What the calling thread is called in top(1), ps(1) and a debugger; the kernel keeps 15
// characters.
inline void name_thread(const char* name) {
  prctl(PR_SET_NAME, name);
}

// "2-5,8" in the order given. The error is what it must be, to go behind the name of the flag: a
// list, each number once, processors that this process may use (sched_getaffinity(2)).
std::expected<std::vector<unsigned>, std::string> parse_processors(std::string_view list);
// The calling thread, from now on. kInvalidArgument: it may not use this processor any more.
Status stay_on(unsigned processor);

}  // namespace rkv
