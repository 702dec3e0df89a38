// Facts about this machine's RDMA set-up, for a program that diagnoses problems (kvclient doctor).
// These functions collect facts and do not judge them. No verbs header is needed.
//
//   const SystemFacts system = look_at_system();        // files alone
//   const VerbsFacts verbs = look_at_verbs({});         // asks the devices
//   const Trial trial = try_connection({.device = ...});  // connects to itself, READs, swaps
//
// Facts and trials are plain structs, so that code that interprets them can be tested on made-up
// facts.
// Thread safety: free functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rdma/transport/shm_directories.h"  // IWYU pragma: export
#include "rdma/transport/transport.h"

namespace rkv::rdma {

// ---- facts from the kernel's files

enum class FileState : std::uint8_t { kMissing, kForbidden, kUsable };
struct DeviceFile {
  std::string path{};  // "/dev/infiniband/uverbs0"
  FileState state = FileState::kMissing;
  std::string device{};  // the device it belongs to; "" = the connection manager, or unknown
};

enum class NamespaceMode : std::uint8_t { kUnknown, kShared, kExclusive };

// A device known to the kernel, whether or not libibverbs sees it.
struct KernelDevice {
  std::string name{};
  std::string netdev{};  // network interface of its first port; "" = none, or unknown
};

struct NetworkInterface {
  std::string name{};
  std::uint32_t mtu_bytes = 0;
  bool up = false;
  bool loopback = false;
};

struct SystemFacts {
  std::vector<KernelDevice> devices{};
  bool has_uverbs = false;      // module ib_uverbs is loaded or built in
  bool has_cm = false;          // rdma_ucm is loaded or built in
  bool has_rxe = false;         // rdma_rxe is loaded
  bool could_have_rxe = false;  // it is loaded or built in, or modprobe would find it
  bool could_have_cm = false;
  bool knows_modules = false;       // the list of this kernel's modules was readable
  std::vector<DeviceFile> files{};  // uverbs file of each device, and the connection manager's
  NamespaceMode namespaces = NamespaceMode::kUnknown;
  std::vector<NetworkInterface> interfaces{};
  std::string route_interface{};  // interface of the default route; "" = none

  static constexpr std::uint64_t kUnlimited = UINT64_MAX;
  std::uint64_t memlock_bytes = kUnlimited;       // the current limit
  std::uint64_t memlock_most_bytes = kUnlimited;  // how far this process may raise it
  bool locks_any = false;  // CAP_IPC_LOCK on the whole machine: the limit does not apply
  bool is_root = false;

