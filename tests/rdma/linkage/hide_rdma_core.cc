// Loaded before a program (LD_PRELOAD): rdma-core's libraries are not there for dlopen(3), as on a
// machine where they are not installed.
#include <dlfcn.h>

#include <cstring>
#include <initializer_list>

extern "C" void* dlopen(const char* name, int flags) noexcept {
  for (const char* const hidden : {"libibverbs.so", "librdmacm.so"}) {
    if (name != nullptr && std::strstr(name, hidden) != nullptr) return nullptr;
  }
  const auto real = reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_NEXT, "dlopen"));
  return real(name, flags);
}
