// Threads and memory near the adapter: on a machine of several sockets a device is attached to one,
// and what it shares with the others crosses between them.
//
//   RKV_ASSIGN_OR_RETURN(unsigned node, numa_node_of(device));
//   RKV_RETURN_IF_ERROR(bind_thread(node, NumaPolicy::kPreferred));
//   RKV_ASSIGN_OR_RETURN(NumaMemory pages,
//                        NumaMemory::allocate(1 << 20, node, NumaPolicy::kStrict));
//   RKV_ASSIGN_OR_RETURN(MemoryRegion region, MemoryRegion::attach(pd, pages.bytes(), access));
//
// By system calls, without libnuma. Where the kernel knows no NUMA nodes, or the device none (as
// those in software), the answer is kUnsupported naming the call: go on without.
//
// Thread safety: any thread; bind_thread() is about the calling one. Nothing here waits for the
// network. Source: set_mempolicy(2), mbind(2), sched_setaffinity(2), sysfs of the kernel
// (Documentation/ABI/stable/sysfs-devices-node).
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "rkv/bytes.h"
#include "rkv/export.h"
#include "rkv/rdma/device.h"
#include "rkv/result.h"

namespace rkv::rdma {

enum class NumaPolicy : unsigned char {
  kPreferred,  // the node while it has free pages, then others
  kStrict,     // the node alone: without free pages the process may be killed
};

inline constexpr unsigned kMaxNumaNodes = 1024;  // more are refused

// kUnsupported: the kernel names none for the device.
RKV_EXPORT Result<unsigned> numa_node_of(const Device& device);
// The processors of a node, in order. kNotFound: there is no such node; kUnsupported: no NUMA.
RKV_EXPORT Result<std::vector<unsigned>> processors_of_node(unsigned node);
// "0-3,8,10-11" as the kernel writes it. kCorrupt: something else.
RKV_EXPORT Result<std::vector<unsigned>> parse_processor_list(std::string_view text);

// The calling thread runs on the node's processors from now on - on those of them that it was
// allowed before - and takes its new pages as `policy` says. kNotFound as above; kPermission: none
// of them is allowed (cpuset, taskset); kUnsupported. On an error nothing has changed.
RKV_EXPORT Status bind_thread(unsigned node, NumaPolicy policy);

// Places whole pages that have not been registered yet: a registered page is pinned where it is.
// Pages that are in use elsewhere are moved. REQUIRES: begins at a page.
RKV_EXPORT Status place_memory(MutableBytes pages, unsigned node, NumaPolicy policy);

// Zeroed pages on a node, for MemoryRegion::attach(); they must outlive the region.
class RKV_EXPORT NumaMemory {
 public:
  // kInvalidArgument: a length of 0; kOutOfMemory; else as place_memory().
  static Result<NumaMemory> allocate(std::size_t length, unsigned node, NumaPolicy policy);
  NumaMemory(NumaMemory&& other) noexcept : pages_(std::exchange(other.pages_, {})) {}
  NumaMemory& operator=(NumaMemory&& other) noexcept;
  ~NumaMemory();
  MutableBytes bytes() const { return pages_; }

 private:
  explicit NumaMemory(MutableBytes pages) : pages_(pages) {}
  MutableBytes pages_;
};

}  // namespace rkv::rdma