  std::uint64_t huge_pages = 0;  // size of the pool
  std::uint64_t free_huge_pages = 0;
  std::uint64_t huge_page_bytes = 0;
  std::string transparent_huge_pages{};         // "always", "madvise", "never"; "" = unknown
  std::string shared_transparent_huge_pages{};  // for shared memory: "advise", "never", ...
};
// Reads /sys, /proc and /dev below `root`; "" means the real ones. Never fails: a fact that cannot
// be read keeps its default. Does not wait for the network.
SystemFacts look_at_system(const std::string& root = "");

// ---- facts from the devices

struct GidFacts {
  std::uint8_t port = 0;
  std::uint32_t index = 0;
  std::string type{};     // "RoCE v2"
  std::string address{};  // as GidEntry::to_string()
  std::string netdev{};   // "" = none visible in this namespace
  bool roce_v2 = false;
  bool ipv4 = false;
  bool link_local = false;
};

struct PortFacts {
  std::uint8_t number = 0;
  std::string state{};  // "active"
  bool active = false;
  bool ethernet = false;
  double speed_gbps = 0;  // 0 = unknown
  std::uint32_t active_mtu_bytes = 0;
  std::uint32_t max_mtu_bytes = 0;
};

enum class Atomicity : std::uint8_t { kNone, kDevice, kMachine };

struct DeviceFacts {
  std::string name{};
  std::string open_error{};  // why it cannot be opened; the fields below are then unset
  bool soft_roce = false;
  bool iwarp = false;
  std::vector<PortFacts> ports{};
  std::vector<GidFacts> gids{};
  Atomicity atomics = Atomicity::kNone;
  // READs and atomics in flight per connection, as our connections request them.
  std::uint8_t reads_as_initiator = 0;
  std::uint8_t reads_as_responder = 0;
};

// The path that a transport opened with these options would use; verbs/selection.h has the rules.
struct ChosenPath {
  enum class Why : std::uint8_t {
    kAsked,  // requested by index
    kRoute,  // source of the route to the address
    kRank,   // the best GID of the port
  };
  std::string device{};
  std::uint8_t port = 0;
  GidFacts gid{};
  Why why = Why::kRank;
  std::string own_address{};  // a numeric address of this port to listen on; "" = none
  std::string to{};           // the requested address; "" = none
  // Whether a connection to `to` takes this path. If not, this path exists here nevertheless and
  // `why_not` says why it is not taken: kNoDevice if it is certain that no device leads there, else
  // the error that prevented the check.
  bool leads = true;
  std::optional<Error> why_not{};
};

struct VerbsFacts {
  std::vector<DeviceFacts> devices{};
  std::string list_error{};
  // Uses the device that leads to options.address; if none does, chosen among all devices. With
  // several addresses (`more`): the path to the first address that a device leads to.
  std::optional<ChosenPath> chosen{};
  std::vector<ChosenPath> others{};  // paths to the other addresses, as far as they exist
  std::string choice_error{};        // why no path was chosen although there are devices
};
// Opens each device briefly. `options` as for open_verbs(). `more`: addresses besides
// options.address. Blocks for at most twice find_ms per address, to find its route.
VerbsFacts look_at_verbs(const VerbsOptions& options, std::span<const std::string> more = {});

// Settings of our connections, independent of the device.
struct ConnectionTimers {
  std::uint64_t ack_timeout_ns = 0;  // per try
  unsigned retries = 0;
  unsigned rnr_timer_us = 0;
  unsigned rnr_retries = 0;
  static constexpr unsigned kForever = 7;  // value of rnr_retries
};
ConnectionTimers connection_timers();

// ---- behaviour of the device

// The effect of a failed compare-and-swap on its word of memory.
enum class FailedSwap : std::uint8_t {
  kNotTried,    // no atomics, or the trial ended earlier
  kLeavesIt,    // no store of the processor was lost
  kStoresBack,  // the old value was stored again: a store of the processor was lost
};

struct Trial {
  std::optional<Error> error{};  // why the trial ended early
  const char* step = "";         // the step that failed: "registering memory", "connecting", ...
  bool connected = false;
  // Bytes of private data that arrived, in the connection request and in its answer.
  std::size_t request_bytes = 0;
  std::size_t reply_bytes = 0;
  std::uint32_t reads_in_flight = 0;  // as negotiated
  std::uint64_t reads = 0;            // number of READs, 8 bytes each, one at a time
  std::uint64_t p50_ns = 0;
  std::uint64_t p99_ns = 0;
  FailedSwap failed_swap = FailedSwap::kNotTried;
  std::uint64_t swaps = 0;  // compare-and-swaps that failed as intended
};
struct TrialOptions {
  std::string device{};
  std::uint8_t port = 0;
  std::string address{};  // the device's address: ChosenPath::own_address
  std::uint32_t reads = 200;
  std::int64_t connect_ms = 3000;  // for everything except the swaps
  std::int64_t swaps_ms = 300;     // at most; it ends earlier when a store is lost
};
// Listens on the address and connects to itself through the connection manager, with as much
// private data as it carries. Then READs, and runs failing compare-and-swaps while the processor
// adds to the same word. Uses 8 KiB of registered memory, 64 KiB of buffers and two threads. Blocks
// for the given times at most; a device that exceeds them is stuck, which is reported as an error.
Trial try_connection(const TrialOptions& options);

// Returns the length of the prefix of `arrived` that equals `sent`.
std::size_t arrived_bytes(Bytes sent, Bytes arrived);

}  // namespace rkv::rdma
