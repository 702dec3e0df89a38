// A thread's name and processor, and checks that threads can be started.
//
// Thread safety: free functions, any thread.
#pragma once

#include <sys/prctl.h>

#include <cstddef>
#include <expected>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "rkv/result.h"

namespace rkv {

// Sets the calling thread's name in top(1), ps(1) and a debugger; the kernel keeps 15 characters.
inline void name_thread(const char* name) {
  prctl(PR_SET_NAME, name);
}

// Starts a thread that takes none of the program's signals, apart from those of faults: one that
// the program has blocked, to wait for it, would end it there. A library's threads are started so.
// kPermission: the system starts no further thread.
Result<std::thread> start_without_signals(std::function<void()> run);

// Parses a list like "2-5,8" and keeps its order. Each number may occur once, and this process must
// be allowed to use the processor (sched_getaffinity(2)). The error says what the value must be, to
// follow the name of the flag.
std::expected<std::vector<unsigned>, std::string> parse_processors(std::string_view list);
// Pins the calling thread to this processor. kInvalidArgument: the thread may no longer use it.
Status stay_on(unsigned processor);

// Starts `count` idle threads and ends them. Checks that the limits of the process, the user and
// the container allow so many now, plus `spare_bytes` of address space. kPermission if not.
// Libraries end the program if a thread cannot be started, so this is checked before they try.
Status try_threads(unsigned count, std::size_t spare_bytes = 4096);
// If address space is limited, stops the allocator from reserving 64 MiB of it per thread, which
// would leave too little for stacks of later threads. Call before threads are started.
void spare_address_space();
// Checks that a thread, the main one included, may have a stack of `bytes`. kPermission if not.
Status check_stack_limit(std::size_t bytes);

}  // namespace rkv
