// The options of a client, a row for each. C, Python, kvclient and kvbench read names, values and
// texts here. The defaults are those of ClientOptions.
//
// Thread safety: functions without shared state. The rows can be read without the library: the
// extension of Python sees only what the library exports.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rkv/options.h"

namespace rkv::client {

struct ClientOption {
  std::string_view name;  // of rkv_options_set(); Python has underscores for hyphens
  // A size is a std::size_t. A word is of an enumeration, or a bool.
  std::variant<std::string ClientOptions::*, std::chrono::milliseconds ClientOptions::*,
               std::size_t ClientOptions::*, std::uint32_t ClientOptions::*,
               std::uint16_t ClientOptions::*, std::uint8_t ClientOptions::*, int ClientOptions::*,
               Polling ClientOptions::*, Transport ClientOptions::*, bool ClientOptions::*>
      place;
  std::string_view hint;    // stands for the value in help: all words, as enumerated, or what it is
  std::string_view flag{};  // of kvclient; empty: it has none
  char letter = 0;          // of the flag; 0: it has none
  std::string_view help{};  // of the flag
  std::int64_t least = 0;   // of a number
  std::int64_t most = 0;

  template <class Value>
  constexpr bool holds() const {
    return std::holds_alternative<Value ClientOptions::*>(place);
  }
};

inline constexpr std::int64_t kMostReadsInFlight = 1024;
inline constexpr std::int64_t kMostRequestsInFlight = 256;

inline constexpr ClientOption kClientOptions[] = {
    {"server", &ClientOptions::server, "HOST:PORT,...", "server", 0,
     "address of the kvserver, or those of a replicated group"},
    {"name", &ClientOptions::name, "NAME"},
    {"user", &ClientOptions::user, "NAME", "user", 0, "user, for a server that has users"},
    {"secret", &ClientOptions::secret, "HEX"},
    {"timeout", &ClientOptions::timeout, "TIME", "timeout", 0, "longest time for one operation"},
    {"cache", &ClientOptions::cache_bytes, "SIZE", "cache", 0, "cache of key locations; 0: off"},
    {"reads-in-flight", &ClientOptions::reads_in_flight, "N", "", 0, "", 1, kMostReadsInFlight},
    {"requests-in-flight", &ClientOptions::requests_in_flight, "N", "", 0, "", 1,
     kMostRequestsInFlight},
    {"large", &ClientOptions::large_bytes, "SIZE"},
    {"polling", &ClientOptions::polling, "adaptive|busy|event", "poll", 0,
     "how to wait for completions"},
    {"transport", &ClientOptions::transport, "auto|verbs|shm|tcp", "transport", 0,
     "how to reach the server; auto: an RDMA device, else shared memory, else TCP"},
    {"device", &ClientOptions::device, "NAME", "device", 'd', "RDMA device; default: by the route"},
    {"port", &ClientOptions::port, "N", "ib-port", 'i', "port of the device; 0: any active one", 0,
     255},
    {"gid-index", &ClientOptions::gid_index, "N", "gid-index", 0,
     "GID to use; -1: let routing choose", -1, 255},
    {"first-backoff", &ClientOptions::first_backoff, "TIME"},
    {"longest-backoff", &ClientOptions::longest_backoff, "TIME"},
    {"connect-timeout", &ClientOptions::connect_timeout, "TIME"},
    {"repeat-connect", &ClientOptions::repeat_connect, "true|false"},
};

// Returns the option of this name, or null.
constexpr const ClientOption* find_option(std::string_view name) {
  const auto* const found = std::ranges::find(kClientOptions, name, &ClientOption::name);
  return found == std::end(kClientOptions) ? nullptr : found;
}

// Sets the option. False: the text is not a value of it, and nothing is set.
bool set_option(ClientOptions& options, const ClientOption& option, std::string_view text);
// "a number from 1 to 1024".
std::string range_of(const ClientOption& option);
// Empty: the option has other values than words.
std::vector<std::string_view> words_of(const ClientOption& option);

}  // namespace rkv::client
