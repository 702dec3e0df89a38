// What this machine offers to RDMA, as plain facts: for a program that tells people what is wrong
// with the set-up (kvclient doctor). Nothing here judges; nothing here needs a verbs header.
//
//   const SystemFacts system = look_at_system();        // files alone
//   const VerbsFacts verbs = look_at_verbs({});         // asks the devices
//   const Trial trial = try_connection({.device = ...});  // connects to itself, READs, swaps
//
// Facts and trials are apart so that what is made of them can be tested on facts made up.
// Thread safety: free functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rdma/transport.h"

namespace rkv::rdma {

// ---- what the kernel's files say

enum class FileState : std::uint8_t { kMissing, kForbidden, kUsable };
struct DeviceFile {
  std::string path{};  // "/dev/infiniband/uverbs0"
  FileState state = FileState::kMissing;
  std::string device{};  // whose; "" = the connection manager's, or not known
};

enum class NamespaceMode : std::uint8_t { kUnknown, kShared, kExclusive };

// A device that the kernel has, whether or not libibverbs sees it.
struct KernelDevice {
  std::string name{};
  std::string netdev{};  // of its first port; "" = none, or not known
};

struct NetworkInterface {
  std::string name{};
  std::uint32_t mtu_bytes = 0;
  bool up = false;
  bool loopback = false;
};

struct SystemFacts {
  std::vector<KernelDevice> devices{};
  bool has_uverbs = false;      // module ib_uverbs, or built in
  bool has_cm = false;          // rdma_ucm
  bool has_rxe = false;         // rdma_rxe is loaded
  bool could_have_rxe = false;  // it is loaded or built in, or modprobe would find it
  bool could_have_cm = false;
  bool knows_modules = false;       // the list of this kernel's modules could be read
  std::vector<DeviceFile> files{};  // uverbs of each device, and the connection manager's
  NamespaceMode namespaces = NamespaceMode::kUnknown;
  std::vector<NetworkInterface> interfaces{};
  std::string route_interface{};  // of the default route; "" = none

  static constexpr std::uint64_t kUnlimited = UINT64_MAX;
  std::uint64_t memlock_bytes = kUnlimited;       // the limit that holds
  std::uint64_t memlock_most_bytes = kUnlimited;  // up to which this process may raise it itself
  bool locks_any = false;  // CAP_IPC_LOCK of the whole machine: the limit does not count
  bool is_root = false;

