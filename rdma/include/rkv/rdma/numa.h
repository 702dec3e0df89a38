// Placement of threads and memory on the NUMA node of the adapter. On a machine with several
// sockets a device is attached to one socket, and its accesses to memory of the others cross
// between sockets.
//
//   RKV_ASSIGN_OR_RETURN(unsigned node, numa_node_of(device));
//   RKV_RETURN_IF_ERROR(bind_thread(node, NumaPolicy::kPreferred));
//   RKV_ASSIGN_OR_RETURN(NumaMemory pages,
//                        NumaMemory::allocate(1 << 20, node, NumaPolicy::kStrict));
//   RKV_ASSIGN_OR_RETURN(MemoryRegion region, MemoryRegion::attach(pd, pages.bytes(), access));
//
// Uses system calls, without libnuma. If the kernel has no NUMA nodes, or the device has none (as
// software devices), the result is kUnsupported naming the call: continue without placement.
//
// Thread safety: any thread; bind_thread() affects the calling thread. Nothing here waits for the
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

inline constexpr unsigned kMaxNumaNodes = 1024;  // kInvalidArgument for nodes from this number on

// kUnsupported: the kernel names no node for the device.
RKV_EXPORT Result<unsigned> numa_node_of(const Device& device);
// The processors of a node, in order. kNotFound: the node does not exist; kUnsupported: no NUMA.
RKV_EXPORT Result<std::vector<unsigned>> processors_of_node(unsigned node);
// Parses the kernel's format, "0-3,8,10-11". kCorrupt: any other text.
RKV_EXPORT Result<std::vector<unsigned>> parse_processor_list(std::string_view text);

// Binds the calling thread to those of the node's processors on which it may run, and its new pages
// according to `policy`. kNotFound as above; kPermission: none of the processors is allowed
// (cpuset, taskset); kUnsupported. On an error nothing has changed.
RKV_EXPORT Status bind_thread(unsigned node, NumaPolicy policy);

// Places whole pages that are not registered yet: a registered page is pinned and cannot move.
// Pages in use on another node are moved. REQUIRES: `pages` begins on a page boundary.
RKV_EXPORT Status place_memory(MutableBytes pages, unsigned node, NumaPolicy policy);

// Zeroed pages on a node, for MemoryRegion::attach(); they must outlive the region.
class RKV_EXPORT NumaMemory {
 public:
  // kInvalidArgument: a length of 0; kOutOfMemory; otherwise as place_memory().
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
