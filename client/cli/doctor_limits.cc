// kvclient doctor: limits, the devices' abilities, the result of the trial, huge pages.
#include <fmt/format.h>

#include "client/cli/doctor_judge.h"
#include "common/wire.h"

namespace rkv::cli {

namespace {

// Memory that a server registers with its default --memory, without its buffers.
constexpr std::uint64_t kServerBytes = std::uint64_t{1} << 30;

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::uint64_t kKiB = 1024;
  if (bytes >= kKiB * kKiB * kKiB) {
    return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1024.0 * 1024 * 1024));
  }
  if (bytes >= kKiB * kKiB) {
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024.0 * 1024));
  }
  return bytes >= kKiB ? fmt::format("{} KiB", bytes / kKiB) : fmt::format("{} bytes", bytes);
}

}  // namespace

std::string Judge::raise_memlock() const {
  const char* const good =
      "permanently: LimitMEMLOCK=infinity of a service, memlock in /etc/security/limits.d, docker "
      "run --ulimit memlock=-1";
  // Only root may exceed the hard limit. The command applies to the shell that runs it ($$).
  const char* const now = facts_.system.memlock_most_bytes == rdma::SystemFacts::kUnlimited
                              ? "ulimit -l unlimited"
                          : facts_.system.is_root ? "prlimit --memlock=unlimited --pid $$"
                                                  : "sudo prlimit --memlock=unlimited --pid $$";
  return fmt::format("in this shell: `{}`; {}", now, good);
}

void Judge::memlock() {
  const std::uint64_t limit = facts_.system.memlock_bytes;
  const std::uint64_t client = asked_.client_bytes * asked_.servers;
  const std::uint64_t large = asked_.large_bytes * asked_.servers;
  const std::string takes =
      fmt::format("a client{} registers {}, and up to {} more for values above 128 KiB",
                  asked_.servers == 1 ? "" : fmt::format(" of {} servers", asked_.servers),
                  bytes_text(client), bytes_text(large));
  if (facts_.system.locks_any || limit == rdma::SystemFacts::kUnlimited) {
    const char* const why = facts_.system.locks_any ? " (CAP_IPC_LOCK)" : "";
    return add(Level::kOk, "memlock", "", fmt::format("no limit{}: {}", why, takes));
  }
  const std::string found = fmt::format("{} may be locked; {}", bytes_text(limit), takes);
  if (!has_devices()) {
    return add(Level::kOk, "memlock", "", found + "; without a device nothing is registered");
  }
  if (limit < client) return add(broken(), "memlock", "", found, raise_memlock());
  if (limit < client + large) {
    return add(Level::kWarning, "memlock", "", found, raise_memlock());
  }
  if (limit < kServerBytes) {
    return add(Level::kWarning, "memlock", "",
               found + "; a server registers its --memory, 1 GiB by default", raise_memlock());
  }
  add(Level::kOk, "memlock", "", found + "; a server registers its --memory and some MiB");
}

void Judge::abilities(const DeviceFacts& device) {
  if (!device.open_error.empty()) return;
  switch (device.atomics) {
    case rdma::Atomicity::kNone:
      add(Level::kWarning, "atomics", device.name,
          "none: requests change counters, and read values under many writes",
          "no action needed; one-sided counters need a device with atomics");
      break;
    case rdma::Atomicity::kDevice:
      add(Level::kOk, "atomics", device.name,
          "atomic among the device's own operations, not with the processor's, as the store "
          "assumes");
      break;
    case rdma::Atomicity::kMachine:
      add(Level::kOk, "atomics", device.name, "atomic with the processor's operations too");
      break;
  }
  const unsigned initiator = device.reads_as_initiator;
  const unsigned responder = device.reads_as_responder;
  const std::string found = fmt::format(
      "{} READs of a connection at a time as client, {} as server", initiator, responder);
  if (std::min(initiator, responder) > 1) return add(Level::kOk, "read_depth", device.name, found);
  add(Level::kWarning, "read_depth", device.name, found + ": each waits for the previous one",
      "look for newer firmware, or a driver setting for outstanding READs (`ibv_devinfo -v` shows "
      "max_qp_rd_atom)");
}

void Judge::timers() {
  const auto is_iwarp = [](const DeviceFacts* device) { return device->iwarp; };
  if (std::ranges::any_of(devices_, is_iwarp)) {
    add(Level::kOk, "timers", "",
        "none to set on iWARP: the kernel's TCP sends again by its own times");
  }
  if (std::ranges::all_of(devices_, is_iwarp)) return;
  const rdma::ConnectionTimers& timers = facts_.timers;
  const bool forever = timers.rnr_retries == rdma::ConnectionTimers::kForever;
  const double ack_ms = static_cast<double>(timers.ack_timeout_ns) / 1e6;
  add(Level::kOk, "timers", "",
      fmt::format("set on every connection: retransmit after {:.0f} ms, {} times, so a dead peer "
                  "is detected in about {:.1f} s; receiver not ready: retry after {:.2f} ms, {}",
                  ack_ms, timers.retries, ack_ms * (timers.retries + 1) / 1000,
                  timers.rnr_timer_us / 1000.0,
                  forever ? "without limit" : fmt::format("{} times", timers.rnr_retries)));
}