  std::uint64_t huge_pages = 0;  // of the pool
  std::uint64_t free_huge_pages = 0;
  std::uint64_t huge_page_bytes = 0;
  std::string transparent_huge_pages{};         // "always", "madvise", "never"; "" = not known
  std::string shared_transparent_huge_pages{};  // of shared memory: "advise", "never", ...
};
// Reads /sys, /proc and /dev below `root`, "" being the machine's own. Never fails: what cannot be
// read stays as it is above. Does not wait for the network.
SystemFacts look_at_system(const std::string& root = "");

// ---- what the devices say

struct GidFacts {
  std::uint8_t port = 0;
  std::uint32_t index = 0;
  std::string type{};     // "RoCE v2"
  std::string address{};  // as GidEntry::to_string()
  std::string netdev{};   // "" = none that is visible here
  bool roce_v2 = false;
  bool ipv4 = false;
  bool link_local = false;
};

struct PortFacts {
  std::uint8_t number = 0;
  std::string state{};  // "active"
  bool active = false;
  bool ethernet = false;
  double speed_gbps = 0;  // 0 = not known
  std::uint32_t active_mtu_bytes = 0;
  std::uint32_t max_mtu_bytes = 0;
};

enum class Atomicity : std::uint8_t { kNone, kDevice, kMachine };

struct DeviceFacts {
  std::string name{};
  std::string open_error{};  // why it cannot be opened; nothing of what follows is known then
  bool soft_roce = false;
  bool iwarp = false;
  std::vector<PortFacts> ports{};
  std::vector<GidFacts> gids{};
  Atomicity atomics = Atomicity::kNone;
  // READs and atomics of one connection under way at a time, as our connections ask for them.
  std::uint8_t reads_as_initiator = 0;
  std::uint8_t reads_as_responder = 0;
};

// What a transport opened with the options would use: verbs/selection.h has the rules.
struct ChosenPath {
  enum class Why : std::uint8_t {
    kAsked,  // by its index
    kRoute,  // the route to the address starts from it
    kRank,   // the best of the port
  };
  std::string device{};
  std::uint8_t port = 0;
  GidFacts gid{};
  Why why = Why::kRank;
  std::string own_address{};  // a numeric address of this port to listen on; "" = none
  std::string to{};           // the address that was asked for; "" = none
  // Whether a connection to it goes this way. If not, this is what is here nevertheless, and why:
  // kNoDevice where it is known that no device leads there, another error where it is not known.
  bool leads = true;
  std::optional<Error> why_not{};
};

struct VerbsFacts {
  std::vector<DeviceFacts> devices{};
  std::string list_error{};
  // By the device that leads to options.address; where none does, of all devices. Of several
  // addresses: the first that a device leads to.
  std::optional<ChosenPath> chosen{};
  std::vector<ChosenPath> others{};  // those to the other addresses, as far as there are any
  std::string choice_error{};        // why nothing was chosen, when there are devices
};
// Opens each device for a moment. `options` as for open_verbs(). `more`: addresses besides
// options.address. Blocks for twice find_ms at most for the route to each.
VerbsFacts look_at_verbs(const VerbsOptions& options, std::span<const std::string> more = {});

// What our connections set, whatever the device.
struct ConnectionTimers {
  std::uint64_t ack_timeout_ns = 0;  // of one try
  unsigned retries = 0;
  unsigned rnr_timer_us = 0;
  unsigned rnr_retries = 0;
  static constexpr unsigned kForever = 7;  // as rnr_retries
};
ConnectionTimers connection_timers();

// ---- what the device does

// What becomes of a word of memory when a compare-and-swap on it fails.
enum class FailedSwap : std::uint8_t {
  kNotTried,    // no atomics, or the trial ended before
  kLeavesIt,    // no store of the processor was lost
  kStoresBack,  // the old value was stored again: one was lost
};

struct Trial {
  std::optional<Error> error{};  // why it ended early
  const char* step = "";         // what it did then: "registering memory", "connecting", ...
  bool connected = false;
  // Bytes of private data that arrived, of a request to connect and of its answer.
  std::size_t request_bytes = 0;
  std::size_t reply_bytes = 0;
  std::uint32_t reads_in_flight = 0;  // as negotiated
  std::uint64_t reads = 0;            // of 8 bytes, one at a time
  std::uint64_t p50_ns = 0;
  std::uint64_t p99_ns = 0;
  FailedSwap failed_swap = FailedSwap::kNotTried;
  std::uint64_t swaps = 0;  // that failed, as they should
};
struct TrialOptions {
  std::string device{};
  std::uint8_t port = 0;
  std::string address{};  // of the device: ChosenPath::own_address
  std::uint32_t reads = 200;
  std::int64_t connect_ms = 3000;  // for all of it but the swaps
  std::int64_t swaps_ms = 300;     // at most: it ends when a store is lost
};
// Listens on the address, connects to it through the connection manager with as much private data
// as it carries, READs, and lets compare-and-swaps fail beside additions of the processor to one
// word. Takes 8 KiB of registered memory, 64 KiB of buffers, two threads. Blocks for the times
// given; then the device is stuck, which is an error as others.
Trial try_connection(const TrialOptions& options);

// How many of the bytes sent are what `arrived` begins with.
std::size_t arrived_bytes(Bytes sent, Bytes arrived);

}  // namespace rkv::rdma
