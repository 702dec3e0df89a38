#include "rkv/rdma/numa.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <optional>
#include <string>

#include "rdma/core/memory/page_size.h"
#include "rkv/check.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

constexpr unsigned kMaxProcessors = 8192;  // the maximum that a kernel is built for
constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);

using NodeMask = std::array<unsigned long, kMaxNumaNodes / kWordBits>;

Result<std::string> read_small_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return verb_error("open", errno);
  std::string text(4096, '\0');
  const ssize_t got = ::read(fd, text.data(), text.size());
  const int sys_errno = errno;
  ::close(fd);
  if (got < 0) return verb_error("read", sys_errno);
  text.resize(static_cast<std::size_t>(got));
  while (!text.empty() && text.back() == '\n')
    text.pop_back();
  return text;
}

std::optional<int> parse_number(std::string_view text) {
  int number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

Status check_node(unsigned node) {
  if (node < kMaxNumaNodes) return {};
  return fail(Code::kInvalidArgument, "a NUMA node's number is 0 to 1023");
}

NodeMask mask_of(unsigned node) {
  NodeMask mask{};
  mask[node / kWordBits] |= 1UL << (node % kWordBits);
  return mask;
}

int mode_of(NumaPolicy policy) {
  return policy == NumaPolicy::kStrict ? MPOL_BIND : MPOL_PREFERRED;
}

// The kernel uses one bit less than the length passed to it.
constexpr unsigned long kMaskBits = kMaxNumaNodes + 1;

Status memory_error(const char* call, int sys_errno) {
  if (sys_errno == ENOSYS) {
    return fail_call(Code::kUnsupported, call, ENOSYS, "this kernel does not support NUMA");
  }
  if (sys_errno == EINVAL) {
    return fail_call(Code::kNotFound, call, EINVAL,
                     "the node has no memory that this process may use");
  }
  return verb_error(call, sys_errno);
}

// A set of up to kMaxProcessors processors.
class Processors {
 public:
  Processors() : set_(CPU_ALLOC(kMaxProcessors), [](cpu_set_t* set) { CPU_FREE(set); }) {
    CPU_ZERO_S(size(), set_.get());
  }
  static std::size_t size() { return CPU_ALLOC_SIZE(kMaxProcessors); }
  cpu_set_t* get() const { return set_.get(); }
  void add(unsigned processor) { CPU_SET_S(processor, size(), set_.get()); }
  bool has(unsigned processor) const { return CPU_ISSET_S(processor, size(), set_.get()) != 0; }
  bool empty() const { return CPU_COUNT_S(size(), set_.get()) == 0; }

 private:
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set_;
};

}  // namespace

Result<unsigned> numa_node_of(const Device& device) {
  const std::string path = "/sys/class/infiniband/" + device.name() + "/device/numa_node";
  const Result<std::string> text = read_small_file(path);
  // The file is missing for a software device. -1: the firmware does not name a node.
  const std::optional<int> node = text ? parse_number(*text) : std::nullopt;
  if (!node || *node < 0) {
    return fail_call(Code::kUnsupported, "numa_node", text ? 0 : text.error().sys_errno,
                     "the kernel reports no NUMA node for the device");
  }
  return static_cast<unsigned>(*node);
}

Result<std::vector<unsigned>> parse_processor_list(std::string_view text) {
  std::vector<unsigned> out;
  if (text.ends_with(',')) {
    return fail(Code::kCorrupt, "the kernel's list of processors cannot be read");
  }
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view range = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t dash = range.find('-');
    const auto first = parse_number(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first ||
        static_cast<unsigned>(*last) >= kMaxProcessors ||
        (!out.empty() && static_cast<unsigned>(*first) <= out.back())) {
      return fail(Code::kCorrupt, "the kernel's list of processors cannot be read");
    }
    for (int processor = *first; processor <= *last; ++processor)
      out.push_back(static_cast<unsigned>(processor));
  }
  return out;
}

Result<std::vector<unsigned>> processors_of_node(unsigned node) {
  RKV_RETURN_IF_ERROR(check_node(node));
  const std::string nodes = "/sys/devices/system/node";
  if (::access(nodes.c_str(), F_OK) != 0) {
    return fail_call(Code::kUnsupported, "access", errno, "this kernel does not support NUMA");
  }
  const Result<std::string> text =
      read_small_file(nodes + "/node" + std::to_string(node) + "/cpulist");
  if (!text && text.error().sys_errno == ENOENT) {
    return fail(Code::kNotFound, "this machine has no such NUMA node");
  }
  if (!text) return std::unexpected(text.error());
  return parse_processor_list(*text);
}

Status bind_thread(unsigned node, NumaPolicy policy) {
  RKV_ASSIGN_OR_RETURN(const std::vector<unsigned> near, processors_of_node(node));
  const Processors before;
  RKV_RETURN_IF_ERROR(from_minus_one("sched_getaffinity",
                                     ::sched_getaffinity(0, Processors::size(), before.get())));
  Processors wanted;
  for (const unsigned processor : near) {
    if (before.has(processor)) wanted.add(processor);
  }
  if (wanted.empty()) {
    return fail_call(Code::kPermission, "sched_setaffinity", 0,
                     "the thread may not run on any processor of the node");
  }
  RKV_RETURN_IF_ERROR(from_minus_one("sched_setaffinity",
                                     ::sched_setaffinity(0, Processors::size(), wanted.get())));
  const NodeMask mask = mask_of(node);
  if (::syscall(SYS_set_mempolicy, mode_of(policy), mask.data(), kMaskBits) != 0) {
    const int sys_errno = errno;
    // Restores the mask that was valid before, so this call is not expected to fail.
    std::ignore = ::sched_setaffinity(0, Processors::size(), before.get());
    return memory_error("set_mempolicy", sys_errno);
  }
  return {};
}

Status place_memory(MutableBytes pages, unsigned node, NumaPolicy policy) {
  RKV_CHECK(reinterpret_cast<std::uintptr_t>(pages.data()) % small_page_bytes() == 0,
            "memory to be placed must begin at a page boundary");
  RKV_RETURN_IF_ERROR(check_node(node));
  if (pages.empty()) return {};
  const NodeMask mask = mask_of(node);
  if (::syscall(SYS_mbind, pages.data(), pages.size(), mode_of(policy), mask.data(), kMaskBits,
                MPOL_MF_MOVE) != 0) {
    return memory_error("mbind", errno);
  }
  return {};
}

Result<NumaMemory> NumaMemory::allocate(std::size_t length, unsigned node, NumaPolicy policy) {
  if (length == 0) return fail(Code::kInvalidArgument, "NumaMemory cannot have length 0");
  void* const pages =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return verb_error("mmap", errno);
  NumaMemory out({static_cast<std::byte*>(pages), length});
  // Before the first access, so that each page is allocated on the right node at once.
  RKV_RETURN_IF_ERROR(place_memory(out.bytes(), node, policy));
  return out;
}

NumaMemory& NumaMemory::operator=(NumaMemory&& other) noexcept {
  std::swap(pages_, other.pages_);
  return *this;
}

NumaMemory::~NumaMemory() {
  if (!pages_.empty()) ::munmap(pages_.data(), pages_.size());
}

}  // namespace rkv::rdma