// ------------------------------------------------------------------------------------- trial

void Judge::trial(const rdma::Trial& trial) {
  const std::string& device = facts_.verbs.chosen ? facts_.verbs.chosen->device : asked_.device;
  if (trial.connected) {
    const bool enough =
        trial.request_bytes >= kConnectRequestBytes && trial.reply_bytes >= kConnectAcceptBytes;
    add(enough ? Level::kOk : Level::kError, "private_data", device,
        fmt::format("a connection request carries {} bytes and its reply {}; rkv needs {} and {}",
                    trial.request_bytes, trial.reply_bytes, kConnectRequestBytes,
                    kConnectAcceptBytes),
        enough ? "" : "update the adapter's firmware and driver; rkv cannot connect over it");
  }
  if (trial.error) {
    const bool memory = trial.error->code == Code::kOutOfMemory;
    const bool late = trial.error->code == Code::kTimeout;
    const bool iwarp = std::ranges::any_of(
        devices_, [&](const DeviceFacts* one) { return one->name == device && one->iwarp; });
    add(Level::kError, "loopback", device,
        fmt::format("{} failed: {}", trial.step, rkv::to_string(*trial.error)),
        memory ? raise_memlock()
        : late && iwarp
            ? "let TCP through to the server's port: `nft list ruleset` shows what filters"
        : late ? "let UDP port 4791 (RoCE v2) through: `nft list ruleset` shows what filters"
               : "fix the error above, then check the kernel's log: `dmesg`");
  } else {
    add(Level::kOk, "loopback", device,
        fmt::format("connected to itself; {} READs of 8 bytes: p50 {:.1f} us, p99 {:.1f} us; {} at "
                    "a time",
                    trial.reads, static_cast<double>(trial.p50_ns) / 1000,
                    static_cast<double>(trial.p99_ns) / 1000, trial.reads_in_flight));
  }
  failed_swap(trial);
}

void Judge::failed_swap(const rdma::Trial& trial) {
  const std::string& device = facts_.verbs.chosen ? facts_.verbs.chosen->device : asked_.device;
  const bool soft_roce = std::ranges::any_of(
      devices_, [&](const DeviceFacts* one) { return one->name == device && one->soft_roce; });
  switch (trial.failed_swap) {
    case rdma::FailedSwap::kNotTried:
      break;
    case rdma::FailedSwap::kLeavesIt:
      add(Level::kOk, "failed_swap", device,
          fmt::format("{} failed compare-and-swaps did not undo a store of the processor{}",
                      trial.swaps,
                      soft_roce ? " (SoftRoCE up to Linux 6.2 may undo one, but a short test "
                                  "rarely catches it); the store does not depend on it"
                                : ""));
      break;
    case rdma::FailedSwap::kStoresBack:
      add(Level::kOk, "failed_swap", device,
          fmt::format(
              "a failed compare-and-swap stores the old value back (seen after {}): harmless, "
              "since the server's processor does not store to words that clients swap",
              trial.swaps));
      break;
  }
}

// ---------------------------------------------------------------------------- without devices

void Judge::huge_pages() {
  const rdma::SystemFacts& system = facts_.system;
  const auto or_unknown = [](const std::string& mode) {
    return mode.empty() ? std::string("unknown") : mode;
  };
  const std::string found = fmt::format(
      "{} of {} free in the pool ({} each); transparent: {}, for shared memory: {}",
      system.free_huge_pages, system.huge_pages, bytes_text(system.huge_page_bytes),
      or_unknown(system.transparent_huge_pages), or_unknown(system.shared_transparent_huge_pages));
  const bool transparent = system.transparent_huge_pages != "never";
  // Pages in use serve the process that took them, such as a server.
  if (transparent || system.huge_pages > 0) return add(Level::kOk, "huge_pages", "", found);
  add(Level::kWarning, "huge_pages", "", found + ": a large store has more TLB misses",
      "for a server, as root: `echo madvise >/sys/kernel/mm/transparent_hugepage/enabled`, or "
      "`sysctl vm.nr_hugepages=N` for a pool of N");
}

void Judge::shared_memory() {
  if (!may_be_shm(asked_.transport)) return;
  std::string owners;
  for (const rdma::ShmDirectory& one : facts_.shm_directories) {
    if (!one.is_trusted) {
      add(Level::kWarning, "shared_memory", one.path,
          fmt::format("it belongs to another user (number {}) or others can write in it: servers "
                      "there are not trusted",
                      one.owner),
          fmt::format("as root, look at it and `rm -r {}`; or set `RKV_SHM_DIR` to a directory of "
                      "your own, for the server too",
                      one.path));
      continue;
    }
    owners += one.exists ? fmt::format("; {} belongs to user number {}", one.path, one.owner)
                         : fmt::format("; {} does not exist", one.path);
  }
  if (facts_.shared_memory_error.empty()) {
    return add(Level::kOk, "shared_memory", "",
               fmt::format("{}, for servers on this host{}", facts_.shared_memory, owners));
  }
  add(asked_.transport == Transport::kShm ? Level::kError : Level::kWarning, "shared_memory", "",
      facts_.shared_memory_error,
      "set `RKV_SHM_DIR` to a directory of your own, for the server too");
}

}  // namespace rkv::cli
